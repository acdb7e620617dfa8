"""Parquet: a text column, other columns to `meta`; a row group that cannot be read costs itself only.

A record's offset is its row in the file. Values come as Python objects (350 MB/s of text), which is several times
faster than what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.sources.config import SourcesConfig
from corpus.sources.jsonl import BadField, to_record
from corpus.sources.record import BadRecord, Record

BATCH_ROWS = 64  # what is held at once: texts at the cap of 10 MB cost 640 MB, 16 rows would cost half the speed
MAX_FOOTER_BYTES = 64 << 20


def read_parquet(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The rows of a Parquet file as records; an unreadable file or row group is one bad record."""
    try:
        file = pq.ParquetFile(
            path,
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=10_000_000,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        if path.stat().st_size:
            yield BadRecord(0, path.stat().st_size, "parquet", f"not a Parquet file ({type(error).__name__})")
        return
    with file:
        first_row = 0
        for group in range(file.num_row_groups):
            num_rows = file.metadata.row_group(group).num_rows
            yield from _read_group(file, group, first_row, num_rows, config)
            first_row += num_rows


def _read_group(
    file: pq.ParquetFile, group: int, first_row: int, num_rows: int, config: SourcesConfig
) -> Iterator[Record | BadRecord]:
    row = first_row
    try:
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group]):
            for fields in batch.to_pylist():
                yield _to_record(fields, row, config)
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        detail = f"rows {row:,} to {first_row + num_rows:,} of row group {group} ({type(error).__name__})"
        yield BadRecord(row, 0, "parquet", detail)


def _to_record(fields: dict[str, object], row: int, config: SourcesConfig) -> Record | BadRecord:
    try:
        text = fields.get(config.text_field)
        raw = text.encode() if isinstance(text, str) else b""
        if len(raw) > config.max_line_bytes:
            return BadRecord(row, len(raw), "too_long", f"a text of {len(raw):,} bytes")
        return to_record({name: value for name, value in fields.items() if value is not None}, raw, row, config)
    except BadField as error:
        return BadRecord(row, 0, error.kind, str(error))
