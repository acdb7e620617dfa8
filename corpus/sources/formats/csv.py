"""CSV and TSV: a row a record, the first line names the columns; a bad row costs its own line.

Rows are cut by the `csv` module, so a line end may stand in quotes. A quote that never closes would take the rest of
the file along: where a row passes the bound on its bytes, or has more columns than there are names, its first line is a
bad record (`csv`) and reading goes on at its second. Where that would read most of a file again and again, rows may
have fewer lines. A shorter row lacks its last columns. The delimiter is the one of
comma, tab, semicolon and bar that the first line has most of.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from corpus.encoding import codec_of
from corpus.sources.compression import DamagedStream, compression_of, read_pieces
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.jsonl import to_record, to_utf8
from corpus.sources.formats.text import sniff_charset
from corpus.sources.lines import Line, split_lines
from corpus.sources.record import BadRecord, Record, RecordError
from corpus.whatwg import decode_as

DELIMITERS = ",\t;|"
AGAIN_RATIO = 4  # bytes that may be read a second time, to those that are done


def read_csv(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The rows of a file in order, bad ones among them; blank lines are not rows."""
    with path.open("rb") as file:
        try:
            lines = split_lines(to_utf8(read_pieces(file, compression_of(path))), config.max_line_bytes)
            charset = codec_of(config.encoding) or sniff_charset(path)
            yield from _read_rows(_Lines(lines, charset, config.max_line_bytes), config)
        except DamagedStream as damage:
            yield BadRecord(damage.offset, 0, damage.kind, damage.detail)


class _LongLineError(Exception):
    """A line over the bound, where a row should begin."""

    def __init__(self, line: Line) -> None:
        self.line = line


class _Lines:
    """Decoded lines for `csv.reader`; `row` holds those of the row that it is at."""

    def __init__(self, lines: Iterator[Line], charset: str, max_row_bytes: int) -> None:
        self.charset = charset
        self._python_codec = "utf-8" if charset == "utf-8" else "ascii"  # in which both agree
        self.row: list[Line] = []
        self._lines = lines
        self._again: deque[Line] = deque()  # lines that a bad row had taken
        self._max_row_bytes = self._spare_bytes = max_row_bytes
        self._done = 0  # where the last bad row ends

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines, None)
        row = self.row
        if row:
            if (
                line is None
                or line.data is None
                or line.offset + line.length - row[0].offset > self._most(row[0].offset)
            ):
                self._again.extendleft([line] if line else [])
                raise csv.Error("a quote that does not close")
        elif line is None:
            raise StopIteration
        elif line.data is None:
            raise _LongLineError(line)
        row.append(line)
        try:
            text = line.data.decode(self._python_codec)  # three times as fast as what browsers do
        except UnicodeDecodeError:
            text = decode_as(line.data, self.charset, replace=True)
        return (text if line.offset else text.removeprefix("\ufeff")) + "\n"

    def delimiter(self) -> str:
        """The delimiter that the first line has most of, which is then read again."""
        head = next(self, "")
        self._again.extendleft(reversed(self.row))
        return max(DELIMITERS, key=head.count)

    def give_back(self) -> Line:
        """Read the lines of this row again, all but the first, which is returned."""
        self._again.extendleft(reversed(self.row[1:]))
        first, last = self.row[0], self.row[-1]
        self._spare_bytes = self._most(first.offset) - (last.offset - first.offset)
        self._done = first.offset
        return first

    def _most(self, offset: int) -> int:
        """Bytes that a row may have that begins there."""
        return min(self._max_row_bytes, self._spare_bytes + AGAIN_RATIO * (offset - self._done))


def _read_rows(lines: _Lines, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    csv.field_size_limit(config.max_line_bytes)
    names, reader = config.columns, None
    while True:
        lines.row = []
        try:
            if reader is None:
                reader = csv.reader(lines, delimiter=lines.delimiter())
                continue
            values = next(reader)
        except StopIteration:
            return
        except _LongLineError as error:
            yield BadRecord(error.line.offset, error.line.length, "too_long", f"a line of {error.line.length:,} bytes")
            continue
        except csv.Error as error:
            first = lines.give_back()
            yield BadRecord(first.offset, first.length, "csv", str(error).partition(" - ")[0])
            continue
        while values and len(values) > len(names) > 0 and not values[-1]:
            values.pop()  # what stands behind a delimiter at a line's end
        if not any(values):
            continue
        if not names:
            names = [name.strip() or f"column_{index}" for index, name in enumerate(values, 1)]
        elif len(values) > len(names):
            first = lines.give_back()
            detail = f"{len(values):,} columns, and names of {len(names):,}"
            yield BadRecord(first.offset, first.length, "csv", detail)
        else:
            yield _to_record(dict(zip(names, values, strict=False)), lines, config)


def _to_record(fields: dict[str, str], lines: _Lines, config: SourcesConfig) -> Record | BadRecord:
    raw = b"\n".join(line.data or b"" for line in lines.row)
    offset = lines.row[0].offset
    try:
        present = {name: value for name, value in fields.items() if value}
        return to_record(present, raw, offset, config, lines.charset)
    except RecordError as error:
        return BadRecord(offset, len(raw), error.kind, str(error))
