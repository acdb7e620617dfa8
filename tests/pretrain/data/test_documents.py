"""Documents in windows: the vectorised forms are what loops over tokens give."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pretrain.data import document_ids, positions, prefix_ends
from tests.pretrain.data.plain import row_of

EOD = 1
FROZEN_LENGTHS = [
    341,
    467,
    861,
    156,
    813,
    788,
    996,
    495,
]  # of the prefixes of windows of 1,000 tokens, samples 0 to 7, seed 0

batches = st.integers(1, 9).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 3), min_size=size + 1, max_size=size + 1), max_size=6).map(
        lambda rows: np.array(rows, dtype=np.int64).reshape(len(rows), size + 1)
    )
)


@given(batches, st.integers(0, 2**62), st.integers(0, 2**63))
def test_they_are_what_loops_give(windows: NDArray[np.int64], sample: int, seed: int) -> None:
    tokens = windows[:, :-1]
    ids = document_ids(tokens, EOD)
    samples = np.arange(sample, sample + len(tokens))
    for document_mask in (False, True):
        segments = ids if document_mask else np.zeros_like(ids)
        ends = prefix_ends(segments, samples, seed)
        rows = [
            row_of(window, EOD, sample + index, seed, document_mask, prefix_lm=True)
            for index, window in enumerate(windows.tolist())
        ]
        assert ends.tolist() == [row.ends for row in rows]
        assert ids.tolist() == [row.document_ids for row in rows]
        assert positions(ids).tolist() == [row.positions for row in rows]
    assert ids.dtype == ends.dtype == positions(ids).dtype == np.int32
    assert ids.shape == ends.shape == positions(ids).shape == tokens.shape


def test_prefix_lengths_are_uniform_and_independent() -> None:
    num_windows, size = 20_000, 8
    ids = np.repeat([[0] * size + [1] * size], num_windows, axis=0).astype(np.int32)
    ends = prefix_ends(ids, np.arange(num_windows), seed=3)
    first, second = ends[:, 0], ends[:, size] - size
    pairs = np.bincount(first * size + second, minlength=size * size)
    expected = num_windows / size**2
    assert ((pairs - expected) ** 2 / expected).sum() < 104  # chi-squared of 63 degrees at 1e-3 is 103.4
    successive = np.bincount(first[:-1] * size + first[1:], minlength=size * size)
    assert ((successive - expected) ** 2 / expected).sum() < 104
    assert (prefix_ends(ids, np.arange(num_windows), seed=4) == ends).mean() < 0.14, "another seed, other prefixes"


def test_prefixes_are_frozen() -> None:
    ids = np.zeros((8, 1000), dtype=np.int32)
    assert prefix_ends(ids, np.arange(8), seed=0)[:, 0].tolist() == FROZEN_LENGTHS, "a resumed run would see others"
