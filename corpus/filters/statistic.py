"""What a statistic is: a named number of a document, computed for a whole batch from what the kernels counted.

A statistic is a function under `@statistic`. `measure.FAMILIES` says which modules are a family; the family's name and
the function's make the key that recipe, ledger, report and tests use: `repetition.top_2_gram_ratio`. A rule is a
statistic and an allowed range, so rules are data. A labelled statistic is one of a few words; it has no range, and
stands in the conditions of rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.filters.site_talk import find_talk
from corpus.kernels import line_kernel, repetition_kernel
from corpus.kernels.automaton import Hits
from corpus.kernels.tables import class_table
from corpus.personal_data import PersonalData, find_personal_data

if TYPE_CHECKING:
    from corpus.filters.resources import Resources

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Batch:
    """Documents as Arrow buffers, and what each kernel counted in them, computed on first use.

    `urls` has a row a document, where the caller knows them; `resources` are the recipe's lists and models.
    """

    def __init__(self, texts: pa.LargeStringArray, resources: Resources, urls: pa.StringArray | None = None) -> None:
        self.texts = texts
        self.offsets, self.data = buffers(texts)
        self.resources = resources
        self.urls = urls

    @cached_property
    def lines(self) -> Ints:
        """int64[documents, NUM_LINE_COLUMNS]: class counts and line statistics."""
        out = np.empty((len(self.offsets) - 1, line_kernel.NUM_LINE_COLUMNS), np.int64)
        line_kernel.measure_lines(self.offsets, self.data, class_table(), out)
        return out

    @cached_property
    def _repetition(self) -> tuple[Ints, Floats]:
        documents = len(self.offsets) - 1
        out = np.empty((documents, repetition_kernel.NUM_REPETITION_COLUMNS), np.int64)
        entropy = np.empty(documents, np.float64)
        repetition_kernel.measure_repetition(self.offsets, self.data, class_table(), out, entropy)
        return out, entropy

    @property
    def repetition(self) -> Ints:
        """int64[documents, NUM_REPETITION_COLUMNS]: repeated n-grams."""
        return self._repetition[0]

    @property
    def entropy(self) -> Floats:
        """float64[documents]: entropy of single characters, nats."""
        return self._repetition[1]

    @cached_property
    def _listed(self) -> tuple[Ints, Hits]:
        return self.resources.blocklist.measure(self.offsets, self.data)

    @property
    def blocklist(self) -> Ints:
        """int64[documents, NUM_WORD_COLUMNS]: characters inside words, different words."""
        return self._listed[0]

    @cached_property
    def talk(self) -> Ints:
        """int64[documents, 3]: characters of site talk, of a dead page's sentences, and of all that is no label."""
        return find_talk(self.offsets, self.data, self.num_chars, self._listed[1])

    @cached_property
    def personal(self) -> PersonalData:
        """Spans and counts of personal data."""
        return find_personal_data(self.texts, self.offsets, self.data)

    @cached_property
    def bigrams(self) -> Ints:
        """int64[documents, NUM_COLUMNS]: adjacent Han pairs and the sums of their scores."""
        return self.resources.bigrams.measure(self.offsets, self.data)

    @cached_property
    def quality(self) -> Floats:
        """float64[documents, classes]: probabilities of the recipe's quality model, which must be there."""
        assert self.resources.quality is not None
        return self.resources.quality.measure(self.offsets, self.data)

    @cached_property
    def words(self) -> Floats:
        """float64[documents, columns]: what is counted in words; slow, so only where the recipe names a segmenter."""
        assert self.resources.count_words is not None
        return self.resources.count_words(self.texts)

    @property
    def num_chars(self) -> Ints:
        """int64[documents]: code points."""
        return self.column(line_kernel.NUM_CHARS)

    def column(self, *columns: int) -> Ints:
        """The sum of columns of `lines`."""
        total: Ints = self.lines[:, columns].sum(axis=1)
        return total


Compute = Callable[[Batch], Floats]  # to float64[documents]


@dataclass(frozen=True)
class Statistic:
    """A registered statistic: its unit, what it is, and the function that computes it."""

    unit: str
    doc: str
    compute: Compute
    optional: bool  # NaN here and null in tables where the recipe names no model for it
    labels: tuple[str, ...] = ()  # of a labelled one: `compute` gives places in it, tables hold the strings

    def field(self, key: str) -> pa.Field:
        """Its column in tables."""
        kind = pa.string() if self.labels else pa.float64()
        return pa.field(key, kind, nullable=self.optional or bool(self.labels))

    def column(self, values: Floats) -> pa.Array:
        """What was computed, as tables hold it: NaN, not measured, is null."""
        if self.labels:
            return pa.array(self.labels).take(pa.array(values, from_pandas=True).cast(pa.int64()))
        return pa.array(values, from_pandas=self.optional)

    def values(self, column: pa.ChunkedArray) -> Floats:
        """What was computed, from a table's column; NaN where it is null or no label of ours."""
        if self.labels:
            column = pc.index_in(column, pa.array(self.labels))
        return np.asarray(column.to_numpy(), np.float64)

    @property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest value that there can be, by the unit."""
        if self.unit.startswith("share") or self.unit in ("probability", "0 or 1"):
            return 0.0, 1.0
        return -math.inf if self.unit == "nats" else 0.0, math.inf

    def check_limit(self, name: str, limit: float) -> None:
        """Refuse a limit that is no value of the statistic, as a percentage is no share; raises `ValueError`."""
        low, high = self.extremes
        if not low <= limit <= high:
            percent = f"; did you mean {limit / 100:g}?" if high < limit <= 100 else ""
            span = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
            raise ValueError(f"{name} {limit:g} is no value of it, which is {span} ({self.unit}){percent}")


REGISTRY: dict[str, dict[str, Statistic]] = {}  # by module and name; `measure.STATISTICS` has them by key


def statistic(
    unit: str, *, name: str = "", doc: str = "", optional: bool = False, labels: tuple[str, ...] = ()
) -> Callable[[Compute], Compute]:
    """Register a function as a statistic under its own name and docstring, or under those given."""

    def register(compute: Compute) -> Compute:
        entry = Statistic(unit, (doc or compute.__doc__ or "").strip(), compute, optional, labels)
        REGISTRY.setdefault(compute.__module__, {})[name or compute.__name__] = entry
        return compute

    return register


def share(part: Any, whole: Any) -> Floats:
    """part / whole as float64; 0 where there is nothing to share."""
    return np.asarray(part, np.float64) / np.maximum(np.asarray(whole, np.float64), 1.0)


def buffers(texts: pa.LargeStringArray) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Offsets (int64[documents + 1]) and bytes of a large_string array without nulls, no copy."""
    _, offsets, data = texts.buffers()
    if offsets is None or len(texts) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1], bytes_
