"""A build against earlier ones: what they kept outranks, is read from signatures alone, and is named."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.dedup.near.candidates import sketches
from corpus.dedup.near.earlier import check_earlier
from corpus.dedup.near.minhash import min_matches
from corpus.dedup.near.signatures import sign_texts
from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.run import plan_stages, run_stages
from corpus.engine.stage import Stage
from tests.corpus.dedup.build import Result, document_id
from tests.corpus.dedup.earlier import Build, config, name_of, out_of, run, stages
from tests.corpus.dedup.test_stages import corpus
from tests.corpus.dedup.texts import ANALECTS, POEM, TRADITIONAL_POEM, edited, random_text
from tests.corpus.engine.toy import tree
from tests.faults.test_f01_kill_anywhere import in_child


def ends(result: Result) -> set[tuple[Any, ...]]:
    return {(fate["id"], fate["rule"], fate["value"], fate["detail"]) for fate in result.fates}


class Verified:
    """Brute force over the signatures of some texts: which pairs the stages would verify."""

    def __init__(self, texts: Sequence[str]) -> None:
        ids = pa.array([document_id(text) for text in texts], pa.binary(16))
        self.signed = sign_texts(ids, pa.array(texts, pa.large_string()), config())
        self.least = min_matches(config().threshold, config().num_permutations)
        self.keys: list[set[int]] = [set() for _ in texts]
        for key, row in zip(self.signed.band_keys.tolist(), self.signed.band_rows.tolist(), strict=True):
            self.keys[row].add(key)
        self.position = {text: i for i, text in enumerate(texts)}

    def __call__(self, one: str, other: str) -> bool:
        i, j = self.position[one], self.position[other]
        if (self.signed.keys["exact"][i] == self.signed.keys["exact"][j]).all():
            return True
        equal = (sketches(self.signed.signatures[[i]]) == sketches(self.signed.signatures[[j]])).sum()
        return bool(self.keys[i] & self.keys[j]) and equal >= self.least


@settings(max_examples=4)
@given(seed=st.integers(0, 50), share=st.sampled_from([0.2, 0.5, 0.8]))
def test_nothing_that_resembles_an_earlier_survivor_stays(
    tmp_path_factory: pytest.TempPathFactory, seed: int, share: float
) -> None:
    texts, generator = corpus(seed), np.random.default_rng(seed)
    old = generator.random(len(texts)) < share
    before = [text for text, is_old in zip(texts, old, strict=True) if is_old]
    new = [text for text, is_old in zip(texts, old, strict=True) if not is_old]
    folder = tmp_path_factory.mktemp("builds")
    first = run(folder / "first", [before])
    second = run(folder / "second", [new[::2], new[1::2]], [folder / "first"])

    verified = Verified(texts)
    assert not [(a, b) for a in first.texts for b in second.texts if verified(a, b)]
    kept_before, kept = ({document_id(text).hex() for text in result.texts} for result in (first, second))
    by_id = {document_id(text).hex(): text for text in texts}
    fell = 0
    for fate in second.fates:
        twin, _, build = fate["detail"].partition("@")
        assert twin in (kept_before if build else kept)  # at least one stays
        assert build in ("", name_of(first))
        assert verified(by_id[twin], by_id[fate["id"].hex()])
        fell += bool(build)
    assert second.counts("clusters").extra[f"earlier.{name_of(first)}"] == fell
    assert len(second.texts) + len(second.fates) == len(new) == second.counts("text").documents_in


def test_the_same_crawl_again_leaves_nothing_and_names_each_to_itself(build: Build) -> None:
    texts = list(dict.fromkeys(corpus(7)))  # an id is its text's here
    first = build([texts[:9], texts[9:]])
    again = build([texts], [out_of(first)])
    assert again.texts == []
    kept = {document_id(text).hex() for text in first.texts}
    for fate in again.fates:
        twin, _, name = fate["detail"].partition("@")
        assert name == name_of(first) and twin in kept
        if fate["id"].hex() in kept:
            assert (fate["id"].hex(), fate["rule"], fate["value"]) == (twin, "dedup.exact", 1.0)
    assert again.counts("clusters").extra["clustered_documents"] == len(texts)


def test_an_earlier_document_outranks_a_better_one(build: Build) -> None:
    generator = np.random.default_rng(3)
    old = random_text(generator, 900)
    better = old + random_text(generator, 20)
    assert build([[old, better]]).texts == [better]
    first = build([[old]])
    second = build([[better, better + "。", ANALECTS]], [out_of(first)])
    assert second.texts == [ANALECTS]
    assert {fate["detail"] for fate in second.fates} == {f"{document_id(old).hex()}@{name_of(first)}"}
    clusters = second.table("clusters", "clusters")
    assert set(clusters["id"].to_pylist()) == {document_id(better), document_id(better + "。")}  # none of the old
    assert clusters["build"].to_pylist() == [name_of(first)] * 2
    assert clusters["survivor"].to_pylist() == [document_id(old)] * 2
    assert clusters["members"].to_pylist() == [3, 3]


def test_new_documents_without_an_earlier_twin_resemble_each_other_as_ever(build: Build) -> None:
    generator = np.random.default_rng(4)
    text = random_text(generator, 900)
    second = build([[text, text + "另"]], [out_of(build([[POEM, TRADITIONAL_POEM]]))])
    assert second.texts == [text + "另"]
    (fate,) = second.fates
    assert fate["detail"] == document_id(text + "另").hex()
    assert second.table("clusters", "clusters")["build"].to_pylist() == [None, None]
    alone = build([[text]], [out_of(build([[POEM, TRADITIONAL_POEM]]))])
    assert alone.counts("buckets").extra["shared"] == 0  # what the old ones share among themselves is of no use


def test_what_fell_in_its_build_takes_no_part(build: Build) -> None:
    """A ~ B ~ C at Jaccard 0.88, A and C at 0.77: B fell for A, so C meets nobody."""
    generator = np.random.default_rng(5)
    middle = random_text(generator, 1200)
    a, b = random_text(generator, 160) + middle, middle + random_text(generator, 4)
    c = middle[160:] + random_text(generator, 160 - 60)
    first = build([[a, b]])
    assert first.texts == [a]
    assert build([[c, b]], [out_of(first)]).texts == [c]
    assert build([[c]], [out_of(build([[b]]))]).texts == []


def test_earlier_documents_are_not_compared_with_each_other(build: Build) -> None:
    generator = np.random.default_rng(6)
    text = random_text(generator, 1500)
    alike = [edited(generator, text, 0.004) for _ in range(3)]
    first = build([alike], threshold=1.0)
    assert sorted(first.texts) == sorted(alike)
    second = build([[text]], [out_of(first)])
    assert second.texts == [] and len(second.fates) == 1
    assert second.counts("candidates").extra["edges"] == 3
    assert second.counts("candidates").extra["comparisons"] <= 3 * config().bands


@settings(max_examples=2)
@given(data=st.data())
def test_survivors_do_not_depend_on_order_or_split(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, texts = tmp_path_factory.mktemp("orders"), corpus(9)
    before, new = texts[::3], texts[1::3] + texts[2::3] + texts[::6]
    first = run(folder / "first", [before])
    reference = run(folder / "reference", [new], [folder / "first"])
    shuffled = data.draw(st.permutations(new))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(new)), max_size=3)))
    shards = [shuffled[a:b] for a, b in itertools.pairwise([0, *cuts, len(new)])]
    result = run(folder / "shuffled", shards, [folder / "first"])
    assert sorted(result.texts) == sorted(reference.texts) and ends(result) == ends(reference)

    other = run(folder / "other", [data.draw(st.permutations(before))[:7], before])  # repeats change nothing either
    assert sorted(other.texts) == sorted(first.texts)
    assert sorted(run(folder / "again", [new], [folder / "other"]).texts) == sorted(reference.texts)
    shutil.rmtree(folder)


def test_bytes_do_not_depend_on_workers_partitions_or_paths(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus(10)
    first = build([texts[::4], texts[1::4]])
    shards = [texts[2::4], texts[3::4], texts[::8]]
    one = build(shards, [out_of(first)])
    assert len(one.fates) > len(texts[::8])
    two = build(shards, [out_of(first)], workers=1)
    for name in ("buckets", "members", "candidates", "clusters", "text"):
        assert two.folders[name].manifest == one.folders[name].manifest
    monkeypatch.setattr("corpus.dedup.records.PARTITION_RECORDS", 150)
    monkeypatch.setattr("corpus.dedup.records.MAX_MEMBERS", 16)
    many = build(shards, [out_of(first)])
    assert len(many.folders["candidates"].files("edges")) >= 8
    for name in ("clusters", "text"):
        assert many.folders[name].manifest["pieces"] == one.folders[name].manifest["pieces"]
    monkeypatch.undo()
    moved = shutil.copytree(out_of(first), tmp_path / "moved")
    shutil.rmtree(out_of(first))
    planned = list(plan_stages(stages(shards, [moved]), out_of(one)))
    assert [(tasks, done) for _, _, tasks, done in planned if tasks != done] == []
    assert [folder for _, folder, _, _ in planned] == [one.folders[s.name].url.rsplit("/", 1)[1] for s, *_ in planned]


def test_builds_chain_in_any_order_of_the_list(build: Build) -> None:
    generator = np.random.default_rng(11)
    a, b, c = (random_text(generator, 500) for _ in range(3))
    one = build([[a, POEM]])
    two = build([[TRADITIONAL_POEM, b, a + "另"]], [out_of(one)])
    assert two.texts == [b]
    three = build([[c, b + "，"], [POEM, a + "另", ANALECTS]], [out_of(one), out_of(two)])
    assert three.texts == [c, ANALECTS]
    names = {fate["id"]: fate["detail"].partition("@")[2] for fate in three.fates}
    assert names == {
        document_id(b + "，"): name_of(two),
        document_id(POEM): name_of(one),
        document_id(a + "另"): name_of(one),
    }
    extra = three.counts("clusters").extra
    assert (extra[f"earlier.{name_of(one)}"], extra[f"earlier.{name_of(two)}"]) == (2, 1)
    turned = run(out_of(three), [[c, b + "，"], [POEM, a + "另", ANALECTS]], [out_of(two), out_of(one)])
    assert {name: folder.url for name, folder in turned.folders.items()} == {
        name: folder.url for name, folder in three.folders.items()
    }
    with pytest.raises(
        WenhaiError, match=r"build-1: was itself deduplicated against an earlier build .* List that one"
    ):
        build([[c]], [out_of(two)])


def test_equal_records_of_two_builds_are_named_to_one_of_them(build: Build) -> None:
    one, two = build([[POEM, ANALECTS]]), build([["短", POEM]])
    three = build([[POEM]], [out_of(one), out_of(two)])
    first = min(name_of(one), name_of(two))
    assert [fate["detail"] for fate in three.fates] == [f"{document_id(POEM).hex()}@{first}"]


def test_only_signatures_and_drops_are_read(build: Build) -> None:
    texts = corpus(12)
    first = build([texts[::2]])
    whole = build([texts[1::2], texts[::4]], [out_of(first)])
    for path in Path(out_of(first)).iterdir():
        if path.name.partition("-")[0] in {"filter", "buckets", "members", "candidates", "text"}:
            shutil.rmtree(path)
    shutil.rmtree(Path(first.folders["clusters"].url, "clusters"))
    without = build([texts[1::2], texts[::4]], [out_of(first)])
    assert without.folders["text"].manifest == whole.folders["text"].manifest
    assert whole.counts("text").dropped


def test_an_empty_build_on_either_side(build: Build) -> None:
    empty = build([[], []])
    assert build([[POEM, TRADITIONAL_POEM]], [out_of(empty)]).texts == [POEM]
    assert build([[]], [out_of(build([[POEM]]))]).texts == []


def test_a_build_in_an_object_store(build: Build) -> None:
    storage.remove_tree("memory://earlier")
    texts = corpus(13)
    local = build([texts[::2]])
    run("memory://earlier/first", [texts[::2]])
    here, there = (build([texts[1::2]], [out]) for out in (out_of(local), "memory://earlier/first/"))
    assert there.folders["text"].manifest == here.folders["text"].manifest
    with pytest.raises(UsageError, match="is --out itself"):
        check_earlier(config(["memory://earlier/first/"]), "memory://earlier/first")


def finish(steps: Sequence[Stage], out: Path) -> None:
    run_stages(steps, str(out), workers=0)


@pytest.mark.parametrize("number", [3, 5])  # members and clusters, which write of and by earlier builds
def test_killed_and_run_again_gives_the_same_bytes(tmp_path: Path, number: int) -> None:
    texts = corpus(14)[:24]
    run(tmp_path / "first", [texts[:12]])
    steps = stages([texts[12:18], texts[18:], texts[:2]], [tmp_path / "first"])
    run_stages(steps, str(tmp_path / "reference"), workers=0)
    run_stages(steps[:number], str(tmp_path / "before"), workers=0)
    for kill_at in itertools.count(3, 11):
        out = Path(shutil.copytree(tmp_path / "before", tmp_path / "out", copy_function=os.link))
        finished = in_child(partial(finish, steps[: number + 1], out), kill_at)
        run_stages(steps, str(out), workers=0)
        assert tree(out) == tree(tmp_path / "reference"), kill_at
        shutil.rmtree(out)
        if finished:
            break
