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
from corpus.mixture.config import CLUSTER_SIZE, SURVIVOR, Buckets, MixtureConfig

OTHER = ""  # the group of sources that no pattern matches; no pattern is empty
NOT_MEASURED = -1
INDEX_COLUMNS = {CLUSTER_SIZE: "cluster_size", SURVIVOR: "survivor"}

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weighed:
    """The documents of a shard, in its order.

    Attributes:
        ids: binary(16)[documents].
        sources: a dictionary array of names.
        groups: the pattern of each entry of that dictionary, or OTHER.
        text_bytes: int64[documents], UTF-8.
        buckets: int64[documents] for each table of buckets; NOT_MEASURED where nothing is known.
        weights: float64[documents], the product of the buckets' weights.
    """

    ids: pa.Array
    sources: pa.DictionaryArray
    groups: list[str]
    text_bytes: Ints
    buckets: list[Ints]
    weights: Floats

    @property
    def group(self) -> npt.NDArray[np.object_]:
        """The pattern of each document's source."""
        groups: npt.NDArray[np.object_] = np.array(self.groups, object)[self.sources.indices.to_numpy()]
        return groups


def weigh(task: Task, config: MixtureConfig) -> Weighed:
    """Read one shard: the index of its text, then a file of statistics for each table of buckets that needs one.

    Raises:
        WenhaiError: a file is damaged, or a statistic's file has no row for a document.
    """
    index = read_table(fetch(task.inputs[0].url), ["id", "row", "source", "text_bytes", *INDEX_COLUMNS.values()])
    rows, files = index["row"].to_numpy(), iter(task.inputs[1:])
    weights, buckets = np.ones(len(rows)), []
    for table in config.buckets:
        column = INDEX_COLUMNS.get(table.statistic)
        values = index[column].to_numpy() if column else _statistic(next(files), table.statistic, rows)
        chosen = bucket_of(values.astype(np.float64), table)
        buckets.append(chosen)
        weights *= np.where(chosen == NOT_MEASURED, 1.0, np.array(table.weights)[chosen])
    sources = index["source"].combine_chunks().dictionary_encode()
    groups = [pattern_of(name, config.patterns) for name in sources.dictionary.to_pylist()]
    sizes = index["text_bytes"].to_numpy().astype(np.int64)
    return Weighed(index["id"].combine_chunks(), sources, groups, sizes, buckets, weights)


def stage_of(statistic: str) -> str:
    """The stage whose sidecar holds a statistic.

    >>> stage_of("quality.score"), stage_of("contamination.share"), stage_of("dedup.cluster_size")
    ('filter', 'contamination', 'text')
    """
    family = statistic.partition(".")[0]
    return {"contamination": "contamination", "dedup": "text"}.get(family, "filter")


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
    found = np.searchsorted(np.array(table.bounds), values, side="right").astype(np.int64)
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
    """float64[documents]: the weight of each document's source; 1 where no pattern matches it."""
    by_name = np.array([weights.get(group, 1.0) for group in weighed.groups], np.float64)
    weight: Floats = by_name[weighed.sources.indices.to_numpy()]
    return weight


def _statistic(file: File, key: str, rows: npt.NDArray[np.uint32]) -> Floats:
    """float64[documents]: a stored statistic of the documents whose rows of the extract shard are given."""
    table = read_table(fetch(file.url), ["row", key])
    stored = table["row"].to_numpy()
    place = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
    if len(rows) and (not len(stored) or not np.array_equal(stored[place], rows)):
        raise WenhaiError(f"{file.url}: has no row for some documents of its shard. Build the stage again.")
    values: Floats = table[key].to_numpy().astype(np.float64)  # null is NaN
    return values[place] if len(rows) else np.empty(0)
