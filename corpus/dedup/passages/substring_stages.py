"""The three stages that cut copied passages, between the clusters of documents and the final text.

    clusters -> passage_keys -> passage_ranks -> substrings -> text

| stage         | task      | writes                                                                          |
|---------------|-----------|---------------------------------------------------------------------------------|
| passage_keys  | a shard   | windows/S.bin (12 B a different window), repeated/S.npy (12 B a window that two  |
|               |           | of its documents have)                                                          |
| passage_ranks | key range | best/P.bin (12 B a window that two shards have, a section a shard)               |
| substrings    | a shard   | data/, fates/, statistics/S.parquet; drops/S.npy and clusters/S.parquet, moved   |

They stand behind the clusters because a near duplicate would otherwise lose nearly all of its text and be no one's
duplicate any more: documents that `text` will drop neither give nor lose a sentence and pass unchanged. What a document
copies from others goes whatever share of it that is: no later stage would choose between them. Left with fewer than
`min_left` characters it is an excerpt and is dropped, unless one of its sentences is the copy that others were cut for.
`text` finds its lists of duplicates here, by the rows that documents have after that.

All windows are 0.23 bytes a byte of text, written and read once. A passage of a million documents is one record a
shard, however many of them are there: its best rank decides over the others.

Earlier builds are not looked at: a passage is compared with those of this build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpus.dedup import records
from corpus.dedup.config import SubstringsConfig
from corpus.dedup.near.stages import TextStage
from corpus.dedup.passages import substrings
from corpus.dedup.passages.cutting import cut_passages, new_rows
from corpus.dedup.passages.sentence_classes import class_digest
from corpus.dedup.passages.sentences import read_sentences
from corpus.dedup.records import RECORD_DTYPE
from corpus.dedup.text.fold_table import fold_digest
from corpus.dedup.text.keys import text_buffers
from corpus.document import read_batches, read_table, write_table
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, fetch

GATE = "substrings.num_chars"


@dataclass(frozen=True)
class PassageKeysStage(Stage):
    """The windows of one shard's documents, each with the best rank of those that have it."""

    name: ClassVar[str] = "passage_keys"
    version: ClassVar[int] = 2

    substrings: SubstringsConfig
    documents: str = "filter"  # the stage whose documents are compared

    @property
    def upstream(self) -> tuple[str, ...]:
        """The documents, their ranks and clusters."""
        return (self.documents, "signatures", "clusters")

    def config(self) -> dict[str, Any]:
        """The length of a window, and the tables that fold characters and end sentences."""
        tables = {"fold": fold_digest(), "classes": class_digest()}
        return {**self.substrings.model_dump(include={"min_chars"}), **tables}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents, their keys, its duplicates."""
        return [Task(shard_name(files[0]), files) for files in _shards(self, upstream, "drops")]

    def run(self, task: Task, out: Output) -> Counts:
        """Read texts row group by row group, write the shard's sorted records."""
        ranks, drops = substrings.document_ranks(records.map_array(task.inputs[1])), records.map_array(task.inputs[2])
        stays = np.ones(len(ranks), bool)
        stays[drops["row"]] = False
        parts = [(np.empty(0, np.uint64), np.empty(0, np.uint32))]
        start = 0
        for batch in read_batches(fetch(task.inputs[0].url), ["text"]):
            here = slice(start, start + batch.num_rows)
            texts = batch.filter(pa.array(stays[here]))["text"]
            left = ranks[here][stays[here]]
            found = substrings.windows(read_sentences(*text_buffers(texts)), self.substrings.min_chars, left)
            parts.append((found.keys, left[found.documents]))
            start = here.stop
        keys, key_ranks = (np.concatenate(column) for column in zip(*parts, strict=True))
        best, differ = substrings.best_ranks(keys, key_ranks)
        records.save(out, f"windows/{task.name}.bin", len(best), records.write_bands, best["key"], best["row"])
        records.save(out, f"repeated/{task.name}.npy", int(differ.sum()), records.write_array, best[differ])
        return Counts(extra={"windows": len(keys), "records": len(best)})


@dataclass(frozen=True)
class PassageRanksStage(Stage):
    """The windows of one range of keys that several shards have, with their best rank."""

    name: ClassVar[str] = "passage_ranks"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("passage_keys",)

    def config(self) -> dict[str, Any]:
        """Nothing of its own: keys are equal or not."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a range; their number follows the number of records."""
        return records.partition_tasks((upstream["passage_keys"].file,), upstream["passage_keys"].files("windows"))

    def run(self, task: Task, out: Output) -> Counts:
        """Read this range of every shard's records, write what is shared, a section a shard."""
        runs = records.partition_runs(task, Folder.of(task.inputs[0]).files("windows"))
        shared, cuts = substrings.shared_windows(runs)
        records.save(out, f"best/{task.name}.bin", len(shared), records.write_sections, cuts, [shared])
        return Counts(extra={"shared": len(shared)})


@dataclass(frozen=True)
class SubstringsStage(Stage):
    """The documents of one shard without the passages that better ones hold."""

    name: ClassVar[str] = "substrings"
    version: ClassVar[int] = 2

    substrings: SubstringsConfig
    documents: str = "filter"

    @property
    def upstream(self) -> tuple[str, ...]:
        """The documents, their ranks and clusters, and what was found of their passages."""
        return (self.documents, "signatures", "clusters", "passage_keys", "passage_ranks")

    def config(self) -> dict[str, Any]:
        """All of the section; the length gate as a rule, so that the report shows it."""
        return {**self.substrings.model_dump(), "rules": [[GATE, self.substrings.min_left, None]]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: what belongs to it, and its section of all ranges."""
        ranges = upstream["passage_ranks"].file
        repeated = upstream["passage_keys"].files("repeated")
        shards = zip(_shards(self, upstream, "drops", "clusters"), repeated, strict=True)
        return [
            Task(shard_name(files[0]), (*files, mine, ranges), {"shard": shard})
            for shard, (files, mine) in enumerate(shards)
        ]

    def run(self, task: Task, out: Output) -> Counts:
        """Cut the passages row group by row group, drop what has become too short, move the lists of duplicates."""
        drops, clusters = records.map_array(task.inputs[2]), read_table(fetch(task.inputs[3].url))
        ranks = substrings.document_ranks(records.map_array(task.inputs[1]))
        ranks[drops["row"]] = 0
        shard, ranges = int(task.params["shard"]), Folder.of(task.inputs[5]).files("best")
        shared = records.sections(ranges, shard, shard + 1, RECORD_DTYPE).read()
        table = substrings.merge([records.map_array(task.inputs[4]), shared])
        counts, dropped = cut_passages(task, out, ranks, table, self.substrings)
        drops = drops.copy()
        drops["row"] = new_rows(drops["row"], dropped)
        clusters = clusters.filter(pa.array(~dropped[clusters["row"].to_numpy()]))
        place = clusters.schema.get_field_index("row")
        rows = pa.array(new_rows(clusters["row"].to_numpy(), dropped))
        clusters = clusters.set_column(place, clusters.schema.field(place), rows)
        records.save(out, f"drops/{task.name}.npy", len(drops), records.write_array, drops)
        records.save(out, f"clusters/{task.name}.parquet", clusters.num_rows, write_table, clusters)
        return counts


@dataclass(frozen=True)
class CutTextStage(TextStage):
    """The stage `text` behind `substrings`, which has both the documents and their lists of duplicates."""

    @property
    def upstream(self) -> tuple[str, ...]:
        """The documents without copied passages."""
        return ("substrings",)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """As without cut passages."""
        found = upstream["substrings"]
        return super().plan({self.documents: found, "clusters": found})


def _shards(stage: Stage, upstream: Mapping[str, Folder], *kinds: str) -> list[tuple[File, ...]]:
    """Of each shard its documents, their keys, and these files of `clusters`."""
    documents, signatures, clusters, *_ = (upstream[name] for name in stage.upstream)
    lists = (documents.files(), signatures.files("keys"), *(clusters.files(kind) for kind in kinds))
    return list(zip(*lists, strict=True))
