"""Stand-ins for the stages a mixture reads: documents with sources, sizes, clusters and one statistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import xxhash

from corpus.dedup.near.survivors import INDEX_SCHEMA
from corpus.document import DOCUMENT_SCHEMA, read_table, write_table
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.mixture import MixtureConfig, MixtureStage, MixtureTotalsStage

STATISTIC = "length.num_chars"


@dataclass(frozen=True)
class Doc:
    """One document: what a mixture can know of it."""

    number: int
    source: str = "web"
    num_bytes: int = 10
    value: float | None = 100.0  # of STATISTIC
    cluster_size: int = 1
    survivor: bool = True
    variety: str | None = "zh-Hans"

    @property
    def id(self) -> bytes:
        return xxhash.xxh3_128_digest(str(self.number).encode())


@dataclass(frozen=True)
class Measured(Stage):
    """The filter stage: statistics of twice as many documents as are kept."""

    shards: tuple[tuple[Doc, ...], ...]

    name: ClassVar[str] = "filter"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {"shards": [[repr(doc) for doc in shard] for shard in self.shards]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(f"{number:05d}", params={"shard": number}) for number in range(len(self.shards))]

    def run(self, task: Task, out: Output) -> Counts:
        docs = [one for doc in self.shards[task.params["shard"]] for one in (replace(doc, value=-1.0), doc)]
        table = pa.table(
            {
                "row": pa.array(range(len(docs)), pa.uint32()),
                STATISTIC: pa.array([d.value for d in docs], pa.float64()),
                "script.variety": pa.array([d.variety for d in docs], pa.string()),
            }
        )
        with out.create(f"statistics/{task.name}.parquet", rows=len(docs)) as path:
            write_table(path, table)
        return Counts()


@dataclass(frozen=True)
class Texts(Measured):
    """The text stage; a document's row of the extract stage is 2i + 1."""

    name: ClassVar[str] = "text"
    upstream: ClassVar[tuple[str, ...]] = ("filter",)

    def run(self, task: Task, out: Output) -> Counts:
        docs = self.shards[task.params["shard"]]
        data = [
            {"id": doc.id, "row": 2 * row + 1, "source": doc.source, "text": "x" * doc.num_bytes}
            for row, doc in enumerate(docs)
        ]
        index = [
            {"text_bytes": doc.num_bytes, "cluster_size": doc.cluster_size, "survivor": doc.survivor}
            | {name: row[name] for name in ("id", "row", "source")}
            for doc, row in zip(docs, data, strict=True)
        ]
        for kind, rows, schema in (("data", data, DOCUMENT_SCHEMA), ("index", index, INDEX_SCHEMA)):
            with out.create(f"{kind}/{task.name}.parquet", rows=len(rows)) as path:
                write_table(path, pa.Table.from_pylist(rows, schema))
        size = sum(doc.num_bytes for doc in docs)
        return Counts(len(docs), len(docs), size, size)


@dataclass(frozen=True)
class Result:
    """What the stages made."""

    folders: dict[str, Folder]

    def table(self, kind: str) -> pa.Table:
        """All files of one kind of the mixture, in shard order."""
        return pa.concat_tables([read_table(Path(file.url)) for file in self.folders["mixture"].files(kind)])

    @property
    def copies(self) -> dict[bytes, int]:
        """id -> copies."""
        table = self.table("copies")
        return dict(zip(table["id"].to_pylist(), table["copies"].to_pylist(), strict=True))


def mix(out: Path, shards: Sequence[Sequence[Doc]], config: MixtureConfig, workers: int = 0) -> Result:
    """Run the stages."""
    given = tuple(map(tuple, shards))
    stages: list[Stage] = [Measured(given), Texts(given), MixtureTotalsStage(config), MixtureStage(config)]
    return Result(run_stages(stages, str(out), workers=workers))
