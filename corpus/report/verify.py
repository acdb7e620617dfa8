"""Is what lies on disk what was built? Every file of every current stage, token shards included, against its manifest.

Readers trust manifests, so one flipped bit, a lost or a foreign file must be found before a training run finds it.
`verify` reads every byte once (SHA-256 runs at 1.1 GB/s a core with SHA instructions);
`status` reads manifests and folder listings only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import durable, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.run import read_run
from corpus.engine.stage import FINGERPRINT_LENGTH, MANIFEST_NAME, Folder
from corpus.report.safe import snippet
from corpus.report.summary import size, stage_order

RECORD_KINDS = ("done", "failed")
OWN_FILES = {MANIFEST_NAME, "stage.json"}
REPEAT = "Remove this file and run the same command again: only its task is repeated."
REBUILD = "Remove the stage folder and run the same command again."
READ_BYTES = 1 << 20
FAILURES_SHOWN = 5
FAILURE_CHARS = 400


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was built; `kind`: missing, size, sha256, extra, temporary or record."""

    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind:<10} {self.path}: {self.detail}"


@dataclass(frozen=True)
class StageStatus:
    """One stage folder. `tasks` and `missing` are known only once the stage is complete or planned by a recipe."""

    stage: str
    folder: str
    state: str  # complete | incomplete | unreferenced
    tasks: int | None
    done: int
    failed: int
    missing: int | None
    files: int
    file_bytes: int
    failures: tuple[str, ...] = ()  # the first few, in words


def verify(out: str) -> list[Problem]:
    """Check all current stages below `out`; the empty list means that every byte is in place.

    Raises:
        WenhaiError: `out` holds no run.
    """
    problems: list[Problem] = []
    for name, entry in sorted(read_run(out)["stages"].items()):
        url = storage.join(out, entry["folder"])
        try:
            folder = Folder.open(url)
        except WenhaiError as error:
            problems.append(Problem("missing", storage.join(url, MANIFEST_NAME), f"{error} {REBUILD}"))
            continue
        problems.extend(_verify_folder(name, folder))
    if not storage.is_remote(out):
        problems.extend(_temporary_files(storage.local_path(out)))
    return problems


def status(out: str) -> list[StageStatus]:
    """All stage folders below `out`, current ones first: what is complete, what failed, what nothing refers to."""
    run = read_run(out) if storage.exists(storage.join(out, "run.json")) else {"stages": {}}
    current = {entry["folder"] for entry in run["stages"].values()}
    found = [_status(out, name, name in current) for name in _stage_folders(out)]
    stages = stage_order(run["stages"])
    ranks = {name: index for index, name in enumerate(stages)}
    states = ("complete", "incomplete", "unreferenced")
    return sorted(found, key=lambda one: (states.index(one.state), ranks.get(one.stage, len(ranks)), one.folder))


def render_status(stages: list[StageStatus]) -> str:
    """The status as a table of at most 80 columns."""
    if not stages:
        return "no stage has been started here"
    lines = [f"{'folder':<32}{'state':<14}{'tasks':>7}{'failed':>8}{'files':>8}{'size':>11}"]
    for one in stages:
        tasks = f"{one.done}" if one.tasks is None else f"{one.done}/{one.tasks}"
        lines.append(
            f"{one.folder:<32}{one.state:<14}{tasks:>7}{one.failed:>8,}{one.files:>8,}{size(one.file_bytes):>11}"
        )
    lines.extend(f"failed in {one.stage}: {failure}" for one in stages for failure in one.failures)
    unreferenced = [one for one in stages if one.state == "unreferenced"]
    if unreferenced:
        total = size(sum(one.file_bytes for one in unreferenced))
        lines.append(f"{len(unreferenced)} folders ({total}) belong to earlier recipes; nothing current reads them.")
    return "\n".join(lines)


def _verify_folder(stage: str, folder: Folder) -> Iterator[Problem]:
    files: Mapping[str, Any] = folder.manifest["files"]
    if folder.name != stage:
        yield Problem("record", folder.url, f"run.json calls it {stage}, its manifest {folder.name}. {REBUILD}")
    yield from _verify_fingerprint(folder)
    yield from _verify_records(folder)
    for name in sorted(files):
        yield from _verify_file(storage.join(folder.url, name), files[name])
    for name in _listing(folder):
        if name not in files:
            yield Problem(
                "extra", storage.join(folder.url, name), "no manifest lists it and no reader opens it. Move it away."
            )


def _verify_fingerprint(folder: Folder) -> Iterator[Problem]:
    """A folder's name, its `stage.json` and its manifest must tell of the same recipe."""
    expected = str(folder.manifest["fingerprint"])
    if not folder.url.rstrip("/").endswith("-" + expected[:FINGERPRINT_LENGTH]):
        yield Problem(
            "record", folder.url, f"its manifest is of fingerprint {expected[:FINGERPRINT_LENGTH]}. {REBUILD}"
        )
    url = storage.join(folder.url, "stage.json")
    if not storage.exists(url):
        yield Problem("missing", url, f"what the stage was built from is not known. {REBUILD}")
    elif durable.digest(storage.read_json(url)) != expected:
        yield Problem("record", url, f"changed after the stage was built. {REBUILD}")


def _verify_records(folder: Folder) -> Iterator[Problem]:
    """The tasks' records and the manifest must list the same files."""
    records = storage.names(storage.join(folder.url, "done"), ".json")
    if len(records) != folder.manifest["tasks"]:
        detail = f"{len(records)} records of tasks, {folder.manifest['tasks']} in the manifest. {REBUILD}"
        yield Problem("record", storage.join(folder.url, "done"), detail)
    for name in records:
        url = storage.join(folder.url, "done", name)
        for file, entry in storage.read_json(url)["files"].items():
            if folder.manifest["files"].get(file) != entry:
                yield Problem("record", url, f"{file}: the record and the manifest disagree. {REBUILD}")


def _verify_file(url: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    hasher, length = hashlib.sha256(), 0
    try:
        with storage.open_stream(url) as stream:
            while block := stream.read(READ_BYTES):
                hasher.update(block)
                length += len(block)
    except OSError as error:
        yield Problem("missing", url, f"cannot be read ({error.strerror or type(error).__name__}). {REPEAT}")
        return
    if length != entry["bytes"]:
        yield Problem("size", url, f"{length:,} bytes, the manifest says {entry['bytes']:,}. {REPEAT}")
    elif hasher.hexdigest() != entry["sha256"]:
        yield Problem("sha256", url, f"its bytes changed after it was written. {REPEAT}")


def _listing(folder: Folder) -> list[str]:
    """The names of all files of a stage folder but its own records, relative to it."""
    if storage.is_remote(folder.url):
        kinds = sorted({name.split("/", 1)[0] for name in folder.manifest["files"]})
        return [f"{kind}/{name}" for kind in kinds for name in storage.names(storage.join(folder.url, kind), "")]
    root = storage.local_path(folder.url)
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink())
    return [
        name
        for name in found
        if name not in OWN_FILES
        and not (name.endswith(".json") and name.split("/", 1)[0] in RECORD_KINDS)
        and not durable.TEMPORARY_NAME.match(Path(name).name)
    ]


def _temporary_files(root: Path) -> Iterator[Problem]:
    for parent, _, names in os.walk(root):
        for name in sorted(names):
            if durable.TEMPORARY_NAME.match(name):
                detail = "left by a process that died, or being written now. The next run removes it."
                yield Problem("temporary", str(Path(parent, name)), detail)


def _stage_folders(out: str) -> list[str]:
    names = storage.names(out, "")
    return [
        name
        for name in names
        if len(name.rpartition("-")[2]) == FINGERPRINT_LENGTH and storage.exists(storage.join(out, name, "stage.json"))
    ]


def _failures(url: str) -> Iterator[str]:
    for name in storage.names(storage.join(url, "failed"), ".json")[:FAILURES_SHOWN]:
        failure = storage.read_json(storage.join(url, "failed", name))
        yield snippet(f"task {failure['task']}: {failure['kind']}: {failure['failure']}", FAILURE_CHARS)


def _status(out: str, name: str, is_current: bool) -> StageStatus:
    url = storage.join(out, name)
    done, failed = (len(storage.names(storage.join(url, kind), ".json")) for kind in RECORD_KINDS)
    if not storage.exists(storage.join(url, MANIFEST_NAME)):
        records = [
            storage.read_json(storage.join(url, "done", record))
            for record in storage.names(storage.join(url, "done"), ".json")
        ]
        sizes = [entry["bytes"] for record in records for entry in record["files"].values()]
        stage = name.rpartition("-")[0]
        failures = tuple(_failures(url))
        return StageStatus(stage, name, "incomplete", None, done, failed, None, len(sizes), sum(sizes), failures)
    folder = Folder.open(url)
    sizes = [entry["bytes"] for entry in folder.manifest["files"].values()]
    tasks = int(folder.manifest["tasks"])
    state = "complete" if is_current else "unreferenced"
    missing = sum(not storage.exists(storage.join(url, file)) for file in folder.manifest["files"])
    return StageStatus(folder.name, name, state, tasks, done, failed, missing, len(sizes), sum(sizes))
