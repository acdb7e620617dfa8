"""The ledger: the fate of every document ever seen, as a view over the sidecars that the stages wrote.

Nothing is copied or indexed. A document is named by its ordinal (shard and row of the extract stage), shards keep their
names from extraction to the final text, so a document's history is one row of a handful of small files. lookup.py finds
the ordinal of an id or a URL.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from corpus.document import FATE_SCHEMA, read_batches
from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.filters.decide import Limit, limits, read_rules
from corpus.filters.measure import stored_row
from corpus.recipe import recorded_recipe
from corpus.report.lookup import HEX_ID, Document, find, find_documents, find_earlier
from corpus.report.rows import column_names, files_of, matches, open_table, read_row
from corpus.report.summary import FIRST_STAGE, LAST_STAGE, MIXTURE_STAGE, TOKEN_STAGE, folders

__all__ = [
    "Document",
    "Event",
    "earlier_outs",
    "find",
    "history",
    "is_statistic",
    "priorities",
    "read_texts",
    "rules",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened to a document: `what` is read, edited, measured, dropped, error, kept, mixed or
    tokenized."""

    stage: str
    what: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def history(out: str, document: Document) -> list[Event]:
    """What happened to a document, in the order of the stages; the last event is its end or where it stands now."""
    stages = folders(out)
    events: list[Event] = []
    if document.shard is not None:
        values = {"source": document.source, "place": document.place, "shard": document.shard, "row": document.row}
        values |= _row(stages[FIRST_STAGE], "places", document, ("place",))
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
    for file in files_of(folders(out), FIRST_STAGE, "data"):
        rows = wanted.get(shard_name(file), [])
        if not rows:
            continue
        with open_table(file) as parquet:
            start = 0
            for index in range(parquet.num_row_groups):
                end = start + parquet.metadata.row_group(index).num_rows
                here = [row for row in rows if start <= row < end]
                if here:
                    text = parquet.read_row_group(index, columns=["text"], use_threads=False)["text"]
                    yield from ((shard_name(file), row, text[row - start].as_py()) for row in here)
                start = end


def rules(folder: Folder) -> dict[str, list[Limit]]:
    """The limits of a stage by rule, in the recipe's order, from its `stage.json`.

    Those of statistics that only a source's own filter judges follow; near duplicates have the limit of their
    similarity.
    """
    known = storage.read_json(storage.join(folder.url, "stage.json"))
    config, own = known.get("config", {}), known.get("parameters", {}).get("filters", {})
    found: dict[str, list[Limit]] = {}
    for one in (config, *own.values()):
        known = {limit.key for tried in found.values() for limit in tried}
        for limit in limits(read_rules(one.get("rules", []))):
            if limit.key not in known:
                found.setdefault(limit.rule, []).append(limit)
    if folder.name == LAST_STAGE and isinstance(config.get("threshold"), int | float):
        found["dedup.near"] = [Limit("dedup.near", "max", float(config["threshold"]))]
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
            others = find_earlier(values["earlier_out"], twin)
        else:
            itself = (fate["shard"], fate["row"])  # a record read twice has one id
            others = (one for one in find_documents(stages, twin) if (one.shard, one.row) != itself)
        if survivor := next(others, None):
            values |= {"survivor_url": survivor.url, "survivor_ordinal": f"{survivor.shard}:{survivor.row}"}
            if not build:
                values["decided_by"] = _decided(stages, survivor.shard, twin, fate)
    return Event(stage, "dropped", _known(values))


def _decided(stages: Mapping[str, Folder], shard: str | None, twin: str, fate: Mapping[str, Any]) -> str | None:
    """What of their ranks a duplicate lost by: one look into the keys of two shards, 64 bytes a document."""
    from corpus.dedup.near.ranks import deciding_part
    from corpus.dedup.records import map_array
    from corpus.dedup.text.keys import id_bytes

    words: list[int] = []
    for name, identity in ((shard, bytes.fromhex(twin)), (fate["shard"], fate["id"])):
        for file in files_of(stages, "signatures", "keys"):
            if shard_name(file) == name:
                keys = map_array(file)
                here = (id_bytes(keys) == np.frombuffer(identity, np.uint8)).all(axis=1)
                words.extend(int(word) for word in keys["rank"][here][:1])
    return deciding_part(*words) if len(words) == 2 else None


def _sidecar_events(stage: str, folder: Folder, document: Document) -> Iterator[Event]:
    row = _row(folder, "statistics", document) | _row(folder, "edits", document)
    if row.get("edits"):
        yield Event(stage, "edited", {"edits": row["edits"]})
    statistics = {
        name: value for name, value in row.items() if is_statistic(name) and value == value
    }  # NaN: not measured
    if statistics:
        measured = {name: {"value": value} for name, value in statistics.items()}
        values = stored_row(statistics)
        for limit in (limit for tried in rules(folder).values() for limit in tried):
            if limit.key in measured and set(limit.keys) <= values.keys() and limit.judges(values).all():
                measured[limit.key] |= {limit.bound: limit.threshold} | (
                    {"detail": limit.detail} if limit.detail else {}
                )
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
            for sequence in np.flatnonzero(matches(table["id"], document.id)) + start:
                shard = file.url.rsplit("/", 1)[-1].removesuffix(".docs.parquet")
                yield Event(folder.name, "tokenized", {"shard": shard, "sequence": int(sequence)})
            start += table.num_rows


def _is_of_shard(file: File, shard: str) -> bool:
    name = shard_name(file)
    return name == shard or shard.startswith(name + "-") or name.startswith(shard + "-")


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
