"""Documents of one text shard, what they weigh, and how often each is taken.

The whole part of a weight is taken by every document; who is taken once more is decided by a keyed hash of the id. So
the copies of a document depend on nothing but its own id and weight: not on shards, workers or what else there is, and
a higher weight never takes a copy away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpus.document import read_table
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Task
from corpus.engine.storage import File, fetch
from corpus.filters.measure import STATISTICS, stored
from corpus.filters.rules.conditions import holds
from corpus.mixture.config import CLUSTER_SIZE, NOT_MEASURED_NAME, SOURCE, SURVIVOR, Buckets, MixtureConfig

OTHER = ""  # the group of sources that no pattern matches; no pattern is empty
NOT_MEASURED, NOT_ASKED = -1, -2  # the latter: the table's condition does not hold
INDEX_COLUMNS = {CLUSTER_SIZE: "cluster_size", SURVIVOR: "survivor"}

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weighed:
    """The documents of a shard, in its order.

    Attributes:
        ids: binary(16)[documents].
        sources: a dictionary array of names.
        keys: what has weights or shares: the sources, or as they labels.
        groups: the pattern of each entry of the keys' dictionary, or OTHER.
        text_bytes: int64[documents], UTF-8.
        buckets: int64[documents] for each table of buckets; NOT_MEASURED or NOT_ASKED where it weighs nothing.
        weights: float64[documents], the product of the buckets' weights.
    """

    ids: pa.Array
    sources: pa.DictionaryArray
    keys: pa.DictionaryArray
    groups: list[str]
    text_bytes: Ints
    buckets: list[Ints]
    weights: Floats

    @property
    def group(self) -> npt.NDArray[np.object_]:
        """The pattern of each document's key."""
        groups: npt.NDArray[np.object_] = np.array(self.groups, object)[self.keys.indices.to_numpy()]
        return groups


def weigh(task: Task, config: MixtureConfig) -> Weighed:
    """Read one shard: the index of its text, then a file of statistics of each of `stages_of`.

    Raises:
        WenhaiError: a file is damaged, or a statistic's file has no row for a document.
    """
    index = read_table(fetch(task.inputs[0].url), ["id", "row", "source", "text_bytes", *INDEX_COLUMNS.values()])
    rows = index["row"].to_numpy()
    values = {name: index[column].to_numpy().astype(np.float64) for name, column in INDEX_COLUMNS.items()}
    for stage, file in zip(stages_of(config), task.inputs[1:], strict=True):
        values |= _statistics(file, [key for key in config.statistics if stage_of(key) == stage], rows)
    weights, buckets = np.ones(len(rows)), []
    for table in config.buckets:
        chosen = np.where(holds(table.when, values), bucket_of(values[table.statistic], table), NOT_ASKED)
        buckets.append(chosen)
        weights *= np.where(chosen < 0, 1.0, np.array(table.weights)[chosen])
    sources = index["source"].combine_chunks().dictionary_encode()
    keys = sources
    if config.by != SOURCE:
        keys = STATISTICS[config.by].column(values[config.by]).fill_null(NOT_MEASURED_NAME).dictionary_encode()
    groups = [pattern_of(name, config.patterns) for name in keys.dictionary.to_pylist()]
    sizes = index["text_bytes"].to_numpy().astype(np.int64)
    return Weighed(index["id"].combine_chunks(), sources, keys, groups, sizes, buckets, weights)


def stage_of(statistic: str) -> str:
    """The stage whose sidecar holds a statistic.

    >>> stage_of("quality.score"), stage_of("contamination.share"), stage_of("dedup.cluster_size")
    ('filter', 'contamination', 'text')
    """
    family = statistic.partition(".")[0]
    return {"contamination": "contamination", "dedup": "text"}.get(family, "filter")


def stages_of(config: MixtureConfig) -> tuple[str, ...]:
    """The stages beside `text` that measured what the buckets go by, sorted."""
    return tuple(sorted({stage_of(key) for key in config.statistics} - {"text"}))


def pattern_of(source: str, patterns: Sequence[str]) -> str:
    """The pattern that counts for a source: its own name, else the longest that matches, else OTHER.

    >>> pattern_of("wiki-zh", ["*", "wiki*", "w*"]), pattern_of("wiki*", ["wiki*", "*"]), pattern_of("web", ["wiki*"])
    ('wiki*', 'wiki*', '')
    """
    if source in patterns:
        return source
    return max((one for one in patterns if fnmatchcase(source, one)), key=lambda one: (len(one), one), default=OTHER)


def bucket_of(values: Floats, table: Buckets) -> Ints:
    """int64[values]: the bucket of each; NOT_MEASURED for NaN."""
    bounds = table.bounds or range(1, len(table.labels))  # a label's place is its bucket
    found = np.searchsorted(np.array(bounds), values, side="right").astype(np.int64)
    return np.where(np.isnan(values), NOT_MEASURED, found)


def copies_of(ids: pa.Array, weights: Floats, seed: int) -> npt.NDArray[np.uint8]:
    """uint8[documents]: how often each is taken, on average its weight.

    >>> copies_of(pa.array([bytes(16)], pa.binary(16)), np.array([3.0]), 0)
    array([3], dtype=uint8)
    """
    keys = np.fromiter((xxhash.xxh3_64_intdigest(one.as_py(), seed) for one in ids), np.uint64, len(ids))
    whole = np.floor(weights)
    return np.asarray(whole + (keys * 2.0**-64 < weights - whole), np.uint8)


def source_weights(weighed: Weighed, weights: Mapping[str, float]) -> Floats:
    """float64[documents]: the weight of each document's source or label; 1 where no pattern matches it."""
    by_name = np.array([weights.get(group, 1.0) for group in weighed.groups], np.float64)
    weight: Floats = by_name[weighed.keys.indices.to_numpy()]
    return weight


def _statistics(file: File, keys: Sequence[str], rows: npt.NDArray[np.uint32]) -> dict[str, Floats]:
    """{key: float64[documents]}: stored statistics of the documents whose rows of the extract shard are given."""
    table = read_table(fetch(file.url), ["row", *keys])
    there = table["row"].to_numpy()
    place = np.minimum(np.searchsorted(there, rows), len(there) - 1)
    if len(rows) and (not len(there) or not np.array_equal(there[place], rows)):
        raise WenhaiError(f"{file.url}: has no row for some documents of its shard. Build the stage again.")
    return {key: values[place] if len(rows) else np.empty(0) for key, values in stored(table, keys).items()}
