"""The three stages that drop site chrome, between the filter and the signatures of documents.

    filter -> line_keys -> line_counts -> repeated_lines -> signatures

| stage          | task      | writes                                                                         |
|----------------|-----------|--------------------------------------------------------------------------------|
| line_keys      | a shard   | lines/S.bin (12 B a document and different line of up to `max_chars`)          |
| line_counts    | key range | counts/P.bin (to each shard 16 B a line or site of its own that at least       |
|                |           | `min_documents` documents have)                                                |
| repeated_lines | a shard   | data/S.parquet, fates/S.parquet, statistics/S.parquet                          |

A document stays without its repeated lines, unless less is left than `min_left` characters. One that would lose more
than `max_removed_ratio` is no article inside chrome but a page that resembles many others as a whole: it is left as it
is, for deduplication to choose one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from corpus.dedup import records
from corpus.dedup.config import RepeatedLinesConfig
from corpus.dedup.passages import repeated_lines
from corpus.dedup.passages.cutting import cut_lines
from corpus.dedup.text.fold_table import fold_digest
from corpus.dedup.text.keys import text_buffers
from corpus.document import read_batches
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch

GATE = "repeated_lines.num_chars"


@dataclass(frozen=True)
class LineKeysStage(Stage):
    """The keys of one shard's lines and sites, each with the digests of the documents that have it."""

    name: ClassVar[str] = "line_keys"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("filter",)

    lines: RepeatedLinesConfig

    def config(self) -> dict[str, Any]:
        """Which lines are counted, and the table that folds characters."""
        return {**self.lines.model_dump(include={"min_chars", "max_chars"}), "fold": fold_digest()}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        return [Task(shard_name(file), (file,)) for file in upstream["filter"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        """Read texts row group by row group, write the shard's sorted records."""
        parts = [(np.empty(0, np.uint64), np.empty(0, np.uint32))]
        for batch in read_batches(fetch(task.inputs[0].url), ["source", "url", "text"]):
            lines = repeated_lines.read_lines(
                batch["url"], batch["source"], *text_buffers(batch["text"]), self.lines.min_chars, self.lines.max_chars
            )
            parts.append(repeated_lines.records(lines))
        keys, digests = (np.concatenate(column) for column in zip(*parts, strict=True))
        keys, digests = repeated_lines.smallest(keys, digests)
        records.save(out, f"lines/{task.name}.bin", len(keys), records.write_bands, keys, digests)
        return Counts(extra={"records": len(keys)})


@dataclass(frozen=True)
class LineCountsStage(Stage):
    """How many different documents have each key of one range; rare keys are left out."""

    name: ClassVar[str] = "line_counts"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("line_keys",)

    lines: RepeatedLinesConfig

    def config(self) -> dict[str, Any]:
        """What is rare."""
        return self.lines.model_dump(include={"min_documents"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a range; their number follows the number of records."""
        return records.partition_tasks((upstream["line_keys"].file,), upstream["line_keys"].files("lines"))

    def run(self, task: Task, out: Output) -> Counts:
        """Read this range of every shard's records, count, write what is repeated, a section a shard."""
        runs = records.partition_runs(task, Folder.of(task.inputs[0]).files("lines"))
        known, cuts = repeated_lines.known_keys(runs, self.lines.min_documents)
        records.save(out, f"counts/{task.name}.bin", len(known), records.write_sections, cuts, [known])
        return Counts(extra={"repeated_keys": len(known)})


@dataclass(frozen=True)
class RepeatedLinesStage(Stage):
    """The documents of one `filter` shard without lines that stand on many pages of their site."""

    name: ClassVar[str] = "repeated_lines"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("filter", "line_counts")

    lines: RepeatedLinesConfig

    def config(self) -> dict[str, Any]:
        """All of the section; the length gate as a rule, so that the report shows it."""
        return {**self.lines.model_dump(), "rules": [[GATE, self.lines.min_left, None]]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents, and its section of all ranges."""
        counts, files = upstream["line_counts"].file, upstream["filter"].files()
        return [Task(shard_name(file), (file, counts), {"shard": shard}) for shard, file in enumerate(files)]

    def run(self, task: Task, out: Output) -> Counts:
        """Cut the lines row group by row group, measure again, drop what has become too short."""
        ranges, shard = Folder.of(task.inputs[1]).files("counts"), int(task.params["shard"])
        counts = records.sections(ranges, shard, shard + 1, repeated_lines.COUNT_DTYPE).read()
        return cut_lines(task, out, counts, self.lines)
