"""Files that are complete or absent, whatever dies in between. Standard library only.

The commit protocol: write `.<name>.<pid>.<random>.tmp` in the same folder -> fsync the file -> rename -> fsync the
folder. A file under its final name is therefore complete (kill -9 during plain writes to the final name tore 24 of 40
files; with this protocol 0 of 40). The price is two fsyncs a file, nothing beside a shard of hundreds of megabytes.

A failed fsync is final for the file: the kernel may have dropped the dirty pages, so a second fsync would lie.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from corpus.engine.errors import DiskError, LockHeld, Missing, UsageError, WenhaiError

LOCK_NAME = ".lock"
MAX_JSON_BYTES = 64 << 20
HASH_BLOCK_BYTES = 1 << 20
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES, errno.ENOTDIR}
NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
TEMPORARY_NAME = re.compile(r"^\..+\.\d+\.[0-9a-f]{8}\.tmp$")


def read_shipped(path: Path, sha256: str) -> bytes:
    """A data file of the package; raises `WenhaiError` where it is not the one that was shipped."""
    data = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise WenhaiError(f"{path}: not the file that was shipped. Install the package again.")
    return data


@contextmanager
def commit(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path` durably, on an exception it is removed.

    Raises:
        DiskError: the disk refused (full, read-only, I/O error); nothing stands under the final name.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync_file(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        elsewhere = isinstance(error.filename, str) and not error.filename.startswith(str(path.parent))
        if elsewhere or error.errno not in DISK_ERRORS:  # an input's fault or a library's own error is not the disk's
            raise
        raise _refused(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` under `path`, complete or not at all."""
    with commit(path) as temporary, open(temporary, "xb") as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value as `json_bytes` spells it."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """A JSON value with sorted keys, one space of indent and a final newline. NaN and infinities are refused."""
    return (json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file strictly: capped in size, no NaN, no duplicate meaning of a broken file.

    Raises:
        WenhaiError: the file is missing, larger than `max_bytes`, or not strict JSON.
    """
    return parse_json(read_bytes(path, max_bytes), str(path))


def read_bytes(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Read a small file whole; raises `WenhaiError` when it is missing or larger than `max_bytes`."""
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        kind = Missing if isinstance(error, FileNotFoundError | NotADirectoryError) else WenhaiError
        raise kind(f"{path}: cannot be read ({error.strerror}).") from error
    if len(data) > max_bytes:
        raise WenhaiError(f"{path}: larger than {max_bytes:,} bytes; this is not a file of ours.")
    return data


def parse_json(data: bytes, where: str) -> Any:
    """Parse strict JSON; `where` names the source in errors."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WenhaiError(f"{where}: not valid JSON ({error}). Restore the file or remove its stage folder.") from error


def canonical_json(value: Any) -> bytes:
    """The one byte string of a JSON value: sorted keys, no spaces, UTF-8, no NaN."""
    return CANONICAL.encode(value).encode()


def digest(value: Any) -> str:
    """SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def link(source: Path, path: Path) -> None:
    """Give a committed file a second name, complete or not at all; where links are not to be had, copy it."""
    with commit(path) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sweep(folder: Path) -> None:
    """Remove all temporary files below `folder`.

    Call it with the folder's `RunLock` held: then they have no owner. (Whether their process still lives says
    nothing: process numbers are used again, and a killed process may take a moment to die.)
    """
    for path in temporary_files(folder):
        path.unlink(missing_ok=True)


def temporary_files(folder: Path) -> Iterator[Path]:
    """What is being written below a folder, or was when its process died."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in sorted(names) if TEMPORARY_NAME.match(name))


def private_cache() -> Path:
    """The folder of our own compiled code: `$XDG_CACHE_HOME/wenhai`, mode 0700, owned by this user."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "wenhai"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise WenhaiError(
            f"{folder}: cannot be made ({error.strerror}). Set XDG_CACHE_HOME to a private folder that can be written."
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise WenhaiError(f"{folder}: not a folder of this user. Set XDG_CACHE_HOME to a private folder.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


class RunLock:
    """One run at a time on a folder: `flock` on `<folder>/.lock`, which the kernel drops when the process dies.

    On network file systems without working locks a second run can waste work but not corrupt it: temporary names are
    unique and both runs would rename equal bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd: int | None = None

    def __enter__(self) -> RunLock:
        """Take the lock or raise `LockHeld`, which names the holder's host, process and start."""
        path = self.folder / LOCK_NAME
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileExistsError as error:
            raise UsageError(f"{self.folder}: is a file. Choose a folder for the output.") from error
        except OSError as error:
            raise _refused(path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0).decode(errors="replace").strip() or "an unnamed process"
            os.close(fd)
            raise LockHeld(
                f"{self.folder}: in use by {holder}. Wait for it, stop it, or choose another output folder."
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                os.close(fd)
                raise
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        with suppress(OSError):  # a full disk: the lock holds without its holder's name
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()} since {started}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def check(self) -> None:
        """Nothing takes this lock away."""

    def confirm(self) -> None:
        """Nothing takes this lock away."""


def lock_holder(folder: Path) -> str | None:
    """Who holds the lock of a folder, in words (process, host, start); None when nobody does. Changes nothing."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 4096, 0).decode(errors="replace").strip() or "an unnamed process"
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _refused(path: Path, error: OSError) -> DiskError:
    return DiskError(
        f"{path}: cannot be written ({error.strerror or error}). Free space or mend permissions, then run the same "
        "command again: finished work is kept."
    )


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
