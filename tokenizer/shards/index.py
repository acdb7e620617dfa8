"""The index of one of our shards: its header is read when the shard is opened, its tables when they are first needed.

One document is one sequence, so lengths are positive, pointers their running sum, and the document table is 0, 1, ...,
S. All of it is checked, in integers that do not overflow, before any of it is used: a lie is refused, it never becomes
a wild read. That is one pass over the index, 20 bytes a document.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer.shards.megatron_index import (
    CHUNK_ROWS,
    DTYPE_CODES,
    HEADER,
    HEADER_OFFSETS,
    LENGTH_BYTES,
    MAGIC,
    POINTER_BYTES,
    VERSION,
    Header,
)
from tokenizer.shards.record import DTYPES, MEND, ShardError, ShardMeta, refuse


class Tables(NamedTuple):
    """The tables of an index, views of one memory map."""

    lengths: NDArray[np.int32]  # [S] tokens
    pointers: NDArray[np.int64]  # [S] bytes
    documents: NDArray[np.int64]  # [S + 1]


def check_header(path: str | Path, meta: ShardMeta) -> None:
    """Compare the header of an index, whose size is known to be right, with its shard's record; raises `ShardError`."""
    with open(path, "rb", buffering=0) as file:
        header = Header(*HEADER.unpack(file.read(HEADER.size)))
    expected = Header(MAGIC, VERSION, DTYPE_CODES[meta.dtype], meta.num_sequences, meta.num_documents + 1)
    if header != expected:
        place = next(place for place, found in enumerate(header) if found != expected[place])
        problem = f"{Header._fields[place]} is {header[place]!r}, and of this shard it is {expected[place]!r}"
        refuse(path, HEADER_OFFSETS[place], problem)


def map_tables(path: Path, meta: ShardMeta) -> Tables:
    """Map the tables of an index whose size and header are known to be right."""
    lengths_end = HEADER.size + meta.num_sequences * LENGTH_BYTES
    pointers_end = lengths_end + meta.num_sequences * POINTER_BYTES
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="r", shape=(meta.idx_bytes,))
    except ValueError as error:
        raise ShardError(f"{path}: was truncated after it was opened. {MEND}") from error
    return Tables(
        raw[HEADER.size : lengths_end].view("<i4"),
        raw[lengths_end:pointers_end].view("<i8"),
        raw[pointers_end:].view("<i8"),
    )


def check_tables(path: Path, meta: ShardMeta, tables: Tables) -> None:
    """Lengths are positive, pointers are their running sum, and the document table is 0, 1, ..., S.

    Raises:
        ShardError: names the offset of the first entry that is wrong.
    """
    itemsize = DTYPES[meta.dtype].itemsize
    lengths_at, end = HEADER.size, 0
    pointers_at = lengths_at + meta.num_sequences * LENGTH_BYTES
    documents_at = pointers_at + meta.num_sequences * POINTER_BYTES
    for first in range(0, meta.num_sequences, CHUNK_ROWS):
        lengths = tables.lengths[first : first + CHUNK_ROWS].astype(np.int64)
        if bad := _first(lengths < 1):
            refuse(path, lengths_at + (first + bad[0]) * LENGTH_BYTES, "a sequence without tokens")
        ends = np.cumsum(lengths) * itemsize  # at most 2^20 x 2^31 x 4 = 2^53
        pointers = tables.pointers[first : first + CHUNK_ROWS]
        if bad := _first(pointers - end != ends - lengths * itemsize):
            refuse(path, pointers_at + (first + bad[0]) * POINTER_BYTES, "a pointer is not where its sequence is")
        end += int(ends[-1])
        if end > meta.bin_bytes:
            refuse(path, lengths_at, "sequences run past the end of the tokens")
    if end != meta.bin_bytes:
        refuse(path, lengths_at, f"sequences hold {end:,} bytes of {meta.bin_bytes:,}")
    for first in range(0, len(tables.documents), CHUNK_ROWS):
        documents = tables.documents[first : first + CHUNK_ROWS]
        if bad := _first(documents != np.arange(first, first + len(documents))):
            refuse(path, documents_at + (first + bad[0]) * POINTER_BYTES, "the document table is not 0, 1, 2, ...")


def _first(mask: NDArray[np.bool_]) -> tuple[int] | None:
    """The first true place, or None."""
    return (int(np.argmax(mask)),) if mask.any() else None
