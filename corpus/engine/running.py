"""`OUT/running.json`: what a run is at, for other shells to read; it stands only while a run is under way.

The run writes it when it gets to a stage, and every few seconds while it is there. The file says nothing of whether the
run still lives: the lock of the folder does (in an object store, its last sign of life).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from corpus.engine import durable, storage, store_lock
from corpus.engine.errors import DiskError

RUNNING_NAME = "running.json"
MARK_SECONDS = 2.0


@dataclass(frozen=True)
class Running:
    """A run at a stage: `before` of its `tasks` were finished when it got there, at `since`; times in seconds of the
    epoch."""

    stage: str
    folder: str
    tasks: int
    before: int
    since: float
    where: str  # "process 12 on host, 8 workers"
    done: int
    bytes_in: int  # of text, of all that is done
    at: float  # when the last of them had ended


@dataclass(frozen=True)
class Pace:
    """How far a run is: tasks done now, MB of text a second, seconds left (None: no task has finished yet)."""

    running: Running
    is_alive: bool
    done: int
    mb_per_second: float
    seconds_left: float | None


def here(workers: str) -> str:
    """This process, in words."""
    return f"process {os.getpid()} on {socket.gethostname()}, {workers}"


def mark(out: str, running: Running) -> None:
    """Say where the run is; any thread may."""
    url, data = storage.join(out, RUNNING_NAME), durable.json_bytes(asdict(running))
    if storage.is_remote(out):
        storage.put(url, data)
    else:
        durable.write_bytes(storage.local_path(url), data)


@contextmanager
def marked(out: str, look: Callable[[], Running]) -> Iterator[None]:
    """Say where the run is, now and every few seconds, while the block lasts."""
    last = look()
    mark(out, last)
    ended = threading.Event()

    def go_on() -> None:
        nonlocal last
        while not ended.wait(MARK_SECONDS):
            with suppress(Exception):  # the run itself meets a disk or store that refuses
                if (now := look()) != last:
                    mark(out, last := now)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def clear(out: str) -> None:
    """The run has ended, one way or another; a disk that refuses must not hide how."""
    with suppress(DiskError):
        storage.remove(storage.join(out, RUNNING_NAME))


def pace(out: str) -> Pace | None:
    """How far the run on `out` is; None when there is none."""
    data = storage.read_if_there(url := storage.join(out, RUNNING_NAME))
    if data is None:
        return None
    one = Running(**durable.parse_json(data, url))
    is_alive = store_lock.holder(out) is not None
    done, elapsed = one.done, max(one.at - one.since, 1e-3)
    finished = done - one.before
    text = one.bytes_in * finished // done if done else 0  # tasks are of about one size; records carry no times
    left = (one.tasks - done) * elapsed / finished if finished else None
    return Pace(one, is_alive, done, text / 1e6 / elapsed, left)


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
