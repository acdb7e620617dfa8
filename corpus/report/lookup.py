"""Finding documents of a build: by URL, id, place in an input file, or ordinal.

Nothing is indexed: the narrow columns of one shard after another are scanned (16 bytes a document for an id, about 60
for a URL, and one row group in memory); text is never read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import read_batches
from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.report.rows import files_of, matches, read_row
from corpus.report.summary import FIRST_STAGE, LAST_STAGE, folders
from corpus.safe import domain, plain_url
from corpus.sources.urls import masked_url

MIN_ID_DIGITS = 6
MAX_FOUND = 20
SUGGESTION_SHARDS = 4
ID_COLUMNS = ("id", "row", "source", "url", "title")
HEX_ID = re.compile(rf"[0-9a-fA-F]{{{MIN_ID_DIGITS},32}}")
PLACE = re.compile(r":(?:offset )?([0-9]+)$")
ORDINAL = re.compile(rf"({LAST_STAGE}/)?([\w-]{{1,100}}):([0-9]{{1,9}})")

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Document:
    """A record that entered the build. `shard` and `row` are None where it never became a document."""

    id: str  # hex
    source: str
    url: str | None = None
    title: str | None = None
    place: str | None = None
    shard: str | None = None
    row: int | None = None


def find(out: str, key: str) -> list[Document]:
    """The documents a key names: a URL, an id or its first digits (hex), a place, or an ordinal `SHARD:ROW`.

    `SHARD:ROW` is where extraction put a document, `text/SHARD:ROW` where it stands in the final text shards. A place
    is `FILE:offset N`, `FILE:N`, or a `FILE` with all of its records; `ARCHIVE.zip!MEMBER` is a file as well. One URL
    or place can name several documents; at most `MAX_FOUND` are returned, in the order of their shards.

    Raises:
        WenhaiError: nothing has that name, or `out` holds no run.
    """
    stages = folders(out)
    found = list(_find_ordinal(stages, key)) or [
        *find_documents(stages, key),
        *_find_places(stages, key),
        *_find_fates(stages, key),
    ]
    if not found:
        raise WenhaiError(f"{out}: no document has the URL, id, place or ordinal {key!r}. {_suggestion(stages, key)}")
    return found


def _find_ordinal(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    match = ORDINAL.fullmatch(key)
    for file in files_of(stages, LAST_STAGE if match and match[1] else FIRST_STAGE, "data"):
        if match and shard_name(file) == match[2] and int(match[3]) < file.rows:
            table = read_row(file, int(match[3]), ID_COLUMNS)
            yield from _documents(file, table)


def find_documents(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    remaining = MAX_FOUND
    column = "id" if HEX_ID.fullmatch(key) else "url"
    for file in files_of(stages, FIRST_STAGE, "data"):
        path, start = storage.fetch(file.url), 0
        for keys in read_batches(path, [column]):
            rows = np.flatnonzero(_is_named(keys, key)) + start
            start += keys.num_rows
            for row in rows[:remaining]:
                yield from _documents(file, read_row(file, int(row), ID_COLUMNS))
            remaining -= len(rows[:remaining])
            if not remaining:
                return


def _is_named(table: pa.Table, key: str) -> Bools:
    """Which rows have this id or URL, as it is or as it is stored: without secrets."""
    if HEX_ID.fullmatch(key):
        return matches(table["id"], key)
    return matches(table["url"], key) | matches(table["url"], masked_url(key))


def _find_places(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    """Documents by where they were read."""
    remaining = MAX_FOUND
    files = {shard_name(file): file for file in files_of(stages, FIRST_STAGE, "data")}
    for places in files_of(stages, FIRST_STAGE, "places"):
        start = 0
        for table in read_batches(storage.fetch(places.url)):
            rows = np.flatnonzero(_is_at(table["place"], key))
            for row in rows[:remaining]:
                file = files[shard_name(places)]
                for document in _documents(file, read_row(file, int(row) + start, ID_COLUMNS)):
                    yield replace(document, place=table["place"][int(row)].as_py())
            remaining -= len(rows[:remaining])
            start += table.num_rows
            if not remaining:
                return


def _is_at(places: pa.ChunkedArray, key: str) -> Bools:
    """Whether places are `key`, or in the file that it names."""
    exact = PLACE.sub(r":offset \1", key)
    found = matches(places, exact)
    for start in (f"{key}:offset ", f"{key}!", f"{exact} part "):
        found |= np.asarray(pc.fill_null(pc.starts_with(places, start), False))
    return found


def _find_fates(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    """Records that never became documents stand in the first stage's ledger only."""
    remaining = MAX_FOUND
    for file in files_of(stages, FIRST_STAGE, "fates"):
        for table in read_batches(storage.fetch(file.url), ["id", "source", "url", "place"]):
            mask = _is_named(table, key) | _is_at(table["place"], key)
            for fate in table.filter(pa.array(mask)).to_pylist()[:remaining]:
                remaining -= 1
                yield Document(fate["id"].hex(), fate["source"], fate["url"], place=fate["place"])


def find_earlier(out: str | None, identity: str) -> Iterator[Document]:
    """A document of another build, as long as that one stands where the run found it and still has its documents."""
    if out is not None:
        with suppress(WenhaiError, OSError):
            yield from find_documents(folders(out), identity)


def _documents(file: File, table: pa.Table) -> Iterator[Document]:
    for row in table.to_pylist():
        yield Document(
            id=row["id"].hex(),
            source=row["source"],
            url=row["url"],
            title=row["title"],
            shard=shard_name(file),
            row=row["row"],
        )


def _suggestion(stages: Mapping[str, Folder], key: str) -> str:
    """What to try instead: URLs of the same site, or how ids and ordinals look here."""
    near: list[str] = []
    host = domain(key)
    files = files_of(stages, FIRST_STAGE, "data")
    for file in files[:SUGGESTION_SHARDS]:
        table = next(read_batches(storage.fetch(file.url), ["id", "url"]), None)
        for row in table.to_pylist() if table else []:
            if host and row["url"] and domain(row["url"]) == host:
                near.append(plain_url(row["url"]))
    if near:
        return "URLs of that site: " + ", ".join(difflib.get_close_matches(plain_url(key), near, 3, 0.0))
    if not files:
        return "The extract stage is not complete here."
    return (
        f"Give a whole URL, {MIN_ID_DIGITS} to 32 digits of an id, a place as the report's table of errors shows it, "
        f"or an ordinal such as {shard_name(files[0])}:0 (the first document)."
    )
