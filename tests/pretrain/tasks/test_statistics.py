"""Intervals and tests against their definitions, counted out with fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.tasks.statistics import (
    Interval,
    Z,
    binomial_test,
    difference,
    mcnemar,
    mean_of,
    upper_tail,
    verdict,
    wilson,
)

COUNTS = st.integers(1, 3000).flatmap(lambda num: st.tuples(st.integers(0, num), st.just(num)))


@given(COUNTS)
def test_wilsons_ends_are_shares_at_z_deviations_from_what_was_seen(counts: tuple[int, int]) -> None:
    right, num = counts
    low, high = wilson(right, num)
    assert 0 <= low <= right / num <= high <= 1
    for end in (low, high):
        assert math.isclose((right / num - end) ** 2, Z * Z * end * (1 - end) / num, rel_tol=1e-6, abs_tol=1e-12)


def test_wilsons_interval_of_published_examples() -> None:
    low, high = wilson(81, 263)  # Newcombe 1998, table I
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    low, high = wilson(0, 20)
    assert (low, round(high, 4)) == (0.0, 0.1611)
    assert wilson(20, 20).high == 1.0
    assert wilson(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize("num", [1, 2, 7, 25])
@pytest.mark.parametrize("chance", [Fraction(1, 2), Fraction(1, 15), Fraction(5, 7)])
def test_tails_are_sums_of_the_binomial_distribution(num: int, chance: Fraction) -> None:
    shares = [math.comb(num, k) * chance**k * (1 - chance) ** (num - k) for k in range(num + 1)]
    for right in range(num + 1):
        upper, lower = sum(shares[right:], Fraction()), sum(shares[: right + 1], Fraction())
        assert math.isclose(upper_tail(right, num, float(chance)), upper, rel_tol=1e-9)
        assert math.isclose(binomial_test(right, num, float(chance)), min(1, 2 * min(upper, lower)), rel_tol=1e-9)


def test_tails_at_the_ends() -> None:
    assert upper_tail(0, 10, 0.3) == upper_tail(10, 10, 1.0) == 1.0
    assert upper_tail(1, 10, 0.0) == 0.0
    assert 0.0 <= upper_tail(2828, 2828, 0.5) < 1e-300


@pytest.mark.parametrize(
    ("right", "num", "uniform", "majority", "words"),
    [
        (50, 100, 0.5, 0.52, "at chance"),
        (59, 100, 0.5, 0.5, "at chance"),  # p = 0.089
        (61, 100, 0.5, 0.5, "above chance"),  # p = 0.035
        (39, 100, 0.5, 0.5, "below chance"),
        (61, 100, 0.5, 0.6, "above uniform only"),
        (20, 100, 0.067, 0.1, "above chance"),
        (20, 100, 0.067, 0.3, "above uniform only"),
    ],
)
def test_verdicts(right: int, num: int, uniform: float, majority: float, words: str) -> None:
    assert verdict(right, num, uniform, majority) == words


@pytest.mark.parametrize("num", range(9))
def test_mcnemar_counts_the_ways_in_which_disagreements_fall(num: int) -> None:
    sizes = [sum(signs) for signs in itertools.product((0, 1), repeat=num)]
    for first in range(num + 1):
        as_far = sum(abs(size - num / 2) >= abs(first - num / 2) for size in sizes)
        assert math.isclose(mcnemar(first, num - first), as_far / 2**num)


def test_a_difference_is_of_the_same_items() -> None:
    first = [True] * 6 + [False] * 4
    second = [True, True, False, False, False, False, True, False, False, False]
    found = difference(first, second)
    assert (found.only_first, found.only_second) == (4, 1)
    assert math.isclose(found.value, 0.3)
    assert found.p_value == mcnemar(4, 1) == 0.375
    each = [a - b for a, b in zip(map(int, first), map(int, second), strict=True)]
    deviation = math.sqrt(sum((one - 0.3) ** 2 for one in each) / 10 / 10)
    assert math.isclose(found.interval.low, 0.3 - Z * deviation) and math.isclose(
        found.interval.high, 0.3 + Z * deviation
    )
    assert difference(first, first)[0] == 0.0 and difference(first, first).p_value == 1.0


@given(st.lists(COUNTS, min_size=1, max_size=9))
def test_the_mean_of_tasks_adds_variances(counts: list[tuple[int, int]]) -> None:
    mean = mean_of(counts)
    assert math.isclose(mean.value, sum(right / num for right, num in counts) / len(counts), abs_tol=1e-12)
    assert mean.interval.low <= mean.value <= mean.interval.high
    squares = sum((right / num - wilson(right, num).low) ** 2 for right, num in counts)
    assert math.isclose((mean.value - mean.interval.low) * len(counts), math.sqrt(squares), abs_tol=1e-9)
