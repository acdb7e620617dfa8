"""Packs of examples: each whole example once an epoch, only what counts a target, and nothing seen across examples."""

from __future__ import annotations

import hashlib
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.data import IGNORED_TARGET, Blend, Loader, Packs, Stream
from pretrain.data.examples import (
    COUNTED,
    RECORD,
    ExampleReader,
    Record,
    SplitRecord,
    answer_prefixes,
    best_fit,
    open_packs,
    read_record,
)
from tests.pretrain.data.shards import EOD, ArrayShard
from tests.pretrain.data.test_reader import write_folder
from tokenizer.shards import open_split

Sizes = list[tuple[int, int]]  # of each example: tokens of its prompt and of its answer, at least one of each


class MemoryExamples(ArrayShard):
    """A shard of examples in memory."""

    def __init__(self, array: NDArray[np.uint16], is_counted: NDArray[np.bool_]) -> None:
        super().__init__(array)
        self.is_counted = is_counted

    def counted(self, start: int, stop: int) -> NDArray[np.bool_]:
        return self.is_counted[start:stop]


def shard_of(sizes: Sizes, first: int = 1) -> tuple[MemoryExamples, NDArray[np.int64]]:
    """Examples whose tokens are `first`, `first` + 1, ... throughout, and their lengths."""
    tokens, counted = [], []
    for prompt, answer in sizes:
        tokens += [*range(first, first + prompt + answer), EOD]
        counted += [False] * prompt + [True] * (answer + 1)
        first += prompt + answer
    lengths = np.array([prompt + answer + 1 for prompt, answer in sizes], dtype=np.int64)
    return MemoryExamples(np.array(tokens, dtype=np.uint16), np.array(counted, dtype=np.bool_)), lengths


def packs_of(shards: list[Sizes], sequence_length: int, seed: int = 0, name: str = "") -> Packs:
    made, first = [], 1
    for sizes in shards:
        made.append(shard_of(sizes, first))
        first += sum(map(sum, sizes))
    return Packs([shard for shard, _ in made], [lengths for _, lengths in made], sequence_length, seed, name)


examples = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=30)
corpora = st.tuples(
    st.lists(st.one_of(examples, st.just([])), min_size=1, max_size=3).filter(any),
    st.integers(13, 40),
    st.integers(0, 2**40),
)


@given(corpora, st.integers(0, 3))
def test_each_example_is_whole_and_seen_once_an_epoch(corpus: tuple[list[Sizes], int, int], epoch: int) -> None:
    shards, length, seed = corpus
    packs = packs_of(shards, length, seed)
    loader = Loader([packs])
    batch = loader.batch(epoch * packs.num_samples, packs.num_samples)
    seen = []
    for tokens, targets, ids in zip(batch.tokens, batch.targets, batch.document_ids, strict=True):
        row = np.append(tokens, EOD)  # its last token is an end, or an end that fills the row
        assert row[0] == EOD and ids[0] == 0
        documents = [tuple(part.tolist()) for part in np.split(row, np.flatnonzero(row == EOD) + 1) if len(part) > 1]
        seen += documents
        counting = {int(token) for token in targets[targets != IGNORED_TARGET]} - {EOD}
        assert counting == {token for document in documents for token in document if token in answers(shards)}
        assert int((targets == EOD).sum()) == len(documents)  # the end of each is learned, and no other
        starts = np.flatnonzero(np.diff(ids)) + 1
        assert (tokens[starts - 1] == EOD).all()
    assert sorted(seen) == sorted(every(shards))


def every(shards: list[Sizes]) -> list[tuple[int, ...]]:
    """The examples as tokens."""
    found, first = [], 1
    for prompt, answer in (size for sizes in shards for size in sizes):
        found.append((*range(first, first + prompt + answer), EOD))
        first += prompt + answer
    return found


def answers(shards: list[Sizes]) -> set[int]:
    """The tokens that are said."""
    found, first = set(), 1
    for prompt, answer in (size for sizes in shards for size in sizes):
        found |= set(range(first + prompt, first + prompt + answer))
        first += prompt + answer
    return found


def test_a_row_token_by_token() -> None:
    packs = packs_of([[(2, 1), (1, 2)]], 10)
    batch = Loader([packs], document_mask=True, reset_positions=True, prefix_lm=True).batch(0, 1)
    is_swapped = batch.tokens[0, 1] == 4
    assert packs.num_samples == 1
    if is_swapped:
        assert batch.tokens.tolist() == [[0, 4, 5, 6, 0, 1, 2, 3, 0, 0]]
        assert batch.targets.tolist() == [[-1, 5, 6, 0, -1, -1, 3, 0, -1, -1]]
        assert batch.prefix_ends is not None and batch.prefix_ends.tolist() == [[2, 2, 2, 2, 2, 7, 7, 7, 7, 9]]
    else:
        assert batch.tokens.tolist() == [[0, 1, 2, 3, 0, 4, 5, 6, 0, 0]]
        assert batch.targets.tolist() == [[-1, -1, 3, 0, -1, 5, 6, 0, -1, -1]]
        assert batch.document_ids.tolist() == [[0, 1, 1, 1, 1, 2, 2, 2, 2, 3]]
        assert batch.positions is not None and batch.positions.tolist() == [[0, 0, 1, 2, 3, 0, 1, 2, 3, 0]]
        assert batch.prefix_ends is not None and batch.prefix_ends.tolist() == [[3, 3, 3, 3, 3, 6, 6, 6, 6, 9]]


def test_prefixes_end_where_answers_begin() -> None:
    ids = np.array([[0, 1, 1, 1, 2, 2, 3], [0, 1, 1, 2, 3, 4, 5]], dtype=np.int32)
    counted = np.zeros((2, 8), dtype=np.bool_)
    counted[0, [3, 5]] = counted[1, [2, 7]] = True
    assert answer_prefixes(ids, counted).tolist() == [[3, 3, 3, 3, 5, 5, 6], [2, 2, 2, 3, 4, 5, 6]]


def test_an_example_may_fill_a_row_and_no_more() -> None:
    batch = Loader([packs_of([[(2, 1)]], 4)]).batch(0, 1)
    assert (batch.tokens.tolist(), batch.targets.tolist()) == ([[0, 1, 2, 3]], [[-1, -1, 3, 0]])
    with pytest.raises(
        UsageError, match=r"1 of 2 examples are longer than a row of 4 tokens, the longest has 5.*--too-long"
    ):
        packs_of([[(2, 1), (2, 2)]], 4)
    with pytest.raises(UsageError, match="has no example"):
        packs_of([[]], 4)


@given(st.lists(st.integers(1, 20), max_size=60), st.integers(20, 30))
def test_best_fit_is_that_of_its_definition(sizes: list[int], capacity: int) -> None:
    rooms: list[int] = []
    latest: list[int] = []  # when a bin was last used
    chosen_ones = best_fit(np.array(sizes, dtype=np.int32), capacity).tolist()
    for turn, (size, found) in enumerate(zip(sizes, chosen_ones, strict=True)):
        fitting = [own for own, room in enumerate(rooms) if room >= size]
        if not fitting:
            rooms.append(capacity)
            latest.append(turn)
            fitting = [len(rooms) - 1]
        chosen = min(fitting, key=lambda own: (rooms[own], -latest[own]))
        assert found == chosen
        rooms[chosen] -= size
        latest[chosen] = turn


def test_packs_are_arrays() -> None:
    """16 bytes an example and 8 a row, and little more while they are made."""
    lengths = np.random.default_rng(0).integers(3, 200, 50_000).astype(np.int32)
    shard = ArrayShard(np.zeros(int(lengths.sum()), dtype=np.uint16))
    tracemalloc.start()
    packs = Packs([shard], [lengths], 512)  # type: ignore[list-item]
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    best_fit(lengths, 512)
    peak = tracemalloc.get_traced_memory()[1] - held
    tracemalloc.stop()
    assert held < 16 * len(lengths) + 8 * packs.num_samples + 30_000
    assert peak < 24 * len(lengths) and most < 80 * len(lengths)


@given(corpora, st.data())
def test_the_samples_of_tokens_are_those_whose_spans_hold_one(
    corpus: tuple[list[Sizes], int, int], data: st.DataObject
) -> None:
    packs = packs_of(*corpus, name="sft")
    shard = data.draw(st.integers(0, len(packs.shards) - 1))
    start = data.draw(st.integers(0, packs.shards[shard].num_tokens))
    stop = data.draw(st.integers(start, packs.shards[shard].num_tokens))
    limit = data.draw(st.integers(0, 3 * packs.num_samples))
    expected = [
        sample
        for sample, spans in enumerate(packs.spans(0, limit))
        if any(span.shard == shard and span.start < stop and start < span.stop and start < stop for span in spans)
    ]
    assert packs.samples(shard, start, stop, limit) == expected


def test_which_examples_share_a_row_is_the_seeds_and_the_names() -> None:
    def rows(seed: int, name: str = "") -> list[list[int]]:
        packs = packs_of([[(1 + number % 3, 1) for number in range(40)]], 16, seed, name)
        return sorted(sorted(span.start for span in spans) for spans in packs.spans(0, packs.num_samples))

    assert rows(3) == rows(3) != rows(4)
    assert rows(3, "a") != rows(3, "b")


def test_examples_blend_with_text() -> None:
    """Rows of text keep their targets and drawn prefixes, rows of examples have theirs."""
    text = Stream([ArrayShard(np.arange(1, 200, dtype=np.uint16))], 16, 5, "text")
    packs = packs_of([[(2, 3)] * 20], 16, 5, "sft")
    blend = Blend([Fraction(1), Fraction(1)], ["text", "sft"])
    loader = Loader([text, packs], blend, prefix_lm=True, seed=5)
    batch, causal = loader.batch(0, 8), Loader([text, packs], blend, seed=5).batch(0, 8)
    assert batch.prefix_ends is not None
    corpora, _ = blend.origins(0, 8)
    for row, corpus in enumerate(corpora.tolist()):
        if corpus:
            assert (batch.targets[row] == causal.targets[row]).all()
            assert (batch.targets[row] == IGNORED_TARGET).sum() > 5
        else:
            assert (causal.targets[row] == causal.tokens[row] + 1).all()
            assert len(set(batch.prefix_ends[row].tolist())) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    documents: list[Any] = [(f"{number:032x}", None, [5, 6, 7][: 2 + number % 2]) for number in range(9)]
    return write_folder(tmp_path / "examples", {"00000-00-train": documents})


def record_of(folder: Path, bits: NDArray[np.bool_]) -> Record:
    data = np.packbits(bits).tobytes()
    (folder / "data" / f"00000-00-train{COUNTED}").write_bytes(data)
    split = SplitRecord(examples=9, tokens=len(bits), counted_tokens=int(bits.sum()), counted_characters=9)
    counted = {"00000-00-train": hashlib.sha256(data).hexdigest()}
    values: dict[str, Any] = {"lines": 9, "skipped": 0, "dropped": 0, "cut": 0}
    return Record(made_of="x", counted=counted, splits={"train": split}, **values)


def test_bits_are_read_from_anywhere_and_checked(folder: Path) -> None:
    (shard,) = open_split(folder, "train")
    bits = np.random.default_rng(0).random(shard.num_tokens) < 0.5
    record = record_of(folder, bits)
    reader = ExampleReader(shard, record.counted["00000-00-train"])
    for start in range(shard.num_tokens):
        for stop in range(start, shard.num_tokens + 1):
            assert reader.counted(start, stop).tolist() == bits[start:stop].tolist()
    packs = open_packs([shard], record, 8, 0)
    assert packs.num_tokens == shard.num_tokens

    path = folder / "data" / f"00000-00-train{COUNTED}"
    damaged = bytearray(path.read_bytes())
    damaged[1] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(WenhaiError, match="was altered"):
        open_packs([shard], record, 8, 0)
    path.unlink()
    with pytest.raises(WenhaiError, match="cannot be read"):
        open_packs([shard], record, 8, 0)
    with pytest.raises(WenhaiError, match="does not list it"):
        open_packs([shard], record.model_copy(update={"counted": {}}), 8, 0)


def test_a_folder_without_a_record_is_text(folder: Path) -> None:
    assert read_record(folder) is None
    (folder / RECORD).write_text('{"format": 2}')
    with pytest.raises(UsageError, match="format"):
        read_record(folder)
