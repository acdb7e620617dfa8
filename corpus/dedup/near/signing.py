"""The stage `signatures`, the first of those in stages.py; apart, because earlier builds are compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from corpus.dedup import records
from corpus.dedup.config import DedupConfig
from corpus.dedup.near import ranks, signatures
from corpus.dedup.text.fold_table import fold_digest
from corpus.document import read_batches, read_table
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import fetch

SIGNED = {"scheme", "ngram", "num_permutations", "bands", "rows", "scripts"}  # fields of DedupConfig that change keys
RANKED = {"prefer_sources", "prefer_script"}  # and ranks, which earlier builds need not share


@dataclass(frozen=True)
class SignaturesStage(Stage):
    """Exact keys, ranks, MinHash signatures and band records of one shard."""

    name: ClassVar[str] = "signatures"
    version: ClassVar[int] = 3

    dedup: DedupConfig
    documents: str = "filter"  # the stage whose documents are compared

    @property
    def upstream(self) -> tuple[str, ...]:
        """The documents, and what the filter measured of them."""
        return tuple(dict.fromkeys((self.documents, "filter")))

    def config(self) -> dict[str, Any]:
        """Everything that changes keys: the shingle, the bands, the table that folds characters; and the ranks."""
        ranked = self.dedup.model_dump(mode="json", include=RANKED)
        return {**self.dedup.model_dump(include=SIGNED), "fold": fold_digest(), "ranks": ranked}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents, and what the filter measured of them."""
        measured = {shard_name(file): file for file in upstream["filter"].files("statistics")}
        shards = {shard_name(file): file for file in upstream[self.documents].files()}
        return [Task(name, (file, *filter(None, [measured.get(name)]))) for name, file in shards.items()]

    def run(self, task: Task, out: Output) -> Counts:
        """Read ids and texts row group by row group, write the shard's keys, signatures and bands."""
        tables = [read_table(fetch(file.url), ["row", *ranks.STATISTICS]) for file in task.inputs[1:]]
        measured = tables[0] if tables else None
        batches = []
        for batch in read_batches(fetch(task.inputs[0].url), ["id", "row", "source", "date", "text"]):
            facts = ranks.read_facts(batch, measured, self.dedup)
            batches.append(signatures.sign_texts(batch["id"], batch["text"], self.dedup, facts))
        shard = signatures.sign(batches, self.dedup)
        records.save(out, f"keys/{task.name}.npy", len(shard.keys), records.write_array, shard.keys)
        records.save(out, f"signatures/{task.name}.npy", len(shard.keys), records.write_array, shard.signatures)
        records.save(
            out, f"bands/{task.name}.bin", len(shard.band_keys), records.write_bands, shard.band_keys, shard.band_rows
        )
        documents, num_bytes = len(shard.keys), int(shard.keys["num_bytes"].sum())
        return Counts(documents, documents, num_bytes, num_bytes, extra={"band_records": len(shard.band_keys)})
