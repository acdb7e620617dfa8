"""The stages of deduplication and the one that writes what is left; each is an ordinary file stage.

    filter -> signatures -> buckets -> members -> candidates -> clusters -> text

| stage      | task      | reads                    | writes                                                             |
|------------|-----------|--------------------------|--------------------------------------------------------------------|
| signatures | a shard   | texts                    | keys/S.npy (64 B a document), signatures/S.npy (4 B x k),          |
|            |           |                          | bands/S.bin (12 B x bands)                                         |
| buckets    | key range | bands                    | buckets/P.bin (16 B a record that shares its key)                   |
| members    | a shard   | buckets, keys, signatures| members/S.bin (72 B each of those), sketches/S.bin (2 B x k)       |
| candidates | key range | members, sketches        | edges/P.npy (37 B a verified pair)                                 |
| clusters   | one       | edges, keys              | drops/S.npy (33 B a dropped document), clusters/S.parquet          |
| text       | a shard   | documents, drops         | data/S.parquet, fates/S.parquet                                    |

Every arrow between a shard and a key range is one range read of each file of the other side. A task's memory is that of
its shard, of its key range (`records.PARTITION_RECORDS`) or, in `clusters`, of a million edges or the largest component:
0.42 GB at most for 10 million documents with a cluster of 100,000, 0.57 GB for twice as many, of which the mapped array
of `clusters` is 0.16 (`python -m tools.bench dedup --documents 20_000_000 --workers 2`; interpreter and numba 0.2).

Documents are dropped, and counted as dropped, in `text` only. The ordinal of a document is the rows of the `filter`
shards before its own plus its row there: int64, no server gives it out. Kernels are imported where a task runs, so that
planning loads no numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from corpus.dedup.config import DedupConfig
from corpus.engine.stage import MANIFEST_NAME, Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, join

if TYPE_CHECKING:
    import numpy as np

    from corpus.dedup.records import Runs


SIGNED = {"scheme", "ngram", "num_permutations", "bands", "rows"}  # fields of DedupConfig that change keys


@dataclass(frozen=True)
class Signatures(Stage):
    """Exact keys, ranks, MinHash signatures and band records of one shard."""

    name: ClassVar[str] = "signatures"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("filter",)

    dedup: DedupConfig
    documents: str = "filter"  # the stage whose documents are compared

    def __post_init__(self) -> None:
        object.__setattr__(self, "upstream", (self.documents,))

    def config(self) -> dict[str, Any]:
        """Everything that changes keys: the shingle, the bands, and the table that folds characters."""
        from corpus.dedup.fold_table import fold_digest

        return {**self.dedup.model_dump(include=SIGNED), "fold": fold_digest()}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        return [Task(shard_name(file), (file,)) for file in upstream[self.documents].files()]

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
class Buckets(Stage):
    """Records that share a key, of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "buckets"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("signatures",)

    def config(self) -> dict[str, Any]:
        """Nothing of its own: keys are equal or not."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a partition; their number follows the number of band records."""
        from corpus.dedup.records import partition_bits

        folder = upstream["signatures"]
        bits = partition_bits(sum(file.rows for file in folder.files("bands")))
        return [Task(f"{p:05d}", (_manifest(folder),), {"partition": p, "bits": bits}) for p in range(1 << bits)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read this partition's range of every shard's bands, write what is shared, a section a shard."""
        from corpus.dedup import records
        from corpus.dedup.buckets import shared_records

        first, last = records.band_slots(int(task.params["partition"]), int(task.params["bits"]))
        files = _open(task.inputs[0]).files("bands")
        runs = [records.section(file, first, last, records.RECORD_DTYPE) for file in files]
        shared, cuts, extra = shared_records(records.Runs(runs, records.RECORD_DTYPE))
        with out.create(f"buckets/{task.name}.bin", rows=len(shared)) as path:
            records.write_sections(path, cuts, [shared])
        return Counts(extra=extra | {"shared": len(shared)})


@dataclass(frozen=True)
class Members(Stage):
    """The bucket members of one shard with what it takes to compare them, a section a partition."""

    name: ClassVar[str] = "members"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "buckets")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Nothing of its own."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        inputs = tuple(_manifest(upstream[name]) for name in self.upstream)
        files = upstream["signatures"].files("keys")
        return [Task(shard_name(file), inputs, {"shard": shard}) for shard, file in enumerate(files)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read the shard's section of every partition, merge it with keys and signatures."""
        from corpus.dedup import keys, members, records
        from corpus.dedup.buckets import SHARED_DTYPE

        signatures, buckets = map(_open, task.inputs)
        shard = int(task.params["shard"])
        sections = [records.section(file, shard, shard + 1, SHARED_DTYPE) for file in buckets.files("buckets")]
        parts = [records.Runs([section], SHARED_DTYPE).read() for section in sections]
        found, cuts = members.join_keys(parts, _rows(signatures, "keys", keys.KEY_DTYPE, shard))
        minima = records.signature_dtype(self.dedup.num_permutations)
        chunks, sketch_cuts = members.join_signatures(found, cuts, _rows(signatures, "signatures", minima, shard))
        with out.create(f"members/{task.name}.bin", rows=len(found)) as path:
            records.write_sections(path, cuts, [found])
        with out.create(f"sketches/{task.name}.bin", rows=int(sketch_cuts[-1])) as path:
            records.write_sections(path, sketch_cuts, chunks)
        return Counts(extra={"members": len(found), "sketches": int(sketch_cuts[-1])})


@dataclass(frozen=True)
class Candidates(Stage):
    """Documents that share a key, verified: the edges of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "candidates"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "buckets", "members")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """The threshold and the bound on leaders; the rest is in the signatures."""
        return self.dedup.model_dump(include={"threshold", "max_leaders"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a partition."""
        inputs = tuple(_manifest(upstream[name]) for name in ("signatures", "members"))
        files = upstream["buckets"].files("buckets")
        return [Task(shard_name(file), inputs, {"partition": partition}) for partition, file in enumerate(files)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read this partition's section of every shard's members, verify, write edges."""
        import numpy as np

        from corpus.dedup import records
        from corpus.dedup.candidates import verify
        from corpus.dedup.members import MEMBER_DTYPE

        signatures, members = map(_open, task.inputs)
        bases, partition = records.bases(signatures.files("keys")), int(task.params["partition"])

        def runs(kind: str, dtype: np.dtype[Any]) -> records.Runs:
            files = members.files(kind)
            return records.Runs([records.section(file, partition, partition + 1, dtype) for file in files], dtype)

        found = runs("members", MEMBER_DTYPE)
        member = found.read()
        edges, extra = verify(
            np.ascontiguousarray(member["bucket"]),
            member["row"] + np.repeat(bases[:-1], np.diff(found.bases)),
            member["keys"],
            runs("sketches", records.sketch_dtype(self.dedup.num_permutations)).take,
            self.dedup.threshold,
            self.dedup.max_leaders,
        )
        with out.create(f"edges/{task.name}.npy", rows=len(edges)) as path:
            records.write_array(path, edges)
        return Counts(extra=extra)


@dataclass(frozen=True)
class Clusters(Stage):
    """All edges to the dropped documents and the cluster table of each shard: one task."""

    name: ClassVar[str] = "clusters"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "candidates")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Nothing of its own: edges are already verified."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task."""
        return [Task("all", tuple(_manifest(upstream[name]) for name in self.upstream))]

    def run(self, task: Task, out: Output) -> Counts:
        """Resolve the edges group by group, then write each shard's drops and clusters."""
        import tempfile
        from pathlib import Path

        from corpus.dedup import clusters, records
        from corpus.dedup.candidates import EDGE_DTYPE
        from corpus.dedup.keys import KEY_DTYPE
        from corpus.document import write_table
        from corpus.engine import scratch

        signatures, candidates = map(_open, task.inputs)
        files = signatures.files("keys")
        bases = records.bases(files)
        edges = [records.Runs([records.array_rows(file, EDGE_DTYPE)], EDGE_DTYPE) for file in candidates.files("edges")]
        with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
            fates = clusters.ShardedFates(Path(folder), bases)
            for group in clusters.resolve_files(edges, int(bases[-1]), Path(folder)):
                fates.add(group)
            for shard, file in enumerate(files):
                here, base = fates.shard(shard), int(bases[shard])
                drops = clusters.drops(here, base)
                with out.create(f"drops/{shard_name(file)}.npy", rows=len(drops)) as path:
                    records.write_array(path, drops)
                keys = _rows(signatures, "keys", KEY_DTYPE, shard).take(here["document"] - base)
                with out.create(f"clusters/{shard_name(file)}.parquet", rows=len(here)) as path:
                    write_table(path, clusters.cluster_table(here, base, keys))
        counts = signatures.counts
        documents, num_bytes = counts.documents_out, counts.bytes_out
        return Counts(documents, documents, num_bytes, num_bytes, extra=fates.counts)


@dataclass(frozen=True)
class Survivors(Stage):
    """The stage `text`: the documents of one `filter` shard without its duplicates."""

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("filter", "clusters")

    dedup: DedupConfig
    documents: str = "filter"  # the stage whose documents are written

    def __post_init__(self) -> None:
        object.__setattr__(self, "upstream", (self.documents, "clusters"))

    def config(self) -> dict[str, Any]:
        """The threshold, because the ledger names it."""
        return self.dedup.model_dump(include={"threshold"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents and its drop list."""
        pairs = zip(upstream[self.documents].files(), upstream["clusters"].files("drops"), strict=True)
        return [Task(shard_name(documents), (documents, drops)) for documents, drops in pairs]

    def run(self, task: Task, out: Output) -> Counts:
        """Copy what survives, row group by row group, and write the fate of what does not."""
        from corpus.dedup.survivors import write_survivors

        return write_survivors(task, out, self.dedup.threshold)


def _manifest(folder: Folder) -> File:
    """A whole stage as one input: a task that reads a range of every file need not list them all."""
    return File(join(folder.url, MANIFEST_NAME), 0, folder.digest)


def _rows(signatures: Folder, kind: str, dtype: np.dtype[Any], shard: int) -> Runs:
    """One shard's rows of a stage's .npy files."""
    from corpus.dedup.records import Runs, array_rows

    return Runs([array_rows(signatures.files(kind)[shard], dtype)], dtype)


def _open(manifest: File) -> Folder:
    return Folder.open(manifest.url.removesuffix("/" + MANIFEST_NAME))
