"""A bounded cache on a disk of this machine that runs and their ranks share: files of corpora that lie in a store.

    CACHE/.lock              held by who looks for room or makes it
    CACHE/<digest>/          a corpus, named by the names, sizes and SHA-256 of its files
        .lock                held shared by every process that reads it, so that nobody makes room there; its time: the
                             last use
        files.json           the bytes of its files
        ...                  the files; .NAME.part is being fetched by the process that holds a lock on it

Locks are the kernel's (flock), so a death gives all of them back. The ranks of a machine fetch side by side, each what
no other is at; a file is checked against its SHA-256 on the way, and only then has its name. So what was fetched is
kept, whatever ends a run, and the next one fetches the rest. Later damage on the disk is found by the loader's own
checksums.

Bounded: files of the corpora that were used longest ago and that no living process holds make room. A run's own must
fit: its order visits all of them in every epoch, at random, so a smaller cache would fetch each again for a few
samples, and such a run is refused before anything is fetched.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corpus.engine import durable, storage
from corpus.engine.errors import DiskError, UsageError, WenhaiError
from pretrain.console import log_message

BLOCK_BYTES = 16 << 20  # a request
RESERVE_BYTES = 1 << 30  # of the disk, for others
POLL_SECONDS = 0.2  # while other processes fetch
TELL_SECONDS = 15.0
TRIES, TRY_AGAIN_SECONDS = 3, 1.0  # the second wait is twice as long
LOCK, FILES = ".lock", "files.json"
GIB = 1 << 30


class GivenUp(Exception):
    """Fetching ended because it was told to."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a corpus: where it is, its name in the cache, and what its manifest says of it."""

    url: str
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class RemoteCorpus:
    """What a run needs of a corpus in a store."""

    url: str
    files: tuple[RemoteFile, ...]
    records: Mapping[str, bytes]  # by name: small files that are written, not fetched

    @property
    def key(self) -> str:
        """Its name in the cache: equal for equal contents, wherever they lie."""
        return durable.digest(sorted((file.name, file.bytes, file.sha256) for file in self.files))[:24]


class Entry:
    """A corpus in the cache, held by this process until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(folder / LOCK, fcntl.LOCK_SH)
        self._touch()

    def close(self) -> None:
        """Let others make room here; what was used last goes last."""
        self._touch()
        self._lock.close()

    def _touch(self) -> None:
        now = time.time_ns()  # the kernel's own stamp would be that of its last tick
        os.utime(self._lock.fileno(), ns=(now, now))


class ShardCache:
    """A folder of corpora on a disk of this machine.

    Args:
        folder: Made if it is not there.
        max_bytes: That its files may take.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    def hold(self, corpora: Sequence[RemoteCorpus]) -> dict[str, Entry]:
        """Make room for what is missing of some corpora and hold them, by key; nothing is fetched yet.

        Raises:
            UsageError: they do not fit into the cache, whatever else is in it.
            DiskError: what other processes hold leaves no room for them, or the disk has none.
        """
        own = {corpus.key: corpus for corpus in corpora}
        needed = sum(file.bytes for corpus in own.values() for file in corpus.files)
        if needed > self.max_bytes:
            raise UsageError(
                f"data.cache_gib: the shards of this run take {_gib(needed)}, and the cache {self.folder} may hold "
                f"{_gib(self.max_bytes)}. A run reads all of them in every epoch, so they must be there together: "
                "raise data.cache_gib, or read them from a disk that all machines share."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _lock(self.folder / LOCK, fcntl.LOCK_EX):
                self._make_room(own, needed)
                entries: dict[str, Entry] = {}
                for key, corpus in own.items():
                    entries[key] = Entry(self.folder / key)
                    files = {file.name: file.bytes for file in corpus.files}
                    for name, data in {FILES: durable.json_bytes(files), **corpus.records}.items():
                        if not (self.folder / key / name).exists():  # the name of the folder says that it is the same
                            durable.write_bytes(self.folder / key / name, data)
                return entries
        except OSError as error:
            raise DiskError(
                f"data.cache {self.folder}: cannot be used ({error.strerror or error}). Name a folder on a local "
                "disk that can be written."
            ) from error

    def fetch(self, corpora: Sequence[RemoteCorpus], stop: threading.Event) -> None:
        """Bring what is missing of held corpora, beside other processes that do the same.

        Raises:
            WenhaiError: a file cannot be fetched, or is not what its manifest says.
            GivenUp: `stop` was set.
        """
        files = [(self.folder / corpus.key / file.name, file) for corpus in corpora for file in corpus.files]
        total, told = sum(file.bytes for _, file in files), time.monotonic()
        waiting = [(path, file) for path, file in files if not _is_there(path, file)]
        if waiting and _speaks():
            missing = sum(file.bytes for _, file in waiting)
            log_message(f"fetching {_gib(missing)} of {_gib(total)} of token shards to {self.folder}, on each machine")
        while waiting:
            left = []
            for path, file in waiting:
                if stop.is_set():
                    raise GivenUp
                if not _fetch(path, file, stop):
                    left.append((path, file))
                if _speaks() and time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    there = sum(file.bytes for path, file in files if _is_there(path, file))
                    log_message(f"fetched {_gib(there)} of {_gib(total)}")
            if len(left) == len(waiting):
                stop.wait(POLL_SECONDS)
            waiting = left

    def _make_room(self, own: Mapping[str, RemoteCorpus], needed: int) -> None:
        files = [(self.folder / key / file.name, file) for key, corpus in own.items() for file in corpus.files]
        present = sum(file.bytes for path, file in files if _is_there(path, file))
        held, promised = 0, 0  # by others: bytes, and of these not fetched yet
        free: list[Path] = []  # nobody holds these
        with ExitStack() as stack:
            for folder in (path for path in self.folder.iterdir() if (path / LOCK).exists()):
                if folder.name in own:
                    continue
                try:
                    stack.enter_context(_lock(folder / LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB))
                except BlockingIOError:
                    wanted = sum(durable.read_json(folder / FILES).values())
                    held += wanted
                    promised += max(0, wanted - _size(folder))
                else:
                    free.append(folder)
            free.sort(key=lambda folder: (folder / LOCK).stat().st_mtime_ns)
            excess = needed + held + sum(map(_size, free)) - self.max_bytes
            missing = needed - present + promised + RESERVE_BYTES if needed > present else 0
            self._evict(free, max(excess, missing - shutil.disk_usage(self.folder).free))
            if needed + held > self.max_bytes:
                raise DiskError(
                    f"data.cache {self.folder}: other runs hold {_gib(held)} of its {_gib(self.max_bytes)}, and "
                    f"this one needs {_gib(needed)}. Raise data.cache_gib, name another folder, or wait for them."
                )
        room = shutil.disk_usage(self.folder).free
        if missing > room:
            raise DiskError(
                f"data.cache {self.folder}: the disk has {_gib(room)} free, and {_gib(missing)} are needed ("
                f"{_gib(needed - present)} of this run's shards, {_gib(promised)} of others', the rest in reserve). "
                "Free space, or name a folder on a larger disk."
            )

    def _evict(self, folders: Sequence[Path], num_bytes: int) -> None:
        """Remove files, those of the first folder first, until so many bytes are free."""
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if num_bytes <= 0:
                    return
                if path.is_file() and path.name != LOCK:
                    num_bytes -= path.stat().st_size
                    path.unlink()
            shutil.rmtree(folder)


def _fetch(path: Path, file: RemoteFile, stop: threading.Event) -> bool:
    """Bring one file; False where another process is at it."""
    part = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = _lock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    with held:
        fd = held.fileno()
        if _is_there(path, file):  # since we looked
            part.unlink(missing_ok=True)
            return True
        if not _is_same(part, fd):  # another process gave it its name, or took it away
            return False
        for attempt in range(1, TRIES + 1):
            try:
                digest = _download(file, fd, stop)
            except (GivenUp, WenhaiError):
                raise
            except Exception as error:  # each store's library has errors of its own
                problem = (
                    f"cannot be fetched ({type(error).__name__}: {error}). Run the same command again: it fetches the "
                    "rest."
                )
            else:
                if digest == file.sha256:
                    os.fsync(fd)
                    os.replace(part, path)
                    durable.sync_folder(path.parent)
                    return True
                problem = (
                    "is not what its manifest says: damaged or replaced in the store. Restore it, or build it again."
                )
            if attempt < TRIES:
                stop.wait(attempt * TRY_AGAIN_SECONDS)
        part.unlink(missing_ok=True)
        raise WenhaiError(f"{file.url}: {problem}")


def _download(file: RemoteFile, fd: int, stop: threading.Event) -> str:
    """Write the bytes of a file; returns their SHA-256. An object that is longer gives its beginning, as was
    recorded."""
    hasher, block = hashlib.sha256(), bytearray(BLOCK_BYTES)
    os.ftruncate(fd, 0)
    for offset in range(0, file.bytes, BLOCK_BYTES):
        if stop.is_set():
            raise GivenUp
        target = memoryview(block)[: min(BLOCK_BYTES, file.bytes - offset)]
        target = target[: storage.read_into(file.url, offset, target)]
        hasher.update(target)
        _write(file, fd, offset, target)
    return hasher.hexdigest()


def _write(file: RemoteFile, fd: int, offset: int, data: memoryview) -> None:
    try:
        while data:
            done = os.pwrite(fd, data, offset)
            data, offset = data[done:], offset + done
    except OSError as error:
        raise DiskError(
            f"data.cache: {file.name} cannot be written ({error.strerror}). Free space, then run the same command "
            "again."
        ) from error


def _lock(path: Path, kind: int) -> BinaryIO:
    """An open file with a lock, which ends when it is closed; `BlockingIOError` where LOCK_NB finds another's."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+b", buffering=0)
    try:
        fcntl.flock(file, kind)
    except BaseException:
        file.close()
        raise
    return file


def _is_there(path: Path, file: RemoteFile) -> bool:
    try:
        return path.stat().st_size == file.bytes
    except OSError:
        return False


def _is_same(path: Path, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(fd))
    return False


def _size(folder: Path) -> int:
    """The bytes of the files below a folder."""
    return sum(storage.sizes(str(folder)).values())


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.3f} GiB"
