"""Local copies of remote files: one private folder a process, emptied at a task's end, bounded, swept after the dead.

It lies below TMPDIR. A process holds a lock on its folder's `.lock` as long as it lives, so a folder whose lock can be
had belongs to nobody (a process number would say nothing: numbers are used again) and the next process removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from corpus.engine.errors import DiskError

PREFIX = "wenhai-"
MAX_BYTES = 64 << 30  # of the copies of one process
NUM_KEPT = 8  # the youngest copies stay, whatever their size: a task reads several files side by side
RESERVE_BYTES = 64 << 20

_folder: Path | None = None  # of this process; made when it is needed
_lock: int | None = None
_copies: dict[Path, int] = {}  # and their bytes, the one asked for longest ago first


def folder() -> Path:
    """The scratch folder of this process (mode 0700)."""
    global _folder, _lock
    if _folder is None:
        sweep()
        made = Path(tempfile.mkdtemp(prefix="new-" + PREFIX))
        _lock = os.open(made / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # no locks here: nothing is swept either
            fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _folder = made.rename(made.with_name(made.name.removeprefix("new-")))  # only now others look at its lock
    return _folder


def clear_scratch() -> None:
    """Remove all copies and the folder: a worker never holds more than one task's inputs."""
    global _folder, _lock
    _copies.clear()
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
        _folder = None
    if _lock is not None:
        os.close(_lock)
        _lock = None


def copy_of(url: str, size: Callable[[], int], download: Callable[[Path, int], None]) -> Path:
    """The local copy of a remote file, made by `download(path, size)` where there is none yet.

    Raises:
        DiskError: there is no room for it.
    """
    target = folder() / hashlib.sha256(url.encode()).hexdigest()[:24] / url.rsplit("/", 1)[-1]
    if target in _copies:
        _copies[target] = _copies.pop(target)
        return target
    num_bytes = size()
    while len(_copies) >= NUM_KEPT and sum(_copies.values()) + num_bytes > MAX_BYTES:
        oldest = next(iter(_copies))
        del _copies[oldest]
        oldest.unlink(missing_ok=True)
    free = shutil.disk_usage(folder()).free
    if num_bytes + RESERVE_BYTES > free:
        raise DiskError(
            f"{tempfile.gettempdir()}: {free / 1e9:,.1f} GB free, "
            f"but the copy of {url} takes {num_bytes / 1e9:,.1f} GB. "
            "Set TMPDIR to a larger disk, then run the same command again: finished work is kept."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    download(target, num_bytes)
    _copies[target] = num_bytes
    return target


def sweep() -> None:
    """Remove what processes that died have left."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_orphan(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_orphan(entry: os.DirEntry[str]) -> bool:
    try:
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        fd = os.open(Path(entry.path, ".lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # not of this kind, or removed just now by another
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
