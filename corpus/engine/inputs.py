"""The files that a build reads: globs, folders and links become files with digests, and labels that tell them apart."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus.engine import durable, storage
from corpus.engine.errors import UsageError
from corpus.engine.storage import File

HASH_THREADS = 4
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
        labels += [(storage.spellable(url), label) for url, label in found]
    urls = [url for url, _ in labels]
    repeated = [url for url, count in Counter(map(storage.real_url, urls)).items() if count > 1]
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


def _listed(pattern: str, left_out: LeftOut) -> list[tuple[str, str]]:
    try:
        return _expand(pattern, left_out)
    except Exception as error:  # of a store, each library has its own: no credentials, no such bucket, no network
        if not storage.is_remote(pattern):
            raise
        raise UsageError(
            f"{pattern}: cannot be listed ({type(error).__name__}: {error}). Check the address, the network and the "
            "credentials of the store."
        ) from error


def _expand(pattern: str, left_out: LeftOut) -> list[tuple[str, str]]:
    """(URL, name below the part of the pattern that is no glob) of each file."""
    if storage.is_remote(pattern):
        filesystem, path_in_store = storage.open_filesystem(pattern)
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
    path = storage.local_path(pattern)
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
    if not storage.is_remote(url):
        path = storage.local_path(url)
        return File(url, path.stat().st_size, durable.sha256_file(path), name=name)
    filesystem, path_in_store = storage.open_filesystem(url)
    size = int(filesystem.info(path_in_store)["size"])
    return File(
        url, size, durable.digest({"checksum": str(filesystem.checksum(path_in_store)), "bytes": size}), name=name
    )
