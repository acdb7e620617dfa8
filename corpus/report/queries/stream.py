"""The ledger as one stream of Arrow batches: a row for each record that entered a build, with its end.

DuckDB is given this and no file: a condition that somebody typed reaches nothing but these rows, page checksums are
verified, and a build in an object store is read as one on disk. A shard is held at a time, and of it only the columns
that are asked for: 15 million documents are grouped by source and rule in 3 s, and read with all columns in 25 s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from corpus.document import FATE_SCHEMA, read_batches, read_table
from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder, shard_name
from corpus.report.distributions import SCORE
from corpus.report.queries import KEPT
from corpus.report.summary import FIRST_STAGE, folders

MEASURED = {"genre": pa.string(), "variety": pa.string(), "score": pa.float64(), "bytes": pa.uint32()}
TYPES = {"stage": pa.string()} | {field.name: field.type for field in FATE_SCHEMA} | MEASURED
BY_ROW = {
    "place": (FIRST_STAGE, "places", "place"),
    "genre": ("filter", "statistics", "blocks.genre"),
    "variety": ("filter", "statistics", "script.variety"),
    "score": ("filter", "statistics", SCORE),
    "bytes": ("filter", "statistics", "text_bytes"),
}


def stream(out: str, wanted: Collection[str]) -> pa.RecordBatchReader:
    """The wanted columns of `TYPES`; reading raises `WenhaiError` at a damaged file.

    Raises:
        WenhaiError: `out` holds no run, or none that has read documents.
    """
    stages = folders(out)
    if FIRST_STAGE not in stages:
        raise WenhaiError(f"{out}: its extract stage is not complete, so it has no ledger. Finish `corpus run` first.")
    schema = pa.schema([(name, kind) for name, kind in TYPES.items() if name in wanted])
    tables = _tables(stages, schema)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _tables(stages: Mapping[str, Folder], schema: pa.Schema) -> Iterator[pa.Table]:
    first, *others = [folder for folder in stages.values() if folder.number_of("fates")]
    last, names = [first, *others][-1], [*schema.names, "row"]
    for file in first.files("fates"):  # of what never became a document
        for table in read_batches(storage.fetch(file.url), names):
            yield _under(schema, table, {}, stage=first.name)
    for shard in map(shard_name, first.files()):
        by_row = {
            name: _read(stages[stage], kind, shard, [column])
            for name, (stage, kind, column) in BY_ROW.items()
            if name in names and stage in stages
        }
        for folder in others:
            yield _under(schema, _read(folder, "fates", shard, names), by_row, stage=folder.name)
        kept = _read(last, "data", shard, names)
        if "bytes" in by_row and last.number_of("index"):  # they may have been cut after the filter
            del by_row["bytes"]
            kept = kept.append_column("bytes", _read(last, "index", shard, ["text_bytes"])[0])
        yield _under(schema, kept, by_row, stage=KEPT, shard=shard)


def _read(folder: Folder, kind: str, shard: str, columns: list[str]) -> pa.Table:
    """Some columns of a sidecar, those that it has."""
    name = f"{kind}/{shard}.parquet"
    known = name in _names(folder, kind)
    return read_table(storage.fetch(storage.join(folder.url, name)), columns) if known else pa.table({})


def _names(folder: Folder, kind: str) -> set[str]:
    """The names of a kind's files; kept for the next shards."""
    if kind not in (known := folder.__dict__.setdefault("_names", {})):
        known[kind] = {file.url for file in folder.listed(kind)}
    found: set[str] = known[kind]
    return found


def _under(schema: pa.Schema, table: pa.Table, by_row: Mapping[str, pa.Table], **same: str) -> pa.Table:
    """A table under `schema`, with columns by its rows in the extract stage, and values that all rows have."""
    columns = {name: table[name] for name in table.column_names}
    columns |= {name: found[0].take(table["row"]) for name, found in by_row.items() if found.num_columns}
    columns |= {name: pa.repeat(value, table.num_rows) for name, value in same.items()}
    nulls = pa.nulls(table.num_rows)
    return pa.table([columns.get(field.name, nulls).cast(field.type) for field in schema], schema=schema)
