"""Windows against a search through all of them, and batches that lose no window and keep all ranks in step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.data import IGNORED_TARGET
from pretrain.evaluation.bits import ROUNDED_TO, batches, rows, windows

EOD = 0
SIZES = st.tuples(st.integers(0, 60), st.integers(1, 12)).flatmap(
    lambda sizes: st.tuples(st.just(sizes[0]), st.just(sizes[1]), st.integers(1, sizes[1]))
)


@given(SIZES)
def test_each_target_is_scored_once_with_the_context_that_its_stride_leaves(sizes: tuple[int, int, int]) -> None:
    num_targets, length, stride = sizes
    contexts: dict[int, int] = {}
    for start, first, stop in windows(num_targets, length, stride):
        assert 0 <= start <= first < stop <= num_targets
        assert stop - start == min(length, num_targets), "windows are full, also the last"
        for target in range(first, stop):
            assert target not in contexts
            contexts[target] = target - start  # tokens before the one that it follows, which is there, too
    assert sorted(contexts) == list(range(num_targets))
    for target, context in contexts.items():
        assert context == target if target < length else length - stride <= context < length
    if num_targets > length:  # no more windows than the strides take
        assert len(list(windows(num_targets, length, stride))) == 1 + -(-(num_targets - length) // stride)


@given(SIZES, st.integers(1, 12))
def test_a_stride_that_divides_another_never_leaves_less_context(sizes: tuple[int, int, int], factor: int) -> None:
    num_targets, length, stride = sizes

    def contexts(stride: int) -> list[int]:
        return [t - start for start, first, stop in windows(num_targets, length, stride) for t in range(first, stop)]

    if stride * factor <= length:
        assert all(few >= many for few, many in zip(contexts(stride), contexts(stride * factor), strict=True))


def test_windows_that_do_not_overlap_are_the_rolling_windows_of_lm_evaluation_harness() -> None:
    """`get_rolling_token_windows` with context_len = 1, written out: inputs and predictions of 10 tokens by 4."""
    tokens = np.arange(1, 11)
    found = [(row.tokens.tolist(), row.targets[row.targets >= 0].tolist()) for row in rows(tokens, 0, EOD, 4, 4)]
    assert found == [([0, 1, 2, 3], [1, 2, 3, 4]), ([4, 5, 6, 7], [5, 6, 7, 8]), ([6, 7, 8, 9], [9, 10])]


@pytest.mark.parametrize("stride", [0, 5, -1])
def test_a_stride_that_would_leave_targets_out_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match="stride"):
        list(windows(9, 4, stride))


def test_rows_keep_the_group_of_each_target() -> None:
    tokens, groups = np.array([5, 6, EOD, 7, EOD]), np.array([1, 1, 1, 2, 2])
    found = list(rows(tokens, groups, EOD, length=3, stride=2))
    assert [row.tokens.tolist() for row in found] == [[EOD, 5, 6], [6, EOD, 7]]
    assert [row.targets.tolist() for row in found] == [[5, 6, EOD], [IGNORED_TARGET, 7, EOD]]
    assert [row.groups.tolist() for row in found] == [[1, 1, 1], [1, 2, 2]]


TEXTS = st.lists(st.integers(0, 80), max_size=20)


@given(TEXTS, st.integers(1, 50), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_every_target_is_in_one_batch_after_its_predecessor_on_any_number_of_ranks(
    sizes: list[int], length: int, batch_size: int, num_ranks: int, shared_by: int
) -> None:
    texts = [np.arange(1000 * number, 1000 * number + size) for number, size in enumerate(sizes, start=1)]
    found = [row for number, text in enumerate(texts) for row in rows(text, number, EOD, length, -(-length // 2))]
    by_rank = [list(batches(found, length, batch_size, EOD, rank, num_ranks, shared_by)) for rank in range(num_ranks)]
    assert len({len(of_rank) for of_rank in by_rank}) == 1, "a rank that stops early would hang the others"
    scored: list[tuple[int, int]] = []
    for batch in (batch for of_rank in by_rank for batch in of_rank):
        num_rows, num_tokens = batch.tokens.shape
        assert batch.tokens.shape == batch.targets.shape == batch.groups.shape
        assert num_tokens == length or (num_tokens < length and num_tokens % (ROUNDED_TO * shared_by) == 0)
        assert num_rows * num_tokens <= max(batch_size * length, num_tokens)
        real = batch.targets != IGNORED_TARGET
        starts = batch.targets[real] % 1000 == 0
        assert np.array_equal(batch.tokens[real], np.where(starts, EOD, batch.targets[real] - 1))
        scored += zip(batch.groups[real].tolist(), batch.targets[real].tolist(), strict=True)
    assert sorted(scored) == [(number, token) for number, text in enumerate(texts) for token in text.tolist()]


def test_short_windows_share_a_batch_with_others_of_their_length() -> None:
    sizes = [3, 40, 4, 39, 5, 3, 6, 7]
    found = [row for size in sizes for row in rows(np.arange(1, size + 1), 0, EOD, 64, 64)]
    shapes = [batch.tokens.shape for batch in batches(found, length=64, batch_size=2, eod=EOD)]
    assert shapes == [(3, 40), (5, 8)], "two of 40 and one of 7 in 128 tokens, then the short ones"


def test_ranks_that_share_the_tokens_of_a_window_share_them_evenly() -> None:
    found = [row for _ in range(8) for row in rows(np.arange(1, 18), 0, EOD, 64, 64)]
    shapes = [batch.tokens.shape for batch in batches(found, length=64, batch_size=2, eod=EOD, shared_by=2)]
    assert shapes == [(4, 32)] * 2, "of 17 tokens each, in multiples of 16"
