"""The document table: one row a document, the same columns from extraction to the final text shards.

Parquet with page checksums: without them a flipped bit in a page of text is read back silently wrong 40 times in 60;
with them written and verified, never. Compression is zstd level 1 between stages and level 3 for the final shards,
which are written once and read often. Row groups end after so many rows or bytes of text, whichever comes first, so a
streaming reader needs tens of megabytes whatever the file's size and whatever the documents', and the same rows give
the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Counts, Output

ROW_GROUP_ROWS = 8192
ROW_GROUP_BYTES = 32 << 20  # of text: books of 500 KB, 8,192 to a group, would be 4 GB in every stage that reads them
INTERMEDIATE_LEVEL = 1
FINAL_LEVEL = 3

_DIGEST_LENGTH = struct.pack("<Q", 16)

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),  # row in the extract stage's shard of the same name
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("title", pa.string()),
        pa.field("date", pa.string()),
        pa.field("encoding", pa.string()),
        pa.field("meta", pa.string()),  # JSON of the input's other fields
        pa.field("text", pa.large_string(), nullable=False),
    ],
    metadata={"wenhai.documents": "1"},
)

_EDIT = pa.struct([("kind", pa.string()), ("line", pa.uint32()), ("count", pa.uint32())])
EDITS = pa.field("edits", pa.list_(_EDIT))  # of a document; null when nothing was changed
FATE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("shard", pa.string()),
        pa.field("row", pa.uint32()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("place", pa.string()),  # "news.jsonl.gz:offset 1234", for records that never became documents
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("bound", pa.string()),  # "min" or "max"
        pa.field("detail", pa.string()),
    ],
    metadata={"wenhai.fates": "1"},
)


def document_id(source: str, key: str, raw: bytes) -> bytes:
    """The stable identity of a record: xxh3-128 over source, URL or key, and the digest of its raw bytes (16 bytes).

    >>> document_id("demo", "https://example.org/论语", "学而时习之".encode()).hex()
    '7e73c55ef59e01123c37ade02fd2dc06'
    """
    data = key.encode("utf-8", "surrogatepass")
    parts = _source_part(source) + struct.pack("<Q", len(data)) + data + _DIGEST_LENGTH
    return xxhash.xxh3_128_digest(parts + xxhash.xxh3_128_digest(raw))


@lru_cache(maxsize=64)  # a build has few
def _source_part(source: str) -> bytes:
    return struct.pack("<Q", len(source.encode())) + source.encode()


def write_table(path: Path, table: pa.Table, level: int = INTERMEDIATE_LEVEL) -> None:
    """Write a whole table: zstd, page checksums, fixed row groups; equal tables give equal bytes."""
    with TableWriter(path, table.schema, level) as writer:
        for start in range(0, table.num_rows, ROW_GROUP_ROWS):
            writer.write(table.slice(start, ROW_GROUP_ROWS))


class TableWriter:
    """Writes tables row group by row group; rows are regrouped so that every group but the last is full.

    A group is full with ROW_GROUP_ROWS rows, or where the next row would take its column `text` over ROW_GROUP_BYTES.
    """

    def __init__(self, path: Path, schema: pa.Schema, level: int = INTERMEDIATE_LEVEL) -> None:
        self.rows = 0
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            compression_level=level,
            use_dictionary=[name for name in ("source", "encoding", "rule", "bound", "shard") if name in schema.names],
            write_statistics=False,
            write_page_checksum=True,
            store_schema=True,
        )

    def __enter__(self) -> TableWriter:
        return self

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        self.rows += table.num_rows
        table = table.select(self._schema.names).cast(self._schema)
        text_ends = _text_ends(table)
        start = 0
        while start < table.num_rows:
            stop = min(table.num_rows, start + ROW_GROUP_ROWS - self._pending_rows)
            before = int(text_ends[start])
            fitting = int(np.searchsorted(text_ends, before + ROW_GROUP_BYTES - self._pending_bytes, "right")) - 1
            stop = min(stop, max(fitting, start + (self._pending_rows == 0)))
            self._pending.append(table.slice(start, stop - start))
            self._pending_rows += stop - start
            self._pending_bytes += int(text_ends[stop]) - before
            if stop < table.num_rows or self._pending_rows == ROW_GROUP_ROWS:
                self._flush()
            start = stop

    def _flush(self) -> None:
        self._writer.write_table(pa.concat_tables(self._pending).combine_chunks(), row_group_size=ROW_GROUP_ROWS)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None and self._pending_rows:
            self._flush()
        self._writer.close()


@contextmanager
def write_shard(
    out: Output, task: str, schemas: Mapping[str, pa.Schema], level: int = INTERMEDIATE_LEVEL
) -> Iterator[list[TableWriter]]:
    """Write KIND/TASK.parquet for each kind, the first at compression `level`; rows are recorded at the end."""
    names = [f"{kind}/{task}.parquet" for kind in schemas]
    levels = [level] + [INTERMEDIATE_LEVEL] * (len(names) - 1)
    with ExitStack() as stack:
        paths = [stack.enter_context(out.create(name)) for name in names]
        each = zip(paths, schemas.values(), levels, strict=True)
        writers = [stack.enter_context(TableWriter(*one)) for one in each]
        yield writers
    for name, writer in zip(names, writers, strict=True):
        out.set_rows(name, writer.rows)


def fate_table(documents: pa.Table, shard: str, **columns: Any) -> pa.Table:
    """`FATE_SCHEMA` of some documents; `columns`: rule, value, threshold, bound, detail, one for all or one each."""
    values = {name: documents[name] for name in ("id", "row", "source", "url")} | {"shard": shard} | columns
    arrays = [values.get(field.name) for field in FATE_SCHEMA]
    arrays = [
        [value] * documents.num_rows if value is None or isinstance(value, str | float) else value for value in arrays
    ]
    return pa.table(arrays, schema=FATE_SCHEMA)


def count_documents(counts: Counts, before: pa.Table, after: pa.Table) -> None:
    """Add documents and bytes of text that came in and that go on."""
    counts.documents_in += before.num_rows
    counts.documents_out += after.num_rows
    counts.bytes_in += text_bytes(before)
    counts.bytes_out += text_bytes(after)


def text_bytes(documents: pa.Table) -> int:
    """UTF-8 bytes of the column `text`."""
    return int(pc.sum(pc.binary_length(documents["text"])).as_py() or 0)


def _text_ends(table: pa.Table) -> npt.NDArray[np.int64]:
    """Bytes of the column `text` before each row and behind the last one, (rows + 1,); zeros where there is none."""
    ends = np.zeros(table.num_rows + 1, np.int64)
    if "text" in table.schema.names:
        np.cumsum(pc.fill_null(pc.binary_length(table["text"]), 0).to_numpy(), out=ends[1:])
    return ends


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a whole table with its page checksums verified; raises `WenhaiError` naming the file when one is wrong."""
    with _open(path) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a file one after another, page checksums verified."""
    wanted = None if columns is None else list(columns)
    with _open(path) as file:
        for index in range(file.num_row_groups):
            yield file.read_row_group(index, columns=wanted, use_threads=False)


@contextmanager
def _open(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, memory_map=False) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WenhaiError(
            f"{path}: damaged ({reason}). Remove this file and run the same command again: only its task is repeated."
        ) from error
