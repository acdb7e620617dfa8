"""Where files live: local paths, or any fsspec URL (`s3://`, `gs://`, `memory://`), behind four verbs.

Stages read and write local files only. A remote input is fetched to a private scratch folder first; a remote output is
written to scratch and put whole, because an exception inside `with fs.open(url, "wb")` still commits the truncated
object (seen with fsspec). An object appears at once or not at all, so the record written last is the commit there.

Every request to a store goes through `retries`: what may pass is tried again, and all of them may be made twice.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO

from corpus.engine import durable, retries, scratch
from corpus.engine.errors import Missing, UsageError, WenhaiError
from corpus.engine.retries import RequestCounts as RequestCounts
from corpus.engine.retries import request_threads as request_threads
from corpus.engine.retries import take_request_counts as take_request_counts
from corpus.engine.scratch import clear_scratch as clear_scratch

READ_BLOCK_BYTES = 4 << 20
COPY_BLOCK_BYTES, COPY_THREADS = 16 << 20, 4  # of a download: each range is repeated by itself
READ_THREADS = 64  # of many small files: they wait, they do not compute
Blocks = tuple[tuple[int, bytes], ...]  # digests of blocks of a file in a row, behind the number of the first


_filesystems: dict[tuple[Any, ...], Any] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class File:
    """A committed file: where it is, its size, the SHA-256 of its bytes and, for tables, its rows.

    `name` is what an input is called below the folder or glob that it was found by: `2024/a.jsonl`. `blocks` are
    what a task compares that reads an input (input_digests.py).
    """

    url: str
    bytes: int
    sha256: str
    rows: int = 0
    name: str = ""
    blocks: Blocks = field(default=(), repr=False)

    @property
    def label(self) -> str:
        """The name, or the end of the URL: what a file is known by wherever it lies."""
        return self.name or self.url.rsplit("/", 1)[-1]


def is_remote(url: str) -> bool:
    """True for URLs of other schemes than `file://`."""
    return "://" in url and not url.startswith("file://")


def local_path(url: str) -> Path:
    """The path of a local URL or path."""
    return Path(url.removeprefix("file://"))


def join(folder: str, *names: str) -> str:
    """`folder/name/...`, for paths and URLs alike."""
    return "/".join([folder.rstrip("/"), *names])


def fetch(url: str) -> Path:
    """A local path with the bytes of `url`: itself when local, else a copy in the process's scratch folder.

    Copies go when their task ends, and earlier when they grow too many (`scratch.copy_of`): open one before you fetch
    the next.

    Raises:
        DiskError: the scratch disk has no room for the copy.
    """
    if not is_remote(url):
        return local_path(url)
    return scratch.copy_of(url, partial(_size, url), partial(_download, url))


def scratch_folder() -> Path:
    """The process's scratch folder, for what is downloaded there; `clear_scratch` or the next process removes it."""
    return scratch.folder()


def open_stream(url: str) -> BinaryIO:
    """A binary stream over a local or remote file, for inputs that are read once from front to back.

    One that is cut goes on where it was, as long as the store still has the same object.
    """
    if not is_remote(url):
        return open(local_path(url), "rb")
    return io.BufferedReader(_Stream(url), READ_BLOCK_BYTES)


def read_into(url: str, offset: int, target: memoryview) -> int:
    """Read a range of a local or remote file into `target`, in a store as one request; returns how many bytes were
    left.

    Args:
        offset: of the first byte.
        target: bytes, as many as are wanted.
    """
    if is_remote(url):
        data = retries.call(partial(_range, url, offset, len(target)), "read", url, is_counted=False)
        target[: len(data)] = data
        return len(data)
    done = 0
    with open(local_path(url), "rb", buffering=0) as file:
        file.seek(offset)
        while done < len(target) and (count := file.readinto(target[done:])):
            done += count
    return done


@contextmanager
def create(url: str) -> Iterator[Path]:
    """Yield a local temporary path; on success its bytes stand under `url`, complete, or nothing does."""
    if not is_remote(url):
        with durable.commit(local_path(url)) as temporary:
            yield temporary
        return
    filesystem, path = open_filesystem(url)
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
        temporary = Path(folder, "object")
        yield temporary
        filesystem.put_file(str(temporary), path)


def upload(source: Path, url: str) -> None:
    """Put a finished local file into a store, complete or not at all; unlike `create` it may be called by any
    thread."""
    filesystem, path = open_filesystem(url)
    filesystem.put_file(str(source), path)


def download(url: str, target: Path) -> None:
    """Copy a file of a store to a local path, complete or not at all.

    Raises:
        DiskError: the local disk refused it.
    """
    _download(url, target, _size(url))


def write_json(url: str, value: Any) -> None:
    """Write a JSON value under `url`, complete or not at all."""
    with create(url) as path:
        path.write_bytes(durable.json_bytes(value))


def put(url: str, data: bytes) -> None:
    """Write a small object of a store, replacing what stands there; unlike `create` it may be called by any thread."""
    filesystem, path = open_filesystem(url)
    filesystem.pipe_file(path, data)


def put_new(url: str, data: bytes) -> None:
    """Write a small object of a store unless there is one: who reads it then knows whose it is.

    Two callers at once are told apart by stores with conditional writes only; on others the later one's stays.
    """
    filesystem, path = open_filesystem(url)
    try:
        filesystem.pipe_file(path, data, mode="create")
    except OSError:  # not of one kind; "there is one" may mean our own, of a try whose answer was lost
        if not filesystem.exists(path):
            filesystem.pipe_file(path, data)  # some stores refuse the condition as such


def copy(source: str, target: str) -> None:
    """Give a committed file a second name, complete or not at all: a hard link, or a copy made by the store itself."""
    if not is_remote(source):
        durable.link(local_path(source), local_path(target))
        return
    filesystem, path = open_filesystem(source)
    filesystem.cp_file(path, open_filesystem(target)[1])


def sha256(url: str) -> str:
    """SHA-256 (hex) of a file's bytes; raises `OSError` when it cannot be read."""
    with open_stream(url) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto


def read_json(url: str) -> Any:
    """Read a JSON value strictly; raises `WenhaiError` when it is missing or broken."""
    return durable.parse_json(read_bytes(url), url)


def read_bytes(url: str, max_bytes: int = durable.MAX_JSON_BYTES) -> bytes:
    """Read a small file whole; raises `WenhaiError` when it is missing or larger than a file of ours."""
    if not is_remote(url):
        return durable.read_bytes(local_path(url), max_bytes)
    filesystem, path = open_filesystem(url)
    try:
        return bytes(filesystem.cat_file(path, **filesystem.options_of_whole))
    except FileNotFoundError:
        raise Missing(f"{retries.redacted(url)}: does not exist.") from None


def read_if_there(url: str, max_bytes: int = durable.MAX_JSON_BYTES) -> bytes | None:
    """The bytes of a small file, or None where there is none: one request."""
    try:
        return read_bytes(url, max_bytes)
    except Missing:
        return None


def read_many(urls: Sequence[str], max_bytes: int = durable.MAX_JSON_BYTES) -> list[bytes | None]:
    """The bytes of small files, many at a time where they lie in a store; None for one that does not exist. Raises as
    `read_bytes` does."""
    if not any(map(is_remote, urls)):
        return [read_if_there(url, max_bytes) for url in urls]
    with request_threads(min(READ_THREADS, len(urls))) as threads:
        return list(threads.map(partial(read_if_there, max_bytes=max_bytes), urls))


def exists(url: str) -> bool:
    """Whether a file or folder stands at `url`."""
    if not is_remote(url):
        return local_path(url).exists()
    filesystem, path = open_filesystem(url)
    return bool(filesystem.exists(path))


def sizes(folder: str) -> dict[str, int]:
    """The bytes of every file below a folder, by name relative to it: one listing, not one request a file."""
    if not is_remote(folder):
        top = local_path(folder)
        walked = (Path(parent, name) for parent, _, names in os.walk(top) for name in names)
        return {str(path.relative_to(top)): path.lstat().st_size for path in walked}
    filesystem, top_in_store = open_filesystem(folder)
    found: dict[str, Any] = filesystem.find(top_in_store, detail=True)
    prefix = top_in_store.rstrip("/") + "/"
    return {name.removeprefix(prefix): int(entry["size"]) for name, entry in found.items()}


def names(folder: str, suffix: str) -> list[str]:
    """The sorted names in a folder that end in `suffix`; used for records only, data are listed by manifests."""
    if not is_remote(folder):
        path = local_path(folder)
        found = [entry.name for entry in os.scandir(path)] if path.is_dir() else []
    else:
        filesystem, path_in_store = open_filesystem(folder)
        found = []
        with suppress(FileNotFoundError):
            found = [entry.rsplit("/", 1)[-1] for entry in filesystem.ls(path_in_store, detail=False)]
    return sorted(name for name in found if name.endswith(suffix) and not name.startswith("."))


def remove_tree(url: str) -> None:
    """Remove a folder and everything below it, if it exists."""
    if not is_remote(url):
        shutil.rmtree(local_path(url), ignore_errors=False)
        return
    filesystem, path = open_filesystem(url)
    with suppress(FileNotFoundError):
        filesystem.rm(path, recursive=True)


def remove(url: str) -> None:
    """Remove one file, if it exists."""
    if not is_remote(url):
        local_path(url).unlink(missing_ok=True)
        return
    filesystem, path = open_filesystem(url)
    with suppress(FileNotFoundError):
        filesystem.rm_file(path)


def remove_many(urls: Sequence[str]) -> None:
    """Remove the files of one place that exist, in S3 a thousand a request.

    A store that refuses some of a thousand does not tell (s3fs): do not build on their absence.
    """
    together = [url for url in urls if is_remote(url) and not has_magic(url)]  # `rm` takes a name with * for a pattern
    try:
        if together:
            open_filesystem(together[0])[0].rm([open_filesystem(url)[1] for url in together])
    except FileNotFoundError:  # some stores stop at the first that is gone
        together = []
    for url in set(urls).difference(together):
        remove(url)


def spellable(url: str) -> str:
    """Records are JSON in UTF-8: a name of other bytes, or read under another locale, could not be written there.

    Raises:
        UsageError: `url` holds bytes that are no UTF-8.
    """
    try:
        url.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{url!a}: its name is not UTF-8 here. Rename it, or run with PYTHONUTF8=1.") from None
    return url


def real_url(url: str) -> str:
    """What a link points to; an input keeps the link's own name, which says what it holds (`news.jsonl`)."""
    return url.rstrip("/") if is_remote(url) else os.path.realpath(local_path(url))


def open_filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, a `Store`, and the path in it: some 20 us.

    One file system for all threads of a process: fsspec keeps one a thread, and so 64 threads would have 64 pools of
    connections.
    """
    import fsspec  # 28 MB and 0.2 s: only where a URL is used

    protocol = url.split("://", 1)[0]
    if "::" in url:  # of files inside others
        filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        return Store(filesystem, protocol), path
    kind = fsspec.get_filesystem_class(protocol)
    options = kind._get_kwargs_from_urls(url)
    key = (os.getpid(), kind, repr(sorted(options.items())))
    with _opening:
        filesystem = _filesystems.get(key)
        if not any(filesystem is kept for kept in kind._cache.values()):  # also where a person has cleared them
            # No listing is remembered: other processes write what this one must see (s3fs asks its last listing even
            # in `exists`).
            filesystem = _filesystems[key] = kind(use_listings_cache=False, **options)
    return Store(filesystem, protocol), kind._strip_protocol(url)


class Store:
    """A file system of fsspec whose methods are requests, made again as `retries` has it."""

    _one_at_a_time = threading.Lock()

    def __init__(self, filesystem: Any, protocol: str) -> None:
        self._filesystem, self._protocol = filesystem, protocol
        is_s3 = hasattr(filesystem, "_call_s3")
        self.is_counted = not is_s3  # here, and not for each request that a call consists of
        self.options_of_whole = {"max_concurrency": 1} if is_s3 else {}  # else s3fs asks for the size before
        if is_s3:
            self._take_over_retries()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._request, name)

    def open(self, path: str) -> Any:
        """A file whose reads are requests as they come, each made once: `_Stream` repeats them."""
        return self._filesystem.open(path, "rb", block_size=READ_BLOCK_BYTES, cache_type="none")

    def exists(self, path: str, kind: str = "") -> bool:
        """Whether something is there; fsspec's own takes errors for a no."""
        try:
            return kind in self.info(path)["type"]
        except FileNotFoundError:
            return False

    def isfile(self, path: str) -> bool:
        """Whether a file is there."""
        return self.exists(path, "file")

    def isdir(self, path: str) -> bool:
        """Whether a folder is there."""
        return self.exists(path, "directory")

    def _request(self, name: str, path: str | list[str], *arguments: Any, **options: Any) -> Any:
        method = partial(getattr(self._filesystem, name), path, *arguments, **options)
        first = path if isinstance(path, str) else path[0]
        return retries.call(method, name, f"{self._protocol}://{first}", is_counted=self.is_counted)

    def _take_over_retries(self) -> None:
        """s3fs 2026.9 tries five times what botocore has tried five times before, without jitter, and so 25 times what
        says SlowDown; but it does not try 500 again, nor a range of a large download. Its `_call_s3` is the one door
        of all its requests, so each page of a listing and part of an upload is repeated there by itself. What stays
        below: aiohttp asks once more, at once, where a connection ends; gcsfs tries six times in a minute."""
        with self._one_at_a_time:
            if "_call_s3" not in vars(self._filesystem):
                no_more = {"retries": {"total_max_attempts": 1}}
                self._filesystem.config_kwargs = self._filesystem.config_kwargs | no_more
                self._filesystem.retries = 1
                self._filesystem._call_s3 = retries.patient(self._filesystem._call_s3)


class _Stream(io.RawIOBase):
    """A file of a store by ranges: one that is cut is asked for again, of the same object where the store can tell."""

    def __init__(self, url: str) -> None:
        store, path = open_filesystem(url)
        self._url, self._is_counted = url, store.is_counted
        self._file = retries.call(partial(store.open, path), "open", url, is_counted=self._is_counted)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, target: Any) -> int:
        data = retries.call(partial(self._read, len(target)), "read", self._url, is_counted=self._is_counted)
        target[: len(data)] = data
        return len(data)

    def _read(self, num_bytes: int) -> bytes:
        offset = self._file.tell()  # which an error leaves as it was
        try:
            data: bytes = self._file.read(num_bytes)
        except OSError as error:
            if type(error).__name__ == "FileExpired":  # the ETag that s3fs asks for is another one now
                url = retries.redacted(self._url)
                raise WenhaiError(f"{url}: has changed while it was read. Run the same command again.") from None
            raise
        if not data and num_bytes and offset < self._file.size:
            raise ConnectionError(f"no byte came at {offset:,} of {self._file.size:,}")
        return data


def _size(url: str) -> int:
    filesystem, path = open_filesystem(url)
    return int(filesystem.info(path)["size"])


def _range(url: str, offset: int, num_bytes: int) -> bytes:
    """A range of a file, shorter only where the file ends."""
    filesystem, path = open_filesystem(url)
    data: bytes = filesystem.cat_file(path, start=offset, end=offset + num_bytes) if num_bytes else b""
    if len(data) < num_bytes and offset + len(data) < (size := _size(url)):
        raise ConnectionError(f"{len(data):,} bytes came at {offset:,} of {size:,}")
    return data


def _download(url: str, target: Path, num_bytes: int) -> None:
    """Copy a file of known size, some ranges at a time."""
    with durable.commit(target) as temporary, open(temporary, "wb") as file:

        def copy(offset: int) -> None:
            block = memoryview(bytearray(min(COPY_BLOCK_BYTES, num_bytes - offset)))
            if read_into(url, offset, block) < len(block):
                raise WenhaiError(f"{retries.redacted(url)}: ends before its {num_bytes:,} bytes. Run again.")
            os.pwrite(file.fileno(), block, offset)

        with request_threads(COPY_THREADS) as threads:
            list(threads.map(copy, range(0, num_bytes, COPY_BLOCK_BYTES)))
