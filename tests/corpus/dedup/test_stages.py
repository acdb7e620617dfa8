"""The five stages on real files: what is dropped, why, and that nothing but content decides it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from corpus.dedup import DedupConfig
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA
from corpus.engine.stage import Folder
from tests.corpus.dedup.build import Deduplicate, document_id
from tests.corpus.dedup.texts import ANALECTS, POEM, TRADITIONAL_POEM, edited, random_text


def corpus(seed: int) -> list[str]:
    """Originals with near copies, exact twins, chains, short texts, and texts of punctuation alone."""
    generator = np.random.default_rng(seed)
    texts = ["短文", "短文。", "短", "……", "！！", "……", "", POEM, TRADITIONAL_POEM, ANALECTS]
    for _ in range(6):
        text = random_text(generator, 400)
        texts += [
            text,
            "，".join([text[:200], text[200:]]),
            edited(generator, text, 0.01),
            edited(generator, text, 0.02),
        ]
        chain = text
        for _ in range(3):
            chain = edited(generator, chain, 0.015)
            texts.append(chain)
    return texts


def test_fates_name_the_rule_the_similarity_and_the_survivor(deduplicate: Deduplicate) -> None:
    generator = np.random.default_rng(0)
    original = random_text(generator, 2000)
    near = edited(generator, original, 0.005) + "另"
    shards = [[POEM, near], [], [original, POEM + "。。。", ANALECTS]]
    result = deduplicate(shards)
    kept = [POEM + "。。。", near, ANALECTS]
    assert sorted(result.texts) == sorted(kept)

    exact, close = sorted(result.fates, key=lambda fate: fate["rule"])
    assert (exact["rule"], exact["value"], exact["threshold"], exact["bound"]) == ("dedup.exact", 1.0, None, None)
    assert (exact["id"], exact["detail"]) == (document_id(POEM), document_id(shards[2][1]).hex())
    assert (exact["shard"], exact["row"], exact["url"]) == ("00000-00", 1, "https://example.org/0")
    assert (close["rule"], close["threshold"], close["bound"]) == ("dedup.near", DedupConfig().threshold, "max")
    assert (close["id"], close["detail"]) == (document_id(original), document_id(near).hex())
    assert (close["shard"], close["row"]) == ("00002-00", 1)
    assert 0.9 < close["value"] < 1
    assert result.table("text", "data").schema.equals(DOCUMENT_SCHEMA, check_metadata=True)
    assert result.table("text", "fates").schema.equals(FATE_SCHEMA, check_metadata=True)


def test_counts_are_conserved_and_drops_are_counted_in_text_only(deduplicate: Deduplicate) -> None:
    texts = corpus(1)
    result = deduplicate([texts[:20], texts[20:]])
    size = sum(len(text.encode()) for text in texts)
    for stage in ("signatures", "clusters"):
        counts = result.counts(stage)
        assert (counts.documents_in, counts.documents_out, counts.dropped) == (len(texts), len(texts), {})
        assert counts.bytes_in == counts.bytes_out == size
    counts = result.counts("text")
    rules = Counter(fate["rule"] for fate in result.fates)
    assert counts.dropped == dict(rules) and set(rules) == {"dedup.exact", "dedup.near"}
    assert counts.documents_in == len(texts) == len(result.texts) + len(result.fates)
    assert (counts.bytes_in, counts.bytes_out) == (size, sum(len(text.encode()) for text in result.texts))
    extra = result.counts("clusters").extra
    assert (extra["exact"], extra["near"]) == (rules["dedup.exact"], rules["dedup.near"])
    for kind, rows in (("data", result.texts), ("fates", result.fates)):
        assert sum(file.rows for file in result.folders["text"].files(kind)) == len(rows)


def test_bytes_do_not_depend_on_the_number_of_partitions_or_workers(
    deduplicate: Deduplicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus(3)
    shards = [texts[:11], texts[11:30], texts[30:]]
    one = deduplicate(shards)
    assert len(one.folders["candidates"].files("edges")) == 1
    two = deduplicate(shards, workers=1)
    for name in ("signatures", "candidates", "clusters", "text"):
        assert two.folders[name].manifest == one.folders[name].manifest
    monkeypatch.setattr("corpus.dedup.records.PARTITION_RECORDS", 50)
    monkeypatch.setattr("corpus.dedup.records.MAX_MEMBERS", 8)
    many = deduplicate(shards)
    assert len(many.folders["candidates"].files("edges")) > len(many.folders["buckets"].files("buckets")) >= 8
    for name in ("signatures", "clusters", "text"):
        assert digests(many.folders[name]) == digests(one.folders[name])


def digests(folder: Folder) -> dict[str, str]:
    return {file.url: file.sha256 for file in folder.listed()}


def test_twins_in_script_width_punctuation_and_space_are_exact(deduplicate: Deduplicate) -> None:
    twins = [
        TRADITIONAL_POEM,
        POEM.replace("，", ",").replace("。", "."),
        POEM.replace("，", "").replace("。", "\n\n"),
        "\u3000\u3000" + POEM + "\u200b",
        "".join(f"{c} " for c in POEM),
    ]
    letters = ["用 PyTorch 2.0 训练模型", "用 ＰＹＴＯＲＣＨ ２.０ 训练模型！", "用 PyTorch 2.1 训练模型"]
    result = deduplicate([[POEM, *twins, ANALECTS, *letters]])
    assert [fate["rule"] for fate in result.fates] == ["dedup.exact"] * 6
    assert len(result.texts) == 4 and {ANALECTS, letters[2]} < set(result.texts)


@pytest.mark.parametrize("shards", [[], [[]], [[], []]])
def test_no_documents(deduplicate: Deduplicate, shards: list[list[str]]) -> None:
    result = deduplicate(shards)
    assert result.counts("text").documents_in == 0
    assert len(result.folders["text"].files()) == len(shards)


def test_texts_shorter_than_the_shingle_are_exact_or_kept(deduplicate: Deduplicate) -> None:
    result = deduplicate([["天", "地", "天地", "天地。", "天", "玄黄", "宇宙洪荒"]])
    assert sorted(result.texts) == sorted(["天", "地", "天地。", "玄黄", "宇宙洪荒"])
    assert {fate["rule"] for fate in result.fates} == {"dedup.exact"}


def test_texts_of_punctuation_alone_are_compared_as_they_are(deduplicate: Deduplicate) -> None:
    assert sorted(deduplicate([["……", "！！", "……", "", ""]]).texts) == sorted(["……", "！！", ""])


def test_ten_thousand_copies_leave_one(deduplicate: Deduplicate) -> None:
    more_than_a_row_group = [POEM] * 9_000 + [ANALECTS, "短", ANALECTS]
    result = deduplicate([more_than_a_row_group, ["末", *[POEM] * 1_000]])
    assert sorted(result.texts) == sorted([POEM, ANALECTS, "短", "末"])
    assert result.counts("text").dropped == {"dedup.exact": 10_000}
    assert result.counts("candidates").extra["comparisons"] == 0


def test_a_threshold_reruns_no_signature(deduplicate: Deduplicate) -> None:
    texts = [POEM, ANALECTS]
    first, second = deduplicate([texts]), deduplicate([texts], DedupConfig(threshold=0.7))
    assert second.folders["signatures"].url.rsplit("/", 1)[1] == first.folders["signatures"].url.rsplit("/", 1)[1]
    assert second.folders["candidates"].url.rsplit("/", 1)[1] != first.folders["candidates"].url.rsplit("/", 1)[1]
