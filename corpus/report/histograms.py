"""Distributions of the statistics that the filter stage stored, with the limits of their rules.

Two passes over the numeric columns of the `statistics` sidecars (ranges, then counts), one row group in memory. Bins
are about equally wide on the axis and a limit is always an edge between two of them, so a bar never lies on both
sides. Both cost 150 ns a value, reading included; beyond `MAX_ROWS` documents evenly spread shards stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.document import read_batches
from corpus.engine import storage
from corpus.engine.storage import File
from corpus.report.ledger import column_names, is_statistic

BINS = 40
FINE_BINS = 2048
MAX_ROWS = 4_000_000
LOG_FROM = 1000.0  # an axis that reaches this far is logarithmic
QUANTILES = (0.01, 0.5, 0.99)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Histogram:
    """One statistic. `counts[i]` documents have a value in [edges[i], edges[i + 1])."""

    name: str
    limits: Mapping[str, float]  # "min" and "max", where a rule has them
    is_log: bool
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    quantiles: tuple[float, float, float]  # 1 %, median, 99 %, to within a 2,048th of the axis
    num_below: int  # value < min
    num_above: int  # value > max
    num_documents: int


def histograms(files: Sequence[File], limits: Mapping[str, Mapping[str, float]]) -> list[Histogram]:
    """Histograms of all statistics in some `statistics` files; those under a rule first, in its order."""
    scales = {name: _Scale(low, high, limits.get(name, {})) for name, (low, high) in _ranges(files).items()}
    for table in _batches(files):
        for name, scale in scales.items():
            scale.count(_values(table, name))
    names = [*(name for name in limits if name in scales), *sorted(name for name in scales if name not in limits)]
    return [scales[name].histogram(name) for name in names]


def spread(files: Sequence[File], max_rows: int = MAX_ROWS) -> list[File]:
    """All files, or every n-th so that they hold about `max_rows` rows; always the same ones."""
    total = sum(file.rows for file in files)
    return list(files[:: max(1, -(-total // max_rows))])


class _Scale:
    """The axis of one statistic and what has been counted on it so far."""

    def __init__(self, low: float, high: float, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.range = low, high
        low, high = min(low, *limits.values(), low), max(high, *limits.values(), high)
        self.is_log = low >= 0 and high >= LOG_FROM
        self.low, self.high = self._to_axis(np.array([low, high]))
        if self.low == self.high:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self.edges = self._edges()
        self.counts = np.zeros(len(self.edges) - 1, np.int64)
        self.fine = np.zeros(FINE_BINS, np.int64)
        self.num_below = self.num_above = 0

    def count(self, values: Floats) -> None:
        """Add the values of one row group."""
        axis = self._to_axis(values)
        self.counts += np.histogram(axis, self.edges)[0]
        self.fine += np.histogram(axis, FINE_BINS, (self.low, self.high))[0]
        self.num_below += int((values < self.limits.get("min", -np.inf)).sum())
        self.num_above += int((values > self.limits.get("max", np.inf)).sum())

    def histogram(self, name: str) -> Histogram:
        """What was counted, in the statistic's own unit."""
        total = int(self.fine.sum())
        cumulated = np.cumsum(self.fine)
        places = np.searchsorted(cumulated, [max(1, round(share * total)) for share in QUANTILES])
        axis = self.low + places * (self.high - self.low) / (FINE_BINS - 1)  # the ends of the axis are exact
        low, middle, high = np.clip(self._from_axis(axis), *self.range).tolist()
        return Histogram(
            name=name,
            limits=dict(self.limits),
            is_log=self.is_log,
            edges=tuple(self._from_axis(self.edges).tolist()),
            counts=tuple(self.counts.tolist()),
            quantiles=(low, middle, high),
            num_below=self.num_below,
            num_above=self.num_above,
            num_documents=total,
        )

    def _edges(self) -> Floats:
        """About `BINS` equal bins, cut so that each limit is an edge."""
        cuts = sorted({self.low, self.high, *self._to_axis(np.array(list(self.limits.values()), float)).tolist()})
        pieces = [
            np.linspace(left, right, max(1, round(BINS * (right - left) / (self.high - self.low))), endpoint=False)
            for left, right in pairwise(cuts)
        ]
        return np.concatenate([*pieces, [self.high]])

    def _to_axis(self, values: Floats) -> Floats:
        return np.log1p(values) if self.is_log else values

    def _from_axis(self, axis: Floats) -> Floats:
        return np.expm1(axis) if self.is_log else axis


def _ranges(files: Sequence[File]) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for table in _batches(files):
        for name in table.column_names:
            values = _values(table, name)
            low, high = ranges.get(name, (np.inf, -np.inf))
            ranges[name] = (float(values.min(initial=low)), float(values.max(initial=high)))
    return {name: (low, high) for name, (low, high) in ranges.items() if low <= high}


def _batches(files: Sequence[File]) -> Iterator[pa.Table]:
    for file in files:
        names = [name for name in column_names(file) if is_statistic(name)]
        yield from read_batches(storage.fetch(file.url), names)


def _values(table: pa.Table, name: str) -> Floats:
    values = np.asarray(table[name].drop_null().to_numpy(), np.float64)
    return values[np.isfinite(values)]
