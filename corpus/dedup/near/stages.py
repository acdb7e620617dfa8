"""The stages of deduplication and the one that writes what is left; each is an ordinary file stage.

    filter -> signatures -> buckets -> members -> candidates -> clusters -> text

| stage      | task      | reads                    | writes                                                             |
|------------|-----------|--------------------------|--------------------------------------------------------------------|
| signatures | a shard   | texts                    | keys/S.npy (64 B a document), signatures/S.npy (4 B x k),          |
|            |           |                          | bands/S.bin (12 B x bands)                                         |
| buckets    | key range | bands                    | buckets/P.bin (16 B a record that shares its key)                   |
| members    | a shard   | buckets, keys, signatures| members/S.bin (72 B each of those), sketches/S.bin (2 B x k)       |
| candidates | key range | members, sketches        | edges/P.npy (37 B a verified pair)                                 |
| clusters   | one       | edges, keys              | drops/S.npy (45 B a dropped document), clusters/S.parquet          |
| text       | a shard   | documents, drops,        | data/S.parquet, fates/S.parquet, index/S.parquet (a row a document |
|            |           | clusters                 | of data/: bytes, cluster, size of the cluster)                     |

Every arrow between a shard and a key range is one range read of each file of the other side; records.py has the sum. A
task's memory is that of its shard, of its key range (`records.partition_records`) or, in `clusters`, of a million edges
or the largest component: 0.28 GB at most for 2 million documents with a cluster of 20,000, 0.45 GB for 20 million with
one of 200,000 (`python -m tools.bench dedup --documents 20_000_000`; interpreter and numba 0.2).

Documents are dropped, and counted as dropped, in `text` only. The ordinal of a document is the rows of the `filter`
shards before its own plus its row there: int64, no server gives it out. Kernels are imported where a task runs, so that
planning loads no numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.earlier import NO_EARLIER, EarlierBuilds
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File

if TYPE_CHECKING:
    import numpy as np

    from corpus.dedup.records import Runs


@dataclass(frozen=True)
class Joining(Stage):
    """Base of the stages that bring documents together, those of earlier builds behind their own."""

    earlier: EarlierBuilds = field(default=NO_EARLIER, kw_only=True)

    def inputs(self) -> tuple[File, ...]:
        """The earlier builds, in the fingerprint by their contents."""
        return self.earlier.manifests()

    def for_worker(self) -> Self:
        """Without the earlier builds' lists of files: a task names the manifests it reads."""
        return replace(self, earlier=NO_EARLIER)

    def signed(self, upstream: Mapping[str, Folder]) -> tuple[Folder, ...]:
        """The signatures of all builds, its own first: documents are numbered in this order."""
        return (upstream["signatures"], *(build.signatures for build in self.earlier.builds))


@dataclass(frozen=True)
class Buckets(Joining):
    """Records that share a key, of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "buckets"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures",)

    def config(self) -> dict[str, Any]:
        """Nothing of its own: keys are equal or not."""
        return self.earlier.config()

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a partition; their number follows the number of band records."""
        from corpus.dedup.records import partition_tasks

        signed = self.signed(upstream)
        return partition_tasks(tuple(folder.file for folder in signed), _files(signed, "bands"))

    def run(self, task: Task, out: Output) -> Counts:
        """Read this partition's range of every shard's bands, write what is shared, a section a shard."""
        from corpus.dedup import records
        from corpus.dedup.near.buckets import shared_records

        first, last = records.band_slots(int(task.params["partition"]), int(task.params["bits"]))
        signed = [Folder.of(file) for file in task.inputs]
        runs = [records.section(file, first, last, records.RECORD_DTYPE) for file in _files(signed, "bands")]
        shared, cuts, extra = shared_records(records.Runs(runs, records.RECORD_DTYPE), len(signed[0].files("bands")))
        with out.create(f"buckets/{task.name}.bin", rows=len(shared)) as path:
            records.write_sections(path, cuts, [shared])
        return Counts(extra=extra | {"shared": len(shared)})


@dataclass(frozen=True)
class Members(Joining):
    """The bucket members of one shard with what it takes to compare them, one or more sections a partition."""

    name: ClassVar[str] = "members"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "buckets")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Nothing of its own."""
        return self.earlier.config()

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard; those of earlier builds are named so that their files follow the others, as they do."""
        inputs = tuple(upstream[name].file for name in self.upstream)
        files = upstream["signatures"].files("keys")
        tasks = [Task(shard_name(file), inputs, {"shard": shard}) for shard, file in enumerate(files)]
        for build in self.earlier.builds:
            inputs, before = (build.signatures.file, inputs[1], build.clusters.file), len(tasks)
            for shard, file in enumerate(build.signatures.files("keys")):
                params = {"shard": shard, "section": before + shard}
                tasks.append(Task(f"earlier-{build.name}-{shard_name(file)}", inputs, params))
        return tasks

    def run(self, task: Task, out: Output) -> Counts:
        """Read the shard's section of every partition, merge it with keys and signatures."""
        from corpus.dedup import records
        from corpus.dedup.near import members
        from corpus.dedup.near.buckets import SHARED_DTYPE
        from corpus.dedup.near.earlier import surviving
        from corpus.dedup.text import keys

        signatures, buckets, *earlier = map(Folder.of, task.inputs)
        shard = int(task.params["shard"])
        number = int(task.params.get("section", shard))
        sections = [records.section(file, number, number + 1, SHARED_DTYPE) for file in buckets.files("buckets")]
        parts = [records.Runs([section], SHARED_DTYPE).read() for section in sections]
        for clusters in earlier:
            parts = surviving(parts, clusters.files("drops")[shard], signatures.files("keys")[shard].rows)
        spread = records.spread(buckets.files("buckets"))
        found, cuts = members.join_keys(parts, _rows(signatures, "keys", keys.KEY_DTYPE, shard), spread)
        if earlier:
            found["keys"]["rank"] |= keys.EARLIER
        minima = records.signature_dtype(self.dedup.num_permutations)
        chunks, sketch_cuts = members.join_signatures(found, cuts, _rows(signatures, "signatures", minima, shard))
        with out.create(f"members/{task.name}.bin", rows=len(found)) as path:
            records.write_sections(path, cuts, [found])
        with out.create(f"sketches/{task.name}.bin", rows=int(sketch_cuts[-1])) as path:
            records.write_sections(path, sketch_cuts, chunks)
        return Counts(extra={"members": len(found), "sketches": int(sketch_cuts[-1])})


@dataclass(frozen=True)
class Candidates(Joining):
    """Documents that share a key, verified: the edges of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "candidates"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "buckets", "members")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """The threshold and the bound on leaders; the rest is in the signatures."""
        return self.dedup.model_dump(include={"threshold", "max_leaders"}) | self.earlier.config()

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a section of members."""
        from corpus.dedup.records import spread

        mine, *others = self.signed(upstream)
        inputs = tuple(folder.file for folder in (mine, upstream["members"], *others))
        files = upstream["buckets"].files("buckets")
        sections = len(files) * spread(files)
        return [Task(f"{section:05d}", inputs, {"section": section}) for section in range(sections)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read this section of every shard's members, verify, write edges."""
        import numpy as np

        from corpus.dedup import records
        from corpus.dedup.near.candidates import verify
        from corpus.dedup.near.members import MEMBER_DTYPE

        signatures, members, *others = map(Folder.of, task.inputs)
        bases, section = records.bases(_files([signatures, *others], "keys")), int(task.params["section"])

        def runs(kind: str, dtype: np.dtype[Any]) -> records.Runs:
            files = members.files(kind)
            return records.Runs([records.section(file, section, section + 1, dtype) for file in files], dtype)

        found = runs("members", MEMBER_DTYPE)
        member = found.read()
        edges, extra = verify(
            np.ascontiguousarray(member["bucket"]),
            member["row"] + np.repeat(bases[:-1], np.diff(found.bases)),
            member["keys"],
            runs("sketches", records.sketch_dtype(self.dedup.num_permutations)).take,
            self.dedup.threshold,
            self.dedup.max_leaders,
            len(found.runs),
        )
        with out.create(f"edges/{task.name}.npy", rows=len(edges)) as path:
            records.write_array(path, edges)
        return Counts(extra=extra)


@dataclass(frozen=True)
class Clusters(Joining):
    """All edges to the dropped documents and the cluster table of each shard: one task."""

    name: ClassVar[str] = "clusters"
    version: ClassVar[int] = 3
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "candidates")

    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """Nothing of its own: edges are already verified."""
        return self.earlier.config()

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task."""
        return [Task("all", (*(upstream[name].file for name in self.upstream), *self.earlier.manifests()))]

    def run(self, task: Task, out: Output) -> Counts:
        """Resolve the edges group by group, then write each shard's drops and clusters."""
        import tempfile
        from pathlib import Path

        from corpus.dedup import records
        from corpus.dedup.near import clusters
        from corpus.dedup.near.candidates import EDGE_DTYPE
        from corpus.dedup.near.earlier import Numbering
        from corpus.dedup.text.keys import KEY_DTYPE
        from corpus.document import write_table
        from corpus.engine import scratch

        signatures, candidates, *earlier = map(Folder.of, task.inputs)
        files = signatures.files("keys")
        bases, numbering = records.bases(files), Numbering.of(signatures, earlier)
        edges = [records.Runs([records.array_rows(file, EDGE_DTYPE)], EDGE_DTYPE) for file in candidates.files("edges")]
        with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
            fates, counts = clusters.ShardedFates(Path(folder), bases), Counts()
            for group in clusters.resolve_files(edges, numbering.documents, Path(folder)):
                fates.add(group)
            for shard, file in enumerate(files):
                here, base = fates.shard(shard), int(bases[shard])
                builds = numbering.builds(here["survivor"])
                drops = clusters.drops(here, base, builds)
                counts.add(Counts(extra=numbering.count(drops["build"])))
                with out.create(f"drops/{shard_name(file)}.npy", rows=len(drops)) as path:
                    records.write_array(path, drops)
                keys = _rows(signatures, "keys", KEY_DTYPE, shard).take(here["document"] - base)
                with out.create(f"clusters/{shard_name(file)}.parquet", rows=len(here)) as path:
                    write_table(path, clusters.cluster_table(here, base, keys, builds))
        documents, num_bytes = signatures.counts.documents_out, signatures.counts.bytes_out
        counts.add(Counts(documents, documents, num_bytes, num_bytes, extra=fates.counts))
        return counts


@dataclass(frozen=True)
class Survivors(Stage):
    """The stage `text`: the documents of one `filter` shard without its duplicates."""

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 3

    dedup: DedupConfig
    documents: str = "filter"  # the stage whose documents are written

    @property
    def upstream(self) -> tuple[str, ...]:
        """The documents, and which of them are duplicates."""
        return (self.documents, "clusters")

    def config(self) -> dict[str, Any]:
        """What is kept, and the threshold, because the ledger names it."""
        return self.dedup.model_dump(include={"keep", "threshold"})

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard: its documents, its drop list and its clusters."""
        found = upstream["clusters"]
        inputs = zip(upstream[self.documents].files(), found.files("drops"), found.files("clusters"), strict=True)
        return [Task(shard_name(documents), (documents, *rest)) for documents, *rest in inputs]

    def run(self, task: Task, out: Output) -> Counts:
        """Copy what is kept, row group by row group, and write the fate of what is not."""
        from corpus.dedup.near.survivors import write_survivors

        return write_survivors(task, out, self.dedup)


def _files(folders: Sequence[Folder], kind: str) -> list[File]:
    return [file for folder in folders for file in folder.files(kind)]


def _rows(signatures: Folder, kind: str, dtype: np.dtype[Any], shard: int) -> Runs:
    """One shard's rows of a stage's .npy files."""
    from corpus.dedup.records import Runs, array_rows

    return Runs([array_rows(signatures.files(kind)[shard], dtype)], dtype)
