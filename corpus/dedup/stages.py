"""The four stages of deduplication and the one that writes what is left; each is an ordinary file stage.

    filter -> signatures -> candidates -> clusters -> text

| stage      | task      | writes                                                                               |
|------------|-----------|--------------------------------------------------------------------------------------|
| signatures | a shard   | keys/S.npy (64 B a document), signatures/S.npy (4 B x k), bands/S.bin (12 B x bands) |
| candidates | key range | edges/P.npy (21 B a verified pair)                                                   |
| clusters   | one       | drops/S.npy (33 B a dropped document)                                                |
| text       | a shard   | data/S.parquet, fates/S.parquet                                                      |

Documents are dropped, and counted as dropped, in `text` only. The ordinal of a document is the rows of the `filter`
shards before its own plus its row there: int64, no server gives it out. Kernels are imported where a task runs, so that
planning loads no numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from corpus.dedup.config import DedupConfig
from corpus.engine.stage import MANIFEST_NAME, Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, join


@dataclass(frozen=True)
class Signatures(Stage):
    """Exact keys, ranks, MinHash signatures and band records of one shard."""

    name: ClassVar[str] = "signatures"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("filter",)

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Everything that changes keys: the shingle, the bands, and the table that folds characters."""
        from corpus.dedup.fold_table import fold_digest

        return {**self.dedup.model_dump(include={"ngram", "num_permutations", "bands", "rows"}), "fold": fold_digest()}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        return [Task(shard_name(file), (file,)) for file in upstream["filter"].files()]

    def run(self, task: Task, out: Output) -> Counts:
        """Read ids and texts row group by row group, write the shard's keys, signatures and bands."""
        from corpus.dedup import records, signatures
        from corpus.document import read_batches
        from corpus.engine.storage import fetch

        batches = read_batches(fetch(task.inputs[0].url), ["id", "text"])
        shard = signatures.sign([signatures.sign_texts(b["id"], b["text"], self.dedup) for b in batches], self.dedup)
        with out.create(f"keys/{task.name}.npy", rows=len(shard.keys)) as path:
            records.write_array(path, shard.keys)
        with out.create(f"signatures/{task.name}.npy", rows=len(shard.keys)) as path:
            records.write_array(path, shard.signatures)
        with out.create(f"bands/{task.name}.bin", rows=len(shard.band_keys)) as path:
            records.write_bands(path, shard.band_keys, shard.band_rows)
        documents, num_bytes = len(shard.keys), int(shard.keys["num_bytes"].sum())
        return Counts(documents, documents, num_bytes, num_bytes, extra={"band_records": len(shard.band_keys)})


@dataclass(frozen=True)
class Candidates(Stage):
    """Documents that share a key, verified: the edges of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "candidates"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("signatures",)

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """The threshold and the bound on leaders; the rest is in the signatures."""
        return self.dedup.model_dump(include={"threshold", "max_leaders"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a partition; their number follows the number of band records."""
        from corpus.dedup.records import partition_bits

        folder = upstream["signatures"]
        bits = partition_bits(sum(file.rows for file in folder.files("bands")))
        return [Task(f"{p:05d}", (_manifest(folder),), {"partition": p, "bits": bits}) for p in range(1 << bits)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read this partition's range of every shard's bands, group, verify, write edges."""
        import numpy as np

        from corpus.dedup import records
        from corpus.dedup.candidates import find_edges

        folder = _open(task.inputs[0])
        partition, bits = int(task.params["partition"]), int(task.params["bits"])
        keys = records.ShardedRows(folder.files("keys"))
        parts = [records.read_bands(file, partition, bits) for file in folder.files("bands")]
        ordinals = [part["row"] + base for part, base in zip(parts, keys.bases[:-1], strict=True)]
        edges, extra = find_edges(
            np.concatenate([np.empty(0, np.uint64), *(part["key"] for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *ordinals]),
            keys.take,
            records.ShardedRows(folder.files("signatures")).take,
            self.dedup.threshold,
            self.dedup.max_leaders,
        )
        with out.create(f"edges/{task.name}.npy", rows=len(edges)) as path:
            records.write_array(path, edges)
        return Counts(extra=extra)


@dataclass(frozen=True)
class Clusters(Stage):
    """All edges to the list of dropped documents of each shard: one task."""

    name: ClassVar[str] = "clusters"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "candidates")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Nothing of its own: edges are already verified."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task."""
        return [Task("all", tuple(_manifest(upstream[name]) for name in self.upstream))]

    def run(self, task: Task, out: Output) -> Counts:
        """Read all edges, choose the survivors, write a drop list for each shard."""
        import numpy as np

        from corpus.dedup import records
        from corpus.dedup.candidates import EDGE_DTYPE
        from corpus.dedup.clusters import resolve, shard_drops

        signatures, candidates = map(_open, task.inputs)
        keys = records.ShardedRows(signatures.files("keys"))
        edges = [records.map_array(file) for file in candidates.files("edges")]
        fates, extra = resolve(np.concatenate([np.empty(0, EDGE_DTYPE), *edges]), keys.take)
        for file, drops in zip(keys.files, shard_drops(fates, keys.bases, keys.take), strict=True):
            with out.create(f"drops/{shard_name(file)}.npy", rows=len(drops)) as path:
                records.write_array(path, drops)
        counts = signatures.counts
        return Counts(counts.documents_out, counts.documents_out, counts.bytes_out, counts.bytes_out, extra=extra)


@dataclass(frozen=True)
class Survivors(Stage):
    """The stage `text`: the documents of one `filter` shard without its duplicates."""

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("filter", "clusters")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """The threshold, because the ledger names it."""
        return self.dedup.model_dump(include={"threshold"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents and its drop list."""
        pairs = zip(upstream["filter"].files(), upstream["clusters"].files("drops"), strict=True)
        return [Task(shard_name(documents), (documents, drops)) for documents, drops in pairs]

    def run(self, task: Task, out: Output) -> Counts:
        """Copy what survives, row group by row group, and write the fate of what does not."""
        from corpus.dedup.survivors import write_survivors

        return write_survivors(task, out, self.dedup.threshold)


def _manifest(folder: Folder) -> File:
    """A whole stage as one input: a task that reads a range of every file need not list them all."""
    return File(join(folder.url, MANIFEST_NAME), 0, folder.digest)


def _open(manifest: File) -> Folder:
    return Folder.open(manifest.url.removesuffix("/" + MANIFEST_NAME))
