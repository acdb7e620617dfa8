"""Parquet: a text column, other columns to `meta`; a row group that cannot be read costs itself only.

A record's offset is its row in the file. Rows are read so many at a time that what they decompress to stays within
MAX_BATCH_BYTES, by the sizes in the page headers; a row group with a page beyond it is `too_large`. Values come as
Python objects. Arrow knows values that Python does not (nanoseconds, the year 50,000, strings that are not UTF-8): they
become text, and only a `text` of that kind costs its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from corpus.sources.config import SourcesConfig
from corpus.sources.formats.jsonl import to_record
from corpus.sources.formats.page_headers import column_pages
from corpus.sources.record import BadRecord, Record, RecordError

BATCH_ROWS = (512, 64, 8, 1)  # the first whose bytes are within the bound
MAX_BATCH_BYTES = 128 << 20  # DuckDB's pages reach 100 MB, others' 1 MB
MAX_LIST_BYTES = 16 << 20  # a larger batch becomes Python objects row by row
READ_BYTES = 1 << 20
MAX_FOOTER_BYTES = 64 << 20
NO_PYTHON_VALUE = (ValueError, OverflowError, KeyError, pa.ArrowException)  # KeyError: of an unknown time zone
_NOT_UTF8 = object()


def read_parquet(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The rows of a Parquet file as records; an unreadable file or row group is one bad record."""
    try:
        file = pq.ParquetFile(
            path,
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=10_000_000,
            page_checksum_verification=True,
            pre_buffer=False,  # else a column's whole row group is held, whatever the buffer's size
            buffer_size=READ_BYTES,
        )
    except (pa.ArrowException, OSError) as error:
        if path.stat().st_size:
            yield BadRecord(0, path.stat().st_size, "parquet", f"not a Parquet file ({type(error).__name__})")
        return
    with file, path.open("rb") as raw:
        first_row = 0
        for group in range(file.num_row_groups):
            num_rows = file.metadata.row_group(group).num_rows
            if num_rows:
                yield from _read_group(file, raw, group, first_row, num_rows, config)
            first_row += num_rows


def _read_group(
    file: pq.ParquetFile, raw: BinaryIO, group: int, first_row: int, num_rows: int, config: SourcesConfig
) -> Iterator[Record | BadRecord]:
    row = first_row
    try:
        for batch in file.iter_batches(_batch_rows(file, raw, group), row_groups=[group], use_threads=False):
            for fields in rows_of(batch, config.text):
                yield row_record(fields, row, config)
                row += 1
    except (pa.ArrowException, OSError, ValueError) as error:
        kind, what = (
            ("parquet", type(error).__name__) if not isinstance(error, RecordError) else (error.kind, str(error))
        )
        yield BadRecord(row, 0, kind, f"rows {row:,} to {first_row + num_rows:,} of row group {group} ({what})")


def _batch_rows(file: pq.ParquetFile, raw: BinaryIO, group: int) -> int:
    """How many rows may be read at once; raises `RecordError` when one is too much."""
    metadata = file.metadata.row_group(group)
    columns = [column_pages(raw, metadata.column(index)) for index in range(metadata.num_columns)]
    for num_rows in BATCH_ROWS:
        if sum(column.bytes_of(num_rows) for column in columns) <= MAX_BATCH_BYTES:
            return num_rows
    raise RecordError("too_large", f"pages above {MAX_BATCH_BYTES:,} bytes")


def rows_of(batch: pa.RecordBatch, text_fields: Sequence[str]) -> Iterator[dict[str, object]]:
    """The rows of a batch as Python objects; of one above MAX_LIST_BYTES a row at a time."""
    if batch.nbytes <= MAX_LIST_BYTES:
        try:
            rows = batch.to_pylist()
        except NO_PYTHON_VALUE:
            pass
        else:
            yield from rows
            return
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        try:
            yield from row.to_pylist()
        except NO_PYTHON_VALUE:
            names = row.schema.names
            yield {name: _value(column, name in text_fields) for name, column in zip(names, row.columns, strict=True)}


def _value(cell: pa.Array, is_text: bool) -> object:
    """The value of a column of one row; what Python has no value for as text, U+FFFD for bytes that are none."""
    try:
        return cell[0].as_py()
    except UnicodeDecodeError:
        if is_text:
            return _NOT_UTF8
    except NO_PYTHON_VALUE:
        pass
    for kind in (pa.binary(), pa.string(), pa.int64()):  # seconds since 1970 where the time zone is unknown
        try:
            value = cell.cast(kind)[0].as_py()
        except NO_PYTHON_VALUE:
            continue
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return None


def row_record(fields: dict[str, object], row: int, config: SourcesConfig) -> Record | BadRecord:
    """The record of a row, or what is wrong with it; a field without a value is none."""
    try:
        if any(fields.get(name) is _NOT_UTF8 for name in config.text):
            return BadRecord(row, 0, "charset", "not UTF-8")
        record = to_record({name: value for name, value in fields.items() if value is not None}, b"", row, config)
        raw = (record.text or "").encode()
        if len(raw) > config.max_line_bytes:
            return BadRecord(row, len(raw), "too_long", f"a text of {len(raw):,} bytes")
        return structs.replace(record, raw=raw)
    except RecordError as error:
        return BadRecord(row, 0, error.kind, str(error))
