"""The sizes of a Parquet file's pages, read from their headers before anything is decompressed.

A page is decompressed whole, however little of it is asked for, and a value of a dictionary page may be repeated in
every row: what a batch of rows costs can only be bounded by these sizes. They are Thrift structures in the compact
protocol (parquet.thrift, `PageHeader`); pyarrow does not show them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

MAX_HEADER_BYTES = 64 << 10
MAX_DEPTH = 8
UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 2, 3, 5, 7, 8  # fields of PageHeader
NUM_VALUES = 1


@dataclass(frozen=True)
class ColumnPages:
    """Of one column of one row group: the largest page, the fewest values in one, the dictionary page; in bytes."""

    largest: int
    fewest_values: int
    dictionary: int

    def bytes_of(self, num_rows: int) -> int:
        """At most what reading so many rows at once decompresses and repeats."""
        return min(num_rows, 2 + num_rows // self.fewest_values) * self.largest + num_rows * self.dictionary


def column_pages(file: BinaryIO, column: Any) -> ColumnPages:
    """Read the headers of a column chunk (`pyarrow.parquet.ColumnChunkMetaData`); raises `ValueError` for nonsense."""
    largest, fewest, dictionary = 0, 1 << 62, 0
    for header in _headers(file, column):
        size = max(header[UNCOMPRESSED_SIZE], header[COMPRESSED_SIZE])
        if DICTIONARY_PAGE in header:
            dictionary = max(dictionary, size)
        else:
            values = header.get(DATA_PAGE) or header.get(DATA_PAGE_V2) or {}
            largest, fewest = max(largest, size), min(fewest, max(1, values.get(NUM_VALUES, 1)))
    return ColumnPages(largest, fewest, dictionary)


def _headers(file: BinaryIO, column: Any) -> Iterator[dict[int, Any]]:
    position = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        position = min(position, column.dictionary_page_offset)
    end = position + column.total_compressed_size
    while position < end:
        file.seek(position)
        data = io.BytesIO(file.read(min(MAX_HEADER_BYTES, end - position)))
        header = _struct(data)
        if min(header.get(UNCOMPRESSED_SIZE, -1), header.get(COMPRESSED_SIZE, -1)) < 0:
            raise ValueError("a page header without sizes")
        yield header
        position += data.tell() + header[COMPRESSED_SIZE]


def _struct(data: BinaryIO, depth: int = 0) -> dict[int, Any]:
    """A structure of Thrift's compact protocol: its integers and structures by field; anything else is skipped."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    fields: dict[int, Any] = {}
    field = 0
    while kind := _byte(data):
        field = field + (kind >> 4) if kind >> 4 else _integer(data)
        fields[field] = _value(data, kind & 15, depth)
    return fields


def _value(data: BinaryIO, kind: int, depth: int) -> Any:
    if kind in (1, 2):  # booleans stand in the field's head
        return None
    if kind == 3:
        return _byte(data)
    if kind in (4, 5, 6):
        return _integer(data)
    if kind in (7, 8):  # a double, a string
        data.seek(8 if kind == 7 else min(_unsigned(data), MAX_HEADER_BYTES), io.SEEK_CUR)
        return None
    if kind == 12:
        return _struct(data, depth + 1)
    raise ValueError("a field that no page header has")


def _byte(data: BinaryIO) -> int:
    if not (byte := data.read(1)):
        raise ValueError("a page header without an end")
    return byte[0]


def _unsigned(data: BinaryIO) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = _byte(data)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a number without an end")


def _integer(data: BinaryIO) -> int:
    value = _unsigned(data)
    return value >> 1 ^ -(value & 1)
