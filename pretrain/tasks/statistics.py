"""What a number of right answers says: intervals, tests against chance, differences of two models on the same items.

Everything is exact or closed; nothing is drawn at random. With 32 items an interval is 30 points wide, with 2,000 four:
no table of ours shows an accuracy without its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Z = 1.959963984540054  # of the normal distribution, for 95 %
LEVEL = 0.05  # of tests, both sides together


class Interval(NamedTuple):
    """A 95 % interval of a share."""

    low: float
    high: float


def wilson(num_right: int, num: int) -> Interval:
    """Wilson's score interval (1927): within [0, 1], and of sound coverage for few items and shares near 0 or 1.

    >>> wilson(0, 32)
    Interval(low=0.0, high=0.1071791982550706)
    """
    if num == 0:
        return Interval(0.0, 1.0)
    share, spread = num_right / num, Z * Z / num
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    low = 0.0 if num_right == 0 else middle - half  # exactly, not but for rounding
    return Interval(low, 1.0 if num_right == num else middle + half)


def upper_tail(num_right: int, num: int, chance: float) -> float:
    """P(X >= num_right) of a binomial distribution: how often one who guesses does as well."""
    if num_right <= 0 or chance >= 1.0:
        return 1.0
    if chance <= 0.0:
        return 0.0
    return min(1.0, math.fsum(_binomial(k, num, chance) for k in range(num_right, num + 1)))


def binomial_test(num_right: int, num: int, chance: float) -> float:
    """The exact two-sided p-value of "no more than guesses": twice the smaller tail, as Clopper and Pearson's interval
    has it."""
    lower = upper_tail(num - num_right, num, 1.0 - chance)  # of wrong answers the upper tail
    return min(1.0, 2 * min(upper_tail(num_right, num, chance), lower))


def verdict(num_right: int, num: int, uniform: float, majority: float) -> str:
    """In words, by the exact test: above what one reaches who knows only the choices, or also which class is the
    largest."""
    if binomial_test(num_right, num, uniform) > LEVEL:
        return "at chance"
    if num_right < uniform * num:
        return "below chance"
    beats_majority = num_right > majority * num and binomial_test(num_right, num, majority) <= LEVEL
    return "above chance" if beats_majority or majority <= uniform else "above uniform only"


def holm(p_values: Sequence[float]) -> list[bool]:
    """Which tests still reject when all of them together may err once in twenty times (Holm 1979, step by step).

    >>> holm([0.04, 0.001, 0.02])
    [True, True, True]
    >>> holm([0.04, 0.001, 0.03])
    [False, True, False]
    """
    rejected = [False] * len(p_values)
    for place, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[number] > LEVEL / (len(p_values) - place):
            break
        rejected[number] = True
    return rejected


class Mean(NamedTuple):
    """Over tasks, each counting alike."""

    value: float
    interval: Interval


def mean_of(counts: Sequence[tuple[int, int]]) -> Mean:
    """The mean of shares (right, of how many), with an interval from the sum of their variances.

    The distances of each share to the ends of its Wilson interval stand for the deviations, each side for itself (Zou
    and Donner 2008, "MOVER"): for one share it is Wilson's interval.
    """
    shares = [right / num for right, num in counts]
    intervals = [wilson(right, num) for right, num in counts]
    value = math.fsum(shares) / len(shares)
    below = math.sqrt(math.fsum((p - each.low) ** 2 for p, each in zip(shares, intervals, strict=True)))
    above = math.sqrt(math.fsum((each.high - p) ** 2 for p, each in zip(shares, intervals, strict=True)))
    return Mean(value, Interval(value - below / len(shares), value + above / len(shares)))


class Difference(NamedTuple):
    """Of two models on the same items: the first minus the second."""

    value: float
    interval: Interval
    only_first: int  # items that only the first has right
    only_second: int
    p_value: float  # McNemar's exact test


def difference(first: Sequence[bool], second: Sequence[bool]) -> Difference:
    """Paired: the items are the same, so only those count on which the two do not agree.

    The interval is that of a mean of differences of -1, 0 and 1 (Miller 2024, arXiv:2411.00640).
    """
    assert len(first) == len(second)
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    num = max(1, len(first))
    value = (only_first - only_second) / num
    deviation = math.sqrt(max(0.0, (only_first + only_second) / num - value * value) / num)
    interval = Interval(value - Z * deviation, value + Z * deviation)
    return Difference(value, interval, only_first, only_second, mcnemar(only_first, only_second))


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value of "equally good": of the items that one alone has right, either has half.

    >>> mcnemar(0, 5)
    0.0625
    """
    num = only_first + only_second
    tail = sum(math.comb(num, k) for k in range(min(only_first, only_second) + 1))
    return float(min(1.0, 2 * tail / 2**num)) if num else 1.0


def _binomial(k: int, num: int, chance: float) -> float:
    ways = math.lgamma(num + 1) - math.lgamma(k + 1) - math.lgamma(num - k + 1)
    return math.exp(ways + k * math.log(chance) + (num - k) * math.log1p(-chance))
