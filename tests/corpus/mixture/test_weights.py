"""Weights become copies: on average exactly, document by document alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.mixture.config import Buckets
from corpus.mixture.weights import NOT_MEASURED, bucket_of, copies_of, pattern_of

weights = st.floats(0, 100)


def ids(count: int) -> pa.Array:
    return pa.array([xxhash.xxh3_128_digest(bytes([n % 256, n // 256])) for n in range(count)], pa.binary(16))


@given(weight=weights, seed=st.integers(0, 2**63 - 1))
def test_every_document_has_the_whole_part_and_some_one_more(weight: float, seed: int) -> None:
    count = 2000
    copies = copies_of(ids(count), np.full(count, weight), seed).astype(np.int64)
    whole, part = np.floor(weight), weight - np.floor(weight)
    assert set(copies.tolist()) <= {int(whole), int(whole) + 1}
    once_more = int((copies - whole).sum())
    assert abs(once_more - count * part) <= 6 * np.sqrt(count * part * (1 - part)) + 3  # 3: few of many are Poisson's
    assert part or not once_more


@given(low=weights, high=weights)
def test_a_higher_weight_takes_no_copy_away(low: float, high: float) -> None:
    low, high = sorted((low, high))
    few, many = (copies_of(ids(300), np.full(300, weight), 7) for weight in (low, high))
    assert (few <= many).all()


@given(cut=st.integers(0, 300), seed=st.integers(0, 9))
def test_copies_depend_on_the_document_alone(cut: int, seed: int) -> None:
    weight = np.linspace(0, 3, 300)
    whole = copies_of(ids(300), weight, seed)
    parts = [copies_of(ids(300)[:cut], weight[:cut], seed), copies_of(ids(300)[cut:], weight[cut:], seed)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert copies_of(ids(300), np.ones(300), seed).tolist() == [1] * 300


def test_another_seed_chooses_others() -> None:
    half = np.full(300, 0.5)
    assert copies_of(ids(300), half, 0).tolist() != copies_of(ids(300), half, 1).tolist()


@pytest.mark.parametrize(
    ("source", "patterns", "found"),
    [
        ("wiki", ["*", "w*", "wik*"], "wik*"),
        ("wiki", ["wi*", "*iki"], "*iki"),
        ("wiki", ["wikipedia*", "wiki"], "wiki"),
        ("a*", ["a*", "a**"], "a*"),  # a source's own name first, whatever it looks like
        ("Wiki", ["wiki"], ""),
        ("x1", ["x[0-9]", "x?"], "x[0-9]"),
        ("web", ["b*", "a*"], ""),
    ],
)
def test_the_name_then_the_longest_glob(source: str, patterns: list[str], found: str) -> None:
    assert pattern_of(source, patterns) == pattern_of(source, patterns[::-1]) == found


def test_a_bound_belongs_to_the_bucket_above() -> None:
    table = Buckets(statistic="length.num_chars", bounds=(1.0, 2.0), weights=(0.0, 1.0, 2.0))
    values = np.array([-np.inf, 0.999, 1.0, 1.5, 2.0, np.inf, np.nan])
    assert bucket_of(values, table).tolist() == [0, 0, 1, 1, 2, 2, NOT_MEASURED]
