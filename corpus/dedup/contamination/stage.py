"""The stage that takes evaluation items out of a corpus, before its duplicates are looked for.

    data/<shard>.parquet         documents that hold no item (or, with action "flag", all of them)
    fates/<shard>.parquet        the others, each with its share and the item's file and id
    statistics/<shard>.parquet   one row a document: the largest share of an item that it holds

Each document is judged alone. It stands before deduplication so that a copy of an item with a page around it cannot
outrank the clean page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpus.dedup.config import ContaminationConfig
from corpus.dedup.contamination.built_in import SHA256
from corpus.dedup.contamination.items import read_items, short_name
from corpus.dedup.contamination.overlap import find, load_index
from corpus.dedup.text.fold_table import fold_digest
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, count_documents, fate_table, read_batches, write_shard
from corpus.engine.inputs import list_inputs
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, fetch

RULE = "contamination.share"


@dataclass(frozen=True)
class ContaminationStage(Stage):
    """The documents of one shard without those that contain evaluation items."""

    name: ClassVar[str] = "contamination"
    version: ClassVar[int] = 1

    contamination: ContaminationConfig
    documents: str = "filter"  # the stage whose documents are judged

    @property
    def upstream(self) -> tuple[str, ...]:
        """The stage whose documents are judged."""
        return (self.documents,)

    def config(self) -> dict[str, Any]:
        """n, what is done, the limit as a rule, the files by the names in fates, and the table that folds
        characters."""
        values = self.contamination.model_dump(include={"ngram", "action"})
        values |= {"fold": fold_digest(), "files": [short_name(file.url) for file in self.inputs()]}
        if self.contamination.sets:
            values["sets"] = [*self.contamination.sets, SHA256]
        return values | {"rules": [[RULE, None, self.contamination.max_share]]}

    def inputs(self) -> tuple[File, ...]:
        """The evaluation files, each in the fingerprint by its contents."""
        return tuple(list_inputs(self.contamination.files)) if self.contamination.files else ()

    def check_items(self) -> None:
        """Read the evaluation files once, before a build does anything; raises as `read_items`."""
        for file in self.inputs():
            deque(read_items(file, self.contamination.ngram), maxlen=0)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents, and all evaluation files."""
        items = self.inputs()
        shards = upstream[self.documents].files()
        return [Task(shard_name(file), (file, *items), {"first": file is shards[0]}) for file in shards]

    def run(self, task: Task, out: Output) -> Counts:
        """Judge row group by row group."""
        settings = self.contamination
        index = load_index(task.inputs[1:], settings.ngram, settings.sets)
        counts = Counts(extra={"contaminated": 0})
        if task.params["first"]:  # once in the sums of all tasks
            counts.extra |= {"items": len(index.names), "items_too_short": index.too_short}
        fields = pa.field("row", pa.uint32(), nullable=False), pa.field(RULE, pa.float64(), nullable=False)
        statistics = pa.schema(fields)
        schemas = {"data": DOCUMENT_SCHEMA, "fates": FATE_SCHEMA, "statistics": statistics}
        lost = {"rule": RULE, "threshold": settings.max_share, "bound": "max"}
        with write_shard(out, task.name, schemas) as (kept, ended, measured):
            for batch in read_batches(fetch(task.inputs[0].url)):
                shares, details = np.zeros(batch.num_rows), np.full(batch.num_rows, None, object)
                for match in find(batch["text"], index, settings.ngram):
                    shares[match.document], details[match.document] = match.share, match.item
                found = shares > settings.max_share
                drop = found & (settings.action == "remove")
                survivors, dropped = batch.filter(pa.array(~drop)), batch.filter(pa.array(drop))
                kept.write(survivors)
                told = {"value": shares[drop], "detail": details[drop].tolist()}
                ended.write(fate_table(dropped, task.name, **lost, **told))
                measured.write(pa.table([batch["row"], pa.array(shares)], schema=statistics))
                count_documents(counts, batch, survivors)
                counts.extra["contaminated"] += int(found.sum())
                if drop.any():
                    counts.drop(RULE, int(drop.sum()))
        return counts
