"""Answers: a table for people, masked and cut; CSV and Parquet for programs, as the build has it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from rich.cells import cell_len

from corpus.engine import storage
from corpus.engine.errors import UsageError
from corpus.report.explain import ID_DIGITS, number
from corpus.safe import cut_middle, plain_url, snippet

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

TABLE_ROWS, CELL_COLUMNS = 40, 72
OURS = ("change", "stage", "kind", "rule", "rule_a", "rule_b", "bound", "shard")  # in nobody else's words


@dataclass(frozen=True)
class Target:
    """Where an answer goes and how much of it: a table has `TABLE_ROWS` where `limit` says nothing."""

    form: str
    output: str | None
    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit {self.limit}: give 1 or more.")
        if self.output is None and self.form == "parquet":
            raise UsageError("--format parquet: give --output FILE.")
        if self.output is not None and self.form == "table":
            raise UsageError("--output: give --format csv or parquet; a table is printed.")
        path = storage.local_path(self.output or "")
        if (
            self.output
            and not storage.is_remote(self.output)
            and (path.is_symlink() or path.exists() != path.is_file())
        ):
            raise UsageError(f"--output {self.output}: is no file; what is written would take its place. Name another.")

    def write(self, rows: DuckDBPyRelation) -> None:
        """Write rows; a file is there complete or not at all."""
        if self.form == "table":
            limit = self.limit or TABLE_ROWS
            found = rows.limit(limit + 1).fetchall()
            print_table(rows.columns, found[:limit])
            if len(found) > limit:
                print(f"the first {limit}; --limit N shows more, --format csv all.", file=sys.stderr)
            return
        reader = (rows.limit(self.limit) if self.limit else rows).to_arrow_reader()
        writer = csv.CSVWriter if self.form == "csv" else partial(pq.ParquetWriter, compression="zstd")
        if self.output is None:
            _copy(reader, writer(sys.stdout.buffer, reader.schema))
            return
        with storage.create(self.output) as path:
            _copy(reader, writer(path, reader.schema))


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A heading and the rows: numbers to the right, strings of others masked and cut."""
    cells = [list(names), *([_cell(*pair) for pair in zip(names, row, strict=True)] for row in rows)]
    for column in range(len(names)):
        width = max(cell_len(row[column]) for row in cells)
        is_number = any(isinstance(row[column], int | float) for row in rows)
        for row in cells:
            space = " " * (width - cell_len(row[column]))
            row[column] = space + row[column] if is_number else row[column] + space
    print("\n".join("  ".join(row).rstrip() for row in cells))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "id":
        return str(value[:ID_DIGITS])
    if isinstance(value, str):
        return cut_middle(
            value if name in OURS else plain_url(value) if name == "url" else snippet(value), CELL_COLUMNS
        )
    if name.endswith("share"):
        return f"{100 * value:.2f} %"
    return str(value) if name in ("row", "position") else number(value)


def _copy(reader: pa.RecordBatchReader, writer: Any) -> None:
    with writer:
        for batch in reader:
            writer.write_batch(batch)
