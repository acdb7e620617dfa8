"""Which corpus of several gives each sample: periodic, computed once, and never further from the weights than one
sample.

Tijdeman's chairman assignment (R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980): with K
corpora of shares w_c that sum to one, after any number s of samples the number taken from corpus c satisfies

    |count_c(s) - w_c s| <= 1 - 1 / (2 K - 2),

and no method does better for all shares. The (x + 1)-th sample of a corpus may not come before the place from which
the count would not be too high (its release) and must have come before the count would be too low (its deadline); of
the released ones, take the earliest deadline. A greedy rule that takes the corpus furthest behind, as Megatron's, has
no such bound for K > 2. After one period (the common denominator of the shares) all counts are exact and everything
repeats, so that sample 10^15 is one division away.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data.order import Int64Array

MAX_PERIOD = 100_000
MAX_CORPORA = 2**15 - 1  # their numbers are int16


class Blend:
    """The corpus of each sample, and the sample's number in that corpus.

    Args:
        weights: Positive, relative to each other. Exact where their common denominator is 100,000 at most, else rounded
            to parts of 100,000 (largest remainders first); `weights` then says what they became. They sum to one.
        names: What errors call the corpora; without, their numbers from 0.

    Memory: 10 bytes a place of the period.

    Raises:
        UsageError: no corpus, too many, or one whose weight is not positive or rounds to nothing.
    """

    def __init__(self, weights: Sequence[Fraction], names: Sequence[str] = ()) -> None:
        self.counts = np.array(period_counts(weights, names), dtype=np.int64)  # samples of each corpus in a period
        self.period = int(self.counts.sum())
        self.weights = [Fraction(int(count), self.period) for count in self.counts]
        self.corpora = chairman_assignment(self.counts)
        self._firsts = np.cumsum(self.counts) - self.counts  # where a corpus begins in `_places`
        self._places = np.argsort(self.corpora, kind="stable").astype(np.int32)  # of corpus 0, of corpus 1, ...
        self._ranks = np.empty(self.period, dtype=np.int32)  # samples of the same corpus before, in the period
        self._ranks[self._places] = np.arange(self.period) - np.repeat(self._firsts, self.counts)

    def origins(self, start: int, count: int) -> tuple[NDArray[np.int16], Int64Array]:
        """Of each of the samples [start, start + count): its corpus, and its number among the corpus' samples."""
        cycles, places = np.divmod(np.arange(start, start + count, dtype=np.int64), self.period)
        corpora = self.corpora[places]
        return corpora, cycles * self.counts[corpora] + self._ranks[places]

    def samples(self, corpus: int, indices: Int64Array) -> Int64Array:
        """The samples of the run that took the samples `indices` of a corpus: the inverse of `origins`."""
        cycles, ranks = np.divmod(indices, self.counts[corpus])
        places: Int64Array = self._places[self._firsts[corpus] + ranks].astype(np.int64)
        return cycles * self.period + places


def period_counts(weights: Sequence[Fraction], names: Sequence[str] = ()) -> list[int]:
    """How many samples each corpus has in one period: the smallest whole numbers in proportion to the weights.

    >>> period_counts([Fraction("0.7"), Fraction("0.2"), Fraction("0.1")])
    [7, 2, 1]
    """
    names = names or [str(number) for number in range(len(weights))]
    if not 1 <= len(weights) <= MAX_CORPORA:
        raise UsageError(f"{len(weights)} corpora: 1 to {MAX_CORPORA:,} can be blended.")
    for name, weight in zip(names, weights, strict=True):
        if weight <= 0:
            raise UsageError(f"corpus {name}: its weight is {weight}. Give it one above 0, or leave the corpus out.")
    total = sum(weights, Fraction(0))
    shares = [weight / total for weight in weights]
    period = lcm(*(share.denominator for share in shares))
    if period <= MAX_PERIOD:
        return [int(share * period) for share in shares]
    counts = round_to_sum([share * MAX_PERIOD for share in shares])
    for name, share, count in zip(names, shares, counts, strict=True):
        if count == 0:
            raise UsageError(
                f"corpus {name}: its share of {float(share):.2g} is less than one sample in {MAX_PERIOD:,}, so that it "
                "would never be read. Give it a larger weight, or leave it out."
            )
    divisor = gcd(*counts)
    return [count // divisor for count in counts]


def round_to_sum(values: Sequence[Fraction]) -> list[int]:
    """Whole numbers with the same sum, which is one: each rounded down, those with the largest remainders up.

    >>> round_to_sum([Fraction("2.5"), Fraction("1.2"), Fraction("0.3")])
    [3, 1, 0]
    """
    floors = [int(value) for value in values]
    by_remainder = sorted(range(len(values)), key=lambda number: floors[number] - values[number])
    for number in by_remainder[: int(sum(values)) - sum(floors)]:
        floors[number] += 1
    return floors


def chairman_assignment(counts: Int64Array) -> NDArray[np.int16]:
    """The corpus of each place of a period in which corpus `c` comes `counts[c]` times: int16 [sum of counts].

    In units of 1 / (2 K - 2) and with w = counts[c] / period, the (x + 1)-th sample of a corpus is released at the
    first place j (from 1) where w j - x >= 1, and due at the last where w (j - 1) - x <= 2 K - 3.
    """
    period, unit = int(counts.sum()), max(1, 2 * len(counts) - 2)
    corpora = np.repeat(np.arange(len(counts)), counts)
    before = (np.arange(period) - np.repeat(np.cumsum(counts) - counts, counts)) * unit  # x, at most 10^5 x 2^16
    scaled = counts[corpora] * unit
    releases = -(-period * (before + 1) // scaled)
    deadlines = period * (before + unit - 1) // scaled + 1
    by_release = np.argsort(releases, kind="stable")
    jobs = (deadlines[by_release] * len(counts) + corpora[by_release]).tolist()  # in the order of deadlines
    num_released = np.searchsorted(releases[by_release], np.arange(1, period + 1), side="right").tolist()
    waiting: list[int] = []
    chosen, first = [], 0
    for stop in num_released:
        for job in jobs[first:stop]:
            heapq.heappush(waiting, job)
        first = stop
        chosen.append(heapq.heappop(waiting) % len(counts))
    return np.array(chosen, dtype=np.int16)
