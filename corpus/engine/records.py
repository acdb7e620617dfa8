"""The records of a stage's tasks: which need not run again, here or because another folder of the stage has done them.

A record `done/TASK.json` is the last file that a task writes, so what it lists is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from corpus.engine import storage, versions
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Task

SAME_WORK = ("stage", "version", "config")  # of `stage.json`: with equal inputs these make equal bytes
TAKE_OVER_THREADS = 8

Record = dict[str, Any]


def read_record(url: str, task: Task) -> Record:
    """The record of a task that has just ended in the folder `url`; raises `WenhaiError` when it is of another task."""
    record: Record = storage.read_json(storage.join(url, "done", f"{task.name}.json"))
    if record.get("digest") != task.digest:
        raise WenhaiError(f"{url}: task {task.name}: its record is of another task. Is another run at work here?")
    return record


def done_records(url: str, tasks: Sequence[Task]) -> dict[str, Record]:
    """The records of the tasks that need not run again."""
    present = storage.sizes(url)
    records = {}
    for task in tasks:
        if f"done/{task.name}.json" not in present:
            continue
        record: Record = storage.read_json(storage.join(url, "done", f"{task.name}.json"))
        if record.get("digest") == task.digest and in_place(record["files"], present):
            records[task.name] = record
    return records


def in_place(files: Mapping[str, Any], present: Mapping[str, int]) -> bool:
    """Whether recorded files are there in their recorded sizes; that their bytes are right too is `verify`'s
    question."""
    return all(present.get(name) == entry["bytes"] for name, entry in files.items())


def take_over(out: str, name: str, parts: Mapping[str, Any], tasks: Sequence[Task]) -> dict[str, Record]:
    """Give the folder `name` what other folders of its stage hold of these tasks; returns their records.

    On a disk the files are linked, in a store copied by the store itself. Their bytes are hashed first (1 GB/s a thread
    on a disk, far below repeating the task): a file that was damaged in one folder, and is one file with its links in
    others, must not come back when a person removes it.
    """
    target = storage.join(out, name)
    taken: dict[str, Record] = {}
    for folder in others(out, name, parts):
        records = done_records(folder, [task for task in tasks if task.name not in taken])
        threads = ThreadPoolExecutor(TAKE_OVER_THREADS)
        try:
            copied = threads.map(partial(_copy, folder, target), records.values())
            for (task, record), is_copied in zip(records.items(), copied, strict=True):
                if is_copied:
                    storage.write_json(storage.join(target, "done", f"{task}.json"), record)
                    taken[task] = record
        finally:
            threads.shutdown(cancel_futures=True)
    return taken


def others(out: str, name: str, parts: Mapping[str, Any]) -> Iterator[str]:
    """The folders of a stage, beside the one called `name`, in which equal inputs make equal bytes."""
    for other in storage.names(out, ""):
        folder = storage.join(out, other)
        if other != name and other.startswith(f"{parts['stage']}-") and _is_same_work(folder, parts):
            yield folder


def _is_same_work(folder: str, parts: Mapping[str, Any]) -> bool:
    url = storage.join(folder, "stage.json")
    if not storage.exists(url):
        return False
    theirs, ours = storage.read_json(url), versions.written_with()
    return all(theirs.get(key) == parts[key] for key in SAME_WORK) and theirs.get(versions.WRITTEN_WITH, ours) == ours


def _copy(folder: str, target: str, record: Record) -> bool:
    """Copy the files of a task; False where that cannot be, and the task is to be repeated."""
    files: Mapping[str, Any] = record["files"]
    try:
        if any(storage.sha256(storage.join(folder, name)) != entry["sha256"] for name, entry in files.items()):
            return False
        for name in files:
            storage.copy(storage.join(folder, name), storage.join(target, name))
    except (OSError, NotImplementedError):  # it cannot be read, or the store makes no copies
        return False
    return True
