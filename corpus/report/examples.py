"""The stored samples of all shards, cut down to the few that a page shows: on each side of a limit, and by score."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.document import read_table
from corpus.engine import storage
from corpus.engine.stage import Folder, shard_name
from corpus.filters.decide import Limit
from corpus.report.distributions import BUCKETS, SCORE, TENTHS, spread
from corpus.report.ledger import is_statistic
from corpus.report.rows import column_names

NEAREST = 5  # a side of a limit
ELSEWHERE = 5
A_BUCKET = 3  # kept ones, and as many dropped ones
MAX_ROWS = 200_000  # samples read


@dataclass(frozen=True)
class Sample:
    """A document on one side of a limit; URL and text are short, masked and free of invisible characters."""

    limit: Limit
    dropped: bool
    value: float
    name: str  # ordinal: what `explain` takes
    url: str
    text: str
    statistics: Mapping[str, float | str | None]


def read_samples(folder: Folder, limits: Mapping[str, Sequence[Limit]]) -> list[Sample]:
    """Samples of the filter stage, limit by limit, dropped ones first and nearest to the threshold first.

    On each side there are the `NEAREST` of all shards and up to `ELSEWHERE` others; no two read the same.
    """
    order = {limit.name: limit for tried in limits.values() for limit in tried}
    found: dict[tuple[str, bool], list[Sample]] = {}
    for file in spread(folder.files("samples"), MAX_ROWS):
        for row in read_table(storage.fetch(file.url)).to_pylist():
            for name in row["chosen_for"]:
                if name in order and row.get(order[name].key) is not None:
                    sample = _sample(order[name], shard_name(file), row)
                    found.setdefault((name, sample.dropped), []).append(sample)
        found = {key: _best(samples) for key, samples in found.items()}
    return [sample for name in order for dropped in (True, False) for sample in found.get((name, dropped), [])]


def read_scored(folder: Folder) -> dict[str, list[Sample]]:
    """By bucket of the quality score the first samples in the order of their ids, which are hashes; dropped ones
    first, no two the same."""
    found: dict[tuple[str, bool], list[tuple[bytes, str, Sample]]] = {}
    for file in spread(folder.files("samples"), MAX_ROWS):
        if SCORE not in column_names(file):
            continue
        table = read_table(storage.fetch(file.url), ["row", "id", "url", "excerpt", "failed", SCORE])
        for row in table.filter(table[SCORE].is_valid()).to_pylist():
            bucket = bisect_right(TENTHS, row[SCORE])
            one = _sample(Limit(SCORE, "min", bucket / 10), shard_name(file), row)
            found.setdefault((BUCKETS[bucket], one.dropped), []).append((row["id"], one.name, one))
        for key, some in found.items():
            found[key] = sorted({one[2].text: one for one in sorted(some, reverse=True)}.values())[:A_BUCKET]
    order = {name: [*found.get((name, True), ()), *found.get((name, False), ())] for name in BUCKETS}
    return {name: [one for _, _, one in some] for name, some in order.items() if some}


def _sample(limit: Limit, shard: str, row: Mapping[str, Any]) -> Sample:
    return Sample(
        limit=limit,
        dropped=row["failed"] is not None,
        value=row[limit.key],
        name=f"{shard}:{row['row']}",
        url=row["url"] or "",
        text=row["excerpt"],
        statistics={name: value for name, value in row.items() if is_statistic(name)},
    )


def _best(samples: list[Sample]) -> list[Sample]:
    distinct = {sample.text: sample for sample in sorted(samples, key=_distance, reverse=True)}
    nearest = sorted(distinct.values(), key=_distance)
    others = nearest[NEAREST:]
    step = max(1, len(others) // ELSEWHERE)
    return [*nearest[:NEAREST], *others[step - 1 :: step][:ELSEWHERE]]


def _distance(sample: Sample) -> tuple[float, str]:
    return abs(sample.value - sample.limit.threshold), sample.name
