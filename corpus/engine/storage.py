"""Where files live: local paths, or any fsspec URL (`s3://`, `gs://`, `memory://`), behind four verbs.

Stages read and write local files only. A remote input is fetched to a private scratch folder first; a remote output is
written to scratch and put whole, because an exception inside `with fs.open(url, "wb")` still commits the truncated
object (seen with fsspec). An object appears at once or not at all, so the record written last is the commit there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from corpus.engine import durable, scratch
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.scratch import clear_scratch as clear_scratch

READ_BLOCK_BYTES = 4 << 20
Blocks = tuple[tuple[int, bytes], ...]  # digests of blocks of a file in a row, behind the number of the first


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
    filesystem, path = open_filesystem(url)
    return scratch.copy_of(url, lambda: int(filesystem.info(path)["size"]), lambda target: download(url, target))


def scratch_folder() -> Path:
    """The process's scratch folder, for what is downloaded there; `clear_scratch` or the next process removes it."""
    return scratch.folder()


def open_stream(url: str) -> BinaryIO:
    """A binary stream over a local or remote file, for inputs that are read once from front to back."""
    if not is_remote(url):
        return open(local_path(url), "rb")
    filesystem, path = open_filesystem(url)
    stream: BinaryIO = filesystem.open(path, "rb", block_size=READ_BLOCK_BYTES)
    return stream


def read_into(url: str, offset: int, target: memoryview) -> int:
    """Read a range of a local or remote file into `target`, in a store as one request; returns how many bytes were
    left.

    Args:
        offset: of the first byte.
        target: bytes, as many as are wanted.
    """
    if is_remote(url):
        filesystem, path = open_filesystem(url)
        data = filesystem.cat_file(path, start=offset, end=offset + len(target)) if len(target) else b""
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
    filesystem, path = open_filesystem(url)
    with durable.commit(target) as temporary:
        filesystem.get_file(path, str(temporary))


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
    except OSError:  # not of one kind: S3's "precondition failed" comes as a general error
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


def read_bytes(url: str) -> bytes:
    """Read a small file whole; raises `WenhaiError` when it is missing or larger than a file of ours."""
    if not is_remote(url):
        return durable.read_bytes(local_path(url))
    filesystem, path = open_filesystem(url)
    try:
        return bytes(filesystem.cat_file(path))
    except FileNotFoundError as error:
        raise WenhaiError(f"{url}: does not exist.") from error


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
    filesystem.invalidate_cache(top_in_store)
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
        filesystem.invalidate_cache(path_in_store)
        found = [
            entry.rsplit("/", 1)[-1]
            for entry in (filesystem.ls(path_in_store, detail=False) if filesystem.exists(path_in_store) else [])
        ]
    return sorted(name for name in found if name.endswith(suffix) and not name.startswith("."))


def remove_tree(url: str) -> None:
    """Remove a folder and everything below it, if it exists."""
    if not is_remote(url):
        shutil.rmtree(local_path(url), ignore_errors=False)
        return
    filesystem, path = open_filesystem(url)
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)


def remove(url: str) -> None:
    """Remove one file, if it exists."""
    if not is_remote(url):
        local_path(url).unlink(missing_ok=True)
        return
    filesystem, path = open_filesystem(url)
    if filesystem.exists(path):
        filesystem.rm_file(path)


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
    """The fsspec filesystem of a URL, and the path in it."""
    import fsspec  # 28 MB and 0.2 s: only where a URL is used

    # No listing is remembered: other processes write what this one must see (s3fs asks its last listing even in
    # `exists`).
    return fsspec.core.url_to_fs(url, use_listings_cache=False)  # type: ignore[no-any-return]
