"""What a statistic is: a named number of a document, computed for a whole batch from what the kernels counted.

A family is a module of functions under `@statistic`; its name and the function's make the key that recipe, ledger,
report and tests use: `repetition.top_2_gram_ratio`. A rule is a statistic and an allowed range, so rules are data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.filters import kernels
from corpus.filters.tables import class_table

if TYPE_CHECKING:
    from corpus.filters.blocklist import Blocklist

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Batch:
    """Documents as Arrow buffers, and what each kernel counted in them, computed on first use."""

    def __init__(self, texts: pa.LargeStringArray, blocklist: Blocklist) -> None:
        self.offsets, self.data = buffers(texts)
        self._blocklist = blocklist

    @cached_property
    def lines(self) -> Ints:
        """int64[documents, NUM_LINE_COLUMNS]: class counts and line statistics."""
        out = np.empty((len(self.offsets) - 1, kernels.NUM_LINE_COLUMNS), np.int64)
        kernels.measure_lines(self.offsets, self.data, class_table(), out)
        return out

    @cached_property
    def _repetition(self) -> tuple[Ints, Floats]:
        documents = len(self.offsets) - 1
        out = np.empty((documents, kernels.NUM_REPETITION_COLUMNS), np.int64)
        entropy = np.empty(documents, np.float64)
        kernels.measure_repetition(self.offsets, self.data, class_table(), out, entropy)
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
    def blocklist(self) -> tuple[Ints, Ints]:
        """Characters inside hits and distinct words hit."""
        return self._blocklist.measure(self.offsets, self.data)

    @property
    def num_chars(self) -> Ints:
        """int64[documents]: code points."""
        return self.column(kernels.NUM_CHARS)

    def column(self, *columns: int) -> Ints:
        """The sum of columns of `lines`."""
        total: Ints = self.lines[:, columns].sum(axis=1)
        return total


@dataclass(frozen=True)
class Statistic:
    """A registered statistic: `family.name`, its unit, and the function from a batch to float64[documents]."""

    family: str
    name: str
    unit: str
    doc: str
    compute: Callable[[Batch], Floats]

    @property
    def key(self) -> str:
        """`family.name`."""
        return f"{self.family}.{self.name}"


REGISTRY: dict[str, Statistic] = {}  # by key, in the order of import; `measure.STATISTICS` is in the ledger's order


def statistic(unit: str) -> Callable[[Callable[[Batch], Floats]], Callable[[Batch], Floats]]:
    """Register a function of a family's module as a statistic."""

    def register(compute: Callable[[Batch], Floats]) -> Callable[[Batch], Floats]:
        family = compute.__module__.rsplit(".", 1)[-1]
        entry = Statistic(family, compute.__name__, unit, (compute.__doc__ or "").strip(), compute)
        REGISTRY[entry.key] = entry
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
