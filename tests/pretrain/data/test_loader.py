"""The loader: one integer is its whole state, and every token is a target once an epoch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data import Loader, Span, document_ids, epoch_keys, permute

EOD = 0
FROZEN_ORDER = [235, 496, 202, 742, 357, 824, 865, 497]  # of seed 0, epoch 0, 1,000 windows


@dataclass
class ArrayShard:
    """A shard in memory."""

    array: NDArray[np.uint16]
    eod: int = EOD

    @property
    def num_tokens(self) -> int:
        return len(self.array)

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        assert 0 <= start < stop <= len(self.array)
        return self.array[start:stop]


@dataclass
class HugeShard:
    """A shard that exists only as arithmetic: its token at place p is p mod 65,521."""

    num_tokens: int
    base: int = 0
    eod: int = 65_535

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        assert 0 <= start < stop <= self.num_tokens
        first = (self.base + start) % 65_521
        return ((first + np.arange(stop - start)) % 65_521).astype(np.uint16)


def shards_of(sizes: list[int]) -> list[ArrayShard]:
    """Shards whose tokens count up from 0 through all of them, so that a token's value is its place."""
    stream = np.arange(sum(sizes), dtype=np.uint16)
    return [ArrayShard(part) for part in np.split(stream, np.cumsum(sizes)[:-1])]


corpora = st.tuples(
    st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 12), st.integers(0, 2**40)
).filter(lambda corpus: sum(corpus[0]) > corpus[1])


@given(st.integers(1, 3000), st.integers(0, 2**63), st.integers(0, 5))
def test_the_order_of_an_epoch_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    order = permute(np.arange(size, dtype=np.uint64), size, epoch_keys(seed, epoch))
    assert np.array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1])
def test_a_large_order_is_a_permutation_without_a_pattern(size: int) -> None:
    order = permute(np.arange(size, dtype=np.uint64), size, epoch_keys(7, 0))
    assert np.bincount(order, minlength=size).max() == 1
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.01, "neighbours must be strangers"
    first_thousand = np.sort(order[:1000]) / size
    assert np.abs(first_thousand - np.arange(1000) / 1000).max() < 0.06  # Kolmogorov-Smirnov at 1e-3 is 0.0616


def test_all_orders_of_three_windows_come_up() -> None:
    orders = {tuple(permute(np.arange(3, dtype=np.uint64), 3, epoch_keys(seed, 0)).tolist()) for seed in range(200)}
    assert len(orders) == 6


def test_the_order_differs_by_epoch_and_by_seed_and_is_frozen() -> None:
    indices = np.arange(1000, dtype=np.uint64)
    first = permute(indices, 1000, epoch_keys(0, 0))
    assert (first != permute(indices, 1000, epoch_keys(0, 1))).mean() > 0.98
    assert (first != permute(indices, 1000, epoch_keys(1, 0))).mean() > 0.98
    assert first[:8].tolist() == FROZEN_ORDER, "a run resumed after an upgrade would see other samples"


@given(corpora)
def test_every_token_is_a_target_once_an_epoch(corpus: tuple[list[int], int, int]) -> None:
    sizes, sequence_length, seed = corpus
    loader = Loader(shards_of(sizes), sequence_length, seed)
    for epoch in range(2):
        batch = loader.batch(epoch * loader.num_windows, loader.num_windows)
        assert np.array_equal(batch.targets, batch.tokens + 1), "a window is consecutive tokens of the stream"
        seen = np.sort(batch.targets.ravel())
        assert np.array_equal(seen, np.arange(1, loader.num_tokens - loader.num_dropped_tokens))
    assert 0 <= loader.num_dropped_tokens < sequence_length


@given(corpora, st.integers(0, 10_000), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_any_split_over_ranks_or_steps_is_the_same_batch(
    corpus: tuple[list[int], int, int], start: int, counts: list[int]
) -> None:
    sizes, sequence_length, seed = corpus
    whole = Loader(shards_of(sizes), sequence_length, seed).batch(start, sum(counts))
    parts = []
    for count in counts:  # each part from a loader of its own: another rank, or the same one after a restart
        parts.append(Loader(shards_of(sizes), sequence_length, seed).batch(start, count))
        start += count
    assert np.array_equal(whole.tokens, np.concatenate([part.tokens for part in parts]))
    assert np.array_equal(whole.targets, np.concatenate([part.targets for part in parts]))
    assert np.array_equal(whole.document_ids, np.concatenate([part.document_ids for part in parts]))


def test_a_batch_may_span_several_epochs() -> None:
    loader = Loader(shards_of([7, 0, 6]), sequence_length=4)
    assert loader.num_windows == 3
    targets = loader.batch(1, 8).targets
    assert np.array_equal(np.sort(targets[2:5].ravel()), np.arange(1, 13)), "samples 3 to 5 are the second epoch"
    assert np.array_equal(np.sort(targets[5:8].ravel()), np.arange(1, 13)), "samples 6 to 8 are the third"


def test_each_epoch_and_each_seed_of_a_loader_has_its_own_order() -> None:
    shards = shards_of([1001])
    orders = [
        tuple(Loader(shards, 2, seed).windows(500 * epoch, 500).tolist())
        for seed in (0, 1, 2**32, 2**63)
        for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == 12


def test_windows_cross_shards_and_step_over_empty_ones() -> None:
    loader = Loader(shards_of([0, 3, 0, 0, 1, 5, 0]), sequence_length=8)
    assert list(loader.spans(0)) == [Span(1, 0, 3), Span(4, 0, 1), Span(5, 0, 5)]
    assert loader.batch(0, 1).targets.tolist() == [list(range(1, 9))]


@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [8], [4, 4]])
def test_a_split_shorter_than_one_sample_is_refused(sizes: list[int]) -> None:
    with pytest.raises(UsageError, match=rf"validation has {sum(sizes)} tokens.* needs 9"):
        Loader([ArrayShard(np.zeros(size, dtype=np.uint16)) for size in sizes], 8, name="validation")


def test_more_windows_than_can_be_ordered_are_refused() -> None:
    assert len(set(Loader([HugeShard(2**62 + 1)], 1).windows(2**62 - 2, 4).tolist())) == 4
    with pytest.raises(UsageError, match="at most"):
        Loader([HugeShard(2**62 + 2)], 1)


@pytest.mark.parametrize("sequence_length", [0, -1])
def test_a_sequence_length_below_one_is_refused(sequence_length: int) -> None:
    with pytest.raises(UsageError, match="sequence_length"):
        Loader(shards_of([10]), sequence_length)


def test_a_negative_sample_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="negative"):
        Loader(shards_of([10]), 2).windows(-1, 2)


def test_documents_are_numbered_inside_each_window() -> None:
    stream = np.array([5, EOD, 6, 7, EOD, 8, 9, 9, 9], dtype=np.uint16)
    loader = Loader([ArrayShard(stream)], sequence_length=4)
    order = loader.windows(0, 2)
    ids = loader.batch(0, 2).document_ids[np.argsort(order)]
    assert ids.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert document_ids(np.empty((0, 4), dtype=np.int64), EOD).shape == (0, 4)


def test_more_than_two_to_the_thirty_one_tokens_and_windows() -> None:
    """Tokens beyond 2**31, bytes beyond 2**32, and with sequence_length 1 also more than 2**32 windows."""
    sizes = [2**31 + 11, 3, 2**33 + 5]
    shards = [HugeShard(size, base) for size, base in zip(sizes, [0, sizes[0], sizes[0] + 3], strict=True)]
    for sequence_length in (1, 2048):
        loader = Loader(shards, sequence_length, seed=3)
        assert loader.num_windows == (sum(sizes) - 1) // sequence_length
        for start in (0, loader.num_windows - 2, 10**15):
            windows = loader.windows(start, 4)
            assert windows.min() >= 0 and windows.max() < loader.num_windows
            expected = (windows[:, None] * sequence_length + np.arange(sequence_length)) % 65_521
            assert np.array_equal(loader.batch(start, 4).tokens, expected)
        last = loader.num_windows - 1
        spans = list(loader.spans(last))
        assert spans[-1].stop == sizes[2] - loader.num_dropped_tokens
        assert spans[-1].shard == 2


def test_two_hundred_billion_windows_cost_no_memory_to_order() -> None:
    loader = Loader([HugeShard(2**47)], sequence_length=512)
    assert len(set(loader.windows(0, 1000).tolist())) == 1000
    assert loader.num_windows > 2 * 10**11


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")


def resident_kib() -> int:
    """Resident memory of this process, mapped files included."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@needs_proc
def test_resident_memory_stays_flat_over_many_samples() -> None:
    loader = Loader([HugeShard(2**40)], sequence_length=64)
    for start in range(0, 20_000, 200):
        loader.batch(start, 200)
    before = resident_kib()
    for start in range(20_000, 120_000, 200):
        loader.batch(start, 200)
    assert resident_kib() - before < 4_096, "100,000 samples of 64 tokens are 51 MB: none of it may stay"
