"""`OUT/running.json`: what a run is at, for other shells to read; it stands only while a run is under way.

One write a stage: the tasks that have finished meanwhile are counted by their records. The file says nothing of whether
the run still lives: the lock of the folder does (in an object store, its last sign of life).
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from corpus.engine import storage, store_lock
from corpus.engine.errors import DiskError

RUNNING_NAME = "running.json"


@dataclass(frozen=True)
class Running:
    """A run at a stage: `done` of its `tasks` were finished when it got there, at `since` (seconds of the epoch)."""

    stage: str
    folder: str
    tasks: int
    done: int
    since: float
    where: str  # "process 12 on host, 8 workers"


@dataclass(frozen=True)
class Pace:
    """How far a run is: tasks done now, MB of text a second, seconds left (None: no task has finished yet)."""

    running: Running
    is_alive: bool
    done: int
    mb_per_second: float
    seconds_left: float | None


def mark(out: str, stage: str, folder: str, tasks: int, done: int, workers: str) -> None:
    """Say where the run is."""
    where = f"process {os.getpid()} on {socket.gethostname()}, {workers}"
    value = asdict(Running(stage, folder, tasks, done, round(time.time(), 3), where))
    storage.write_json(storage.join(out, RUNNING_NAME), value)


def clear(out: str) -> None:
    """The run has ended, one way or another; a disk that refuses must not hide how."""
    with suppress(DiskError):
        storage.remove(storage.join(out, RUNNING_NAME))


def pace(out: str) -> Pace | None:
    """How far the run on `out` is; None when there is none. Reads the records that this run has written.

    Text is counted at the stage's entrance (`bytes_in` of the tasks' counts).
    """
    url = storage.join(out, RUNNING_NAME)
    if not storage.exists(url):
        return None
    value: Any = storage.read_json(url)
    running = Running(**value)
    is_alive = store_lock.holder(out) is not None
    folder = storage.join(out, running.folder, "done")
    names = storage.names(folder, ".json")
    done, elapsed = len(names), max(time.time() - running.since, 1e-3)
    total = sum(int(storage.read_json(storage.join(folder, name))["counts"]["bytes_in"]) for name in names)
    finished = max(0, done - running.done)
    text = total * finished // done if done else 0  # tasks are of about one size; records carry no times
    left = (running.tasks - done) * elapsed / finished if finished else None
    return Pace(running, is_alive, done, text / 1e6 / elapsed, left)


def render(pace: Pace) -> str:
    """One line for a person."""
    one = pace.running
    if not pace.is_alive:
        return (
            f"stopped in {one.stage} ({pace.done} of {one.tasks} tasks): its process is gone. "
            "Run the same command again."
        )
    left = "" if pace.seconds_left is None else f", about {duration(pace.seconds_left)} left in this stage"
    rate = f", {pace.mb_per_second:,.1f} MB/s of text" if pace.mb_per_second >= 0.05 else ""
    return f"running: {one.stage}, {pace.done} of {one.tasks} tasks{rate}{left} ({one.where})"


def duration(seconds: float) -> str:
    """Hours and minutes, or seconds below a minute.

    >>> duration(42), duration(754), duration(90_000)
    ('42 s', '13 min', '25 h 0 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
