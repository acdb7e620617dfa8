"""The two stages of mixing: sums over the whole corpus, then the copies of each document.

    text -> mixture_totals -> mixture

| stage          | task    | writes                                                                                 |
|----------------|---------|----------------------------------------------------------------------------------------|
| mixture_totals | a shard | counts: documents and weighted bytes of each pattern of sources                         |
| mixture        | a shard | copies/S.parquet (a row a document of the text shard), groups/S.parquet (sums by source |
|                |         | and by bucket)                                                                          |

With weights of sources a document's copies depend on nothing else in the corpus: a new input changes no old document.
With shares they depend on the sums of all. Text is never read, only the index beside it: some 30 bytes a document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import read_table, write_table
from corpus.engine.errors import UsageError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch
from corpus.filters.measure import STATISTICS
from corpus.mixture.config import MAX_COPIES, NOT_MEASURED_NAME, SOURCE, MixtureConfig
from corpus.mixture.weights import NOT_MEASURED, OTHER, Weighed, copies_of, source_weights, stages_of, weigh
from corpus.safe import cut_middle, snippet

LEFT_OUT = "mixture.left_out"
ANY_SOURCE = "*"
NOT_ASKED_NAME = "other documents"  # stands before NOT_MEASURED_NAME, as NOT_ASKED before NOT_MEASURED
MAX_NAMES = 10  # of sources in an error
NAME_COLUMNS = 50
COPIES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("copies", pa.uint8(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),  # what copies are on average
    ],
    metadata={"wenhai.copies": "1"},
)
GROUPS_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),  # "source", or the statistic of a table of buckets
        pa.field("name", pa.string(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),  # of the bucket in its table; 0 for sources
        pa.field("documents", pa.int64(), nullable=False),
        pa.field("text_bytes", pa.int64(), nullable=False),
        pa.field("chosen", pa.int64(), nullable=False),  # documents taken at least once
        pa.field("copies", pa.int64(), nullable=False),
        pa.field("copied_bytes", pa.int64(), nullable=False),
    ],
    metadata={"wenhai.groups": "1"},
)


@dataclass(frozen=True)
class MixtureTotalsStage(Stage):
    """Documents and weighted bytes of each pattern, and documents with each statistic, of one text shard."""

    name: ClassVar[str] = "mixture_totals"
    version: ClassVar[int] = 1

    mixture: MixtureConfig

    @property
    def upstream(self) -> tuple[str, ...]:
        """The text, and the stages that measured what the buckets go by."""
        return ("text", *stages_of(self.mixture))

    def config(self) -> dict[str, Any]:
        """Which sources are told apart, and the weights that their bytes have already."""
        return self.mixture.weighing()

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        return list(_tasks(self.mixture, upstream, {}))

    def run(self, task: Task, out: Output) -> Counts:
        """Add up."""
        weighed = weigh(task, self.mixture)
        group, weighted = weighed.group, np.rint(weighed.text_bytes * weighed.weights).astype(np.int64)
        extra: dict[str, int] = {}
        for pattern in sorted(set(weighed.groups)):
            here = group == pattern
            extra |= {f"documents.{pattern}": int(here.sum()), f"weighted_bytes.{pattern}": int(weighted[here].sum())}
        for table, bucket in zip(self.mixture.buckets, weighed.buckets, strict=True):
            extra[f"measured.{table.name}"] = int((bucket != NOT_MEASURED).sum())
        documents, num_bytes = len(weighted), int(weighed.text_bytes.sum())
        return Counts(documents, documents, num_bytes, num_bytes, extra=extra)


@dataclass(frozen=True)
class MixtureStage(Stage):
    """How often each document of one text shard is taken."""

    name: ClassVar[str] = "mixture"
    version: ClassVar[int] = 1

    mixture: MixtureConfig

    @property
    def upstream(self) -> tuple[str, ...]:
        """What the totals are of, and they."""
        return (*MixtureTotalsStage(self.mixture).upstream, "mixture_totals")

    def config(self) -> dict[str, Any]:
        """Buckets and seed; the weights of sources are parameters of the tasks."""
        return {**self.mixture.weighing(), "seed": self.mixture.seed}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard, all with the weights of the sources.

        Raises:
            UsageError: a pattern matches no source, a share cannot be had, or a statistic was never measured.
        """
        weights = _source_weights(self.mixture, upstream)
        return list(_tasks(self.mixture, upstream, {"weights": weights}))

    def run(self, task: Task, out: Output) -> Counts:
        """Weigh, choose, write."""
        weighed = weigh(task, self.mixture)
        weights = weighed.weights * source_weights(weighed, task.params["weights"])
        copies = copies_of(weighed.ids, weights, self.mixture.seed)
        tables = {
            "copies": pa.table([weighed.ids, pa.array(copies), pa.array(weights)], schema=COPIES_SCHEMA),
            "groups": _groups(weighed, self.mixture, copies),
        }
        for kind, table in tables.items():
            with out.create(f"{kind}/{task.name}.parquet", rows=table.num_rows) as path:
                write_table(path, table)
        chosen, num_bytes = copies > 0, weighed.text_bytes
        counts = Counts(len(copies), int(chosen.sum()), int(num_bytes.sum()), int(num_bytes[chosen].sum()))
        if not chosen.all():
            counts.drop(LEFT_OUT, int((~chosen).sum()))
        counts.extra = {"copies": int(copies.sum(dtype=np.int64)), "copied_bytes": int((num_bytes * copies).sum())}
        return counts


def _tasks(mixture: MixtureConfig, upstream: Mapping[str, Folder], params: Mapping[str, Any]) -> Iterator[Task]:
    inputs = [upstream["text"].files("index"), *(upstream[stage].files("statistics") for stage in stages_of(mixture))]
    for files in zip(*inputs, strict=True):
        yield Task(shard_name(files[0]), files, params)


def _source_weights(mixture: MixtureConfig, upstream: Mapping[str, Folder]) -> dict[str, float]:
    """The weight of each pattern: as it stands in the recipe, or what gives its share."""
    found = upstream["mixture_totals"].counts.extra
    documents = upstream["text"].counts.documents_out
    for pattern in mixture.patterns:
        if mixture.by == SOURCE and documents and pattern != ANY_SOURCE and not found.get(f"documents.{pattern}"):
            raise UsageError(
                f"[mixture] {pattern!r} is no source of the text that is left, or a longer pattern takes all it "
                "matches; "
                f"its sources: {_source_names(upstream['text'])}. Correct the pattern, or take it out."
            )
    for table in mixture.buckets:
        if documents and not found.get(f"measured.{table.name}"):
            raise UsageError(
                f"[[mixture.buckets]] {table.name}: was not measured for any document. Name its model in "
                "[filter], or take the table out."
            )
    if not mixture.shares:
        return dict(mixture.sources)
    if found.get(f"documents.{OTHER}"):
        named = f"sources have none; the sources: {_source_names(upstream['text'])}"
        if mixture.by != SOURCE:
            named = f"labels have none; the labels: {', '.join(STATISTICS[mixture.by].labels)}"
        raise UsageError(f'[mixture] shares: some {named}. Add them, or "*" for the rest; a share of 0 leaves out.')
    total = mixture.total_bytes or upstream["text"].counts.bytes_out
    return {pattern: _share_weight(mixture, pattern, total, found) for pattern in mixture.patterns if documents}


def _share_weight(mixture: MixtureConfig, pattern: str, total: int, found: Mapping[str, int]) -> float:
    wanted, there = mixture.shares[pattern] * total, found.get(f"weighted_bytes.{pattern}", 0)
    weight = wanted / there if there else float("inf") if wanted else 0.0
    if weight * mixture.largest_bucket_weight > MAX_COPIES:
        raise UsageError(
            f"[mixture] shares.{pattern} = {mixture.shares[pattern]:g} of {total:,} bytes needs its {there:,} (as the "
            f"buckets weigh them) {weight:,.1f} times, and a document is taken {MAX_COPIES} times at most. Lower the "
            "share or total_bytes."
        )
    return weight


def _source_names(text: Folder) -> str:
    """The sources of the text shards in words, for an error; shards are read until there are too many to name."""
    names: set[str] = set()
    for file in text.files("index"):
        names.update(pc.unique(read_table(fetch(file.url), ["source"])["source"]).to_pylist())
        if len(names) > MAX_NAMES:
            break
    shown = [cut_middle(snippet(name), NAME_COLUMNS) for name in sorted(names)[:MAX_NAMES]]
    return ", ".join(shown) + (" and others" if len(names) > MAX_NAMES else "")


def _groups(weighed: Weighed, mixture: MixtureConfig, copies: npt.NDArray[np.uint8]) -> pa.Table:
    """`GROUPS_SCHEMA`: sums by source, label, bucket of each statistic; groups without documents are left out."""
    listed = {SOURCE: weighed.sources, mixture.by: weighed.keys}
    tables = [(kind, keys.dictionary.to_pylist(), keys.indices.to_numpy()) for kind, keys in listed.items()]
    for table, bucket in zip(mixture.buckets, weighed.buckets, strict=True):
        labels = [*table.labels, NOT_ASKED_NAME, NOT_MEASURED_NAME]
        tables.append((table.name, labels, np.where(bucket < 0, len(labels) + bucket, bucket)))
    parts = []
    for kind, labels, group in tables:
        values = {
            "documents": np.ones(len(copies), np.int64),
            "text_bytes": weighed.text_bytes,
            "chosen": (copies > 0).astype(np.int64),
            "copies": copies.astype(np.int64),
            "copied_bytes": weighed.text_bytes * copies,
        }
        sums = {name: np.bincount(group, value, len(labels)).astype(np.int64) for name, value in values.items()}
        places = [0 if kind in listed else place for place in range(len(labels))]
        columns = {"kind": [kind] * len(labels), "name": labels, "place": places, **sums}
        whole = pa.table(columns, schema=GROUPS_SCHEMA)
        parts.append(whole.filter(pc.greater(whole["documents"], 0)))
    return pa.concat_tables(parts)
