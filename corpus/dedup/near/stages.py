"""The stages of deduplication and the one that writes what is left; each is an ordinary file stage.

    filter -> signatures -> buckets -> members -> candidates -> components -> survivors -> clusters -> text

| stage      | task      | reads                    | writes                                                          |
|------------|-----------|--------------------------|-----------------------------------------------------------------|
| signatures | a shard   | texts                    | keys/S.npy (64 B a document), signatures/S.npy (4 B x k),       |
|            |           |                          | bands/S.bin (12 B x bands)                                      |
| buckets    | key range | bands                    | buckets/P.bin (16 B a record that shares its key)               |
| members    | a shard   | buckets, keys, signatures| members/S.bin (72 B each of those), sketches/S.bin (2 B x k)    |
| candidates | key range | members, sketches        | edges/P.npy (37 B a verified pair)                              |
| components | one       | edges                    | edges/G.bin: those of some components                           |
| survivors  | a group   | edges of components      | survivors/G.bin (61 B a document that has an edge)              |
| clusters   | shards    | fates, keys              | drops/S.npy (45 B a dropped document), clusters/S.parquet       |
| text       | a shard   | documents, drops,        | data/, fates/, index/S.parquet (a row a document                |
|            |           | clusters                 | of data/: bytes, cluster, size of the cluster)                  |

Every arrow between a shard and a key range is one range read of each file of the other side; records.py has the sum. A
task's memory is that of its shard, of its key range (`records.partition_records`) or, in `survivors`, of a million
edges or of the largest component, up to the size from which that is resolved on mapped files: 0.28 GB at most for 2
million documents with a cluster of 20,000, 0.45 GB for 20 million with one of 200,000 (`python -m
tools.bench dedup --documents 20_000_000`; interpreter and numba 0.2).

Documents are dropped, and counted as dropped, in `text` only. The ordinal of a document is the rows of the `filter`
shards before its own plus its row there: int64, no server gives it out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from corpus.dedup import records
from corpus.dedup.config import DedupConfig
from corpus.dedup.near.buckets import SHARED_DTYPE, shared_records
from corpus.dedup.near.candidates import EDGE_DTYPE, verify
from corpus.dedup.near.clusters import FATE_DTYPE, MAX_EDGES, cluster_table, count, deal, drops, num_groups, resolve
from corpus.dedup.near.earlier import NO_EARLIER, EarlierBuilds, Numbering, surviving
from corpus.dedup.near.mapped import resolve_mapped
from corpus.dedup.near.members import MEMBER_DTYPE, join_keys, join_signatures
from corpus.dedup.near.survivors import write_survivors
from corpus.dedup.records import Run, Runs, pick
from corpus.dedup.text.keys import EARLIER, KEY_DTYPE
from corpus.document import write_table
from corpus.engine import scratch
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, fetch

SHARDS_AT_ONCE = 16  # whose clusters one task writes
FATES_AT_ONCE = 1 << 20  # on average


@dataclass(frozen=True)
class CrossBuildStage(Stage):
    """Base of the stages that bring documents together, those of earlier builds behind their own."""

    earlier: EarlierBuilds = field(default=NO_EARLIER, kw_only=True)

    def config(self) -> dict[str, Any]:
        """Nothing of its own: keys are equal or not, edges are verified."""
        return self.earlier.config()

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
class BucketsStage(CrossBuildStage):
    """Records that share a key, of one range of keys. It counts records, not documents."""

    name: ClassVar[str] = "buckets"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures",)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a partition; their number follows the number of band records."""
        signed = self.signed(upstream)
        return records.partition_tasks(tuple(folder.file for folder in signed), _files(signed, "bands"))

    def run(self, task: Task, out: Output) -> Counts:
        """Read this partition's range of every shard's bands, write what is shared, a section a shard."""
        signed = [Folder.of(file) for file in task.inputs]
        runs = records.partition_runs(task, _files(signed, "bands"))
        shared, cuts, extra = shared_records(runs, len(signed[0].files("bands")))
        records.save(out, f"buckets/{task.name}.bin", len(shared), records.write_sections, cuts, [shared])
        return Counts(extra=extra | {"shared": len(shared)})


@dataclass(frozen=True)
class MembersStage(CrossBuildStage):
    """The bucket members of one shard with what it takes to compare them, one or more sections a partition."""

    name: ClassVar[str] = "members"
    version: ClassVar[int] = 2
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "buckets")

    dedup: DedupConfig

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard; named so that the files of earlier builds follow the others, whatever shards are called."""
        inputs = tuple(upstream[name].file for name in self.upstream)
        files = upstream["signatures"].files("keys")
        tasks = [Task(f"build-{shard_name(file)}", inputs, {"shard": shard}) for shard, file in enumerate(files)]
        for build in self.earlier.builds:
            inputs, before = (build.signatures.file, inputs[1], build.clusters.file), len(tasks)
            for shard, file in enumerate(build.signatures.files("keys")):
                params = {"shard": shard, "section": before + shard}
                tasks.append(Task(f"earlier-{build.name}-{shard_name(file)}", inputs, params))
        return tasks

    def run(self, task: Task, out: Output) -> Counts:
        """Read the shard's section of every partition, merge it with keys and signatures."""
        signatures, buckets, *earlier = map(Folder.of, task.inputs)
        shard = int(task.params["shard"])
        number = int(task.params.get("section", shard))
        parts = records.sections(buckets.files("buckets"), number, number + 1, SHARED_DTYPE).parts()
        for clusters in earlier:
            parts = surviving(parts, clusters.files("drops")[shard], signatures.files("keys")[shard].rows)
        spread = records.spread(buckets.files("buckets"))
        found, cuts = join_keys(parts, _rows(signatures, "keys", KEY_DTYPE, shard), spread)
        if earlier:
            found["keys"]["rank"] |= EARLIER
        minima = np.dtype(("<u4", (self.dedup.num_permutations,)))  # a signature as one record
        chunks, sketch_cuts = join_signatures(found, cuts, _rows(signatures, "signatures", minima, shard))
        records.save(out, f"members/{task.name}.bin", len(found), records.write_sections, cuts, [found])
        records.save(
            out, f"sketches/{task.name}.bin", int(sketch_cuts[-1]), records.write_sections, sketch_cuts, chunks
        )
        return Counts(extra={"members": len(found), "sketches": int(sketch_cuts[-1])})


@dataclass(frozen=True)
class CandidatesStage(CrossBuildStage):
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
        mine, *others = self.signed(upstream)
        inputs = tuple(folder.file for folder in (mine, upstream["members"], *others))
        files = upstream["buckets"].files("buckets")
        sections = len(files) * records.spread(files)
        return [Task(f"{section:05d}", inputs, {"section": section}) for section in range(sections)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read this section of every shard's members, verify, write edges."""
        signatures, members, *others = map(Folder.of, task.inputs)
        bases, section = records.bases(_files([signatures, *others], "keys")), int(task.params["section"])

        def runs(kind: str, dtype: np.dtype[Any]) -> Runs:
            return records.sections(members.files(kind), section, section + 1, dtype)

        found = runs("members", MEMBER_DTYPE)
        member = found.read()
        edges, extra = verify(
            np.ascontiguousarray(member["bucket"]),
            member["row"] + np.repeat(bases[:-1], np.diff(found.bases)),
            member["keys"],
            runs("sketches", np.dtype(("<u2", (self.dedup.num_permutations,)))).take,
            self.dedup.threshold,
            self.dedup.max_leaders,
            len(found.runs),
        )
        records.save(out, f"edges/{task.name}.npy", len(edges), records.write_array, edges)
        return Counts(extra=extra)


@dataclass(frozen=True)
class ComponentsStage(Stage):
    """All edges, dealt into groups of whole components: one task, which sees each edge three times and does no more."""

    name: ClassVar[str] = "components"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("candidates",)

    def config(self) -> dict[str, Any]:
        """Nothing of its own."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task."""
        return [Task("all", (upstream["candidates"].file,))]

    def run(self, task: Task, out: Output) -> Counts:
        """Join what edges join, write each group's."""
        files = Folder.of(task.inputs[0]).files("edges")
        edges = Runs([records.array_rows(file, EDGE_DTYPE) for file in files], EDGE_DTYPE)
        names = [f"edges/{group:05d}.bin" for group in range(num_groups(len(edges)))]
        with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder, ExitStack() as stack:
            rows = deal(edges, [stack.enter_context(out.create(name)) for name in names], Path(folder))
        for name, num_edges in zip(names, rows.tolist(), strict=True):
            out.set_rows(name, num_edges)
        return Counts(extra={"edges": len(edges)})


@dataclass(frozen=True)
class SurvivorsStage(Stage):
    """What becomes of the documents of one group of components."""

    name: ClassVar[str] = "survivors"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "components")

    def config(self) -> dict[str, Any]:
        """Nothing of its own."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a group."""
        groups = enumerate(upstream["components"].files("edges"))
        return [Task(f"{group:05d}", (upstream["signatures"].file, file)) for group, file in groups]

    def run(self, task: Task, out: Output) -> Counts:
        """Resolve the edges, write the fates sorted by document, a section a shard; earlier builds have none here."""
        bases, file = records.bases(Folder.of(task.inputs[0]).files("keys")), task.inputs[1]
        with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
            if file.rows <= MAX_EDGES:
                fates = resolve(Runs([Run(file.url, 0, file.rows)], EDGE_DTYPE).read())
            else:
                fates = resolve_mapped(Runs([Run(str(fetch(file.url)), 0, file.rows)], EDGE_DTYPE), Path(folder))
            cuts = np.zeros(len(bases), np.int64)
            for start in range(0, len(fates), records.BLOCK_RECORDS):
                cuts += np.searchsorted(fates["document"][start : start + records.BLOCK_RECORDS], bases)
            num_fates = int(cuts[-1])
            part, name = fates[:num_fates], f"survivors/{task.name}.bin"
            records.save(out, name, num_fates, records.write_sections, cuts, [part])
        return Counts(extra={"documents": num_fates})


@dataclass(frozen=True)
class ClustersStage(CrossBuildStage):
    """The dropped documents and the cluster table of each shard."""

    name: ClassVar[str] = "clusters"
    version: ClassVar[int] = 4
    upstream: ClassVar[tuple[str, ...]] = ("signatures", "survivors")

    dedup: DedupConfig

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task for some shards; bytes of text, which only the sum of all shards is known of, count in the first."""
        signatures, fates = (upstream[name] for name in self.upstream)
        files, num_fates = signatures.files("keys"), sum(file.rows for file in fates.files("survivors"))
        bases, numbering = records.bases(files), Numbering.of(signatures, self.earlier.builds)
        parts = min(max(1, len(files)), max(len(files) // SHARDS_AT_ONCE, num_fates // FATES_AT_ONCE) + 1)
        edges = np.linspace(0, len(files), parts + 1).astype(int).tolist()
        return [
            Task(
                f"{part:05d}",
                (fates.file, *files[first:last]),
                {"shard": first, "base": int(bases[first]), **numbering.params()}
                | {"bytes": 0 if part else signatures.counts.bytes_out},
            )
            for part, (first, last) in enumerate(itertools.pairwise(edges))
        ]

    def run(self, task: Task, out: Output) -> Counts:
        """Read these shards' sections of all groups, write each shard's drops and clusters."""
        groups, *files = task.inputs
        shard, num_bytes = int(task.params["shard"]), int(task.params["bytes"])
        bases, numbering = records.bases(files) + int(task.params["base"]), Numbering.from_params(task.params)
        sections = records.sections(Folder.of(groups).files("survivors"), shard, shard + len(files), FATE_DTYPE)
        fates = sections.read()
        fates = pick(fates, np.argsort(fates["document"]))
        documents = int(bases[-1] - bases[0])
        counts = Counts(documents, documents, num_bytes, num_bytes, extra=count(fates))
        cuts = np.searchsorted(fates["document"], bases)
        for file, base, first, last in zip(files, bases.tolist(), cuts, cuts[1:], strict=False):
            here = fates[first:last]
            builds = numbering.builds(here["survivor"])
            dropped = drops(here, base, builds)
            counts.add(Counts(extra=numbering.count(dropped["build"])))
            records.save(out, f"drops/{shard_name(file)}.npy", len(dropped), records.write_array, dropped)
            keys = Runs([records.array_rows(file, KEY_DTYPE)], KEY_DTYPE).take(here["document"] - base)
            table = cluster_table(here, base, keys, builds)
            records.save(out, f"clusters/{shard_name(file)}.parquet", len(here), write_table, table)
        return counts


@dataclass(frozen=True)
class TextStage(Stage):
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
        return write_survivors(task, out, self.dedup)


def _files(folders: Sequence[Folder], kind: str) -> list[File]:
    return [file for folder in folders for file in folder.files(kind)]


def _rows(signatures: Folder, kind: str, dtype: np.dtype[Any], shard: int) -> Runs:
    """One shard's rows of a stage's .npy files."""
    return Runs([records.array_rows(signatures.files(kind)[shard], dtype)], dtype)
