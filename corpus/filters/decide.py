"""Decide: which of the recipe's limits a document fails first. One place for the filter, `retune` and the report.

A rule has up to two limits, and limits are tried in the recipe's order, min before max. A value that is NaN was not
measured and passes. Of a list of ranges of one statistic the first whose condition holds judges a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.filters.rules.conditions import Bools, Bounds, Condition, Measured, When, as_json, holds, text
from corpus.filters.statistic import Floats

PASSES = -1


class Rule(Bounds):
    """A statistic and its allowed range; without min and max an exemption from the ranges behind it."""

    key: str
    when: When = ()
    place: int | None = None  # in a list of ranges
    reason: str = ""  # of a rule of one's own

    def as_json(self) -> list[Any]:
        """`[key, min, max]`, and where there is one of them condition, place and reason; `read_rules` reads it."""
        more = [as_json(self.when), self.place, self.reason]
        return [self.key, self.min, self.max, *(more if self.when or self.place is not None or self.reason else [])]


def read_rules(rules: Iterable[Sequence[Any]]) -> tuple[Rule, ...]:
    """Rules from a stage's configuration; raises `ValueError` where they are none."""
    found = []
    for key, low, high, *rest in rules:
        when, place, reason = rest or [None, None, ""]
        found.append(Rule(key=key, min=low, max=high, when=when or (), place=place, reason=reason))
    return tuple(found)


class Limit(NamedTuple):
    """One side of a rule: documents whose statistic `key` is below a "min", or above a "max", are dropped."""

    key: str
    bound: str
    threshold: float
    place: int | None = None  # of its range in a list
    when: Condition = ()  # it judges documents for which this holds,
    unless: tuple[Condition, ...] = ()  # and none of these, which stand before it
    reason: str = ""  # of a rule of one's own

    @property
    def rule(self) -> str:
        """`length.num_chars`, or in a list `length.num_chars.0`: the recipe's key of the range."""
        return self.key if self.place is None else f"{self.key}.{self.place}"

    @property
    def name(self) -> str:
        """`length.num_chars.min`: the recipe's key, unique among its limits."""
        return f"{self.rule}.{self.bound}"

    @property
    def detail(self) -> str:
        """Its reason and its condition in words."""
        return "; ".join(filter(None, (self.reason, text(self.when))))

    @property
    def keys(self) -> tuple[str, ...]:
        """The statistics that it reads, its own first."""
        return (self.key, *(clause.key for condition in (self.when, *self.unless) for clause in condition))

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"key": self.key, "bound": self.bound, "threshold": self.threshold, "detail": self.detail}

    def excludes(self, values: Floats) -> Bools:
        """bool[documents]: beyond the limit.

        >>> Limit("length.num_chars", "min", 50.0).excludes(np.array([49.0, 50.0, np.nan]))
        array([ True, False, False])
        """
        return values < self.threshold if self.bound == "min" else values > self.threshold

    def judges(self, measured: Measured) -> Bools:
        """bool[documents], or one for all: whether it is this range that judges."""
        judged = holds(self.when, measured)
        for condition in self.unless:
            judged = judged & ~holds(condition, measured)
        return judged

    def fails(self, measured: Measured) -> Bools:
        """bool[documents]: judged by it, and beyond it."""
        return self.excludes(measured[self.key]) & self.judges(measured)


def limits(rules: Sequence[Rule]) -> list[Limit]:
    """The limits of some rules, in the order in which they are tried."""

    def before(rule: Rule) -> tuple[Condition, ...]:
        listed = [one.when for one in rules if one.key == rule.key and one.place is not None]
        return tuple(listed[: rule.place or 0])

    return [
        Limit(rule.key, bound, float(threshold), rule.place, rule.when, before(rule), rule.reason)
        for rule in rules
        for bound, threshold in rule.bounds().items()
    ]


def first_failed(measured: Measured, tried: Sequence[Limit], documents: int) -> npt.NDArray[np.int64]:
    """int64[documents]: the index in `tried` of the first limit that a document fails, or `PASSES`."""
    failed = np.full(documents, PASSES, np.int64)
    for index in range(len(tried) - 1, -1, -1):  # backwards: the first one is written last
        failed[tried[index].fails(measured)] = index
    return failed
