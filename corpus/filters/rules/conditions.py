"""Conditions: of which documents a range, a bucket or a rule of one's own speaks, by their statistics.

    when = { code_ratio = { min = 0.2 }, genre = ["verse", "code"] }

All must hold. A key is a statistic's whole name (quoted, or dotted) or its last part where only one statistic has it. A
labelled statistic takes a label or several. A value that was not measured, NaN, fulfils no condition. All statistics of
every document are measured and stored anyway, so a condition costs nothing, and `retune` is exact under it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from corpus.engine.config import Strict, nearest_of
from corpus.filters.measure import STATISTICS
from corpus.filters.statistic import Floats
from corpus.safe import snippet

OWN = "rules"  # the family of what rules of one's own measure
BOUNDS = {"min", "max"}

Bools = npt.NDArray[np.bool_]
Measured = Mapping[str, Floats]


class Bounds(Strict):
    """min <= value <= max."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}; nothing could pass")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """min and max, infinite where there is none."""
        return -math.inf if self.min is None else self.min, math.inf if self.max is None else self.max

    def lies_in(self, other: Bounds) -> bool:
        """Whether the other allows all that this one allows."""
        return other.ends[0] <= self.ends[0] and self.ends[1] <= other.ends[1]

    def bounds(self) -> dict[str, float]:
        """Those that there are."""
        return {name: bound for name, bound in (("min", self.min), ("max", self.max)) if bound is not None}


class Clause(Bounds):
    """What a condition asks of one statistic: a range, or of a labelled one some labels."""

    key: str
    labels: tuple[str, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _decides(self) -> Self:
        entry = STATISTICS[self.key]
        if bool(entry.labels) != bool(self.labels):
            wanted = f"a label or a list of labels: {', '.join(entry.labels)}" if entry.labels else "a range of numbers"
            raise ValueError(f"{self.key} takes {wanted}")
        for label in set(self.labels) - set(entry.labels):
            raise ValueError(f"{self.key} is never {label!r}; it is one of {', '.join(entry.labels)}")
        for name, bound in self.bounds().items():
            entry.check_limit(f"{self.key}: {name}", bound)
        low, high = entry.extremes
        if set(self.labels) == set(entry.labels) and self.ends[0] <= low and high <= self.ends[1]:
            raise ValueError(f"{self.key}: it is never otherwise, so this holds always: leave it out")
        return self

    def holds(self, measured: Measured) -> Bools:
        """bool[documents]."""
        values, (low, high) = measured[self.key], self.ends
        if self.labels:
            return np.isin(values, [STATISTICS[self.key].labels.index(label) for label in self.labels])
        return np.asarray((values >= low) & (values <= high))

    def implies(self, other: Clause) -> bool:
        """Whether every document that fulfils this one fulfils the other."""
        return self.key == other.key and self.lies_in(other) and set(self.labels) <= set(other.labels)

    def __str__(self) -> str:
        signs = {"min": ">=", "max": "<="}
        ranges = [f"{self.key} {signs[name]} {bound:.12g}" for name, bound in self.bounds().items()]
        return " and ".join(ranges) or f"{self.key} is {' or '.join(self.labels)}"


Condition = tuple[Clause, ...]


def holds(condition: Condition, measured: Measured) -> Bools:
    """bool[documents], or one for all of them where nothing is asked."""
    return np.asarray(np.logical_and.reduce([clause.holds(measured) for clause in condition]), np.bool_)


def implies(condition: Condition, other: Condition) -> bool:
    """Whether every document that fulfils one fulfils the other, told clause by clause."""
    return all(any(mine.implies(clause) for mine in condition) for clause in other)


def text(condition: Condition) -> str:
    """`where blocks.code_ratio >= 0.2`; empty where nothing is asked."""
    return f"where {' and '.join(map(str, condition))}" if condition else ""


def as_json(condition: Condition) -> dict[str, Any]:
    """As a recipe says it, with whole names."""
    return {clause.key: list(clause.labels) or clause.bounds() for clause in condition}


def find_statistic(name: str) -> str:
    """The key of a statistic, by it or by its last part; raises at any other name.

    Raises:
        ValueError: none, or several have it.
    """
    last = {key: key.partition(".")[2] for key in STATISTICS}
    found = [name] if name in STATISTICS else [key for key in STATISTICS if last[key] == name]
    if len(found) > 1:
        raise ValueError(f"{name} is the name of {' and '.join(found)}: write which")
    if name.startswith(f"{OWN}."):
        raise ValueError(f"{name} is a rule; conditions and expressions are of statistics: write what it measures")
    if not found:
        hint = nearest_of(name[:100], [*STATISTICS, *last.values()])
        raise ValueError(
            f"{snippet(name)}: no such statistic; {hint or 'their names are the columns of filter --statistics'}"
        )
    return found[0]


def read_condition(value: Any) -> Condition:
    """A recipe's `when`; raises `ValueError` where it asks nothing, what is never or always so, or of what is not."""
    if isinstance(value, tuple):  # read before
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("a condition says what statistics must be, for example when = { code_ratio = { min = 0.2 } }")
    found: dict[str, Clause] = {}
    for name, wanted in _flat(value):
        if (key := find_statistic(name)) in found:
            raise ValueError(f"{key} is asked for twice: make it one")
        if isinstance(wanted, Mapping):
            if wrong := sorted(wanted.keys() - BOUNDS) or [
                one for one in wanted if type(wanted[one]) not in (int, float)
            ]:
                raise ValueError(f"{key}: {wrong[0]} is not as it should be: a range is {{ min = 0.1, max = 0.5 }}")
            found[key] = Clause(key=key, **wanted)
        elif isinstance(wanted, str | list) and all(isinstance(one, str) for one in wanted):
            found[key] = Clause(key=key, labels=tuple([wanted] if isinstance(wanted, str) else wanted))
        else:
            raise ValueError(f"{key} takes a range {{ min = 0.1, max = 0.5 }}, or where it has labels one or a list")
    if not found:
        raise ValueError(f"{', '.join(value)}: asks nothing of any statistic")
    return tuple(found[key] for key in sorted(found))


def _flat(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys are tables in tables."""
    families = {key.partition(".")[0] for key in (*STATISTICS, OWN)}
    for name, wanted in value.items():
        if name in families and isinstance(wanted, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in wanted.items())
        else:
            yield name, wanted


When = Annotated[Condition, BeforeValidator(read_condition)]
