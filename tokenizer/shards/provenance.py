"""`P.docs.parquet`: which document each sequence of the shard P is. Row i is sequence i.

Written a group of rows at a time, and read a group at a time, with only the columns that are asked for: a shard of ten
million documents costs what its largest group does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenizer.shards import TokenShard
from tokenizer.shards.record import MEND, ShardError

SUFFIX = ".docs.parquet"
COLUMNS = ("id", "url", "source")
BATCH_ROWS = 1 << 16
SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("url", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),  # the end-of-document token included
    ],
    metadata={"wenhai.docs": "1"},
)


def docs_path(shard: TokenShard) -> Path:
    """Where the documents of a shard are listed."""
    return shard.prefix.with_name(shard.prefix.name + SUFFIX)


def write_docs(path: Path, groups: Iterable[Mapping[str, Any]]) -> None:
    """Write groups of rows, each the columns of `SCHEMA`: sequences of Python values, or Arrow arrays."""
    with pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=["source"], write_page_checksum=True
    ) as writer:
        for columns in groups:
            writer.write_table(pa.table(columns, schema=SCHEMA))


def verify_docs(shard: TokenShard) -> None:
    """Check that a shard's table describes its sequences, one row each, and that no page of it is damaged.

    Raises:
        ShardError: it is missing, damaged, or of other lengths.
    """
    first = 0
    with _open(shard) as file:
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):  # all columns, for the checksums of their pages
            lengths = batch.column("num_tokens").to_numpy()
            if not np.array_equal(lengths, shard.lengths[first : first + len(lengths)]):
                raise ShardError(
                    f"{docs_path(shard)}: does not describe the sequences of {shard.idx_path.name}. {MEND}"
                )
            first += len(lengths)


def read_rows(shard: TokenShard, sequences: Collection[int]) -> dict[int, dict[str, Any]]:
    """`id` (32 hexadecimal digits), `url` and `source` of some sequences; only groups that hold one are read."""
    rows: dict[int, dict[str, Any]] = {}
    first = 0
    with _open(shard) as file:
        for group in range(file.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if here := sorted(sequence for sequence in sequences if first <= sequence < last):
                table = file.read_row_group(group, columns=list(COLUMNS), use_threads=False)
                found = table.take([sequence - first for sequence in here]).to_pylist()
                rows |= {sequence: {**row, "id": row["id"].hex()} for sequence, row in zip(here, found, strict=True)}
            first = last
    return rows


def read_ids(shard: TokenShard) -> Iterator[list[bytes]]:
    """The ids of all documents in their order, some at a time."""
    with _open(shard) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=["id"], use_threads=False):
            yield batch.column(0).to_pylist()


def find_rows(shard: TokenShard, column: str, value: bytes | str) -> list[int]:
    """The sequences whose `id` or `url` is a value; of the table only that column is read, where it may hold it."""
    found: list[int] = []
    first = 0
    with _open(shard) as file:
        index = file.schema_arrow.get_field_index(column)
        for group in range(file.num_row_groups):
            metadata = file.metadata.row_group(group)
            known = metadata.column(index).statistics
            if known is None or not known.has_min_max or known.min <= value <= known.max:
                start = first
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[column], use_threads=False):
                    is_same = pc.fill_null(pc.equal(batch.column(0), value), False)
                    found += (start + np.flatnonzero(is_same.to_numpy(zero_copy_only=False))).tolist()
                    start += batch.num_rows
            first += metadata.num_rows
    return found


@contextmanager
def _open(shard: TokenShard) -> Iterator[pq.ParquetFile]:
    """A shard's table; what is wrong with it becomes a `ShardError`."""
    path = docs_path(shard)
    try:
        with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            if file.metadata.num_rows != shard.num_sequences:
                counts = f"{file.metadata.num_rows} rows for {shard.num_sequences}"
                raise ShardError(f"{path}: does not describe the sequences of {shard.idx_path.name}: {counts}. {MEND}")
            if not file.schema_arrow.equals(SCHEMA):
                raise ShardError(f"{path}: its columns are not those of this format. {MEND}")
            yield file
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ShardError(f"{path}: missing or damaged ({type(error).__name__}). {MEND}") from error
