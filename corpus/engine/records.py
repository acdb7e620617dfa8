"""The records of a stage's tasks: which need not run again, here or because another folder of the stage has done them.

    done/TASK.json         a task's record, the last file that its worker writes: what it lists is complete
    done/00012.jsonl    the records of the 13th thousand of tasks, when all of those are done; their own files go then

A record is what makes a task done, wherever it stands, so a driver that is killed loses nothing: it finds those of
its last run in whole thousands and the rest one by one. The driver asks the store for two requests a thousand tasks (a
put and a bulk removal) and never for a record: that comes back with the task. Which tasks make a thousand follows from
the plan, so a complete stage has the same files whoever ran it, in whatever order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from corpus.engine import durable, manifest, storage, versions
from corpus.engine.errors import TransientError, WenhaiError
from corpus.engine.stage import Counts, Folder, Stage, Task

SAME_WORK = ("stage", "version", "config")  # of `stage.json`: with equal inputs these make equal bytes
DONE = "done"
RANGE_TASKS = 1000
READ_AT_ONCE = 64  # files of records; ranges have half a MB as a rule
MAX_RANGE_BYTES = 1 << 30
TAKE_OVER_THREADS = 32  # each waits for a store, or hashes on a disk
MAX_HELD_BYTES = 256 << 20  # of records in memory; beyond, those of the first open ranges are read again in the end

Record = dict[str, Any]
T = TypeVar("T")


class Records:
    """The records of a stage's tasks below the folder `url`, as they come; in memory is what its open ranges hold.

    Args:
        tasks: of the whole stage, sorted by name.
    """

    def __init__(self, url: str, tasks: Sequence[Task]) -> None:
        self.url, self.tasks = url, tasks
        self.counts = Counts()
        self.num_done = 0
        self._places = {task.name: place for place, task in enumerate(tasks)}
        self._is_done = bytearray(len(tasks))
        self._open: dict[int, dict[str, bytes]] = {}  # by range and task: the record, or empty where it is not held
        self._held_bytes = 0
        self._alone: set[str] = set()  # tasks of open ranges whose record has a file of its own
        self._files = manifest.Listing()

    def task(self, name: str) -> Task:
        """The task of a name."""
        return self.tasks[self._places[name]]

    def todo(self) -> Iterator[Task]:
        """The tasks that are not done, in order."""
        return (task for task, is_done in zip(self.tasks, self._is_done, strict=True) if not is_done)

    def load(self) -> Iterator[Record]:
        """Take in, and yield, the records of earlier runs that fit; what a driver that died left twice is removed."""
        present = storage.sizes(self.url)
        closed: dict[str, int] = {}
        for record, name in fitting(self.url, {task.name: task for task in self.tasks}, present):
            is_alone = _is_alone(name)
            self._take(record, is_alone=is_alone)
            closed[name] = closed.get(name, 0) + (not is_alone)
            yield record
        for number in list(self._open):
            if len(self._open[number]) == self._size(number):
                self._close(number, is_written=closed.get(_range_name(number)) == self._size(number))
        left = [name for name in present if _is_alone(name) and self._is_closed(name)]
        storage.remove_many([storage.join(self.url, name) for name in left])

    def add(self, record: Record, *, is_alone: bool = True) -> None:
        """A task is done; `is_alone`: its worker has written the record to a file of its own."""
        number = self._take(record, is_alone=is_alone)
        if len(self._open[number]) == self._size(number):
            self._close(number)

    def save(self) -> None:
        """Give those records of open ranges a file of their own that have none: the run ends before their range."""
        held = ((name, record) for records in self._open.values() for name, record in records.items())
        unsaved = [json.loads(record) for name, record in held if name not in self._alone]
        with storage.request_threads(TAKE_OVER_THREADS) as threads:
            list(threads.map(partial(write_record, self.url), unsaved))

    def commit(self, stage: Stage, fingerprint: str) -> Folder:
        """All tasks are done: write the manifest."""
        head = manifest_head(stage.name, stage.version, fingerprint, len(self.tasks), self.counts)
        return Folder(stage.name, self.url, self._files.commit(self.url, head))

    def _take(self, record: Record, *, is_alone: bool) -> int:
        place = self._places[record["task"]]
        number = place // RANGE_TASKS
        if not self._is_done[place]:
            self._is_done[place] = 1
            self.num_done += 1
            self.counts.add(Counts(**record["counts"]))
            self._files.add(record["files"])
        packed = durable.canonical_json(record)
        self._open.setdefault(number, {})[record["task"]] = packed
        self._held_bytes += len(packed)
        if is_alone:
            self._alone.add(record["task"])
        if self._held_bytes > MAX_HELD_BYTES:
            self._let_go()
        return number

    def _let_go(self) -> None:
        """Forget the records of open ranges that stand in files of their own."""
        for held in self._open.values():
            for name in held.keys() & self._alone:
                self._held_bytes -= len(held[name])
                held[name] = b""

    def _size(self, number: int) -> int:
        return min(RANGE_TASKS, len(self.tasks) - number * RANGE_TASKS)

    def _close(self, number: int, *, is_written: bool = False) -> None:
        held = self._open.pop(number)
        self._held_bytes -= sum(map(len, held.values()))
        if not is_written:
            forgotten = [name for name, record in held.items() if not record]
            urls = [_record_url(self.url, name) for name in forgotten]
            for name, url, data in zip(forgotten, urls, storage.read_many(urls), strict=True):
                if data is None:
                    raise WenhaiError(f"{url}: is gone. Is another run at work here? Run the same command again.")
                held[name] = durable.canonical_json(durable.parse_json(data, url))
            lines = b"".join(held[name] + b"\n" for name in sorted(held))
            with storage.create(storage.join(self.url, _range_name(number))) as path:
                path.write_bytes(lines)
        alone = self._alone & held.keys()
        self._alone -= alone
        storage.remove_many([_record_url(self.url, name) for name in alone])

    def _is_closed(self, name: str) -> bool:
        place = self._places.get(name.removeprefix(f"{DONE}/").removesuffix(".json"))
        return place is not None and bool(self._is_done[place]) and place // RANGE_TASKS not in self._open


def manifest_head(stage: str, version: int, fingerprint: str, tasks: int, counts: Counts) -> dict[str, Any]:
    """What a manifest says beside its files."""
    return {
        "stage": stage,
        "version": version,
        "fingerprint": fingerprint,
        "tasks": tasks,
        "counts": asdict(counts),
    }


def write_record(url: str, record: Record) -> None:
    """Write a task's record: from now on it is done."""
    storage.write_json(_record_url(url, record["task"]), record)


def fitting(url: str, tasks: Mapping[str, Task], present: Mapping[str, int]) -> Iterator[tuple[Record, str]]:
    """The records below a stage folder that make one of these tasks done, and the names of the files they stand in.

    A record fits when it carries the digest of the task's present inputs and the files that it lists are in place, in
    their sizes (that their bytes are right too is `verify`'s question).
    """
    found: set[str] = set()
    for record, name in stored(url, present, skip=lambda name: name in found or name not in tasks):
        task = tasks.get(record["task"])
        if task is None or record["task"] in found or record.get("digest") != task.digest:
            continue
        if all(present.get(file) == entry["bytes"] for file, entry in record["files"].items()):
            found.add(record["task"])
            yield record, name


def stored(
    url: str, present: Iterable[str], skip: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[Record, str]]:
    """All records below a stage folder, and the names of their files: whole ranges first.

    Args:
        present: the names of the files below the folder.
        skip: says of a task whether its own file need not be read.
    """
    names = sorted(name for name in present if name.startswith(f"{DONE}/"))
    for some in _batches((name for name in names if name.endswith(".jsonl")), READ_AT_ONCE):
        found = storage.read_many([storage.join(url, name) for name in some], MAX_RANGE_BYTES)
        for name, data in zip(some, found, strict=True):
            for record in manifest.json_lines(data or b"", storage.join(url, name)):
                yield record, name
    alone = (name for name in names if _is_alone(name) and not skip(name[len(DONE) + 1 : -len(".json")]))
    for some in _batches(alone, READ_AT_ONCE):
        for name, data in zip(some, storage.read_many([storage.join(url, name) for name in some]), strict=True):
            if data is not None:  # else another run has closed its range meanwhile
                yield durable.parse_json(data, storage.join(url, name)), name


def in_place(folder: Folder) -> bool:
    """Whether the files of a complete stage are there in their sizes."""
    present = storage.sizes(folder.url)
    return all(present.get(file.url) == file.bytes for file in folder.listed())


def take_over(out: str, name: str, parts: Mapping[str, Any], mine: Records) -> Iterator[Record]:
    """Give the folder `name` what other folders of its stage hold of the tasks that are not done; yields their records.

    On a disk the files are linked, and their bytes hashed first (1 GB/s a thread, far below repeating the task): a file
    that was damaged in one folder, and is one file with its links in others, must not come back when a person removes
    it. A store copies them by itself, and has checksums of its own.
    """
    for folder in others(out, name, parts) if mine.num_done < len(mine.tasks) else ():
        wanted = {task.name: task for task in mine.todo()}
        found = fitting(folder, wanted, storage.sizes(folder))
        with storage.request_threads(TAKE_OVER_THREADS) as threads:
            for some in _batches((record for record, _ in found), 4 * TAKE_OVER_THREADS):
                copied = threads.map(partial(_copy, folder, mine.url), some)
                for record, is_copied in zip(some, copied, strict=True):
                    if is_copied:
                        mine.add(record, is_alone=False)
                        yield record


def others(out: str, name: str, parts: Mapping[str, Any]) -> Iterator[str]:
    """The folders of a stage, beside the one called `name`, in which equal inputs make equal bytes."""
    for other in storage.names(out, ""):
        folder = storage.join(out, other)
        if other != name and other.startswith(f"{parts['stage']}-") and _is_same_work(folder, parts):
            yield folder


def _is_same_work(folder: str, parts: Mapping[str, Any]) -> bool:
    data = storage.read_if_there(url := storage.join(folder, "stage.json"))
    if data is None:
        return False
    theirs, ours = durable.parse_json(data, url), versions.written_with()
    return all(theirs.get(key) == parts[key] for key in SAME_WORK) and theirs.get(versions.WRITTEN_WITH, ours) == ours


def _copy(folder: str, target: str, record: Record) -> bool:
    """Copy the files of a task; False where that cannot be, and the task is to be repeated."""
    files: Mapping[str, Any] = record["files"]
    try:
        if not storage.is_remote(folder) and any(
            storage.sha256(storage.join(folder, name)) != entry["sha256"] for name, entry in files.items()
        ):
            return False
        for name in files:
            storage.copy(storage.join(folder, name), storage.join(target, name))
    except (OSError, NotImplementedError, TransientError):  # it cannot be read, or the store makes no copies
        return False
    return True


def _range_name(number: int) -> str:
    return f"{DONE}/{number:05d}.jsonl"


def _record_url(url: str, task: str) -> str:
    return storage.join(url, DONE, f"{task}.json")


def _is_alone(name: str) -> bool:
    return name.startswith(f"{DONE}/") and name.endswith(".json")


def _batches(values: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    iterator = iter(values)
    while some := tuple(islice(iterator, size)):
        yield some
