"""Where files live: local paths, or any fsspec URL (`s3://`, `gs://`, `memory://`), behind four verbs.

Stages read and write local files only. A remote input is fetched to a private scratch folder first; a remote output is
written to scratch and put whole, because an exception inside `with fs.open(url, "wb")` still commits the truncated
object (seen with fsspec). An object appears at once or not at all, so the record written last is the commit there.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from corpus.engine import durable, scratch
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.scratch import clear_scratch as clear_scratch

READ_BLOCK_BYTES = 4 << 20
HASH_THREADS = 4


@dataclass(frozen=True)
class File:
    """A committed file: where it is, its size, the SHA-256 of its bytes and, for tables, its rows.

    `name` is what an input is called below the folder or glob that it was found by: `2024/a.jsonl`.
    """

    url: str
    bytes: int
    sha256: str
    rows: int = 0
    name: str = ""

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
    filesystem, path = _filesystem(url)
    return scratch.copy_of(url, lambda: int(filesystem.info(path)["size"]), lambda target: download(url, target))


def scratch_folder() -> Path:
    """The process's scratch folder, for what is downloaded there; `clear_scratch` or the next process removes it."""
    return scratch.folder()


def open_stream(url: str) -> BinaryIO:
    """A binary stream over a local or remote file, for inputs that are read once from front to back."""
    if not is_remote(url):
        return open(local_path(url), "rb")
    filesystem, path = _filesystem(url)
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
        filesystem, path = _filesystem(url)
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
    filesystem, path = _filesystem(url)
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
        temporary = Path(folder, "object")
        yield temporary
        filesystem.put_file(str(temporary), path)


def upload(source: Path, url: str) -> None:
    """Put a finished local file into a store, complete or not at all; unlike `create` it may be called by any
    thread."""
    filesystem, path = _filesystem(url)
    filesystem.put_file(str(source), path)


def download(url: str, target: Path) -> None:
    """Copy a file of a store to a local path, complete or not at all.

    Raises:
        DiskError: the local disk refused it.
    """
    filesystem, path = _filesystem(url)
    with durable.commit(target) as temporary:
        filesystem.get_file(path, str(temporary))


def write_json(url: str, value: Any) -> None:
    """Write a JSON value under `url`, complete or not at all."""
    with create(url) as path:
        path.write_bytes(durable.json_bytes(value))


def put(url: str, data: bytes) -> None:
    """Write a small object of a store, replacing what stands there; unlike `create` it may be called by any thread."""
    filesystem, path = _filesystem(url)
    filesystem.pipe_file(path, data)


def put_new(url: str, data: bytes) -> None:
    """Write a small object of a store unless there is one: who reads it then knows whose it is.

    Two callers at once are told apart by stores with conditional writes only; on others the later one's stays.
    """
    filesystem, path = _filesystem(url)
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
    filesystem, path = _filesystem(source)
    filesystem.cp_file(path, _filesystem(target)[1])


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
    filesystem, path = _filesystem(url)
    try:
        return bytes(filesystem.cat_file(path))
    except FileNotFoundError as error:
        raise WenhaiError(f"{url}: does not exist.") from error


def exists(url: str) -> bool:
    """Whether a file or folder stands at `url`."""
    if not is_remote(url):
        return local_path(url).exists()
    filesystem, path = _filesystem(url)
    return bool(filesystem.exists(path))


def sizes(folder: str) -> dict[str, int]:
    """The bytes of every file below a folder, by name relative to it: one listing, not one request a file."""
    if not is_remote(folder):
        top = local_path(folder)
        walked = (Path(parent, name) for parent, _, names in os.walk(top) for name in names)
        return {str(path.relative_to(top)): path.lstat().st_size for path in walked}
    filesystem, top_in_store = _filesystem(folder)
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
        filesystem, path_in_store = _filesystem(folder)
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
    filesystem, path = _filesystem(url)
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)


def remove(url: str) -> None:
    """Remove one file, if it exists."""
    if not is_remote(url):
        local_path(url).unlink(missing_ok=True)
        return
    filesystem, path = _filesystem(url)
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


LeftOut = dict[str, list[str]]  # why: which


def list_inputs(patterns: Sequence[str], left_out: LeftOut | None = None) -> list[File]:
    """Expand globs into files with their digests, sorted by URL.

    Links are followed, to folders too, each of which is read once. What is found and is no input is added to
    `left_out`: hidden files, broken links, links to folders that are read already.

    A local file is hashed whole (one more read of the input: contents decide what is rerun, never times); a remote
    one is identified by its size and the store's checksum.

    Raises:
        UsageError: a pattern matches nothing, or two patterns name the same file.
    """
    labels: list[tuple[str, str]] = []
    for pattern in patterns:
        found = _listed(pattern, {} if left_out is None else left_out)
        if not found:
            raise UsageError(f"{pattern}: matches no file. Quote globs, and check the path.")
        labels += [(spellable(url), label) for url, label in found]
    urls = [url for url, _ in labels]
    repeated = [url for url, count in Counter(map(real_url, urls)).items() if count > 1]
    if repeated:
        raise UsageError(f"{min(repeated)}: listed twice among the inputs. Name each file once.")
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        return list(threads.map(_identify, *zip(*sorted(labels), strict=True)) if labels else [])


def common_labels(files: Sequence[File], taken: Collection[str] = ()) -> dict[str, str]:
    """Labels that tell files apart, by URL: those that share one (`a.jsonl` of two folders) begin with a folder that
    they do not share, and one that is `taken` with as many folders as it takes."""
    labels = {file.url: file.label for file in files}
    before: dict[str, str] = {}
    while labels != before:  # a longer label may be that of a third file
        before, counts, by_label = labels.copy(), Counter(labels.values()), dict[str, list[list[str]]]()
        for url, label in before.items():
            if counts[label] > 1 or label in taken:
                by_label.setdefault(label, []).append(url.split("/"))
        for label, urls in by_label.items():
            if len(urls) > 1:
                pairs = enumerate(zip(min(urls), max(urls), strict=False))
                shared = next((at for at, pair in pairs if len({*pair}) > 1), 0)
            else:
                shared = max(0, len(urls[0]) - label.count("/") - 2)
            labels |= {"/".join(parts): "/".join(parts[shared:]) for parts in urls}
    return labels


def real_url(url: str) -> str:
    """What a link points to; an input keeps the link's own name, which says what it holds (`news.jsonl`)."""
    return url.rstrip("/") if is_remote(url) else os.path.realpath(local_path(url))


def _listed(pattern: str, left_out: LeftOut) -> list[tuple[str, str]]:
    try:
        return _expand(pattern, left_out)
    except Exception as error:  # of a store, each library has its own: no credentials, no such bucket, no network
        if not is_remote(pattern):
            raise
        raise UsageError(
            f"{pattern}: cannot be listed ({type(error).__name__}: {error}). Check the address, the network and the "
            "credentials of the store."
        ) from error


def _expand(pattern: str, left_out: LeftOut) -> list[tuple[str, str]]:
    """(URL, name below the part of the pattern that is no glob) of each file."""
    if is_remote(pattern):
        filesystem, path_in_store = _filesystem(pattern)
        scheme = pattern.split("://", 1)[0]
        if not filesystem.isfile(path_in_store) and filesystem.isdir(path_in_store):
            path_in_store = path_in_store.rstrip("/") + "/**"
        found = filesystem.glob(path_in_store, detail=True)
        above = re.split(r"[*?\[]", path_in_store)[0].rpartition("/")[0]
        return [
            (f"{scheme}://{name.lstrip('/')}", os.path.relpath(name.lstrip("/"), above.lstrip("/") or "."))
            for name, entry in found.items()
            if entry["type"] == "file" and _is_shown(name, left_out)
        ]
    path = local_path(pattern)
    if path.is_file():
        return [(os.path.abspath(path), path.name)]
    base, relative = (path, "**/*") if path.is_dir() else _split_glob(path)
    parts = relative.split("/")
    if "**" in parts:
        entries = (entry for entry in _walk(base, left_out) if _matches(entry.relative_to(base).parts, parts))
    else:
        entries = (entry for entry in base.glob(relative) if not entry.is_dir())
    return [
        (os.path.abspath(entry), entry.relative_to(base).as_posix())
        for entry in entries
        if _is_shown(str(entry), left_out) and _is_file(entry, left_out)
    ]


def _is_shown(name: str, left_out: LeftOut) -> bool:
    hidden = name.rsplit("/", 1)[-1].startswith(".")
    if hidden:
        left_out.setdefault("hidden files", []).append(name)
    return not hidden


def _is_file(path: Path, left_out: LeftOut) -> bool:
    """Whether a path that is no folder is a file, or a link to one."""
    if path.is_file():
        return True
    reason = "broken links" if path.is_symlink() and not path.exists() else "pipes, sockets and devices"
    left_out.setdefault(reason, []).append(str(path))
    return False


def _walk(base: Path, left_out: LeftOut) -> Iterator[Path]:
    """What is no folder below a folder. Links to folders are followed when the folders themselves are done, so that a
    loop ends, and a file goes by its own name rather than by that of a link."""

    def unreadable(error: OSError) -> None:
        left_out.setdefault("folders that cannot be read", []).append(str(error.filename))

    seen: set[str] = set()
    waiting = [str(base)]
    while waiting:
        links = []
        for start in waiting:
            real = os.path.realpath(start)
            above = os.path.realpath(os.path.dirname(start)) if seen else ""  # of a link
            if real in seen or os.path.join(above, "").startswith(os.path.join(real, "")):
                left_out.setdefault("links to folders that are read already", []).append(start)
                continue
            for parent, folders, names in os.walk(start, onerror=unreadable):
                here = os.path.realpath(parent)
                if here in seen:
                    folders.clear()
                    continue
                seen.add(here)
                links += [path for name in folders if os.path.islink(path := os.path.join(parent, name))]
                yield from (Path(parent, name) for name in names)
        waiting = sorted(links)


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a path below a folder is one of a pattern's, in which ** stands for any number of folders."""
    if not parts or not names:
        return not names and not parts
    if parts[0] == "**":
        return any(_matches(names[skipped:], parts[1:]) for skipped in range(len(names)))
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _split_glob(path: Path) -> tuple[Path, str]:
    """The longest part that exists as it is written (a folder may be called `news [2024]`), and the pattern below
    it."""
    base, parts = Path(path.anchor), [part for part in path.parts if part != path.anchor]
    while len(parts) > 1 and (base / parts[0]).is_dir():
        base /= parts.pop(0)
    relative = "/".join(parts) or "*"
    return base, relative + "/*" if relative.endswith("**") else relative


def _identify(url: str, name: str) -> File:
    if not is_remote(url):
        path = local_path(url)
        return File(url, path.stat().st_size, durable.sha256_file(path), name=name)
    filesystem, path_in_store = _filesystem(url)
    size = int(filesystem.info(path_in_store)["size"])
    return File(
        url, size, durable.digest({"checksum": str(filesystem.checksum(path_in_store)), "bytes": size}), name=name
    )


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec  # 28 MB and 0.2 s: only where a URL is used

    # No listing is remembered: other processes write what this one must see (s3fs asks its last listing even in
    # `exists`).
    return fsspec.core.url_to_fs(url, use_listings_cache=False)  # type: ignore[no-any-return]
