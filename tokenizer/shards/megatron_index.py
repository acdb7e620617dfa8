"""Megatron's index v1, `P.idx`: where the sequences of `P.bin` lie. Standard library and numpy only.

9 bytes `MMIDIDX\\0\\0`, u64 version = 1, u8 dtype code, u64 sequences S, u64 entries of the document table; from
offset 34 i32 lengths[S] in tokens, i64 byte pointers[S], i64 document table[entries], all little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
HEADER_OFFSETS = (0, 9, 17, 18, 26)  # of its fields
DTYPE_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}  # 6 and 7 are floats
LENGTH_BYTES, POINTER_BYTES = 4, 8
CHUNK_ROWS = 1 << 20


class Header(NamedTuple):
    """The first 34 bytes of an index."""

    magic: bytes
    version: int
    dtype_code: int
    num_sequences: int
    num_entries: int  # of the document table: one more than there are documents


def index_size(num_sequences: int, num_entries: int | None = None) -> int:
    """The bytes of an index; without `num_entries`, of one whose sequences are each a document.

    >>> index_size(0), index_size(3)
    (42, 102)
    """
    entries = num_sequences + 1 if num_entries is None else num_entries
    return HEADER.size + num_sequences * (LENGTH_BYTES + POINTER_BYTES) + entries * POINTER_BYTES


def index_parts(lengths: NDArray[np.int32], dtype: str) -> Iterator[bytes]:
    """The bytes of the index of sequences that are each one document, up to 8 MiB at a time.

    Args:
        lengths: int32[S] or wider, tokens.
        dtype: of the tokens, a key of `DTYPE_CODES`.

    >>> b"".join(index_parts(np.array([2, 3], np.int32), "uint16")).hex()[-48:]  # the document table: 0, 1, 2
    '000000000000000001000000000000000200000000000000'
    """
    chunks = range(0, len(lengths), CHUNK_ROWS)
    yield HEADER.pack(MAGIC, VERSION, DTYPE_CODES[dtype], len(lengths), len(lengths) + 1)
    for first in chunks:
        yield lengths[first : first + CHUNK_ROWS].astype("<i4").tobytes()
    start = 0
    for first in chunks:
        sizes = lengths[first : first + CHUNK_ROWS].astype(np.int64) * np.dtype(dtype).itemsize
        ends = start + np.cumsum(sizes)
        yield (ends - sizes).astype("<i8").tobytes()
        start = int(ends[-1])
    for first in range(0, len(lengths) + 1, CHUNK_ROWS):
        yield np.arange(first, min(first + CHUNK_ROWS, len(lengths) + 1), dtype="<i8").tobytes()
