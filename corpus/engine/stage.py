"""What a stage is: tasks that read committed files and write committed files, and the contracts they keep.

A task is one (stage, shard). It is idempotent: its bytes depend on its inputs, the part of the recipe it uses and the
stage's code `version`, never on worker counts, order or time. Its record, written after its outputs, is its existence:

    OUT/<stage>-<fingerprint12>/
        stage.json            what went into the fingerprint, readable
        <kind>/<task>...      outputs: data/, fates/, statistics/, ...
        done/<task>.json      the task's record: inputs, counts, sha256 and sizes of outputs; soon with a thousand
                              others in done/<range>.jsonl (`records`)
        failed/<task>.json    the last failure, removed on success
        MANIFEST.json         outputs and summed counts, written last: its existence means the stage is complete; the
                              list of files is in manifest/ (`manifest`)

Readers list records, never globs. Times and hosts stand in records and never in a manifest, so manifests compare
byte for byte. What one stage costs: two fsyncs a file, 1 ms a task; nothing travels through the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from corpus.engine import durable, manifest, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.manifest import MANIFEST_NAME, Manifest
from corpus.engine.storage import File

FINGERPRINT_LENGTH = 12
MOST_INPUTS_LISTED = 10_000  # in `stage.json`, which people read; of more, what they add up to


class ConservationError(WenhaiError):
    """A task lost or invented documents. It does not commit."""


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work: a name that orders it, the files it reads, and small JSON parameters."""

    name: str
    inputs: tuple[File, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Identity by content: where the inputs lie does not matter, what they hold does."""
        inputs = [[file.label, file.bytes, file.sha256] for file in self.inputs]
        return durable.digest({"name": self.name, "inputs": inputs, "params": dict(self.params)})


@dataclass
class Counts:
    """What a task did to documents. Bytes are UTF-8 bytes of text; `extra` holds further integers of the stage."""

    documents_in: int = 0
    documents_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)

    def drop(self, rule: str, count: int = 1) -> None:
        """Count documents dropped by a rule."""
        self.dropped[rule] = self.dropped.get(rule, 0) + count

    def error(self, kind: str, count: int = 1) -> None:
        """Count records that could not become documents."""
        self.errors[kind] = self.errors.get(kind, 0) + count

    def note(self, name: str, count: int = 1) -> None:
        """Add to one of the stage's own integers."""
        self.extra[name] = self.extra.get(name, 0) + count

    def add(self, other: Counts) -> None:
        """Add another task's counts."""
        self.documents_in += other.documents_in
        self.documents_out += other.documents_out
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        for mine, theirs in (
            (self.dropped, other.dropped),
            (self.errors, other.errors),
            (self.extra, other.extra),
        ):
            for key, value in theirs.items():
                mine[key] = mine.get(key, 0) + value

    def check(self, where: str) -> None:
        """The conservation law: in = out + dropped + errors.

        Raises:
            ConservationError: the law does not hold.
        """
        gone = sum(self.dropped.values()) + sum(self.errors.values())
        if self.documents_in != self.documents_out + gone:
            raise ConservationError(
                f"{where}: {self.documents_in:,} documents in, but {self.documents_out:,} out and {gone:,} dropped or "
                "in error. Nothing was committed; this is a bug of the stage, please report it."
            )


class Output:
    """Where a running task puts its files; each is committed (complete, hashed) when its block ends."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: dict[str, File] = {}

    @contextmanager
    def create(self, name: str, rows: int = 0) -> Iterator[Path]:
        """Yield a temporary local path for `kind/name.ext`; commit it when the block ends without an error."""
        url = storage.join(self.folder, name)
        with storage.create(url) as path:
            yield path
            file = File(name, path.stat().st_size, durable.sha256_file(path), rows)
        self.files[name] = file

    def set_rows(self, name: str, rows: int) -> None:
        """Record the number of rows of a file whose length was unknown when it was created."""
        file = self.files[name]
        self.files[name] = File(file.url, file.bytes, file.sha256, rows)


@dataclass(frozen=True)
class Folder:
    """A complete stage on disk, read through its manifest."""

    name: str
    url: str
    manifest: Manifest

    @classmethod
    def open(cls, url: str) -> Folder:
        """Open a stage folder; raises `WenhaiError` when its manifest is missing or of another version."""
        found = cls.find(url)
        if found is None:
            raise WenhaiError(
                f"{url}: the stage is not complete here, or was built by an earlier version. Run the command that "
                "built it again: finished work is kept."
            )
        return found

    @classmethod
    def find(cls, url: str) -> Folder | None:
        """The stage folder at `url`, or None where no complete stage of this version stands."""
        found = manifest.read(url)
        return None if found is None else cls(found["stage"], url, found)

    @classmethod
    def of(cls, manifest: File) -> Folder:
        """The stage that a task reads as one input."""
        return cls.open(manifest.url.removesuffix("/" + MANIFEST_NAME))

    @cached_property
    def file(self) -> File:
        """A whole stage as one input, its manifest: a task that reads a range of every file need not list them all."""
        return File(storage.join(self.url, MANIFEST_NAME), 0, self.digest)

    def listed(self, kind: str | None = None) -> Iterator[File]:
        """The files of one kind or all, sorted by kind and name, each by its name below the folder; read anew each
        time."""
        return manifest.files(self.url, self.manifest, kind)

    def files(self, kind: str = "data") -> list[File]:
        """The files of one kind, sorted by name, with full URLs; read anew each time."""
        return [replace(file, url=storage.join(self.url, file.url)) for file in self.listed(kind)]

    def number_of(self, kind: str) -> int:
        """How many files of a kind there are."""
        return int(self.manifest["kinds"].get(kind, {"files": 0})["files"])

    @property
    def num_files(self) -> int:
        """Files of all kinds."""
        return sum(int(sums["files"]) for sums in self.manifest["kinds"].values())

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(int(sums["bytes"]) for sums in self.manifest["kinds"].values())

    @property
    def base_name(self) -> str:
        """`text-0123456789ab`: what `run.json` calls it."""
        return self.url.rstrip("/").rsplit("/", 1)[-1]

    @cached_property
    def counts(self) -> Counts:
        """The summed counts of all tasks."""
        return Counts(**self.manifest["counts"])

    @cached_property
    def digest(self) -> str:
        """Identity of the outputs: equal outputs need no new work downstream, whatever produced them."""
        return durable.digest({name: self.manifest[name] for name in ("kinds", "pieces", "counts")})


class Stage(ABC):
    """Base of all stages; subclasses are small frozen dataclasses that can be pickled to a worker."""

    name: ClassVar[str]
    version: ClassVar[int]
    timeout_seconds: ClassVar[float | None] = None

    @property
    def upstream(self) -> tuple[str, ...]:
        """The names of the stages that this one reads; a class attribute where they do not depend on the recipe."""
        return ()

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The part of the recipe that changes this stage's bytes, as JSON."""

    def parameters(self) -> dict[str, Any]:
        """What changes the bytes of some tasks, and stands in the parameters of those as well, as JSON."""
        return {}

    def inputs(self) -> tuple[File, ...]:
        """Files from outside the build that this stage reads."""
        return ()

    @abstractmethod
    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """The stage's tasks; a function of the inputs and the recipe only."""

    def for_worker(self) -> Stage:
        """The stage as it travels with each task: one that holds the list of all inputs leaves it at home."""
        return self

    def judge(self, counts: Counts, folder: str, *, is_complete: bool) -> None:  # noqa: B027 (most accept all)
        """Look at the summed counts of the tasks that are done in `folder`; raises `WenhaiError` to end the run here.

        Asked after every task, and for a complete stage once a run.
        """

    @abstractmethod
    def run(self, task: Task, out: Output) -> Counts:
        """Do one task: read its inputs, create its outputs, return what happened to the documents."""


def fingerprint(stage: Stage, upstream: Mapping[str, Folder]) -> dict[str, Any]:
    """What a stage's bytes depend on; its digest names the stage's folder."""
    parameters = stage.parameters()
    inputs: list[list[Any]] = [[file.label, file.bytes, file.sha256] for file in stage.inputs()]
    if len(inputs) > MOST_INPUTS_LISTED:
        inputs = [[f"{len(inputs):,} files", sum(size for _, size, _ in inputs), durable.digest(inputs)]]
    return {
        "stage": stage.name,
        "version": stage.version,
        "config": stage.config(),
        **({"parameters": parameters} if parameters else {}),
        "inputs": inputs,
        "upstream": {name: upstream[name].digest for name in stage.upstream},
    }


def shard_name(file: File) -> str:
    """`00003-00` for `.../data/00003-00.parquet`: what a file and its sidecars share."""
    return file.url.rsplit("/", 1)[-1].split(".", 1)[0]


def run_task(stage: Stage, task: Task, folder: str) -> dict[str, Any]:
    """Run one task in `folder`, check the conservation law, and commit the task's record; returns the record."""
    out = Output(folder)
    try:
        counts = stage.run(task, out)
        counts.check(f"{folder}: task {task.name}")
        record = {
            "task": task.name,
            "digest": task.digest,
            "counts": asdict(counts),
            "files": {
                name: {"bytes": file.bytes, "sha256": file.sha256, "rows": file.rows}
                for name, file in out.files.items()
            },
        }
        storage.write_json(storage.join(folder, "done", f"{task.name}.json"), record)
        return record
    finally:
        storage.clear_scratch()
