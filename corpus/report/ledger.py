"""The ledger: the fate of every document ever seen, as a view over the sidecars that the stages wrote.

Nothing is copied or indexed. A document is named by its ordinal (shard and row of the extract stage), shards keep their
names from extraction to the final text, so a document's history is one row of a handful of small files. To find the
ordinal of an id or a URL the narrow columns of one shard after another are scanned (16 bytes a document for an id,
about 60 for a URL, and one row group in memory); text is never read.
"""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.document import FATE_SCHEMA, read_batches
from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.recipe import recorded_recipe
from corpus.report.safe import domain, plain_url
from corpus.report.summary import folders

FIRST_STAGE = "extract"
LAST_STAGE = "text"
MIXTURE_STAGE = "mixture"
TOKEN_STAGE = "tokens"
MIN_ID_DIGITS = 6
MAX_FOUND = 20
SUGGESTION_SHARDS = 4
ID_COLUMNS = ("id", "row", "source", "url", "title")
HEX_ID = re.compile(rf"[0-9a-fA-F]{{{MIN_ID_DIGITS},32}}")
ORDINAL = re.compile(rf"({LAST_STAGE}/)?([0-9A-Za-z_-]{{1,64}}):([0-9]{{1,9}})")


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


@dataclass(frozen=True)
class Event:
    """One thing that happened to a document: `what` is read, edited, measured, dropped, error, kept, mixed or tokenized."""

    stage: str
    what: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def fates(out: str, columns: Sequence[str] | None = None) -> Iterator[tuple[str, pa.Table]]:
    """Yield (stage, rows of FATE_SCHEMA) for all documents that ended, one row group at a time."""
    for name, folder in folders(out).items():
        for file in folder.files("fates"):
            for table in read_batches(storage.fetch(file.url), columns):
                yield name, table


def find(out: str, key: str) -> list[Document]:
    """The documents a key names: a URL, an id or its first digits (hex), a place, or an ordinal `SHARD:ROW`.

    `SHARD:ROW` is where extraction put a document, `text/SHARD:ROW` where it stands in the final text shards. Only
    records that never became documents are found by their place in an input file: of the others it is not kept.
    One URL or place can name several documents (a page crawled twice); at most `MAX_FOUND` are returned, in the
    order of their shards.

    Raises:
        WenhaiError: nothing has that name, or `out` holds no run.
    """
    stages = folders(out)
    found = list(_find_ordinal(stages, key)) or [*_find_documents(stages, key), *_find_fates(stages, key)]
    if not found:
        raise WenhaiError(f"{out}: no document has the URL, id, place or ordinal {key!r}. {_suggestion(stages, key)}")
    return found


def history(out: str, document: Document) -> list[Event]:
    """What happened to a document, in the order of the stages; the last event is its end or where it stands now."""
    stages = folders(out)
    events: list[Event] = []
    if document.shard is not None:
        values = {"source": document.source, "place": document.place, "shard": document.shard, "row": document.row}
        values |= _row(stages[FIRST_STAGE], "data", document, ("encoding", "date"))
        events.append(Event(FIRST_STAGE, "read", _known(values)))
    for name, folder in stages.items():
        if document.shard is not None:
            events.extend(_sidecar_events(name, folder, document))
        ends = list(_fates_of(folder, document))
        for fate in ends:
            events.append(_end(out, stages, name, fate))
        if ends:
            return events
    if document.shard is not None and LAST_STAGE in stages:
        position = _position(stages[LAST_STAGE], "data", document)
        if position is None:
            raise WenhaiError(
                f"{out}: document {document.id} neither ended in a stage nor stands in the text shards: the ledger has "
                "a hole. Run `python -m corpus verify` on this folder and report a bug if it finds nothing."
            )
        events.append(Event(LAST_STAGE, "kept", {"shard": document.shard, "row": position[1]}))
        if MIXTURE_STAGE in stages:
            events.extend(_mixture_events(stages[MIXTURE_STAGE], *position))
        if TOKEN_STAGE in stages:
            events.extend(_token_events(stages[TOKEN_STAGE], document))
    return events


def read_texts(out: str, ordinals: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
    """Yield (shard, row, text as it was extracted) of some documents; the caller masks it.

    Documents of one row group cost one read of its text (some 20 to 60 MB), which is all that is held.
    """
    wanted: dict[str, list[int]] = {}
    for shard, row in sorted(set(ordinals)):
        wanted.setdefault(shard, []).append(row)
    for file in _files(folders(out), FIRST_STAGE, "data"):
        rows = wanted.get(shard_name(file), [])
        if not rows:
            continue
        with _open(file) as parquet:
            start = 0
            for index in range(parquet.num_row_groups):
                end = start + parquet.metadata.row_group(index).num_rows
                here = [row for row in rows if start <= row < end]
                if here:
                    text = parquet.read_row_group(index, columns=["text"], use_threads=False)["text"]
                    yield from ((shard_name(file), row, text[row - start].as_py()) for row in here)
                start = end


def rules(folder: Folder) -> dict[str, dict[str, float]]:
    """The rules of a stage with their limits, in the recipe's order, from its `stage.json`.

    The filter stage lists them as [statistic, min, max]; near duplicates have the limit of their similarity.
    """
    config = storage.read_json(storage.join(folder.url, "stage.json")).get("config", {})
    found: dict[str, dict[str, float]] = {}
    for key, low, high in config.get("rules", []):
        limits = found.setdefault(str(key), {})
        limits |= {bound: float(limit) for bound, limit in (("min", low), ("max", high)) if limit is not None}
    if folder.name == LAST_STAGE and isinstance(config.get("threshold"), int | float):
        found["dedup.near"] = {"max": float(config["threshold"])}
    return found


def earlier_outs(out: str) -> Mapping[str, str]:
    """Where the last run found the earlier builds of its recipe, by their names."""
    recorded = recorded_recipe(out)
    return recorded.earlier if recorded else {}


def priorities(shard: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """uint64[rows]: a number for each ordinal that has nothing to do with it, by SplitMix64 (Steele et al. 2014)."""
    mixed = rows.astype(np.uint64) + np.uint64(zlib.crc32(shard.encode()) << 32) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def is_statistic(column: str) -> bool:
    """Whether a column of a `statistics` sidecar is one: `family.name`."""
    return "." in column


def _find_ordinal(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    match = ORDINAL.fullmatch(key)
    for file in _files(stages, LAST_STAGE if match and match[1] else FIRST_STAGE, "data"):
        if match and shard_name(file) == match[2] and int(match[3]) < file.rows:
            table = read_row(file, int(match[3]), ID_COLUMNS)
            yield from _documents(file, table)


def _find_documents(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    remaining = MAX_FOUND
    column = "id" if HEX_ID.fullmatch(key) else "url"
    for file in _files(stages, FIRST_STAGE, "data"):
        path, start = storage.fetch(file.url), 0
        for keys in read_batches(path, [column]):
            rows = np.flatnonzero(_matches(keys[column], key)) + start
            start += keys.num_rows
            for row in rows[:remaining]:
                yield from _documents(file, read_row(file, int(row), ID_COLUMNS))
            remaining -= len(rows[:remaining])
            if not remaining:
                return


def _find_fates(stages: Mapping[str, Folder], key: str) -> Iterator[Document]:
    """Records that never became documents stand in the first stage's ledger only."""
    wanted = ["id"] if HEX_ID.fullmatch(key) else ["url", "place"]
    remaining = MAX_FOUND
    for file in _files(stages, FIRST_STAGE, "fates"):
        for table in read_batches(storage.fetch(file.url), ["id", "source", "url", "place"]):
            mask = np.logical_or.reduce([_matches(table[name], key) for name in wanted])
            for fate in table.filter(pa.array(mask)).to_pylist()[:remaining]:
                remaining -= 1
                yield Document(fate["id"].hex(), fate["source"], fate["url"], place=fate["place"])


def _find_earlier(out: str | None, identity: str) -> Iterator[Document]:
    """A document of another build, as long as that one stands where the run found it and still has its documents."""
    if out is not None:
        with suppress(WenhaiError, OSError):
            yield from _find_documents(folders(out), identity)


def _matches(column: pa.ChunkedArray, key: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if pa.types.is_fixed_size_binary(column.type):
        return _starts_with(column, key.lower())
    return np.asarray(pc.fill_null(pc.equal(column, key), False))


def _starts_with(column: pa.ChunkedArray, digits: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which 16-byte ids start with the given hexadecimal digits."""
    width = column.type.byte_width
    pieces = [
        np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width).reshape(-1, width)
        for chunk in column.chunks
        if len(chunk)
    ]
    ids = np.concatenate(pieces) if pieces else np.empty((0, width), np.uint8)
    whole = np.frombuffer(bytes.fromhex(digits[: len(digits) // 2 * 2]), np.uint8)
    found = (ids[:, : len(whole)] == whole).all(axis=1)
    if len(digits) % 2:
        found &= (ids[:, len(whole)] >> 4) == int(digits[-1], 16)
    return np.asarray(found)


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


def _fates_of(folder: Folder, document: Document) -> Iterator[dict[str, Any]]:
    """The rows of a stage's ledger that speak of a document: by ordinal where it has one, else by id and place."""
    for file in folder.files("fates"):
        if document.shard is not None and not _is_of_shard(file, document.shard):
            continue
        for table in read_batches(storage.fetch(file.url)):
            if document.shard is not None:
                mask = pc.and_(pc.equal(table["shard"], document.shard), pc.equal(table["row"], document.row))
            else:
                mask = pc.and_(pc.equal(table["id"], bytes.fromhex(document.id)), pc.is_null(table["shard"]))
                if document.place is not None:
                    mask = pc.and_(mask, pc.equal(table["place"], document.place))
            yield from table.filter(pc.fill_null(mask, False)).select(FATE_SCHEMA.names).to_pylist()


def _end(out: str, stages: Mapping[str, Folder], stage: str, fate: Mapping[str, Any]) -> Event:
    values = {name: fate[name] for name in ("rule", "value", "threshold", "bound", "detail", "place")}
    if fate["rule"].startswith("error:"):
        return Event(stage, "error", _known(values | {"source": fate["source"]}))
    twin, _, build = (fate["detail"] or "").partition("@")
    if fate["rule"].startswith("dedup.") and HEX_ID.fullmatch(twin):
        values |= {"detail": None, "survivor": twin}
        others: Iterator[Document] = iter(())
        if build:
            values |= {"earlier": build, "earlier_out": earlier_outs(out).get(build)}
            others = _find_earlier(values["earlier_out"], twin)
        else:
            itself = (fate["shard"], fate["row"])  # a record read twice has one id
            others = (one for one in _find_documents(stages, twin) if (one.shard, one.row) != itself)
        if survivor := next(others, None):
            values |= {"survivor_url": survivor.url, "survivor_ordinal": f"{survivor.shard}:{survivor.row}"}
    return Event(stage, "dropped", _known(values))


def _sidecar_events(stage: str, folder: Folder, document: Document) -> Iterator[Event]:
    row = _row(folder, "statistics", document)
    if row.get("edits"):
        yield Event(stage, "edited", {"edits": row["edits"]})
    statistics = {
        name: value for name, value in row.items() if is_statistic(name) and value == value
    }  # NaN: not measured
    if statistics:
        limits = rules(folder)
        measured = {name: {"value": value} | limits.get(name, {}) for name, value in statistics.items()}
        yield Event(stage, "measured", measured)


def _row(folder: Folder, kind: str, document: Document, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The row of one document in a file that has one row a document; empty where it has none."""
    found = _position(folder, kind, document)
    row: dict[str, Any] = read_row(*found, columns).to_pylist()[0] if found else {}
    return row


def _position(folder: Folder, kind: str, document: Document) -> tuple[File, int] | None:
    """The file of one kind that holds a document, and its row there: by the `row` column, else by position."""
    for file in folder.files(kind):
        if document.shard is None or document.row is None or not _is_of_shard(file, document.shard):
            continue
        path, start = storage.fetch(file.url), 0
        if "row" not in column_names(file):
            return (file, document.row) if document.row < file.rows else None
        for table in read_batches(path, ["row"]):
            hits = np.flatnonzero(table["row"].to_numpy() == document.row)
            if len(hits):
                return file, start + int(hits[0])
            start += table.num_rows
    return None


def column_names(file: File) -> list[str]:
    """The columns of a table, from its footer."""
    with _open(file) as parquet:
        return list(parquet.schema_arrow.names)


def read_row(file: File, row: int, columns: Sequence[str] | None) -> pa.Table:
    """One row by its position; only the row group that holds it is read."""
    with _open(file) as parquet:
        start = 0
        for index in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(index).num_rows
            if row < start + rows:
                table = parquet.read_row_group(index, columns=columns and list(columns), use_threads=False)
                return table.slice(row - start, 1)
            start += rows
    raise WenhaiError(f"{file.url}: has {start:,} rows, row {row:,} was asked for. Run `python -m corpus verify`.")


@contextmanager
def _open(file: File) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(storage.fetch(file.url), page_checksum_verification=True) as parquet:
            yield parquet
    except (OSError, pa.ArrowException) as error:
        raise WenhaiError(f"{file.url}: cannot be read ({error}). Run `python -m corpus verify`.") from error


def _mixture_events(folder: Folder, text: File, row: int) -> Iterator[Event]:
    """How often the mixture takes the document of one row of a text shard."""
    for file in folder.files("copies"):
        if shard_name(file) == shard_name(text):
            yield Event(folder.name, "mixed", read_row(file, row, ("copies", "weight")).to_pylist()[0])


def _token_events(folder: Folder, document: Document) -> Iterator[Event]:
    """The token shard and sequence of a document, from the provenance files that lie beside the shards."""
    for file in folder.files("data"):
        if not file.url.endswith(".docs.parquet"):
            continue
        start = 0
        for table in read_batches(storage.fetch(file.url), ["id"]):
            for sequence in np.flatnonzero(_matches(table["id"], document.id)) + start:
                shard = file.url.rsplit("/", 1)[-1].removesuffix(".docs.parquet")
                yield Event(folder.name, "tokenized", {"shard": shard, "sequence": int(sequence)})
            start += table.num_rows


def _files(stages: Mapping[str, Folder], stage: str, kind: str) -> list[File]:
    return stages[stage].files(kind) if stage in stages else []


def _suggestion(stages: Mapping[str, Folder], key: str) -> str:
    """What to try instead: URLs of the same site, or how ids and ordinals look here."""
    near: list[str] = []
    host = domain(key)
    files = _files(stages, FIRST_STAGE, "data")
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
        f"Give a whole URL, {MIN_ID_DIGITS} to 32 digits of an id, a place as the report's table of errors shows it, or an ordinal "
        f"such as {shard_name(files[0])}:0 (the first document)."
    )


def _is_of_shard(file: File, shard: str) -> bool:
    name = shard_name(file)
    return name == shard or shard.startswith(name + "-") or name.startswith(shard + "-")


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
