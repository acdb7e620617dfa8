"""Decide: which of the recipe's limits a document fails first. One place for the filter, `retune` and the report.

A rule has up to two limits, and limits are tried in the recipe's order, min before max. A value that is NaN was not
measured and passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.config import Strict

PASSES = -1


class Rule(Strict):
    """A statistic and its allowed range."""

    key: str
    min: float | None
    max: float | None


class Limit(NamedTuple):
    """One side of a rule: documents whose statistic `key` is below a "min", or above a "max", are dropped."""

    key: str
    bound: str
    threshold: float

    @property
    def name(self) -> str:
        """`length.num_chars.min`: unique among the limits of a recipe."""
        return f"{self.key}.{self.bound}"

    def excludes(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """bool[documents]: beyond the limit.

        >>> Limit("length.num_chars", "min", 50.0).excludes(np.array([49.0, 50.0, np.nan]))
        array([ True, False, False])
        """
        return values < self.threshold if self.bound == "min" else values > self.threshold


def limits(rules: Iterable[Rule]) -> list[Limit]:
    """The limits of some rules, in the order in which they are tried."""
    return [
        Limit(rule.key, bound, float(threshold))
        for rule in rules
        for bound, threshold in (("min", rule.min), ("max", rule.max))
        if threshold is not None
    ]


def first_failed(
    measured: Mapping[str, npt.NDArray[np.float64]], tried: Sequence[Limit], documents: int
) -> npt.NDArray[np.int64]:
    """int64[documents]: the index in `tried` of the first limit that a document fails, or `PASSES`."""
    failed = np.full(documents, PASSES, np.int64)
    for index in range(len(tried) - 1, -1, -1):  # backwards: the first one is written last
        failed[tried[index].excludes(measured[tried[index].key])] = index
    return failed
