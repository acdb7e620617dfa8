"""Distributions of the stored statistics, and what every other threshold on them would keep.

Each statistic gets a grid of about a hundred values, its limits among them. Over the documents that pass all rules of
other statistics it is counted how many lie below each grid value and how many at or below it: with these the number
that any one pair of limits on the grid keeps is exact. For several statistics moved at once there is a sample of the
documents' places on all grids, one byte each, chosen by a hash of their ordinals.

Two passes over the numeric columns of the `statistics` sidecars, one row group in memory; beyond `MAX_ROWS` documents
evenly spread shards stand for all, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.document import read_batches
from corpus.engine import storage
from corpus.engine.stage import shard_name
from corpus.engine.storage import File
from corpus.filters.decide import Limit
from corpus.filters.measure import STATISTICS, stored
from corpus.report.ledger import is_statistic, priorities
from corpus.report.rows import column_names
from corpus.report.summary import share

GRID = 110  # values; with the limits at most 126, so that a place is a byte
NOT_A_NUMBER = 255  # the place of a value that was not measured: no limit excludes it
SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 900_000
MAX_ROWS = 4_000_000
LINEAR_REACH = 20.0  # an axis that reaches this many times further than the limit is bent
QUANTILES = (0.01, 0.5, 0.99)
CHARACTERS = "length.num_chars"
SCORE = "quality.score"
TENTHS = (*(tenth / 10 for tenth in range(1, 10)), math.inf)  # ends of its buckets; a NaN lies behind the last
NOT_MEASURED = "not measured"
BUCKETS = (*(f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}" for tenth in range(10)), NOT_MEASURED)
LENGTHS = (0, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 200_000)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Limits = Mapping[str, Sequence[Limit]]  # by rule, in the recipe's order


@dataclass(frozen=True)
class Distribution:
    """One statistic on its grid; of several ranges of it each over the documents that it judges.

    `below[i]` documents (of those that pass all rules of other statistics) have a value < grid[i], `up_to[i]` one
    <= grid[i]; `characters_*` are the same in characters. `places` are of the sampled documents: 2i + 1 on grid[i], 2i
    just below it.
    """

    name: str
    key: str  # of the statistic
    detail: str  # the reason and the condition of the rule, in words
    limits: Mapping[str, float]  # "min" and "max", where a rule has them
    bend: float  # 0: a linear axis; else the axis is asinh(value / bend)
    grid: tuple[float, ...]
    counts: tuple[int, ...]  # all documents, in [grid[i], grid[i + 1])
    passing_others: int
    below: tuple[int, ...]
    up_to: tuple[int, ...]
    characters_below: tuple[int, ...]
    characters_up_to: tuple[int, ...]
    places: bytes
    quantiles: tuple[float, float, float]  # 1 %, median, 99 % of the sample
    num_below: int  # value < min
    num_above: int  # value > max
    num_documents: int  # with a value

    def axis(self, value: float) -> float:
        """Where a value lies between the ends of the grid, 0 to 1."""
        low, high, at = (math.asinh(v / self.bend) if self.bend else v for v in (self.grid[0], self.grid[-1], value))
        return (at - low) / (high - low)


@dataclass(frozen=True)
class Group:
    """Documents of one kind, and how many of them the filter keeps."""

    name: str
    documents: int
    kept: int

    @property
    def cells(self) -> tuple[str, str, str]:
        """Documents, those kept and their share, as a table shows them."""
        return f"{self.documents:,}", f"{self.kept:,}", share(self.kept, self.documents)


@dataclass(frozen=True)
class Measured:
    """What the statistics of a build say."""

    documents: int
    kept: int
    kept_characters: int
    sampled: int  # documents in `Distribution.places`; equal to `documents` where all are
    distributions: list[Distribution]  # those under a rule first, in its order
    lengths: list[Group]
    labels: dict[str, list[Group]]  # of each labelled statistic
    scores: list[Group]  # all of BUCKETS; empty where nothing has a score


def measure(files: Sequence[File], limits: Limits) -> Measured:
    """Count what some `statistics` files hold."""
    ranges = _Ranges(sum(file.rows for file in files))
    for shard, table in _batches(files):
        ranges.add(shard, table, judged(_values(table), limits))
    names = [*(name for name in limits if name in ranges.low)]
    names += sorted(name for name in ranges.low if name not in limits)
    scales = {name: _Scale(ranges, name, limits.get(name, ())) for name in names}
    tally = _Tally(scales)
    for _, table in _batches(files):
        values = _values(table)
        tally.add(values, judged(values, limits), table.num_rows)
    return Measured(
        documents=tally.documents,
        kept=tally.kept,
        kept_characters=tally.kept_characters,
        sampled=ranges.sampled,
        distributions=[scale.distribution(ranges.sample(name), tally) for name, scale in scales.items()],
        lengths=tally.groups("lengths"),
        labels={key: found for key in sorted(STATISTICS) if (found := tally.groups(key))},
        scores=tally.scores(),
    )


def judged(values: Mapping[str, Floats], limits: Limits) -> dict[str, Floats]:
    """{rule or statistic: float64[documents]}: numbers under the names of the rules that judge them, NaN where another
    range of the same statistic does; labelled statistics are left out."""
    ruled = {tried[0].key for tried in limits.values()}
    found = {
        name: np.where(tried[0].judges(values), values[tried[0].key], np.nan)
        for name, tried in limits.items()
        if tried[0].key in values
    }
    return found | {key: column for key, column in values.items() if key not in ruled and not _labels(key)}


def spread(files: Sequence[File], max_rows: int = MAX_ROWS) -> list[File]:
    """All files, or every n-th so that they hold about `max_rows` rows; always the same ones."""
    total = sum(file.rows for file in files)
    return list(files[:: max(1, -(-total // max_rows))])


class _Ranges:
    """First pass: ends, and a sample of whole rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.low: dict[str, float] = {}
        self.high: dict[str, float] = {}
        self.whole: dict[str, bool] = {}  # all values are whole numbers
        self._sample: dict[str, list[Floats]] = {}
        self.sampled = 0

    def add(self, shard: str, table: pa.Table, columns: Mapping[str, Floats]) -> None:
        wanted = min(SAMPLE_ROWS, SAMPLE_BYTES // max(1, len(columns)))
        if wanted >= self._rows:
            chosen = np.ones(table.num_rows, np.bool_)
        else:
            rows = (
                table["row"].to_numpy().astype(np.int64) if "row" in table.column_names else np.arange(table.num_rows)
            )
            chosen = priorities(shard, rows) < np.uint64(wanted / self._rows * 2.0**64)
        self.sampled += int(chosen.sum())
        for name, values in columns.items():
            self._sample.setdefault(name, []).append(values[chosen])
            values = values[~np.isnan(values)]
            if len(values):
                self.low[name] = min(self.low.get(name, np.inf), float(values.min()))
                self.high[name] = max(self.high.get(name, -np.inf), float(values.max()))
                self.whole[name] = self.whole.get(name, True) and bool((values == np.rint(values)).all())

    def sample(self, name: str) -> Floats:
        """float64[sampled]: one statistic of the sampled documents."""
        return np.concatenate(self._sample[name])


class _Scale:
    """Second pass, one statistic: its grid and what is counted on it."""

    def __init__(self, ranges: _Ranges, name: str, tried: Sequence[Limit]) -> None:
        self.name, self.limits = name, {limit.bound: limit.threshold for limit in tried}
        self.key, self.detail = (tried[0].key, tried[0].detail) if tried else (name, "")
        sample = ranges.sample(name)
        whole = ranges.whole[name] and ranges.high[name] > 1  # a share of 0 or 1 is none
        self.bend, self.grid = _grid(ranges.low[name], ranges.high[name], whole, self.limits, sample)
        self.counts = np.zeros(len(self.grid) + 1, np.int64)
        self.below, self.up_to = (np.zeros((2, len(self.grid) + 1), np.int64) for _ in range(2))
        self.passing_others = self.num_below = self.num_above = 0

    def excluded(self, values: Floats) -> Bools:
        """bool[documents]: beyond a limit of this statistic."""
        low, high = self.limits.get("min", -np.inf), self.limits.get("max", np.inf)
        self.num_below += int((values < low).sum())
        self.num_above += int((values > high).sum())
        return np.asarray((values < low) | (values > high))

    def count(self, values: Floats, characters: Ints, passes_others: Bools) -> None:
        """Add one row group."""
        numbers = ~np.isnan(values)
        self.passing_others += int(passes_others.sum())
        left, right = (np.searchsorted(self.grid, values, side) for side in ("left", "right"))
        size = len(self.grid) + 1
        self.counts += np.bincount(right[numbers], minlength=size)
        chosen = numbers & passes_others
        for total, first in ((self.below, right[chosen]), (self.up_to, left[chosen])):
            total[0] += np.bincount(first, minlength=size)
            total[1] += np.bincount(first, characters[chosen], minlength=size).astype(np.int64)

    def distribution(self, sample: Floats, tally: _Tally) -> Distribution:
        left, right = (np.searchsorted(self.grid, sample, side) for side in ("left", "right"))
        places = np.where(np.isnan(sample), NOT_A_NUMBER, left + right).astype(np.uint8)
        numbers = sample[~np.isnan(sample)]
        quantiles = np.quantile(numbers, QUANTILES, method="inverted_cdf") if len(numbers) else np.zeros(3)
        cumulated = [np.cumsum(one[row])[:-1].tolist() for row in (0, 1) for one in (self.below, self.up_to)]
        return Distribution(
            name=self.name,
            key=self.key,
            detail=self.detail,
            limits=self.limits,
            bend=self.bend,
            grid=tuple(self.grid.tolist()),
            counts=tuple(self.counts[1:].tolist()),
            passing_others=self.passing_others,
            below=tuple(cumulated[0]),
            up_to=tuple(cumulated[1]),
            characters_below=tuple(cumulated[2]),
            characters_up_to=tuple(cumulated[3]),
            places=places.tobytes(),
            quantiles=tuple(quantiles.tolist()),
            num_below=self.num_below,
            num_above=self.num_above,
            num_documents=int(self.counts.sum()),
        )


class _Tally:
    """Second pass, all statistics together."""

    def __init__(self, scales: Mapping[str, _Scale]) -> None:
        self._scales = scales
        self.documents = self.kept = self.kept_characters = 0
        self._groups: dict[str, dict[str, Ints]] = {}

    def add(self, values: Mapping[str, Floats], columns: Mapping[str, Floats], documents: int) -> None:
        """Add one row group."""
        characters = np.nan_to_num(values.get(CHARACTERS, np.zeros(documents))).astype(np.int64)
        excluded = {name: scale.excluded(columns[name]) for name, scale in self._scales.items() if scale.limits}
        failed = np.sum([np.zeros(documents, np.int64), *excluded.values()], axis=0)
        kept = failed == 0
        for name, scale in self._scales.items():
            scale.count(columns[name], characters, kept if name not in excluded else failed == excluded[name])
        self.documents += documents
        self.kept += int(kept.sum())
        self.kept_characters += int(characters[kept].sum())
        if CHARACTERS in values:
            self._group("lengths", np.searchsorted(LENGTHS, characters, "right") - 1, _length_names(), kept)
        for key in filter(_labels, values):
            places = np.nan_to_num(values[key], nan=len(_labels(key))).astype(np.int64)
            self._group(key, places, (*_labels(key), NOT_MEASURED), kept)
        if SCORE in values:
            self._group("scores", np.searchsorted(TENTHS, values[SCORE], "right"), BUCKETS, kept)

    def groups(self, what: str) -> list[Group]:
        return [Group(name, int(n), int(kept)) for name, (n, kept) in self._groups.get(what, {}).items() if n]

    def scores(self) -> list[Group]:
        found = {group.name: group for group in self.groups("scores")}
        return [found.get(name, Group(name, 0, 0)) for name in BUCKETS] if found.keys() - {NOT_MEASURED} else []

    def _group(self, what: str, kinds: Ints, names: Sequence[str], kept: Bools) -> None:
        totals = self._groups.setdefault(what, {name: np.zeros(2, np.int64) for name in names})
        both = [np.bincount(some, minlength=len(names)) for some in (kinds, kinds[kept])]
        for name, *counts in zip(names, *both, strict=True):
            totals[name] += counts


def _length_names() -> list[str]:
    names = [f"{low:,} to {high - 1:,}" for low, high in pairwise(LENGTHS)]
    return [*names, f"{LENGTHS[-1]:,} +"]


def _grid(low: float, high: float, whole: bool, limits: Mapping[str, float], sample: Floats) -> tuple[float, Floats]:
    """The bend of the axis and the grid: even on the axis, rounded, limits exact, all values between its ends."""
    low, high = min(low, *limits.values(), low), max(high, *limits.values(), high)
    if low == high:
        high = low + 1.0
    sizes = np.abs(np.array([limit for limit in limits.values() if limit] or sample[sample != 0]))
    typical = float(np.nanmin(sizes) if limits else np.nanmedian(sizes)) if np.isfinite(sizes).any() else 1.0
    reach = max(abs(low), abs(high))
    bend = typical if reach > LINEAR_REACH * typical else 0.0
    if bend:
        inner = {
            _rounded(value, whole)
            for value in (bend * np.sinh(np.linspace(math.asinh(low / bend), math.asinh(high / bend), GRID))).tolist()
        }
    else:
        step = _step((high - low) / GRID, whole)
        first = math.ceil(low / step)
        inner = {float(round(index * step, 12)) for index in range(first, math.floor(high / step) + 1)}
    inner = {value for value in inner if low < value < high}
    return bend, np.array(sorted({low, high, *inner, *map(float, limits.values())}))


def _step(spacing: float, whole: bool) -> float:
    """1, 2 or 5 times a power of ten, at least `spacing`; for whole numbers at least 1.

    >>> _step(0.0091, False), _step(0.013, False), _step(0.3, True)
    (0.01, 0.02, 1.0)
    """
    power = 10.0 ** math.floor(math.log10(spacing))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= spacing)
    return max(1.0, step) if whole else float(round(step, 12))


def _rounded(value: float, whole: bool) -> float:
    """Two significant digits; of whole numbers none behind the point.

    >>> _rounded(0.123456, False), _rounded(1234.5, True), _rounded(1.4, True)
    (0.12, 1200.0, 1.0)
    """
    digits = 1 - math.floor(math.log10(abs(value))) if value else 0
    return float(round(value, min(digits, 0) if whole else digits))


def _batches(files: Sequence[File]) -> Iterator[tuple[str, pa.Table]]:
    names = [[name for name in column_names(file) if is_statistic(name) or name == "row"] for file in files]
    every = dict.fromkeys(name for some in names for name in some)  # a source's own rules are in its files only
    for file, some in zip(files, names, strict=True):
        for table in read_batches(storage.fetch(file.url), some):
            for missing in (name for name in every if name not in some):
                table = table.append_column(missing, pa.nulls(table.num_rows, pa.float64()))
            yield shard_name(file), table


def _values(table: pa.Table) -> dict[str, Floats]:
    """{statistic: float64[documents]}, NaN where nothing was measured. Infinities count as not measured."""
    names = [field.name for field in table.schema if pa.types.is_floating(field.type) or _labels(field.name)]
    return {name: np.where(np.isfinite(values), values, np.nan) for name, values in stored(table, names).items()}


def _labels(key: str) -> tuple[str, ...]:
    return STATISTICS[key].labels if key in STATISTICS else ()
