"""A stand-in for the filter stage, and what the dedup stages made of its documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import xxhash

from corpus.document import DOCUMENT_SCHEMA, read_table, write_table
from corpus.engine.stage import Counts, Folder, Output, Stage, Task

Shards = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Feed(Stage):
    """Writes given texts as the shards of a finished filter stage; `row` has gaps, as it has after filtering."""

    name: ClassVar[str] = "filter"
    version: ClassVar[int] = 1

    shards: tuple[tuple[str, ...], ...]

    def config(self) -> dict[str, Any]:
        return {"shards": [list(shard) for shard in self.shards]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(f"{i:05d}-00", params={"shard": i}) for i in range(len(self.shards))]

    def run(self, task: Task, out: Output) -> Counts:
        texts = self.shards[task.params["shard"]]
        columns: dict[str, list[Any]] = {name: [None] * len(texts) for name in DOCUMENT_SCHEMA.names}
        columns["id"] = [document_id(text) for text in texts]
        columns["row"] = [2 * i + 1 for i in range(len(texts))]
        columns["source"] = ["test"] * len(texts)
        columns["url"] = [f"https://example.org/{i}" for i in range(len(texts))]
        columns["text"] = list(texts)
        with out.create(f"data/{task.name}.parquet", rows=len(texts)) as path:
            write_table(path, pa.table(columns, schema=DOCUMENT_SCHEMA))
        size = sum(len(text.encode()) for text in texts)
        return Counts(len(texts), len(texts), size, size)


def document_id(text: str) -> bytes:
    """An id that depends on the document alone."""
    return xxhash.xxh3_128_digest(text.encode())


@dataclass(frozen=True)
class Result:
    """What the stages made of the shards."""

    folders: dict[str, Folder]

    def table(self, stage: str, kind: str) -> pa.Table:
        """All files of a kind, in shard order."""
        return pa.concat_tables([read_table(Path(file.url)) for file in self.folders[stage].files(kind)])

    @property
    def texts(self) -> list[str]:
        """The surviving texts, in order."""
        return list(self.table("text", "data")["text"].to_pylist())

    @property
    def fates(self) -> list[dict[str, Any]]:
        """The fates of the others."""
        return list(self.table("text", "fates").to_pylist())

    def counts(self, stage: str) -> Counts:
        """A stage's summed counts."""
        return self.folders[stage].counts


Deduplicate = Callable[..., Result]
