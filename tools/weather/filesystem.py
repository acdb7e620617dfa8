"""`weather://`: a folder that answers as s3fs does, with its exceptions, in the weather of `faults`.

As in S3: objects appear whole; there are no folders but those of names; a get sees a new object at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
from botocore.exceptions import ClientError, ConnectionClosedError
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from s3fs.errors import translate_boto_error
from s3fs.utils import FileExpired

from tools.weather.faults import CHANGES, weather

BATCH = 1000  # objects that one request lists or removes, as in S3
ANSWERS = {  # code, status, message
    "slow_down": ("SlowDown", 503, "Please reduce your request rate."),
    "internal_error": ("InternalError", 500, "We encountered an internal error. Please try again."),
    "ended": ("ExpiredToken", 400, "The provided token has expired."),
    "missing": ("NoSuchKey", 404, "The specified key does not exist."),
    "exists": ("PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold"),
}


class WeatherFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The objects below `Weather.root`."""

    protocol = "weather"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("weather://").strip("/")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Size and version of an object; a name that objects lie below is a folder."""
        path = self._strip_protocol(path)
        with _request("head", path):
            found = _entry(path)
        if found is None and _listed(path):
            return {"name": path, "size": 0, "type": "directory"}
        return found or _refuse("missing", "HeadObject")

    def exists(self, path: str, **options: Any) -> bool:
        """Whether an object or a folder is there; as in s3fs, an error is an error."""
        try:
            return bool(self.info(path))
        except FileNotFoundError:
            return False

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What lies in a folder."""
        path = self._strip_protocol(path)
        entries: dict[str, dict[str, Any]] = {}
        for entry in _pages(path):
            first, _, is_folder = entry["name"][len(path) :].lstrip("/").partition("/")
            name = f"{path}/{first}".lstrip("/")
            entries[name] = {"name": name, "size": 0, "type": "directory"} if is_folder else entry
        if not entries:
            entries[path] = _entry(path) or _refuse("missing", "ListObjectsV2")
        return list(entries.values()) if detail else list(entries)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """All objects below a folder, in one listing."""
        path = self._strip_protocol(path)
        found = {entry["name"]: entry for entry in _pages(path)}
        if not found and (entry := _entry(path)):
            found = {path: entry}
        depth = path.count("/") + 1 if path else 0
        if withdirs:
            for name in list(found):
                for cut in range(depth + 1, name.count("/") + 1):
                    above = "/".join(name.split("/")[:cut])
                    found.setdefault(above, {"name": above, "size": 0, "type": "directory"})
        if maxdepth is not None:
            found = {name: entry for name, entry in found.items() if name.count("/") < depth + maxdepth}
        return dict(sorted(found.items())) if detail else sorted(found)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """The bytes of an object, or a range of them."""
        path = self._strip_protocol(path)
        with _request("get" if (start, end) == (None, None) else "range", path) as fault:
            try:
                data = _local(path).read_bytes()[start:end]
            except (FileNotFoundError, IsADirectoryError):
                _refuse("missing", "GetObject")
        if fault == "cut" and data:
            raise aiohttp.ClientPayloadError("Response payload is not completed: not enough data")
        return data[: len(data) // 2] if fault == "short" else data

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Put an object, or with mode "create" only a new one."""
        path = self._strip_protocol(path)
        with _request("put", path):
            target = _local(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / f".{secrets.token_hex(8)}.weather"
            temporary.write_bytes(value)
            try:
                os.link(temporary, target) if mode == "create" else os.replace(temporary, target)
            except FileExistsError:
                _refuse("exists", "PutObject")
            finally:
                temporary.unlink(missing_ok=True)

    def put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **options: Any) -> None:
        """Put a file."""
        self.pipe_file(rpath, Path(lpath).read_bytes(), mode)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy an object."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        with _request("copy", path2):
            target = _local(path2)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / f".{secrets.token_hex(8)}.weather"
            try:
                temporary.write_bytes(_local(path1).read_bytes())
            except FileNotFoundError:
                _refuse("missing", "CopyObject")
            os.replace(temporary, target)

    def rm_file(self, path: str) -> None:
        """Remove an object; as in S3, one that is not there is no error."""
        self._remove([self._strip_protocol(path)])

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove objects, a thousand a request."""
        paths = [path] if isinstance(path, str) else path
        names = [name for one in paths for name in (self.find(one) if recursive else [self._strip_protocol(one)])]
        if not names:
            _refuse("missing", "DeleteObjects")
        for start in range(0, len(names), BATCH):
            self._remove(names[start : start + BATCH])

    def _remove(self, names: list[str]) -> None:
        with _request("delete", names[0]):
            for name in names:
                _local(name).unlink(missing_ok=True)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> _File:
        if mode != "rb":
            raise NotImplementedError(mode)
        return _File(self, path, mode, block_size or "default", **options)


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """An object that is read by ranges of one version."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        entry = _entry(self.path)
        if entry is not None and entry["ETag"] != self.details["ETag"]:
            raise FileExpired(self.path, self.details["ETag"])
        return self.fs.cat_file(self.path, start, end)  # type: ignore[no-any-return]


@contextlib.contextmanager
def _request(kind: str, path: str) -> Iterator[str]:
    """Make a request in the block, or refuse it; a connection that ends has made its change."""
    fault = weather().request(kind, path)
    if fault in ANSWERS:
        _refuse(fault, kind)
    if fault != "reset" or kind in CHANGES:
        yield fault
    if fault == "reset":
        raise ConnectionClosedError(endpoint_url=f"weather://{path}", error=ConnectionResetError("Connection reset"))


def _refuse(answer: str, operation: str) -> NoReturn:
    code, status, message = ANSWERS[answer]
    error = {"Code": code, "Message": message} | ({"Condition": "If-None-Match"} if answer == "exists" else {})
    raise translate_boto_error(ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, operation))


def _local(path: str) -> Path:
    root = Path(weather().root)
    if not weather().root or ".." in path.split("/"):
        raise ValueError(f"weather://{path}: no folder is set, or the name leads out of it")
    return root / path


def _entry(path: str) -> dict[str, Any] | None:
    try:
        status = _local(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not _local(path).is_file():
        return None
    version = hashlib.md5(f"{status.st_ino} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()
    written = datetime.fromtimestamp(status.st_mtime, UTC)
    return {"name": path, "size": status.st_size, "type": "file", "ETag": f'"{version}"', "LastModified": written}


def _pages(path: str) -> list[dict[str, Any]]:
    with _request("list", path):
        found = _listed(path)
    for _ in range(BATCH, len(found), BATCH):  # a client that repeats a page by itself is not held up by these
        weather().request("list", path)
    return found


def _listed(path: str) -> list[dict[str, Any]]:
    """The objects below a folder that a listing shows by now."""
    top, root = _local(path), Path(weather().root)
    seen = time.time() - weather().late_list
    names = (str(Path(parent, name).relative_to(root)) for parent, _, found in os.walk(top) for name in found)
    entries = (_entry(name) for name in sorted(names) if not name.endswith(".weather"))
    return [entry for entry in entries if entry and entry["LastModified"].timestamp() <= seen]
