"""The two stages: sums by source and bucket, shares of the whole, and copies that no split changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus.document import read_table, write_table
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.run import run_stages
from corpus.mixture import MixtureConfig, MixtureStage, MixtureTotalsStage
from corpus.mixture.stages import COPIES_SCHEMA, GROUPS_SCHEMA, LEFT_OUT
from corpus.report import mixture
from corpus.report.mixture import REST, TOP_GROUPS, read_groups, top_groups, wholes
from tests.corpus.mixture.build import STATISTIC, Doc, mix

SOURCES = ("baike", "web", "forum-a", "forum-b")
DOCS = [
    Doc(n, SOURCES[n % 4], 10 + n % 7, None if n % 11 == 0 else float(n % 50), 1 + n % 3, n % 5 > 0) for n in range(400)
]


def config(**values: Any) -> MixtureConfig:
    return MixtureConfig.model_validate(values)


MIXED = config(
    sources={"baike": 2.5, "forum-*": 0.25},
    buckets=[{"statistic": STATISTIC, "bounds": [10, 40], "weights": [0, 1, 2]}],
)


def weight(doc: Doc) -> float:
    """By the recipe, written out."""
    by_source = {"baike": 2.5, "web": 1.0}.get(doc.source, 0.25)
    by_value = 1.0 if doc.value is None else 0.0 if doc.value < 10 else 1.0 if doc.value < 40 else 2.0
    return by_source * by_value


def test_a_document_weighs_the_product(tmp_path: Path) -> None:
    result = mix(tmp_path, [DOCS[:150], [], DOCS[150:]], MIXED)
    table = result.table("copies")
    assert table.schema.equals(COPIES_SCHEMA, check_metadata=True)
    assert table["id"].to_pylist() == [doc.id for doc in DOCS]
    assert table["weight"].to_pylist() == [weight(doc) for doc in DOCS]
    copies = np.array(table["copies"].to_pylist())
    assert (np.abs(copies - table["weight"].to_numpy()) < 1).all()


def test_counts_are_conserved_and_groups_add_up(tmp_path: Path) -> None:
    result = mix(tmp_path, [DOCS[:150], DOCS[150:]], MIXED)
    copies = result.copies
    counts = result.folders["mixture"].counts
    chosen = [doc for doc in DOCS if copies[doc.id]]
    assert (counts.documents_in, counts.documents_out) == (len(DOCS), len(chosen))
    assert counts.dropped == {LEFT_OUT: len(DOCS) - len(chosen)}
    assert (counts.bytes_in, counts.bytes_out) == tuple(sum(d.num_bytes for d in some) for some in (DOCS, chosen))
    copied = sum(doc.num_bytes * copies[doc.id] for doc in DOCS)
    assert counts.extra == {"copies": sum(copies.values()), "copied_bytes": copied}

    assert result.table("groups").schema.equals(GROUPS_SCHEMA, check_metadata=True)
    groups = read_groups(result.folders["mixture"])
    for kind, whole in wholes(groups).items():
        assert (whole.documents, whole.chosen, whole.copies) == (len(DOCS), len(chosen), sum(copies.values())), kind
        assert (whole.text_bytes, whole.copied_bytes) == (counts.bytes_in, copied)
    by_source = Counter(doc.source for doc in DOCS)
    assert {one.name: one.documents for one in groups if one.kind == "source"} == by_source
    assert [one.name for one in groups if one.kind == STATISTIC] == ["below 10", "10 to 40", "40 +", "not measured"]
    left_out = next(one for one in groups if one.name == "below 10")
    assert left_out.copies == left_out.chosen == left_out.copied_bytes == 0 < left_out.documents
    forum = [doc for doc in DOCS if doc.source == "forum-a"]
    [group] = [one for one in groups if one.name == "forum-a"]
    assert group.copied_bytes == sum(doc.num_bytes * copies[doc.id] for doc in forum)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(DOCS[:60]), cut=st.integers(0, 60), more=st.integers(0, 40))
def test_neither_split_nor_order_nor_more_documents_change_copies(
    tmp_path_factory: pytest.TempPathFactory, order: list[Doc], cut: int, more: int
) -> None:
    def copies(shards: list[list[Doc]]) -> dict[bytes, int]:
        return mix(tmp_path_factory.mktemp("mix"), shards, MIXED).copies

    reference = copies([DOCS[:60]])
    assert copies([order[:cut], order[cut:], DOCS[60 : 60 + more]]).items() >= reference.items()


@pytest.mark.long
def test_bytes_do_not_depend_on_workers(tmp_path: Path) -> None:
    one, two = (
        mix(tmp_path / str(workers), [DOCS[:150], DOCS[150:]], MIXED, workers).folders["mixture"] for workers in (0, 2)
    )
    assert one.manifest == two.manifest


def test_a_new_shard_costs_itself_with_weights(tmp_path: Path) -> None:
    mix(tmp_path, [DOCS[:150]], MIXED)
    before = {path.name: path.stat().st_ino for path in tmp_path.glob("mixture-*/copies/*")}
    later = mix(tmp_path, [DOCS[:150], DOCS[150:]], MIXED).folders["mixture"]
    after = {path.name: path.stat().st_ino for path in Path(later.url).glob("copies/*")}
    assert len(after) == 2 and after.items() > before.items()  # linked, not made again


@pytest.mark.parametrize("total", [None, 20_000])
def test_shares_are_had_whatever_the_buckets_weigh(tmp_path: Path, total: int | None) -> None:
    docs = [Doc(n, "baike" if n % 9 == 0 else "web", 10, float(n % 50)) for n in range(3000)]
    shares = config(
        shares={"baike": 0.5, "*": 0.5},
        buckets=[{"statistic": STATISTIC, "bounds": [25], "weights": [0.5, 2]}],
        **({"total_bytes": total} if total else {}),
    )
    result = mix(tmp_path, [docs[:1000], docs[1000:]], shares)
    groups = read_groups(result.folders["mixture"])
    for one in groups[:2]:
        assert one.copied_bytes == pytest.approx((total or 30_000) / 2, rel=0.05)
    other = mix(tmp_path / "other", [docs[::-1]], shares)
    assert other.copies == result.copies


def test_a_share_of_nothing_leaves_out(tmp_path: Path) -> None:
    groups = read_groups(mix(tmp_path, [DOCS], config(shares={"web": 1.0, "*": 0})).folders["mixture"])
    assert {one.name for one in groups if one.copies} == {"web"}


def test_clusters_weigh(tmp_path: Path) -> None:
    by_size = {"statistic": "dedup.cluster_size", "bounds": [2, 3], "weights": [1, 2, 3]}
    survivors = {"statistic": "dedup.survivor", "bounds": [0.5], "weights": [0, 1]}
    result = mix(tmp_path, [DOCS], config(buckets=[by_size, survivors]))
    assert result.copies == {doc.id: doc.cluster_size * doc.survivor for doc in DOCS}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sources": {"wikki": 2}}, "'wikki' is no source of.* its sources: baike, forum-a, forum-b, web. Correct"),
        ({"sources": {"forum-*": 2, "forum-a": 1, "forum-?": 3}}, r"'forum-\*' is no source.*longer pattern|takes all"),
        ({"shares": {"baike": 1.0}}, "some sources have none; the sources: baike, forum-a"),
        ({"shares": {"baike": 0.5, "*": 0.5}, "total_bytes": 10**9}, "a document is taken 100 times at most"),
        (
            {"buckets": [{"statistic": STATISTIC, "bounds": [0], "weights": [1, 2]}]},
            "was not measured for any document",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    docs = [Doc(n, SOURCES[n % 4], value=None) for n in range(8)]
    with pytest.raises(UsageError, match=words):
        mix(tmp_path, [docs[:5], docs[5:]], config(**values))


def test_an_empty_corpus_has_an_empty_mixture(tmp_path: Path) -> None:
    for number, values in enumerate(({"sources": {"x": 2}}, {"shares": {"x": 1.0}})):
        result = mix(tmp_path / str(number), [[], []], config(**values))
        assert result.copies == {} and read_groups(result.folders["mixture"]) == []


def test_statistics_of_other_documents_are_refused(tmp_path: Path) -> None:
    result = mix(tmp_path, [DOCS[:30]], config(sources={"web": 2}))
    [file] = result.folders["filter"].files("statistics")
    write_table(Path(file.url), read_table(Path(file.url)).slice(0, 20))
    with pytest.raises(WenhaiError, match="has no row for some documents"):
        run_stages([MixtureTotalsStage(MIXED), MixtureStage(MIXED)], str(tmp_path), workers=0)


def test_sources_without_number_are_added_up_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [[Doc(100 * shard + n, f"{shard}/{n}", 10 + n) for n in range(20)] for shard in range(5)]
    folder = mix(tmp_path, shards, config(sources={"*/19": 3})).folders["mixture"]
    every = read_groups(folder)
    monkeypatch.setattr(mixture, "MAX_HELD_SOURCES", 30)
    held = read_groups(folder)
    assert len(every) == 100 and len(held) <= 31 and held[-1].name == REST
    assert wholes(held) == wholes(every)
    assert [one.name for one in held[:5]] == [one.name for one in every[:5]]
    assert top_groups(held)[-1].documents == 100 - (TOP_GROUPS - 1)


def test_shares_by_a_label(tmp_path: Path) -> None:
    varieties = ("zh-Hans", "zh-Hant-TW", "zh-Hant-HK", "yue", None)
    docs = [replace(doc, variety=varieties[doc.number % 5]) for doc in DOCS]
    shares = {"zh-Hant*": 0.5, "yue": 0.0, "*": 0.5}
    result = mix(tmp_path, [docs[:150], [], docs[150:]], config(by="variety", shares=shares))
    groups = [one for one in read_groups(result.folders["mixture"]) if one.kind == "script.variety"]
    copied = {one.name: one.copied_bytes for one in groups}
    assert sorted(copied) == sorted(["zh-Hans", "zh-Hant-TW", "zh-Hant-HK", "yue", "not measured"])
    assert copied["yue"] == 0
    whole = sum(doc.num_bytes for doc in docs)
    assert (copied["zh-Hant-TW"] + copied["zh-Hant-HK"]) / whole == pytest.approx(0.5, abs=0.05)
    assert sum(one.documents for one in groups) == len(docs)
    assert result.copies == mix(tmp_path / "one", [docs], config(by="variety", shares=shares)).copies
    with pytest.raises(UsageError, match=r"some labels have none"):
        mix(tmp_path / "less", [docs], config(by="variety", shares={"zh-*": 1.0}))
