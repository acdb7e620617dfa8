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
from typing import NamedTuple, TypeVar

from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.input_digests import Digests, hash_file, tag_of
from corpus.engine.storage import Blocks, File

HASH_THREADS = 4
STAT_THREADS = 16  # which wait for a network's disk, or a store
Item = TypeVar("Item")
CHUNKS = 1000  # of what threads do, so that small files cost none a call of its own
LeftOut = dict[str, list[str]]  # why: which
Place = tuple[str, str, str, bool]  # what is no folder: its path, label, the real folder above, whether it is a link


class Found(NamedTuple):
    """A file that a pattern names: `real` is what links lead to, `hint` what changes with its bytes if nothing lies.

    One in a store has no hint, but a digest.
    """

    url: str
    label: str
    real: str
    bytes: int
    hint: str = ""
    digest: str = ""


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
    """The files with their digests; what is not known is hashed."""
    local = [file for file in files if not file.digest]
    known = {one.real: one for file in local if (one := digests.find(file.real, file.hint)) is not None}
    unknown = _chunks([file for file in local if file.real not in known])
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        try:
            for hashed in threads.map(lambda chunk: [hash_file(file.real, file.hint) for file in chunk], unknown):
                digests.add(hashed)
                known |= {one.real: one for one in hashed}
        except BaseException:  # a person has stopped it
            digests.save()
            raise
    for file in files:
        if file.digest:
            yield File(file.url, file.bytes, file.digest, name=file.label)
        else:
            one = known[file.real]
            blocks: Blocks = ((0, one.blocks),) if one.blocks else ()
            yield File(file.url, one.num_bytes, one.sha256, name=file.label, blocks=blocks)


def _chunks(items: Sequence[Item]) -> list[Sequence[Item]]:
    size = len(items) // CHUNKS + 1
    return [items[at : at + size] for at in range(0, len(items), size)]


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
    except WenhaiError:  # which says what to do by itself
        raise
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
    shown = {name.lstrip("/"): entry for name, entry in found.items() if entry["type"] == "file"}
    names = [name for name in shown if _is_shown(name, left_out)]
    urls = [f"{scheme}://{name}" for name in names]
    with storage.request_threads(STAT_THREADS) as threads:
        tags = threads.map(tag_of, urls, map(shown.__getitem__, names))
        return [
            Found(url, os.path.relpath(name, above), storage.real_url(url), size, digest=digest)
            for url, name, (size, digest) in zip(urls, names, tags, strict=True)
        ]


def _expand(pattern: str, left_out: LeftOut) -> Iterator[Place]:
    """What a pattern names and is no folder, with names below the part of the pattern that is no glob."""
    path = Path(os.path.abspath(storage.local_path(pattern)))
    if path.is_file():
        yield str(path), path.name, os.path.realpath(path.parent), path.is_symlink()
        return
    base, relative = (path, "**/*") if path.is_dir() else _split_glob(path)
    parts, start = relative.split("/"), len(os.path.join(base, ""))
    if "**" in parts:
        for place in _walk(str(base), start, left_out):
            if relative == "**/*" or _matches(place[1].split("/"), parts):
                yield place
        return
    real = cache(os.path.realpath)
    for found in map(str, base.glob(relative)):
        yield found, found[start:], real(os.path.dirname(found)), os.path.islink(found)


def _looked_at(places: Iterable[Place], left_out: LeftOut) -> list[Found]:
    chunks = _chunks([place for place in places if _is_shown(place[0], left_out)])
    with ThreadPoolExecutor(STAT_THREADS) as threads:
        looks = [look for chunk in threads.map(lambda chunk: [*map(_look_at, chunk)], chunks) for look in chunk]
    for file, reason in looks:
        if reason and reason != "folders":
            left_out.setdefault(reason, []).append(file.url)
    return [file for file, reason in looks if not reason]


def _look_at(place: Place) -> tuple[Found, str]:
    """A file with its hint, and why it is none."""
    path, label, folder, is_link = place
    real = os.path.realpath(path) if is_link else os.path.join(folder, os.path.basename(path))
    try:
        status = os.stat(path)
    except OSError:
        return Found(path, label, real, 0), "broken links" if is_link else "files that cannot be read"
    size, mode = status.st_size, status.st_mode
    hint = f"{size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"
    reason = "" if stat.S_ISREG(mode) else "folders" if stat.S_ISDIR(mode) else "pipes, sockets and devices"
    return Found(path, label, real, size, hint), reason


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
                        yield entry.path, entry.path[start:], real, is_link
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
