"""How far every stage below OUT is: complete, incomplete, failed in which tasks, or of an earlier recipe.

Reads manifests, records and folder listings only; whether bytes are right is the question of `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from corpus.crawl.folders import CRAWL, crawl_folders
from corpus.engine import records, storage
from corpus.engine.run import read_run, stage_folders
from corpus.engine.stage import Folder
from corpus.report.summary import size, stage_order
from corpus.safe import snippet

FAILURES_SHOWN = 5
FAILURE_CHARS = 400


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


def status(out: str) -> list[StageStatus]:
    """All stage folders below `out`, current ones first: what is complete, what failed, what nothing refers to."""
    run = read_run(out) if storage.exists(storage.join(out, "run.json")) else {"stages": {}}
    current = {entry["folder"] for entry in run["stages"].values()}
    found = [_status(out, name, name in current) for name in stage_folders(out)]
    found.extend(map(_crawl_status, crawl_folders(out)))
    stages = stage_order(run["stages"])
    ranks = {CRAWL: -1} | {name: index for index, name in enumerate(stages)}
    states = ("complete", "incomplete", "unreferenced")
    return sorted(found, key=lambda one: (states.index(one.state), ranks.get(one.stage, len(ranks)), one.folder))


def render_status(stages: list[StageStatus]) -> str:
    """The status as a table of at most 80 columns, and below it what failed or is missing."""
    if not stages:
        return "no stage has been started here"
    lines = [f"{'folder':<32}{'state':<14}{'tasks':>7}{'failed':>8}{'files':>8}{'size':>11}"]
    for one in stages:
        tasks = f"{one.done}" if one.tasks is None else f"{one.done}/{one.tasks}"
        lines.append(
            f"{one.folder:<32}{one.state:<14}{tasks:>7}{one.failed:>8,}{one.files:>8,}{size(one.file_bytes):>11}"
        )
    lines.extend(f"failed in {one.stage}: {failure}" for one in stages for failure in one.failures)
    lines.extend(
        f"missing in {one.stage}: {one.missing:,} of its files; the same command makes them again"
        for one in stages
        if one.missing and one.state == "complete"
    )
    unreferenced = [one for one in stages if one.state == "unreferenced"]
    if unreferenced:
        total = size(sum(one.file_bytes for one in unreferenced))
        lines.append(f"{len(unreferenced)} folders ({total}) belong to earlier recipes; nothing current reads them.")
    return "\n".join(lines)


def _failures(url: str) -> Iterator[str]:
    for name in storage.names(storage.join(url, "failed"), ".json")[:FAILURES_SHOWN]:
        failure = storage.read_json(storage.join(url, "failed", name))
        yield snippet(f"task {failure['task']}: {failure['kind']}: {failure['failure']}", FAILURE_CHARS)


def _status(out: str, name: str, is_current: bool) -> StageStatus:
    url = storage.join(out, name)
    present, folder = storage.sizes(url), Folder.find(url)
    failed = sum(file.startswith("failed/") for file in present)
    if folder is None:
        found = {record["task"]: record for record, _ in records.stored(url, present)}
        sizes = [entry["bytes"] for record in found.values() for entry in record["files"].values()]
        stage = name.rpartition("-")[0]
        failures = tuple(_failures(url))
        return StageStatus(stage, name, "incomplete", None, len(found), failed, None, len(sizes), sum(sizes), failures)
    tasks = int(folder.manifest["tasks"])
    state = "complete" if is_current else "unreferenced"
    missing = _missing(folder, present)
    return StageStatus(folder.name, name, state, tasks, tasks, failed, missing, folder.num_files, folder.num_bytes)


def _missing(folder: Folder, present: Mapping[str, int]) -> int:
    return sum(file.url not in present for file in folder.listed())


def _crawl_status(url: str) -> StageStatus:
    """A crawl is a stage of one task."""
    present, folder = storage.sizes(url), Folder.find(url)
    if folder is not None:
        missing = _missing(folder, present)
        return StageStatus(CRAWL, CRAWL, "complete", 1, 1, 0, missing, folder.num_files, folder.num_bytes)
    sizes = [size for name, size in present.items() if name.endswith((".warc.gz", ".warc.gz.open"))]
    return StageStatus(CRAWL, CRAWL, "incomplete", None, 0, 0, None, len(sizes), sum(sizes))
