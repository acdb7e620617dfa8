"""The manifest of a complete stage, in pieces: of a thousand files or of a hundred million.

    MANIFEST.json          stage, version, fingerprint, tasks, counts; by kind the number, bytes and rows of its files;
                           the SHA-256 of each piece. Written last: its existence means that the stage is complete
    manifest/00000.jsonl   a line a file, sorted by kind and name:
                           {"bytes":9,"name":"data/a.parquet","rows":1,"sha256":"…"}

A piece has `PIECE_FILES` lines, the last one fewer, so who asks for one kind reads only the pieces of that kind. JSON
lines and no Parquet, because training, which has no Arrow, opens token shards by them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from corpus.engine import durable, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File

MANIFEST_NAME = "MANIFEST.json"
PIECES = "manifest"
FORMAT = 2
PIECE_FILES = 50_000
MAX_PIECE_BYTES = 1 << 30  # of its lines: one has some 150 bytes
KEYS = {"format", "stage", "version", "fingerprint", "tasks", "counts", "kinds", "pieces"}

Manifest = Mapping[str, Any]  # the contents of MANIFEST.json


class Listing:
    """The files that the tasks of a stage have written, gathered while the tasks end: some 60 bytes a file."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}  # by kind: packed lines
        self._sums: dict[str, dict[str, int]] = {}

    def add(self, files: Mapping[str, Any]) -> None:
        """Take note of files: by name their `bytes`, `rows` and `sha256`."""
        found: dict[str, list[bytes]] = {}
        for name, entry in files.items():
            kind = kind_of(name)
            found.setdefault(kind, []).append(durable.canonical_json({**entry, "name": name}))
            sums = self._sums.setdefault(kind, {"files": 0, "bytes": 0, "rows": 0})
            sums["files"] += 1
            sums["bytes"] += entry["bytes"]
            sums["rows"] += entry["rows"]
        for kind, lines in found.items():
            self._lines.setdefault(kind, []).append(zlib.compress(b"\n".join(lines), 1))

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """By kind: files, bytes, rows."""
        return dict(sorted(self._sums.items()))

    def commit(self, url: str, head: Mapping[str, Any]) -> Manifest:
        """Write the manifest of the stage folder `url`; `head` has what the files do not say."""
        kinds = self.kinds
        pieces: list[str] = []
        lines = (line for kind in kinds for line in self._sorted(kind))
        while piece := list(islice(lines, PIECE_FILES)):
            data = b"\n".join(piece) + b"\n"
            with storage.create(piece_url(url, len(pieces))) as path:
                path.write_bytes(data)
            pieces.append(hashlib.sha256(data).hexdigest())
        manifest = {"format": FORMAT, **head, "kinds": kinds, "pieces": pieces}
        storage.write_json(storage.join(url, MANIFEST_NAME), manifest)
        return manifest

    def _sorted(self, kind: str) -> Iterator[bytes]:
        lines = [line for packed in self._lines[kind] for line in zlib.decompress(packed).split(b"\n")]
        return iter(sorted(lines, key=lambda line: str(json.loads(line)["name"])))


def commit_files(url: str, files: Mapping[str, Any], stage: str) -> Manifest:
    """Write the manifest of a folder that no tasks made: by name the `bytes` and `sha256` of its files, and `rows`."""
    listing = Listing()
    listing.add({name: {"rows": 0, **entry} for name, entry in files.items()})
    head = {"stage": stage, "version": 1, "fingerprint": "", "tasks": 1, "counts": {}}
    return listing.commit(url, head)


def kind_of(name: str) -> str:
    """`data` of `data/a.parquet`; empty for a file that stands in the stage folder itself."""
    return name.partition("/")[0] if "/" in name else ""


def piece_url(url: str, number: int) -> str:
    """Where a piece of the manifest of a stage folder stands."""
    return storage.join(url, PIECES, f"{number:05d}.jsonl")


def read(url: str, *, earlier: bool = False) -> Manifest | None:
    """MANIFEST.json of a stage folder; None where there is none, or one of an earlier version of ours.

    Args:
        earlier: one of an earlier version is read as well: it lists its files itself.

    Raises:
        WenhaiError: it is damaged, or of a later version.
    """
    where = storage.join(url, MANIFEST_NAME)
    data = storage.read_if_there(where)
    if data is None:
        return None
    manifest = durable.parse_json(data, where)
    if isinstance(manifest, dict) and manifest.get("format", 1) == 1 and isinstance(manifest.get("files"), dict):
        return manifest if earlier else None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or not manifest.keys() >= KEYS:
        raise WenhaiError(f"{where}: not a manifest of format {FORMAT}. Rebuild the stage with this version.")
    return manifest


def files(url: str, manifest: Manifest, kind: str | None = None) -> Iterator[File]:
    """The files of a kind, or all, sorted by kind and name; their `url` is the name below the stage folder.

    Raises:
        WenhaiError: a piece is missing or is not the one that was written.
    """
    if "files" in manifest:  # of an earlier version
        for name, entry in sorted(manifest["files"].items()):
            if kind in (None, kind_of(name)):
                yield File(name, entry["bytes"], entry["sha256"], entry.get("rows", 0))
        return
    first = last = 0
    for each, sums in manifest["kinds"].items():
        last += sums["files"]
        if each == kind:
            break
        first = last
    else:
        first, last = 0, last if kind is None else 0
    for number in range(first // PIECE_FILES, -(-last // PIECE_FILES) if last > first else 0):
        start = number * PIECE_FILES
        for entry in islice(_piece(url, manifest, number), max(0, first - start), last - start):
            yield File(entry["name"], entry["bytes"], entry["sha256"], entry["rows"])


def copied(url: str, manifest: Manifest, place: str = "") -> dict[str, bytes]:
    """MANIFEST.json and all pieces, by name below `place`."""
    numbers = range(len(manifest.get("pieces", ())))
    pieces = {piece_url(place, number): storage.read_bytes(piece_url(url, number)) for number in numbers}
    return {
        place + MANIFEST_NAME: durable.json_bytes(manifest),
        **{name.lstrip("/"): data for name, data in pieces.items()},
    }


def _piece(url: str, manifest: Manifest, number: int) -> Iterable[Mapping[str, Any]]:
    where = piece_url(url, number)
    data = storage.read_bytes(where, MAX_PIECE_BYTES)
    if hashlib.sha256(data).hexdigest() != manifest["pieces"][number]:
        raise WenhaiError(
            f"{where}: not what {MANIFEST_NAME} says of it. Remove {MANIFEST_NAME} and run the same command again: "
            "both are made from the records of the tasks."
        )
    return json_lines(data, where)


def json_lines(data: bytes, where: str) -> list[Any]:
    """The values of JSON lines."""
    values: list[Any] = durable.parse_json(b"[" + data.rstrip(b"\n").replace(b"\n", b",") + b"]", where)
    return values
