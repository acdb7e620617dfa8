"""Buckets against a dictionary."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.near.buckets import EXACT_FLAG, number_buckets
from corpus.dedup.near.minhash import EXACT_BAND
from corpus.dedup.records import RECORD_DTYPE, Array
from corpus.dedup.text.hashing import GOLDEN


def records(keys: list[int]) -> Array:
    found = np.zeros(len(keys), RECORD_DTYPE)
    found["key"] = keys
    return found


def check(keys: list[int]) -> None:
    shared, numbers, count = number_buckets(records(keys))
    counts = Counter(keys)
    buckets = np.zeros(len(keys), np.uint32)
    buckets[shared] = numbers
    assert (np.diff(shared) > 0).all() and numbers.all()
    assert count == sum(number > 1 for number in counts.values())
    of_bucket = defaultdict(set)
    for key, bucket in zip(keys, buckets.tolist(), strict=True):
        assert (bucket != 0) == (counts[key] > 1)
        if bucket:
            of_bucket[bucket].add(key)
            assert bool(bucket & int(EXACT_FLAG)) == (key & 0xFF == EXACT_BAND)
    assert len(of_bucket) == count and all(len(found) == 1 for found in of_bucket.values())
    assert {bucket & ~int(EXACT_FLAG) for bucket in of_bucket} == set(range(1, count + 1))


@given(st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 255, 2**63, 2**64 - 1, 5 << 40, (5 << 40) + 255])))
def test_who_shares_a_key_has_a_number(keys: list[int]) -> None:
    check(keys)


@pytest.mark.parametrize("shift", [0, 8, 30, 44])
def test_keys_of_one_corner_of_the_key_space(shift: int) -> None:
    """A partition's keys begin alike; here all of them fall into a few cells."""
    check([(7 << 60) + (i % 3000 << shift) for i in range(5000)])


def test_many_cells() -> None:
    with np.errstate(over="ignore"):
        keys = (np.arange(20_000, dtype=np.uint64) % np.uint64(17_000)) * GOLDEN
    check(keys.tolist())


def test_everything_shares_one_key() -> None:
    _, buckets, count = number_buckets(records([2**64 - 1] * 10_000))
    assert len(buckets) == 10_000
    assert count == 1 and set(buckets.tolist()) == {1 | int(EXACT_FLAG)}
