"""What is lost is what a brute-force search for shared runs finds, and of everything lost a copy stays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup import DedupConfig
from corpus.dedup.near.ranks import rank_words
from corpus.dedup.passages.sentences import Sentences, read_sentences
from corpus.dedup.passages.substrings import (
    Passage,
    best_ranks,
    document_ranks,
    judge,
    merge,
    shared_windows,
    windows,
    without,
)
from corpus.dedup.records import RECORD_DTYPE, Runs, array_rows, write_array
from corpus.dedup.text.keys import KEY_DTYPE, text_buffers
from corpus.engine.storage import File
from tests.corpus.dedup.texts import facts

MIN_CHARS = 12
TOKENS = ["天地玄黄宇宙洪荒。", "日月！", "寒来暑往秋收冬藏？", "云腾致雨露结为霜金生丽水。", "剑号；", "果珍李柰\n"]
LENGTHS = [8, 2, 8, 12, 2, 4]

Documents = st.lists(st.lists(st.integers(0, len(TOKENS) - 1), max_size=9), max_size=7)


def read(texts: Sequence[str]) -> tuple[Sentences, np.ndarray]:
    offsets, data = text_buffers(pa.array(texts, pa.large_string()))
    return read_sentences(offsets, data), data


def judged(documents: Sequence[Sequence[int]], ranks: Sequence[int]) -> list[list[tuple[bool, bool]]]:
    """(lost, given) of each sentence of each document."""
    sentences, _ = read(["".join(TOKENS[token] for token in tokens) for tokens in documents])
    found = windows(sentences, MIN_CHARS)
    numbers = np.array(ranks, np.uint32)
    best, differ = best_ranks(found.keys, numbers[found.documents])
    marks = list(zip(*(mask.tolist() for mask in judge(sentences, found, numbers, best[differ])), strict=True))
    edges = sentences.edges.tolist()
    return [marks[first:last] for first, last in itertools.pairwise(edges)]


def runs(tokens: Sequence[int]) -> set[tuple[int, ...]]:
    """All runs of sentences that are long enough."""
    spans = itertools.combinations(range(len(tokens) + 1), 2)
    return {tuple(tokens[a:b]) for a, b in spans if sum(LENGTHS[token] for token in tokens[a:b]) >= MIN_CHARS}


@given(Documents, st.data())
def test_lost_is_what_a_better_document_holds(documents: list[list[int]], data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(1, 5), min_size=len(documents), max_size=len(documents)))
    marks = judged(documents, ranks)
    held = [runs(tokens) for tokens in documents]
    for tokens, rank, mine in zip(documents, ranks, marks, strict=True):
        better = set().union(*(found for found, other in zip(held, ranks, strict=True) if other < rank))
        expected = [False] * len(tokens)
        for a, b in itertools.combinations(range(len(tokens) + 1), 2):
            if tuple(tokens[a:b]) in better:
                expected[a:b] = [True] * (b - a)
        assert [lost for lost, _ in mine] == expected


@given(Documents)
def test_windows_are_the_runs_that_lose_their_length_with_an_end(documents: list[list[int]]) -> None:
    sentences, _ = read(["".join(TOKENS[token] for token in tokens) for tokens in documents])
    expected = []
    for document, tokens in enumerate(documents):
        sizes, edge = [LENGTHS[token] for token in tokens], int(sentences.edges[document])
        for a, b in itertools.combinations(range(len(tokens) + 1), 2):
            if sum(sizes[a:b]) >= MIN_CHARS > min(sum(sizes[a + 1 : b]), sum(sizes[a : b - 1])):
                expected.append((document, edge + a, edge + b - 1))
    found = windows(sentences, MIN_CHARS)
    spans = zip(found.documents.tolist(), found.first.tolist(), found.last.tolist(), strict=True)
    assert sorted(spans) == sorted(expected)


@given(Documents)
def test_of_everything_lost_a_copy_stays(documents: list[list[int]]) -> None:
    marks = judged(documents, range(1, len(documents) + 1))
    for number, (tokens, mine) in enumerate(zip(documents, marks, strict=True)):
        for token, (lost, gives) in zip(tokens, mine, strict=True):
            assert not (lost and gives)
            if lost:  # and where it stays the document says so, for it must not be dropped
                others = zip(documents[:number], marks[:number], strict=True)
                kept = [mark for other, them in others for same, mark in zip(other, them, strict=True) if same == token]
                assert (False, True) in kept


def test_a_chain_of_copies_keeps_the_connecting_sentence() -> None:
    """The third document is left with what stands between two passages of better ones; the last one needs it there."""
    left, middle, right = [0, 2], [5], [2, 3]
    documents = [left, right, [*left, *middle, *right], [*left[1:], *middle, *right[:1]]]
    marks = judged(documents, [1, 2, 3, 4])
    assert [lost for lost, _ in marks[2]] == [True, True, False, True, True]
    assert marks[2][2] == (False, True) and all(lost for lost, _ in marks[3])


def test_a_document_may_repeat_itself_and_equals_both_stay() -> None:
    refrain = [0, 2, 5, 0, 2, 5, 0, 2]
    assert judged([refrain], [7]) == [[(False, False)] * 8]
    assert judged([refrain, refrain], [7, 7]) == [[(False, False)] * 8] * 2
    assert judged([refrain, [0, 2]], [7, 8]) == [
        [(False, True)] * 2 + [(False, False)] + [(False, True)] * 2 + [(False, False)] + [(False, True)] * 2,
        [(True, False)] * 2,
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4), st.data())
def test_what_is_left_are_whole_sentences(texts: list[str], data: st.DataObject) -> None:
    texts = [text + "好。𠀀。é\u0301！👩\u200d🌾。\n" for text in texts]
    sentences, array = read(texts)
    count = len(sentences.bounds) - 1
    lost = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    pieces = [array[a:b].tobytes().decode() for a, b in itertools.pairwise(sentences.bounds.tolist())]
    found = {document: (text, passages) for document, text, passages in without(sentences, lost, array)}
    for document, (first, last) in enumerate(itertools.pairwise(sentences.edges.tolist())):
        kept = "".join(piece for piece, gone in zip(pieces[first:last], lost[first:last], strict=True) if not gone)
        gone = "".join(piece for piece, gone in zip(pieces[first:last], lost[first:last], strict=True) if gone)
        if lost[first:last].any():
            text, passages = found[document]
            assert text.replace("\n", "") == kept.replace("\n", "")
            assert sum(passage.num_chars for passage in passages) == len(gone)
        else:
            assert document not in found


def test_paragraphs_stay_apart_and_places_are_told() -> None:
    text = "一。二。三。\n\n四。五。\n六。"
    sentences, data = read([text])

    def left(*lost: int) -> tuple[str, list[Passage]]:
        mask = np.isin(np.arange(6), lost)
        [(_, remains, passages)] = without(sentences, mask, data)
        return remains, passages

    assert left(1, 2) == ("一。\n\n四。五。\n六。", [Passage(1, 6)])
    assert left(2, 3) == ("一。二。五。\n六。", [Passage(1, 6)])
    assert left(3, 4) == ("一。二。三。\n\n六。", [Passage(3, 5)])
    assert left(0, 4) == ("二。三。\n\n四。\n六。", [Passage(1, 2), Passage(3, 3)])
    assert left(4, 5) == ("一。二。三。\n\n四。", [Passage(3, 5)])
    assert left(*range(6)) == ("", [Passage(1, 15)])


def test_ranks_follow_length_then_content() -> None:
    keys = np.zeros(6, KEY_DTYPE)
    keys["rank"] = rank_words(np.array([0, 1, 1000, 1001, 1200, 1 << 30]), facts(6), DedupConfig())
    keys["digest"][:, 0] = range(6)
    ranks = document_ranks(keys)
    steps = (ranks >> np.uint32(16)).tolist()
    assert steps == sorted(steps, reverse=True) and steps[2] == steps[3] > steps[4] and ranks[2] != ranks[3]
    assert len({int(rank) for rank in document_ranks(np.repeat(keys[2:3], 2))}) == 1
    keys["rank"][:2] |= np.array([1 << 56, 1 << 57], np.uint64)
    steps = (document_ranks(keys) >> np.uint32(16)).tolist()
    assert steps[1] < steps[0] < min(steps[2:])  # the place of the source before worth


def test_tables_are_merged_by_the_best_rank() -> None:
    tables = [np.array([(3, 9), (5, 2)], RECORD_DTYPE), np.array([(3, 4), (4, 8)], RECORD_DTYPE)]
    assert merge(tables).tolist() == [(3, 4), (4, 8), (5, 2)] and len(merge([])) == 0


@pytest.mark.parametrize("at_once", [1, 5, 1 << 20])
def test_shards_share_a_window_where_their_best_ranks_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    for module in ("records", "passages.substrings"):
        monkeypatch.setattr(f"corpus.dedup.{module}.PARTITION_RECORDS", at_once)
    generator = np.random.default_rng(at_once)
    shards = [
        {int(key): int(generator.integers(1, 4)) for key in generator.integers(0, 60, 40)} for _ in range(5)
    ] + [{}]  # fmt: skip
    files = []
    for number, shard in enumerate(shards):
        write_array(tmp_path / f"{number}.npy", np.array(sorted(shard.items()), RECORD_DTYPE))
        files.append(File(f"{tmp_path}/{number}.npy", (tmp_path / f"{number}.npy").stat().st_size, "", len(shard)))
    found, cuts = shared_windows(Runs([array_rows(file, RECORD_DTYPE) for file in files], RECORD_DTYPE))
    ranks = {key: {shard[key] for shard in shards if key in shard} for key in range(60)}
    for number, shard in enumerate(shards):
        expected = [(key, min(ranks[key])) for key in sorted(shard) if len(ranks[key]) > 1]
        assert found[cuts[number] : cuts[number + 1]].tolist() == expected


def test_windows_of_odd_ranks_meet_only_their_like() -> None:
    text = "一二三四五六七八九十。甲乙丙丁戊己庚辛壬癸。"
    sentences, _ = read([text, text, text])
    keys = [set(found) for found in np.split(windows(sentences, 10, np.array([2, 4, 5], np.uint32)).keys, 3)]
    assert keys[0] == keys[1] == set(np.split(windows(sentences, 10).keys, 3)[0]) and not keys[0] & keys[2]
