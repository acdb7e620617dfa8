"""The filter as a stage of a build: one extract shard in; its kept documents, its ledger and its statistics out.

    data/<shard>.parquet         kept documents, text edited and title masked; `row` still names the extract shard's row
    fates/<shard>.parquet        one row a dropped document: rule, value, threshold
    statistics/<shard>.parquet   one row a document of the shard, kept or not: verdict, edits, every statistic
    samples/<shard>.parquet      a few masked beginnings on each side of every limit (samples.py)

Statistics are stored for all documents, also where one rule alone would have dropped them, so that other thresholds can
be tried later, looser ones too, without reading text. Memory is one row group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, count_documents, fate_table, read_batches, write_shard
from corpus.engine import durable
from corpus.engine.errors import SetupError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch
from corpus.filters.config import FilterConfig
from corpus.filters.decide import first_failed
from corpus.filters.edits import Edits, mask_titles
from corpus.filters.filter import VERDICT_SCHEMA, Filter
from corpus.filters.measure import STATISTICS, stored
from corpus.filters.rules.own import own_fields
from corpus.filters.samples import SAMPLES_SCHEMA, Sampler
from corpus.sources.packing import key_of

STATISTICS_SCHEMA = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        *(VERDICT_SCHEMA.field(name) for name in ("kept", "rule", "edits")),
        pa.field("text_bytes", pa.uint32(), nullable=False),  # of the text after all edits
        *(VERDICT_SCHEMA.field(name) for name in STATISTICS),
    ],
    metadata={"wenhai.statistics": "2"},
)

Meaning = tuple[tuple[str, str], ...]  # the parts of a filter's meaning, by name, with their digests
MEANING_DIGITS = 16


@dataclass(frozen=True)
class FilterStage(Stage):
    """Edit lines, measure, decide, mask."""

    filter: FilterConfig
    filters: Mapping[str, FilterConfig] = field(default_factory=dict)  # of sources with one of their own, by their keys
    planned: Mapping[str, Meaning] = field(default_factory=dict)  # what the filters meant where the build was planned

    name: ClassVar[str] = "filter"
    version: ClassVar[int] = 7
    upstream: ClassVar[tuple[str, ...]] = ("extract",)

    def config(self) -> dict[str, Any]:
        """Rules in order as [statistic, min, max, condition, place], editors, digests of lists, models and tables."""
        return self.filter.meaning()

    def parameters(self) -> dict[str, Any]:
        """The same of each source's own filter."""
        own = {key: config.meaning() for key, config in sorted(self.filters.items())}
        return {"filters": own} if own else {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard of documents, under its name."""
        own = {key: {"filter": durable.digest(config.meaning())} for key, config in self.filters.items()}
        files = upstream["extract"].files()
        return [Task(shard_name(file), (file,), own.get(key_of(shard_name(file)), {})) for file in files]

    def for_worker(self) -> FilterStage:
        """With digests of what lists, models and tables held: a worker reads them again, and must find the same."""
        return replace(self, planned={key: _meaning(one) for key, one in {**self.filters, "": self.filter}.items()})

    def run(self, task: Task, out: Output) -> Counts:
        """Filter one shard, row group by row group.

        Raises:
            SetupError: a list, a model or a table is another here than where the build was planned.
        """
        key = key_of(task.name) if key_of(task.name) in self.filters else ""
        config = self.filters.get(key, self.filter)
        judge = _filter(config, self.planned.get(key))
        own = own_fields(config.own)  # a task's files hold what its own rules measure: they are the same in any build
        schemas = {"data": DOCUMENT_SCHEMA, "fates": FATE_SCHEMA}
        for kind, schema in (("statistics", STATISTICS_SCHEMA), ("samples", SAMPLES_SCHEMA)):
            schemas[kind] = pa.schema([*schema, *own], schema.metadata)
        sampler, counts = Sampler(judge.limits, schemas["samples"]), Counts()
        with write_shard(out, task.name, schemas) as (kept, ended, measured, samples):
            for documents in read_batches(fetch(task.inputs[0].url)):
                verdicts = judge.apply(documents).table
                keep, drop = verdicts["kept"], pc.invert(verdicts["kept"])
                log = Edits()
                titles = mask_titles(documents["title"], config.edit.personal_data, log)
                edited = documents
                for name, values in (("text", verdicts["text"]), ("title", titles.cast(pa.string()))):
                    at = documents.schema.get_field_index(name)
                    edited = edited.set_column(at, DOCUMENT_SCHEMA.field(name), values)
                survivors = edited.filter(keep)
                kept.write(survivors)
                why = verdicts.filter(drop).select(["rule", "value", "threshold", "bound", "detail"])
                ended.write(
                    fate_table(documents.filter(drop), task.name, **dict(zip(why.column_names, why, strict=True)))
                )
                sizes = pc.binary_length(verdicts["text"]).cast(pa.uint32())
                measured.write(verdicts.append_column("row", documents["row"]).append_column("text_bytes", sizes))
                values = stored(verdicts, {key for limit in judge.limits for key in limit.keys})
                sampler.add(documents, verdicts, values, first_failed(values, judge.limits, verdicts.num_rows))
                count_documents(counts, documents, survivors)
                _count(counts, verdicts["rule"], [verdicts["edits"].combine_chunks(), log.column(len(titles))])
            samples.write(sampler.table())
        return counts


@lru_cache(maxsize=4)
def _filter(config: FilterConfig, planned: Meaning | None) -> Filter:
    found = Filter(config)
    if planned is not None and (other := [name for name, _ in set(planned) ^ set(_meaning(config))]):
        raise SetupError(
            f"filter: {', '.join(sorted(set(other)))} are not what the plan of this build read. Give every machine the "
            "same files, let nobody change them meanwhile, and run the same command again."
        )
    return found


def _meaning(config: FilterConfig) -> Meaning:
    return tuple((name, durable.digest(part)[:MEANING_DIGITS]) for name, part in config.meaning().items())


def _count(counts: Counts, rules: pa.ChunkedArray, edits: list[pa.ListArray]) -> None:
    for entry in pc.value_counts(rules.drop_null()).to_pylist():
        counts.drop(entry["values"], entry["counts"])
    kinds = pa.chunked_array([column.flatten().field("kind") for column in edits])
    for entry in pc.value_counts(kinds).to_pylist():
        counts.add(Counts(extra={f"edited.{entry['values']}": entry["counts"]}))
