"""Run stages in order: skip what is done, run what is missing, and leave nothing half made.

A task is skipped only if its record carries the digest of its present inputs and its outputs are in place: who removes
a damaged file and runs the same command again repeats one task. A stage with a failed task gets no manifest, so nothing
downstream runs on holes. `OUT/run.json` names the current folder of every stage; other folders stay until they are
pruned, so going back to an earlier recipe costs nothing, and a task that another folder of its stage has done is taken
over by hard links (in an object store by copies that the store makes itself): who adds a file to the inputs pays for
that file (and for what needs all documents, as dedup does).
"""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from corpus.engine import durable, records, running, storage, store_lock, versions
from corpus.engine.disk_budget import DiskBudget
from corpus.engine.errors import DiskError, Stopped, WenhaiError
from corpus.engine.executor import Call, Executor, InlineExecutor, Outcome, ProcessExecutor, available_cpus
from corpus.engine.progress import Progress
from corpus.engine.retries import RequestCounts
from corpus.engine.stage import (
    FINGERPRINT_LENGTH,
    Folder,
    Stage,
    Task,
    fingerprint,
    run_task,
)

if TYPE_CHECKING:
    from corpus.engine.config import Resources  # pydantic: `status` does without

ENDS_THE_STAGE = {"disk", "setup"}  # every other task would compute for nothing, or fail alike
INPUTS_SHOWN = 3
RUN_NAME = "run.json"
RUN_FORMAT = 1
TIMINGS_NAME = "timings.json"
FAILURES_SHOWN = 20


def run_stages(
    stages: Sequence[Stage],
    out: str,
    *,
    workers: int | None = None,
    address: str | None = None,
    resources: Mapping[str, Resources] | None = None,
    progress: Progress | None = None,
    retired: Collection[str] = (),
) -> dict[str, Folder]:
    """Bring every stage below `out` up to date and return their folders by name.

    Args:
        stages: in the order documents travel in; upstream stages stand earlier here or are complete below `out`.
        out: a local path or any fsspec URL.
        workers: processes on this machine; default one a core, 0 runs in this process.
        address: of a Ray cluster whose machines do the tasks instead; all of them see the inputs and `out`.
        resources: by stage, what a task asks of a machine of the cluster.
        progress: where progress goes; silent by default.
        retired: names of stages that may stand here from an earlier recipe: those that are not among `stages`, and
            what was built on them, are no longer current once all stages are complete.

    Raises:
        LockHeld: another run works on `out`.
        UsageError: `out` is a file, or its name is not UTF-8.
        Stopped: Ctrl-C or SIGTERM; the same command resumes.
        WenhaiError: tasks failed; the message lists them.
    """
    storage.spellable(out)
    progress = progress or Progress(quiet=True)
    workers = available_cpus() if workers is None else workers
    with store_lock.run_lock(out) as lock, _stop_on_sigterm(), ExitStack() as stack:
        if not storage.is_remote(out):
            durable.sweep(storage.local_path(out))
            stack.callback(durable.sweep, storage.local_path(out))
        try:
            executor = _executor(out, workers, address, stack)
            stack.callback(running.clear, out)
            stack.callback(storage.clear_scratch)
            where = running.here(f"{workers} workers" if address is None else f"Ray at {address}")
            folders = {name: folder for name, folder in _known(out).items() if name not in {s.name for s in stages}}
            for stage in stages:
                asked = (resources or {}).get(stage.name)
                folders[stage.name] = _run_stage(stage, folders, out, executor, progress, asked, where, lock.check)
                lock.confirm()
                _record(out, stage, folders)
            gone = _retire(out, set(retired) - {stage.name for stage in stages})
            return {name: folder for name, folder in folders.items() if name not in gone}
        except KeyboardInterrupt:
            raise Stopped(f"{out}: stopped; finished work is kept. Run the same command again to resume.") from None


def current(out: str, stage: str) -> Folder:
    """The current folder of a stage below `out`; raises `WenhaiError` when the stage has not been completed."""
    entry = read_run(out)["stages"].get(stage)
    if entry is None:
        raise WenhaiError(f"{out}: stage {stage!r} is not complete here. Run the pipeline first.")
    return Folder.open(storage.join(out, entry["folder"]))


def read_run(out: str) -> dict[str, Any]:
    """The contents of `OUT/run.json`: `stages` maps a stage's name to its folder and the folders it was built on."""
    url = storage.join(out, RUN_NAME)
    if not storage.exists(url):
        raise WenhaiError(f"{out}: holds no {RUN_NAME}, so no stage is complete here. Give the output folder of a run.")
    run: Any = storage.read_json(url)
    stages = run.get("stages") if isinstance(run, dict) and run.get("format") == RUN_FORMAT else None
    if not isinstance(stages, dict) or not all(map(_is_entry, stages.values())):
        raise WenhaiError(f"{out}: its {RUN_NAME} is not of format {RUN_FORMAT}. Is this the output folder of a run?")
    return {"format": RUN_FORMAT, "stages": stages}


def plan_stages(stages: Sequence[Stage], out: str) -> Iterator[tuple[Stage, str, int, int]]:
    """Yield (stage, folder name, tasks, tasks done) up to the first stage that is not complete."""
    folders = _known(out)
    for stage in stages:
        missing = [name for name in stage.upstream if name not in folders]
        if missing:
            return
        name = folder_name(stage, folders)
        url = storage.join(out, name)
        tasks = stage.plan(folders)
        todo = {task.name: task for task in tasks}
        for place in chain([url], records.others(out, name, fingerprint(stage, folders))):
            for record, _ in records.fitting(place, todo.copy(), storage.sizes(place)) if todo else ():
                del todo[record["task"]]
        yield stage, name, len(tasks), len(tasks) - len(todo)
        folder = Folder.find(url)
        if folder is None:
            return
        folders[stage.name] = folder


def stage_folders(out: str) -> list[str]:
    """The names of all stage folders below `out`, current, incomplete and old ones."""
    names = (name for name in storage.names(out, "") if len(name.rpartition("-")[2]) == FINGERPRINT_LENGTH)
    return [name for name in names if storage.exists(storage.join(out, name, "stage.json"))]


def folder_name(stage: Stage, upstream: Mapping[str, Folder]) -> str:
    """`<stage>-<first twelve digits of its fingerprint>`."""
    return f"{stage.name}-{durable.digest(fingerprint(stage, upstream))[:FINGERPRINT_LENGTH]}"


def _executor(out: str, workers: int, address: str | None, stack: ExitStack) -> Executor:
    if address is not None:
        from corpus.engine.ray_executor import RayExecutor

        return stack.enter_context(RayExecutor(address, out))
    return stack.enter_context(ProcessExecutor(workers)) if workers else InlineExecutor()


def _run_stage(
    stage: Stage,
    folders: Mapping[str, Folder],
    out: str,
    executor: Executor,
    progress: Progress,
    asked: Resources | None,
    where: str,
    check_lock: Callable[[], None],
) -> Folder:
    missing = [name for name in stage.upstream if name not in folders]
    if missing:
        raise WenhaiError(f"{out}: stage {stage.name} needs {', '.join(missing)}, which is not complete here.")
    name = folder_name(stage, folders)
    url = storage.join(out, name)
    if (complete := Folder.find(url)) and records.in_place(complete):
        progress.skipped(stage.name, complete.counts)
        stage.judge(complete.counts, url, is_complete=True)
        return complete
    parts = fingerprint(stage, folders)
    versions.write_recipe(url, parts)
    tasks = sorted(stage.plan(folders), key=lambda task: task.name)
    if len({task.name for task in tasks}) != len(tasks):
        raise WenhaiError(f"stage {stage.name}: two tasks share a name; this is a bug of the stage.")
    done, room, no_room = records.Records(url, tasks), DiskBudget(out), ""
    for record in chain(done.load(), records.take_over(out, name, parts, done)):
        room.finished(done.task(record["task"]), record)

    def calls() -> Iterator[Call]:
        """One at a time, as workers get free."""
        nonlocal no_room
        cpus, memory_bytes = (asked.cpus, int(asked.memory_gb * 1e9)) if asked else (1.0, 0)
        worker_stage = stage.for_worker()
        for task in done.todo():
            if task.name in failures:
                continue
            if no_room := room.start(task):
                return
            arguments, label = (worker_stage, task, url), f"{stage.name}/{task.name}"
            yield Call(task.name, timed_task, arguments, stage.timeout_seconds, label, cpus, memory_bytes)

    failures: dict[str, Outcome] = {}
    requests = RequestCounts()
    failed_before = set(storage.names(storage.join(url, "failed"), ".json"))
    cpu_seconds, peak_bytes = 0.0, 0
    started, before, since, last = time.monotonic(), done.num_done, time.time(), time.time()

    def look() -> running.Running:
        bytes_in = done.counts.bytes_in
        return running.Running(stage.name, name, len(tasks), before, since, where, done.num_done, bytes_in, last)

    shown = running.marked(out, look)
    with progress.stage(stage.name, len(tasks), before) as advance, _saved(done), shown:
        while True:
            had = done.num_done
            for outcome in executor.run(calls()):
                check_lock()
                task, last = done.task(outcome.name), time.time()
                if outcome.kind == "done":
                    seconds, peak, of_task, record = outcome.value
                    requests.add(of_task)
                    done.add(record)
                    if f"{task.name}.json" in failed_before:
                        storage.remove(storage.join(url, "failed", f"{task.name}.json"))
                    cpu_seconds += seconds
                    peak_bytes = max(peak_bytes, peak)
                    room.finished(task, record)
                    advance(record["counts"])
                    stage.judge(done.counts, url, is_complete=False)
                else:
                    failures[outcome.name] = outcome
                    room.finished(task, None)
                    with suppress(DiskError):  # a full disk must not hide what failed because of it
                        _record_failure(url, outcome, task)
                    advance(None)
                    if outcome.kind in ENDS_THE_STAGE:
                        break
            if not no_room or failures or done.num_done == had:
                break  # else ask again: what the tasks under way had written by then was counted twice
    with suppress(DiskError):
        requests.add(storage.take_request_counts())
        _add_timing(out, name, cpu_seconds, time.monotonic() - started, peak_bytes, requests)
    progress.repeated(stage.name, requests.repeated)
    if failures:
        raise WenhaiError(_failure_table(stage, url, list(failures.values()), done))
    if no_room:
        raise DiskError(
            f"stage {stage.name} stopped before the disk is full: {no_room}. "
            f"{len(tasks) - done.num_done} of {len(tasks)} tasks are left. "
            "Free space, then run the same command again: finished work is kept."
        )
    folder = done.commit(stage, durable.digest(parts))
    stage.judge(folder.counts, url, is_complete=True)
    return folder


@contextmanager
def _saved(done: records.Records) -> Iterator[None]:
    """However the tasks end: what is done has its record in storage."""
    try:
        yield
    finally:
        with suppress(DiskError):  # it would hide the failure that filled the disk
            done.save()


def timed_task(stage: Stage, task: Task, url: str) -> tuple[float, int, RequestCounts, records.Record]:
    """Run one task in a worker; returns the CPU seconds it took, the worker's peak memory in bytes, its requests to
    stores, and its record, which the run need not ask the store for."""
    start = time.process_time()
    storage.take_request_counts()
    record = run_task(stage, task, url)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak if sys.platform == "darwin" else peak * 1024
    return time.process_time() - start, peak, storage.take_request_counts(), record


def _known(out: str) -> dict[str, Folder]:
    """Complete stages that `run.json` names."""
    found = {}
    for name, entry in _entries(out).items():
        if folder := Folder.find(storage.join(out, entry["folder"])):
            found[name] = folder
    return found


def _record(out: str, stage: Stage, folders: Mapping[str, Folder]) -> None:
    """Name a stage's folder in `run.json`; stages that were built on another folder of it are no longer current."""
    known = _entries(out)
    entry = {
        "folder": folders[stage.name].base_name,
        "upstream": {name: folders[name].base_name for name in stage.upstream},
    }
    _write_entries(out, known, known | {stage.name: entry})


def _retire(out: str, names: Collection[str]) -> set[str]:
    """Take stages, and those that were built on them, out of `run.json`; returns their names."""
    known = _entries(out)
    return _write_entries(out, known, {name: entry for name, entry in known.items() if name not in names})


def _entries(out: str) -> dict[str, Any]:
    stages: dict[str, Any] = read_run(out)["stages"] if storage.exists(storage.join(out, RUN_NAME)) else {}
    return stages


def _write_entries(out: str, known: Mapping[str, Any], entries: dict[str, Any]) -> set[str]:
    """Write `run.json` without what was built on folders that are not current; returns the names that are gone."""
    while stale := [name for name, entry in entries.items() if _is_stale(entry, entries)]:
        for name in stale:
            del entries[name]
    if entries != known:
        storage.write_json(storage.join(out, RUN_NAME), {"format": RUN_FORMAT, "stages": entries})
    return known.keys() - entries.keys()


def _is_entry(entry: Any) -> bool:
    """A stage of `run.json`: its folder stands beside that file and nowhere else."""
    folder = entry.get("folder") if isinstance(entry, dict) else None
    return isinstance(folder, str) and "/" not in folder and folder != ".." and isinstance(entry.get("upstream"), dict)


def _is_stale(entry: Mapping[str, Any], entries: Mapping[str, Any]) -> bool:
    return any(name not in entries or entries[name]["folder"] != folder for name, folder in entry["upstream"].items())


def _add_timing(
    out: str, folder: str, cpu_seconds: float, wall_seconds: float, peak_bytes: int, requests: RequestCounts
) -> None:
    """Times stand apart from manifests and `run.json`, which are equal for equal inputs."""
    url = storage.join(out, TIMINGS_NAME)
    timings = storage.read_json(url) if storage.exists(url) else {}
    before = timings.get(folder, {"cpu_seconds": 0.0, "wall_seconds": 0.0})
    timings[folder] = {
        "cpu_seconds": round(before["cpu_seconds"] + cpu_seconds, 3),
        "wall_seconds": round(before["wall_seconds"] + wall_seconds, 3),
        "peak_bytes": max(
            before.get("peak_bytes", 0), peak_bytes
        ),  # of one worker; it may have grown in a stage before
    }
    if requests.requests:
        timings[folder] |= {
            "requests": before.get("requests", 0) + requests.requests,
            "repeated_requests": before.get("repeated_requests", 0) + sum(requests.repeated.values()),
        }
    storage.write_json(url, timings)


def _record_failure(url: str, outcome: Outcome, task: Task) -> None:
    inputs = [file.url for file in task.inputs]
    value = {"task": outcome.name, "kind": outcome.kind, "failure": outcome.failure, "inputs": inputs}
    storage.write_json(storage.join(url, "failed", f"{outcome.name}.json"), value)


def _failure_table(stage: Stage, url: str, failures: Sequence[Outcome], done: records.Records) -> str:
    rows = []
    for outcome in failures[:FAILURES_SHOWN]:
        inputs = [file.url.rsplit("/", 1)[-1] for file in done.task(outcome.name).inputs]
        more = f" and {len(inputs) - INPUTS_SHOWN} more" if len(inputs) > INPUTS_SHOWN else ""
        rows.append(f"  {outcome.name}  {outcome.kind}: {outcome.failure} [{', '.join(inputs[:INPUTS_SHOWN])}{more}]")
    if len(failures) > FAILURES_SHOWN:
        rows.append(f"  and {len(failures) - FAILURES_SHOWN} more in {url}/failed")
    listing = "\n".join(rows)
    return (
        f"stage {stage.name}: {len(failures)} of {len(done.tasks)} tasks failed\n{listing}\n"
        "Finished tasks are kept: mend the cause and run the same command again."
    )


@contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """SIGTERM stops a run the way Ctrl-C does, and a second one, on the way out, changes nothing.

    Only the main thread may set handlers.
    """

    def interrupt(signum: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, previous)
