"""The filter on JSON lines: lines in, kept lines out, in order.

A line that no editor touched is written as it came, byte for byte; in an edited one only the text field is replaced, so
that numbers, key order and unknown fields survive. A bad line (not UTF-8, not JSON, no text, too long) costs itself,
and the log says its number and byte offset. Memory is bounded by the batches in flight and the longest line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TextIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.encoding import replace_surrogates
from corpus.engine.errors import WenhaiError
from corpus.filters import Filter, Verdicts
from corpus.filters.adapters.summary import Summary
from corpus.filters.adapters.tables import REASON, VERDICT_COLUMN, judge_in_order, text_table
from corpus.sources.compression import DamagedStream
from corpus.sources.lines import Line, split_lines

PIECE_BYTES = 1 << 20
BATCH_BYTES = 8 << 20
BATCH_LINES = 4096
MAX_LINE_BYTES = 16 << 20
REPLACEMENT = "\ufffd"
UTF8_BOM = b"\xef\xbb\xbf"

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode

Write = Callable[[bytes], Any]


class Record(NamedTuple):
    """A line that can be judged. `is_exact` is False where the line itself may not be written again."""

    number: int
    line: bytes
    text: str
    url: str | None
    is_exact: bool


class BadLine(ValueError):
    """A line that cannot be judged; `kind` is charset, json, field or too_long."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass
class JsonLines:
    """One stream of JSON lines to filter: where lines go, and what is counted. `measured` gets every verdict."""

    judge: Filter
    summary: Summary
    write: Write
    column: str = "text"
    write_dropped: Write | None = None
    measured: Callable[[list[int], Verdicts], None] | None = None
    threads: int = 1
    max_line_bytes: int = MAX_LINE_BYTES

    def run(self, pieces: Iterable[bytes]) -> None:
        """Filter the lines of `pieces`; a stream that is damaged is filtered up to there, and the damage counted."""
        judged = judge_in_order(self.judge, self._batches(pieces), self._table, self.column, self.threads)
        for batch, verdicts in judged:
            self._write(batch, verdicts)

    def _batches(self, pieces: Iterable[bytes]) -> Iterator[list[Record]]:
        batch: list[Record] = []
        batch_bytes = 0
        for record in self._records(pieces):
            batch.append(record)
            batch_bytes += len(record.line)
            if batch_bytes >= BATCH_BYTES or len(batch) >= BATCH_LINES:
                yield batch
                batch, batch_bytes = [], 0
        if batch:
            yield batch

    def _records(self, pieces: Iterable[bytes]) -> Iterator[Record]:
        try:
            for number, line in enumerate(split_lines(pieces, self.max_line_bytes), 1):
                if line.data is not None and not line.data.strip():
                    continue
                try:
                    yield _read(number, line, self.column)
                except BadLine as error:
                    self.summary.add_bad(error.kind, f"line {number:,}, byte {line.offset:,}: {error.kind}: {error}")
        except DamagedStream as damage:
            self.summary.add_bad(damage.kind, f"byte {damage.offset:,}: {damage.kind}: {damage.detail}")

    def _table(self, batch: list[Record]) -> pa.Table:
        urls = [record.url for record in batch] if self.column != "url" else None
        return text_table([record.text for record in batch], urls, self.column)

    def _write(self, batch: list[Record], verdicts: Verdicts) -> None:
        table = verdicts.table
        self.summary.add(sum(len(record.text.encode()) for record in batch), verdicts)
        edited = np.asarray(pc.is_valid(table["edits"]).to_numpy(), np.bool_)
        texts = dict(
            zip(np.flatnonzero(edited).tolist(), table["text"].filter(pa.array(edited)).to_pylist(), strict=True)
        )
        kept = verdicts.kept
        for row in np.flatnonzero(kept).tolist():
            record = batch[row]
            text = texts.get(row, record.text)
            same = record.is_exact and text == record.text
            self.write((record.line if same else _with(record.line, {self.column: text})) + b"\n")
        if self.write_dropped is not None:
            reasons = table.select(REASON.names).filter(pa.array(~kept)).to_pylist()
            for row, reason in zip(np.flatnonzero(~kept).tolist(), reasons, strict=True):
                changes = {self.column: texts.get(row, batch[row].text), VERDICT_COLUMN: reason}
                self.write_dropped(_with(batch[row].line, changes) + b"\n")
        if self.measured is not None:
            self.measured([record.number for record in batch], verdicts)


def _read(number: int, line: Line, column: str) -> Record:
    if line.data is None:
        raise BadLine("too_long", f"{line.length:,} bytes")
    data = line.data.rstrip(b"\r")
    if line.offset == 0:
        data = data.removeprefix(UTF8_BOM)
    try:
        data.decode()
        fields = _fields(data)
        raw = fields.get(column)
        text = _decode_text(raw) if raw is not None else None
    except UnicodeDecodeError as error:
        raise BadLine("charset", f"not UTF-8 at byte {error.start} of the line") from None
    except RecursionError:
        raise BadLine("json", "nested too deep") from None
    except msgspec.ValidationError as error:
        known = str(error).startswith("Expected `str`")
        raise BadLine("field", f"{column!r} is no string" if known else "not a JSON object") from None
    except ValueError:  # msgspec.DecodeError is one
        raise BadLine("json", "not JSON") from None
    if text is None:
        raise BadLine("field", f"no field {column!r}")
    return Record(number, data, text, _url(fields), b"\\ud" not in data.lower() or REPLACEMENT not in text)


def _url(fields: dict[str, msgspec.Raw]) -> str | None:
    raw = fields.get("url")
    try:
        return _decode_text(raw) if raw is not None else None
    except msgspec.ValidationError:  # a URL that is no string is no URL
        return None


def _fields(line: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, values as the bytes they came in.

    Python's json.dumps escapes lone surrogates and msgspec refuses them: such a line goes through json, as U+FFFD.
    """
    try:
        return _decode_fields(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in line.lower():
            raise
        return _decode_fields(replace_surrogates(json.dumps(json.loads(line), ensure_ascii=False)).encode())


def _with(line: bytes, changes: dict[str, Any]) -> bytes:
    """The record with some fields replaced or added; the others keep their bytes."""
    return _encode(_fields(line) | changes)


def run_stream(
    stdin: BinaryIO,
    stdout: BinaryIO,
    stderr: TextIO,
    judge: Filter,
    *,
    column: str = "text",
    dropped: BinaryIO | None = None,
    threads: int = 1,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Summary:
    """Filter JSON lines from one stream to another, in order; bad lines and the summary go to `stderr`.

    Raises:
        WenhaiError: there were lines and none of them could be judged.
    """
    summary = Summary(partial(print, file=stderr))
    write_dropped = dropped.write if dropped else None
    lines = JsonLines(judge, summary, stdout.write, column, write_dropped, None, threads, max_line_bytes)
    lines.run(iter(partial(stdin.read, PIECE_BYTES), b""))
    stdout.flush()
    print(summary.render(), file=stderr)
    if summary.bad and not summary.documents:
        raise WenhaiError(nothing_judged(summary, column))
    return summary


def nothing_judged(summary: Summary, column: str) -> str:
    """The message for an input without a single document."""
    return (
        f"none of {summary.bad.total():,} lines could be judged. The input must be JSONL in UTF-8 with the text "
        f"in the field {column!r}; --column names another."
    )
