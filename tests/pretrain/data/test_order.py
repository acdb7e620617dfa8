"""The order of samples is a permutation that can be walked both ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.data import epoch_keys, permute, unpermute
from tests.pretrain.data.plain import window_of

FROZEN_ORDER = [235, 496, 202, 742, 357, 824, 865, 497]  # of seed 0, epoch 0, 1,000 windows
FROZEN_ORDER_OF_WEB = [1, 681, 308, 893, 0, 46, 351, 330]  # the same, of the corpus "web" among several

names = st.sampled_from(["", "web", "books", "网页"])


@given(st.integers(1, 3000), st.integers(0, 2**63), st.integers(0, 5), names)
def test_the_order_of_an_epoch_is_a_permutation(size: int, seed: int, epoch: int, name: str) -> None:
    order = permute(np.arange(size, dtype=np.uint64), size, epoch_keys(seed, epoch, name))
    assert np.array_equal(np.sort(order), np.arange(size))


@given(st.integers(1, 2**62), st.data(), st.integers(0, 2**63), st.integers(0, 2**40), names)
def test_the_inverse_is_the_inverse(size: int, data: st.DataObject, seed: int, epoch: int, name: str) -> None:
    numbers = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    indices, keys = np.array(numbers, dtype=np.uint64), epoch_keys(seed, epoch, name)
    windows = permute(indices, size, keys)
    assert windows.tolist() == [window_of(epoch * size + number, size, seed, name) for number in numbers]
    assert unpermute(windows.astype(np.uint64), size, keys).tolist() == numbers
    assert permute(unpermute(indices, size, keys).astype(np.uint64), size, keys).tolist() == numbers
    assert indices.tolist() == numbers, "what is asked for stays as it is"


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1])
def test_a_large_order_is_a_permutation_without_a_pattern(size: int) -> None:
    order = permute(np.arange(size, dtype=np.uint64), size, epoch_keys(7, 0))
    assert np.bincount(order, minlength=size).max() == 1
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.01, "neighbours must be strangers"
    first_thousand = np.sort(order[:1000]) / size
    assert np.abs(first_thousand - np.arange(1000) / 1000).max() < 0.06  # Kolmogorov-Smirnov at 1e-3 is 0.0616


def test_the_order_differs_by_epoch_seed_and_corpus_and_is_frozen() -> None:
    indices = np.arange(1000, dtype=np.uint64)
    first = permute(indices, 1000, epoch_keys(0, 0))
    for keys in (epoch_keys(0, 1), epoch_keys(1, 0), epoch_keys(0, 0, "web"), epoch_keys(0, 0, "web2")):
        assert (first != permute(indices, 1000, keys)).mean() > 0.98
    assert first[:8].tolist() == FROZEN_ORDER, "a run resumed after an upgrade would see other samples"
    web = permute(indices, 1000, epoch_keys(0, 0, "web"))
    assert web[:8].tolist() == FROZEN_ORDER_OF_WEB, "a run resumed after an upgrade would see other samples"
