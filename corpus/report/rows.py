"""Single rows of the tables that stages wrote: what the ledger and its look-ups read, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Folder
from corpus.engine.storage import File


def files_of(stages: Mapping[str, Folder], stage: str, kind: str) -> list[File]:
    return stages[stage].files(kind) if stage in stages else []


def column_names(file: File) -> list[str]:
    """The columns of a table, from its footer."""
    with open_table(file) as parquet:
        return list(parquet.schema_arrow.names)


def read_row(file: File, row: int, columns: Sequence[str] | None) -> pa.Table:
    """One row by its position; only the row group that holds it is read."""
    with open_table(file) as parquet:
        start = 0
        for index in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(index).num_rows
            if row < start + rows:
                table = parquet.read_row_group(index, columns=columns and list(columns), use_threads=False)
                return table.slice(row - start, 1)
            start += rows
    raise WenhaiError(f"{file.url}: has {start:,} rows, row {row:,} was asked for. Run `python -m corpus verify`.")


@contextmanager
def open_table(file: File) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(storage.fetch(file.url), page_checksum_verification=True) as parquet:
            yield parquet
    except (OSError, pa.ArrowException) as error:
        raise WenhaiError(f"{file.url}: cannot be read ({error}). Run `python -m corpus verify`.") from error


def matches(column: pa.ChunkedArray, key: str) -> npt.NDArray[np.bool_]:
    if pa.types.is_fixed_size_binary(column.type):
        return _starts_with(column, key.lower())
    return np.asarray(pc.fill_null(pc.equal(column, key), False))


def _starts_with(column: pa.ChunkedArray, digits: str) -> npt.NDArray[np.bool_]:
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
