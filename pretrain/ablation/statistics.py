"""Figures over seeds: mean, standard deviation, and the paired difference to another arm with its 95 % interval.

Seed k gives both arms the same initial weights, so that their difference is taken seed by seed: of n differences d_k
with mean m and standard deviation s (n - 1 in the denominator) the interval is m ± t s / sqrt(n), with t the 0.975
quantile of Student's distribution of n - 1 degrees of freedom: 12.71 for two seeds, 4.30 for three, 2.78 for five.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
HALVINGS = 200


class Summary(NamedTuple):
    """One arm's values of a metric."""

    mean: float
    deviation: float | None  # None of a single value


class Difference(NamedTuple):
    """An arm minus the first one, over the same seeds."""

    mean: float
    half_width: float | None  # of the interval; None of a single seed
    verdict: str


def summarize(values: Sequence[float]) -> Summary:
    """Mean and standard deviation.

    >>> summarize([1.0, 2.0, 3.0])
    Summary(mean=2.0, deviation=1.0)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Summary(mean, None)
    return Summary(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))


def compare(values: Sequence[float], first: Sequence[float], *, lower_is_better: bool) -> Difference:
    """An arm's values against the first arm's, seed by seed; better or worse only where the interval leaves out zero.

    Raises:
        ValueError: they are not of the same seeds.
    """
    differences = [one - other for one, other in zip(values, first, strict=True)]
    mean, deviation = summarize(differences)
    if deviation is None:
        return Difference(mean, None, "not told apart with 1 seed: --seeds 3")
    half_width = t_quantile(len(differences) - 1) * deviation / math.sqrt(len(differences))
    if abs(mean) > half_width:
        return Difference(mean, half_width, "better" if (mean < 0) == lower_is_better else "worse")
    return Difference(mean, half_width, f"not told apart (< {half_width:.2g})")


def t_quantile(degrees: int) -> float:
    """t with P(-t < T < t) = 0.95 of Student's distribution, by bisection.

    >>> [round(t_quantile(degrees), 3) for degrees in (1, 2, 3, 4, 10, 30, 1000)]
    [12.706, 4.303, 3.182, 2.776, 2.228, 2.042, 1.962]
    """
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < CONFIDENCE:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, degrees) < CONFIDENCE else (low, middle)
    return high


def t_probability(t: float, degrees: int) -> float:
    """P(-t < T < t) of Student's distribution (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4: finite sums of
    cosines)."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom: there must be 1 or more")
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term, total = (cosine if is_odd else 1.0), 0.0
    for number in range(degrees // 2):
        total += term
        place = 2 * number + 1 + is_odd  # of the next factor: 2/3, 4/5, ... of odd degrees, 1/2, 3/4, ... of even ones
        term *= cosine**2 * place / (place + 1)
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
