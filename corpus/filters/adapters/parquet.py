"""The filter on a Parquet file: the same columns out, rows dropped, texts edited; the schema and its metadata stay.

Read in batches of about 8 MB, whatever the row groups are, so that memory does not follow the file's size; written in
row groups of about 32 MB with page checksums. A row group that cannot be read costs its own remaining rows, counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.document import FINAL_LEVEL
from corpus.engine.errors import WenhaiError
from corpus.filters import Filter
from corpus.filters.adapters.summary import Summary
from corpus.filters.adapters.tables import (
    REASON,
    VERDICT_COLUMN,
    dropped_rows,
    judge_in_order,
    kept_rows,
    statistics_rows,
)

BATCH_BYTES = 8 << 20  # of decoded columns
MAX_BATCH_ROWS = 8192
GROUP_BYTES = 32 << 20
GROUP_ROWS = 65_536
MAX_FOOTER_BYTES = 64 << 20


def filter_parquet(
    source: Path,
    kept: Path,
    judge: Filter,
    summary: Summary,
    *,
    column: str = "text",
    dropped: Path | None = None,
    statistics: Path | None = None,
    threads: int = 1,
) -> None:
    """Filter `source` into `kept`, its dropped rows into `dropped`, every verdict into `statistics`.

    Raises:
        WenhaiError: not a Parquet file, or without such a column of strings.
    """
    with _open(source) as file:
        schema = file.schema_arrow
        _check(source, schema, column)
        with (
            RowGroups(kept) as survivors,
            RowGroups(dropped) as ended,
            RowGroups(statistics) as measured,
        ):
            survivors.write(schema.empty_table())
            row = 0
            for table, verdicts in judge_in_order(judge, _batches(file, summary), lambda it: it, column, threads):
                sizes = pc.binary_length(table[column].cast(pa.large_string()))
                summary.add(int(pc.sum(sizes).as_py() or 0), verdicts)
                survivors.write(kept_rows(table, verdicts, column))
                if dropped:
                    ended.write(dropped_rows(table, verdicts, column))
                if statistics:
                    measured.write(statistics_rows(verdicts, range(row, row + table.num_rows)))
                row += table.num_rows
            if dropped:
                ended.write(schema.append(pa.field(VERDICT_COLUMN, REASON)).empty_table())
            if statistics:
                measured.write(statistics_rows(judge.apply([]), []))


class RowGroups:
    """Writes tables as a Parquet file of row groups of bounded size; without a path it takes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._bytes = self._rows = 0

    def __enter__(self) -> RowGroups:
        return self

    def write(self, table: pa.Table) -> None:
        """Add rows; the first table's schema is the file's, also where it has no rows."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="zstd", compression_level=FINAL_LEVEL, write_page_checksum=True
            )
        self._pending.append(table)
        self._bytes += table.nbytes
        self._rows += table.num_rows
        if self._bytes >= GROUP_BYTES or self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._writer is not None and self._rows:
            self._writer.write_table(pa.concat_tables(self._pending), row_group_size=GROUP_ROWS)
        self._pending, self._bytes, self._rows = [], 0, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(
            path,
            pre_buffer=False,  # with it a row group of 560 MB costs 380 MB at once, without it 73
            buffer_size=1 << 20,
            thrift_string_size_limit=MAX_FOOTER_BYTES,
            thrift_container_size_limit=10_000_000,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        raise WenhaiError(f"{path}: not a Parquet file ({type(error).__name__}). Take it out of --input.") from error


def _check(path: Path, schema: pa.Schema, column: str) -> None:
    if schema.names.count(column) != 1:
        names = ", ".join(schema.names) or "none"
        raise WenhaiError(f"{path}: no column {column!r}; it has {names}. --column names another.")
    if VERDICT_COLUMN in schema.names:
        raise WenhaiError(f"{path}: already has a column {VERDICT_COLUMN!r}. Rename or drop it.")


def _batches(file: pq.ParquetFile, summary: Summary) -> Iterator[pa.Table]:
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        rows = max(1, metadata.num_rows)
        size = max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * rows // max(1, metadata.total_byte_size)))
        done = 0
        try:
            for batch in file.iter_batches(size, row_groups=[group], use_threads=False):
                yield pa.Table.from_batches([batch], file.schema_arrow)
                done += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            lost = metadata.num_rows - done
            where = f"row group {group}, row {done:,}: {lost:,} rows cannot be read ({type(error).__name__})"
            summary.add_bad("parquet", where, lost)
