"""The filter between two pipes: JSONL in, kept lines out, a summary on stderr.

    python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt

A line that no editor touched is written as it came, byte for byte; in an edited one only the text field is replaced, so
that numbers, key order and unknown fields survive. A bad line (not UTF-8, not JSON, no text, too long) costs itself,
and stderr says its number and byte offset. Memory is bounded by the batch and the longest line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import msgspec

from corpus.encoding import replace_surrogates
from corpus.engine import durable
from corpus.engine.cli import add_examples
from corpus.engine.errors import WenhaiError
from corpus.filters import Filter, Verdict, load
from corpus.sources.lines import Line, split_lines

PIECE_BYTES = 1 << 20
BATCH_BYTES = 8 << 20
BATCH_LINES = 4096
MAX_LINE_BYTES = 16 << 20
SHOWN_BAD_LINES = 20
VERDICT_FIELD = "filter_verdict"  # what --dropped adds to a record
REPLACEMENT = "\ufffd"
UTF8_BOM = b"\xef\xbb\xbf"

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class Record(NamedTuple):
    """A line that can be judged. `is_exact` is False where the line itself may not be written again."""

    line: bytes
    text: str
    is_exact: bool


class BadLine(ValueError):
    """A line that cannot be judged; `kind` is charset, json, field or too_long."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass
class Summary:
    """What happened to the lines: documents = kept + dropped; text bytes and seconds give the speed."""

    documents: int = 0
    kept: int = 0
    edited: int = 0
    text_bytes: int = 0
    kept_bytes: int = 0
    seconds: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)

    def render(self) -> str:
        """The summary as a person reads it."""
        speed = self.text_bytes / 1e6 / self.seconds if self.seconds else 0.0
        rows = [
            ("lines", self.documents + self.bad.total(), f"{self.text_bytes / 1e6:,.1f} MB of text"),
            ("kept", self.kept, f"{self.kept_bytes / 1e6:,.1f} MB, {self.edited:,} of them edited"),
            ("dropped", self.dropped.total(), ""),
            *((f"  {rule}", count, "") for rule, count in self.dropped.most_common()),
            ("bad lines", self.bad.total(), ""),
            *((f"  {kind}", count, "") for kind, count in self.bad.most_common()),
        ]
        lines = [f"{name:<40} {count:>12,}  {note}".rstrip() for name, count, note in rows]
        return "\n".join([*lines, f"{self.seconds:,.1f} s, {speed:,.1f} MB/s"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m corpus filter`."""
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument("--text-field", default="text", metavar="NAME", help="the field that holds the text")
    parser.add_argument("--dropped", type=Path, metavar="FILE", help="write dropped records here, with the reason")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")
    add_examples(
        parser,
        """
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
zstdcat in.jsonl.zst | python -m corpus filter --recipe web_zh --dropped dropped.jsonl | zstd > kept.jsonl.zst
python -m corpus filter --recipe web_zh --set filter.length.num_chars.min=20 < in.jsonl > kept.jsonl
""",
    )


def main(arguments: argparse.Namespace) -> None:
    """Run `python -m corpus filter`."""
    judge = load(arguments.recipe, arguments.set)
    target = durable.commit(arguments.dropped) if arguments.dropped else nullcontext()
    with target as path, open(path, "wb") if path else nullcontext() as dropped:
        run_stream(
            sys.stdin.buffer, sys.stdout.buffer, sys.stderr, judge, text_field=arguments.text_field, dropped=dropped
        )


def run_stream(
    stdin: BinaryIO,
    stdout: BinaryIO,
    stderr: TextIO,
    judge: Filter,
    *,
    text_field: str = "text",
    dropped: BinaryIO | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Summary:
    """Filter JSONL from one stream to another, in order.

    Raises:
        WenhaiError: there were lines and none of them could be judged.
    """
    summary = Summary()
    start = time.perf_counter()
    batch: list[Record] = []
    batch_bytes = 0
    for record in _records(stdin, stderr, text_field, max_line_bytes, summary):
        batch.append(record)
        batch_bytes += len(record.line)
        if batch_bytes >= BATCH_BYTES or len(batch) >= BATCH_LINES:
            _judge(batch, judge, text_field, stdout, dropped, summary)
            batch, batch_bytes = [], 0
    _judge(batch, judge, text_field, stdout, dropped, summary)
    stdout.flush()
    summary.seconds = time.perf_counter() - start
    print(summary.render(), file=stderr)
    if summary.bad and not summary.documents:
        raise WenhaiError(
            f"none of {summary.bad.total():,} lines could be judged. The input must be JSONL in UTF-8 with the text "
            f"in the field {text_field!r}; --text-field names another."
        )
    return summary


def _records(
    stdin: BinaryIO, stderr: TextIO, text_field: str, max_line_bytes: int, summary: Summary
) -> Iterator[Record]:
    for number, line in enumerate(split_lines(iter(partial(stdin.read, PIECE_BYTES), b""), max_line_bytes), 1):
        if line.data is not None and not line.data.strip():
            continue
        try:
            yield _read(line, text_field)
        except BadLine as error:
            summary.bad[error.kind] += 1
            if summary.bad.total() <= SHOWN_BAD_LINES:
                print(f"line {number:,}, byte {line.offset:,}: {error.kind}: {error}", file=stderr)
            elif summary.bad.total() == SHOWN_BAD_LINES + 1:
                print("further bad lines are counted, not shown", file=stderr)


def _read(line: Line, text_field: str) -> Record:
    if line.data is None:
        raise BadLine("too_long", f"{line.length:,} bytes")
    data = line.data.rstrip(b"\r")
    if line.offset == 0:
        data = data.removeprefix(UTF8_BOM)
    try:
        data.decode()
        raw = _fields(data).get(text_field)
        text = _decode_text(raw) if raw is not None else None
    except UnicodeDecodeError as error:
        raise BadLine("charset", f"not UTF-8 at byte {error.start} of the line") from None
    except RecursionError:
        raise BadLine("json", "nested too deep") from None
    except msgspec.ValidationError as error:
        known = str(error).startswith("Expected `str`")
        raise BadLine("field", f"{text_field!r} is no string" if known else "not a JSON object") from None
    except ValueError:  # msgspec.DecodeError is one
        raise BadLine("json", "not JSON") from None
    if text is None:
        raise BadLine("field", f"no field {text_field!r}")
    return Record(data, text, b"\\ud" not in data.lower() or REPLACEMENT not in text)


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


def _judge(
    batch: list[Record], judge: Filter, text_field: str, stdout: BinaryIO, dropped: BinaryIO | None, summary: Summary
) -> None:
    for record, verdict in zip(batch, judge.apply([record.text for record in batch]), strict=True):
        size = len(record.text.encode())
        summary.documents += 1
        summary.text_bytes += size
        if verdict.kept:
            same = record.is_exact and verdict.text == record.text
            summary.kept += 1
            summary.kept_bytes += size if same else len(verdict.text.encode())
            summary.edited += verdict.text != record.text
            stdout.write((record.line if same else _with(record.line, {text_field: verdict.text})) + b"\n")
        else:
            summary.dropped[str(verdict.rule)] += 1
            if dropped is not None:
                changes = {text_field: verdict.text, VERDICT_FIELD: _reason(verdict)}
                dropped.write(_with(record.line, changes) + b"\n")


def _with(line: bytes, changes: dict[str, Any]) -> bytes:
    """The record with some fields replaced or added; the others keep their bytes."""
    return _encode(_fields(line) | changes)


def _reason(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in ("rule", "value", "threshold", "bound")}
