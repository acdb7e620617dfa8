"""The files that a build reads: globs, folders and links become files with digests, and labels that tell them apart."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine import storage
from corpus.engine.errors import UsageError
from corpus.engine.input_digests import Digest, Digests, hash_file, tag_of
from corpus.engine.storage import Blocks, File

HASH_THREADS = 4
STAT_THREADS = 16  # which wait for a network's disk
BATCH_FILES, BATCH_BYTES = 256, 64 << 20  # hashed by one call of a thread
LeftOut = dict[str, list[str]]  # why: which


class Found(NamedTuple):
    """A file that a pattern names: `real` is what links lead to, `hint` what changes with its bytes if nothing lies.

    One in a store has no hint, but the entry of its listing.
    """

    url: str
    label: str
    real: str
    bytes: int = 0
    hint: str = ""
    entry: dict[str, Any] | None = None


class Place(NamedTuple):
    """What is no folder, before it was looked at: `folder` is the real one that it stands in."""

    path: str
    label: str
    folder: str
    is_link: bool


def list_inputs(patterns: Sequence[str], left_out: LeftOut | None = None, digests: Digests | None = None) -> list[File]:
    """Expand globs into files with their digests, sorted by URL.

    Links are followed, to folders too, each of which is read once. What is found and is no input is added to
    `left_out`: hidden files, broken links, links to folders that are read already.

    A local file is hashed whole, unless `digests` knows it (contents decide what is rerun, never times); a remote one
    is identified by its size and the store's tag.

    Raises:
        UsageError: a pattern matches nothing, or two patterns name the same file.
        LockHeld: another run works on the folder of `digests`.
    """
    files: list[Found] = []
    for pattern in patterns:
        found = _listed(pattern, {} if left_out is None else left_out)
        if not found:
            raise UsageError(f"{pattern}: matches no file. Quote globs, and check the path.")
        files += found
    for file in files:
        storage.spellable(file.url)
    repeated = [real for real, count in Counter(file.real for file in files).items() if count > 1]
    if repeated:
        raise UsageError(f"{min(repeated)}: listed twice among the inputs. Name each file once.")
    return list(_identified(sorted(files, key=lambda file: file[:2]), digests or Digests()))


def _identified(files: Sequence[Found], digests: Digests) -> Iterator[File]:
    """The files with their digests; what is not known is hashed, small files many at a time."""
    stored = [file for file in files if storage.is_remote(file.url)]
    local = [file for file in files if not storage.is_remote(file.url)] if stored else files
    known = {one.real: one for file in local if (one := digests.find(file.real, file.hint)) is not None}
    unknown = [file for file in local if file.real not in known]
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        try:
            for hashed in threads.map(_hash_batch, _batches(unknown)):
                digests.add(hashed)
                known |= {one.real: one for one in hashed}
        except BaseException:  # a person has stopped it
            digests.save()
            raise
        tags = dict(zip((file.url for file in stored), threads.map(_tag, stored), strict=True))
    for file in files:
        if file.url in tags:
            yield File(file.url, *tags[file.url], name=file.label)
        else:
            one = known[file.real]
            blocks: Blocks = ((0, one.blocks),) if one.blocks else ()
            yield File(file.url, one.num_bytes, one.sha256, name=file.label, blocks=blocks)


def _tag(file: Found) -> tuple[int, str]:
    return tag_of(file.url, file.entry)


def _hash_batch(files: Sequence[Found]) -> list[Digest]:
    return [hash_file(file.real, file.hint) for file in files]


def _batches(files: Iterable[Found]) -> Iterator[list[Found]]:
    batch, num_bytes = list[Found](), 0
    for file in files:
        if batch and (len(batch) >= BATCH_FILES or num_bytes + file.bytes > BATCH_BYTES):
            yield batch
            batch, num_bytes = [], 0
        batch.append(file)
        num_bytes += file.bytes
    if batch:
        yield batch


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


def _listed(pattern: str, left_out: LeftOut) -> list[Found]:
    if not storage.is_remote(pattern):
        return _looked_at(_expand(pattern, left_out), left_out)
    try:
        return _expand_remote(pattern, left_out)
    except Exception as error:  # of a store, each library has its own: no credentials, no such bucket, no network
        raise UsageError(
            f"{pattern}: cannot be listed ({type(error).__name__}: {error}). Check the address, the network and the "
            "credentials of the store."
        ) from error


def _expand_remote(pattern: str, left_out: LeftOut) -> list[Found]:
    filesystem, path_in_store = storage.open_filesystem(pattern)
    scheme = pattern.split("://", 1)[0]
    if not filesystem.isfile(path_in_store) and filesystem.isdir(path_in_store):
        path_in_store = path_in_store.rstrip("/") + "/**"
    found = filesystem.glob(path_in_store, detail=True)
    above = re.split(r"[*?\[]", path_in_store)[0].rpartition("/")[0].lstrip("/") or "."
    files = []
    for name, entry in found.items():
        if entry["type"] == "file" and _is_shown(name, left_out):
            name = name.lstrip("/")
            url = f"{scheme}://{name}"
            files.append(Found(url, os.path.relpath(name, above), storage.real_url(url), entry=entry))
    return files


def _expand(pattern: str, left_out: LeftOut) -> Iterator[Place]:
    """What a pattern names and is no folder, with names below the part of the pattern that is no glob."""
    path = Path(os.path.abspath(storage.local_path(pattern)))
    if path.is_file():
        yield Place(str(path), path.name, os.path.realpath(path.parent), path.is_symlink())
        return
    base, relative = (path, "**/*") if path.is_dir() else _split_glob(path)
    parts, start = relative.split("/"), len(os.path.join(base, ""))
    if "**" in parts:
        for place in _walk(str(base), start, left_out):
            if relative == "**/*" or _matches(place.label.split("/"), parts):
                yield place
        return
    real = cache(os.path.realpath)
    for found in map(str, base.glob(relative)):
        yield Place(found, found[start:], real(os.path.dirname(found)), os.path.islink(found))


def _looked_at(places: Iterable[Place], left_out: LeftOut) -> list[Found]:
    shown = [place for place in places if _is_shown(place.path, left_out)]
    files = []
    chunks = (shown[at : at + BATCH_FILES] for at in range(0, len(shown), BATCH_FILES))
    with ThreadPoolExecutor(STAT_THREADS) as threads:
        for chunk in threads.map(_look_at, chunks) if len(shown) > BATCH_FILES else map(_look_at, chunks):
            for file, reason in chunk:
                if not reason:
                    files.append(file)
                elif reason != "folders":
                    left_out.setdefault(reason, []).append(file.url)
    return files


def _look_at(places: Sequence[Place]) -> list[tuple[Found, str]]:
    """Files with their hints, and why others are none."""
    found = []
    for path, label, folder, is_link in places:
        reason, size, hint = "", 0, ""
        try:
            status = os.stat(path)
        except OSError:
            reason = "broken links" if is_link else "files that cannot be read"
        else:
            size = status.st_size
            hint = f"{size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"
            if not stat.S_ISREG(status.st_mode):
                reason = "folders" if stat.S_ISDIR(status.st_mode) else "pipes, sockets and devices"
        real = os.path.realpath(path) if is_link else os.path.join(folder, os.path.basename(path))
        found.append((Found(path, label, real, size, hint), reason))
    return found


def _is_shown(name: str, left_out: LeftOut) -> bool:
    hidden = name.rsplit("/", 1)[-1].startswith(".")
    if hidden:
        left_out.setdefault("hidden files", []).append(name)
    return not hidden


def _walk(base: str, start: int, left_out: LeftOut) -> Iterator[Place]:
    """What is no folder below a folder; names begin at `start` of a path. Links to folders are followed when the
    folders themselves are done, so that a loop ends, and a file goes by its own name rather than by that of a link."""
    seen: set[str] = set()
    waiting = [base]
    while waiting:
        links = []
        for top in waiting:
            real = os.path.realpath(top)
            above = os.path.realpath(os.path.dirname(top)) if seen else ""  # of a link
            if real in seen or os.path.join(above, "").startswith(os.path.join(real, "")):
                left_out.setdefault("links to folders that are read already", []).append(top)
                continue
            folders = [(top, real)]
            while folders:
                folder, real = folders.pop()
                if real in seen:
                    continue
                seen.add(real)
                for entry in _entries(folder, left_out):
                    is_link = entry.is_symlink()
                    if not is_link and entry.is_dir():
                        folders.append((entry.path, os.path.join(real, entry.name)))
                    elif is_link and os.path.isdir(entry.path):
                        links.append(entry.path)
                    else:
                        yield Place(entry.path, entry.path[start:], real, is_link)
        waiting = sorted(links)


def _entries(folder: str, left_out: LeftOut) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        left_out.setdefault("folders that cannot be read", []).append(folder)
        return []


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
