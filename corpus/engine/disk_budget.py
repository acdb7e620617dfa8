"""Is there room for one more task? Asked before each, so that a run stops in good time and with numbers.

A full disk is survived anyway (`durable.commit` leaves no half file), but hours of half-done tasks are lost with it and
whatever else lives on the disk is stopped too. What a task will write is expected from the finished tasks of its stage:
bytes written per byte read, 1.0 until one has finished (documents come in as text and leave as compressed Parquet).
An object store says nothing of its room, and is not asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import storage
from corpus.engine.stage import Task

RESERVE_RATIO = 0.01  # of the file system
MAX_RESERVE_BYTES = 1 << 30
MIN_FREE_INODES = 64  # a task writes a file a kind, its record and its temporary names
FIRST_GUESS = 1.0  # bytes written per byte read


@dataclass(frozen=True)
class Free:
    """What the file system of a folder has left: bytes beyond the reserve, the reserve, and inodes (None: no limit)."""

    free_bytes: int
    reserve_bytes: int
    inodes: int | None


def free_space(folder: Path) -> Free:
    """Ask the file system; `folder` or one above it exists."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    reserve = min(MAX_RESERVE_BYTES, int(RESERVE_RATIO * status.f_blocks * status.f_frsize))
    return Free(status.f_bavail * status.f_frsize, reserve, status.f_favail if status.f_files else None)


class DiskBudget:
    """The disk room of one stage's tasks: tell it what starts and what finishes, ask it before each start."""

    def __init__(self, out: str) -> None:
        self._folder = None if storage.is_remote(out) else storage.local_path(out)
        self._read = self._written = 0
        self._under_way: dict[str, int] = {}

    def finished(self, task: Task, record: Mapping[str, Any] | None) -> None:
        """A task ended; `record` is None when it failed."""
        self._under_way.pop(task.name, None)
        if record is not None:
            self._read += input_bytes(task)
            self._written += sum(int(entry["bytes"]) for entry in record["files"].values())

    def start(self, task: Task) -> str:
        """Count a task as under way, or say in words why there is no room for it."""
        if self._folder is None:
            return ""
        ratio = self._written / self._read if self._read else FIRST_GUESS
        under_way = sum(self._under_way.values())
        needed = int(ratio * (input_bytes(task) + under_way))
        space = free_space(self._folder)
        if needed > space.free_bytes - space.reserve_bytes:
            return (
                f"{self._folder}: {size(space.free_bytes)} free, but task {task.name} and "
                f"the {len(self._under_way)} under way "
                f"are expected to write {size(needed)} ({ratio:.2f} bytes for each they read), and "
                f"{size(space.reserve_bytes)} stay in reserve"
            )
        if space.inodes is not None and space.inodes < MIN_FREE_INODES:
            return f"{self._folder}: only {space.inodes} inodes are free (no room for more files, whatever their size)"
        self._under_way[task.name] = input_bytes(task)
        return ""


def input_bytes(task: Task) -> int:
    """The bytes a task reads: the range of a file that is cut, else whole files."""
    if "start" in task.params and "end" in task.params:
        size = sum(file.bytes for file in task.inputs)
        return min(size, int(task.params["end"])) - int(task.params["start"])
    return sum(file.bytes for file in task.inputs)


def size(num_bytes: float) -> str:
    """Bytes in decimal units.

    >>> size(0), size(999), size(1_500), size(5e12)
    ('0 B', '999 B', '1.5 kB', '5.0 TB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if num_bytes < 1000 or unit == "PB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
