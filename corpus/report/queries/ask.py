"""DuckDB in memory, shut off from files and network; and `corpus ledger`, which asks one build."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.report.queries import COLUMNS, KEPT
from corpus.report.queries.output import Target
from corpus.report.queries.stream import stream

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    Read = Callable[[str, Iterable[str]], DuckDBPyRelation]  # columns of a build's ledger, to be read once

CLOSED = ("enable_external_access", "autoload_known_extensions", "autoinstall_known_extensions")
LIMITS: dict[str, Any] = {"memory_limit": "2GB", "threads": 4, "lock_configuration": True}
MADE = {  # of columns of the stream, in DuckDB's SQL
    "id": "lower(hex(id))",
    "kind": f"CASE WHEN rule IS NULL THEN '{KEPT}' WHEN starts_with(rule, 'error:') THEN 'error' "
    "WHEN starts_with(rule, 'left_out.') THEN 'left_out' ELSE 'dropped' END",
    "file": r"split_part(regexp_replace(place, ':offset \d+( part \d+)?$', ''), '!', 1)",
    "member": r"nullif(regexp_extract(place, '(?s)^[^!]*!(.*):offset \d+( part \d+)?$', 1), '')",
    "position": r"try_cast(regexp_extract(place, ':offset (\d+)( part \d+)?$', 1) AS BIGINT)",
}
MADE_OF = {"kind": "rule", "file": "place", "member": "place", "position": "place"}
TENTH = "least(floor(score * 10), 9)"
GROUPED = {  # what a group has in place of a column's own values
    "score": "CASE WHEN score IS NULL THEN 'not measured' "
    f"ELSE printf('%.1f-%.1f', {TENTH} / 10, ({TENTH} + 1) / 10) END"
}
TABLE_COLUMNS = ("id", "stage", "rule", "value", "threshold", "source", "place")
SINGLE_END = {"stage", "kind", "rule"}  # a group by one of these is kept, or is not
SUMS = "count(*) AS documents, count(*) / sum(count(*)) OVER () AS share, sum(bytes)::BIGINT AS bytes"


@contextmanager
def database(where: str | None = None) -> Iterator[tuple[DuckDBPyConnection, Read]]:
    """An empty database, and what reads ledgers into it; `where` is what the user wants of it.

    Raises:
        UsageError: DuckDB is not installed, or refuses the condition.
        WenhaiError: a file of a build is damaged; the disk has no room for what does not fit in memory.
    """
    try:
        import duckdb
    except ImportError as error:
        raise UsageError("the ledger is asked with DuckDB, which is missing: pip install 'wenhai[ledger]'.") from error
    failures: list[WenhaiError] = []  # of the streams: DuckDB makes them an error of its own

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except WenhaiError as error:
            failures.append(error)
            raise

    def read(out: str, names: Iterable[str]) -> DuckDBPyRelation:
        reader = stream(out, {MADE_OF.get(name, name) for name in names})
        rows = connection.from_arrow(pa.RecordBatchReader.from_batches(reader.schema, told(reader)))
        return rows.project(", ".join(f"{MADE.get(name, name)} AS {name}" for name in names))

    spilled = {"temp_directory": str(storage.scratch_folder() / "duckdb")}
    try:
        with duckdb.connect(config=LIMITS | dict.fromkeys(CLOSED, False) | spilled) as connection:
            yield connection, read
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, or a closed pipe
            raise
        if failures:
            raise failures[0] from None
        message = str(error).partition("\n")[0].rstrip(".!")
        if where is None or isinstance(error, duckdb.OutOfMemoryException):
            raise WenhaiError(f"DuckDB: {message}. Where the disk is full, set TMPDIR to a larger one.") from None
        raise UsageError(f"--where {where!r}: {message}. It is a condition over {', '.join(COLUMNS)}.") from None
    finally:
        storage.clear_scratch()


def ask(out: str, where: str | None, group: Sequence[str], columns: Sequence[str], target: Target) -> None:
    """Write the rows that `where` lets through; with `group` their number, share, bytes and share kept, the most first.

    Raises:
        UsageError: an unknown column, a condition that DuckDB refuses, no DuckDB.
        WenhaiError: `out` has no ledger, or a file of it is damaged.
    """
    for name in (*group, *columns):
        if name not in COLUMNS:
            raise UsageError(f"{name}: no such column. There are {', '.join(COLUMNS)}.")
    if group and columns:
        raise UsageError("--columns: those of rows; with --group the answer has counts.")
    shown = columns or (TABLE_COLUMNS if target.form == "table" else tuple(COLUMNS))
    words = {word.lower() for word in re.findall(r"\w+", where or "")}
    named = [name for name in COLUMNS if name in words or "columns" in words]  # COLUMNS(*) is all of them
    with database(where) as (_, read):
        rows = read(out, dict.fromkeys([*(group or shown), *(("kind", "bytes") if group else ()), *named]))
        if where is not None:
            rows = rows.filter(where)  # parsed as one expression: no second statement, nothing behind a bracket
        if group:
            names = ", ".join(group)
            for name in GROUPED.keys() & set(group):
                rows = rows.project(f"* REPLACE ({GROUPED[name]} AS {name})")
            kept = "" if SINGLE_END & set(group) else f", avg((kind = '{KEPT}')::INT) AS kept_share"
            rows = rows.aggregate(f"{names}, {SUMS}{kept}", names).order(f"documents DESC, {names}")
        target.write(rows if group else rows.project(", ".join(shown)))
