"""Plain text and HTML files: a document is the file, a line, a block between blank lines, or what begins at a pattern.

The encoding is found once a file, from its first 64 KiB, and then holds for every line; with `document = "file"` the
whole file is decoded at once, as a page is. `sources.encoding` overrides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path

import msgspec

from corpus.encoding import UndecodableError, codec_of, decode
from corpus.sources.compression import DamagedStream, compression_of, first_piece, read_pieces
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.jsonl import to_utf8
from corpus.sources.formats.wrapped import num_chars, unwrap
from corpus.sources.lines import Line, split_lines
from corpus.sources.record import BadRecord, Record
from corpus.whatwg import decode_as

SNIFFED_BYTES = 64 << 10
SPLIT_BATCH_BYTES, SPLIT_LINE_BYTES = 1 << 20, 1024  # lines that are matched together, and how far into each


def read_file(path: Path, config: SourcesConfig, kind: str) -> Iterator[Record | BadRecord]:
    """One record: the whole file; `kind` is `text` or `html`."""
    parts: list[bytes] = []
    size = 0
    damage: DamagedStream | None = None
    with path.open("rb") as file:
        try:
            for piece in read_pieces(file, compression_of(path)):
                size += len(piece)
                if size > config.max_line_bytes:
                    yield BadRecord(0, size, "too_long", f"more than {config.max_line_bytes:,} bytes")
                    return
                parts.append(piece)
        except DamagedStream as error:
            damage = error
    if damage is not None:
        yield BadRecord(damage.offset, size, damage.kind, damage.detail)  # half a document is no document
    elif size:
        raw = b"".join(parts)
        yield Record(path.name, 0, raw, "html" if kind == "html" else "text", charset=config.encoding)


def read_text(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """One record: the whole file, decoded, its line ends as newlines."""
    for found in read_file(path, config, "text"):
        if isinstance(found, Record):
            try:
                decoded = decode(found.raw, config.encoding)
            except UndecodableError as error:
                yield BadRecord(0, len(found.raw), "charset", str(error))
                continue
            text = decoded.text.replace("\r\n", "\n").replace("\r", "\n")
            found = msgspec.structs.replace(found, text=text, charset=decoded.encoding)
        yield found


def read_unwrapped(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """One record: the whole file, its lines joined where they were cut (wrapped.py)."""
    for found in read_text(path, config):
        if isinstance(found, Record):
            text, removed = unwrap(found.text or "")
            found = msgspec.structs.replace(found, text=text, num_read=num_chars(found.text or ""), removed=removed)
        yield found


def read_blocks(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """A record a line, a block of lines that blank lines surround, or one that begins at a line as `split` has it."""
    by_line = config.document == "line" and not config.split
    charset = codec_of(config.encoding) or sniff_charset(path)
    with path.open("rb") as file:
        block: list[Line] = []
        try:
            lines = split_lines(to_utf8(read_pieces(file, compression_of(path))), config.max_line_bytes)
            for line, begins in (
                _beginnings(lines, charset, config.split) if config.split else zip(lines, repeat(by_line))
            ):
                blank = line.length == 0 or (line.data is not None and line.data.isspace())
                if block and (begins or (blank and not config.split)):
                    yield _to_record(block, charset, config)
                    block = []
                if not blank or (block and config.split):
                    block.append(line)
                    span = line.offset + line.length - block[0].offset
                    if span > config.max_line_bytes:
                        block = [Line(block[0].offset, span, None)]
            if block:
                yield _to_record(block, charset, config)
        except DamagedStream as damage:
            if block and by_line:
                yield _to_record(block, charset, config)
            yield BadRecord(damage.offset, 0, damage.kind, damage.detail)


def _beginnings(lines: Iterable[Line], charset: str, pattern: str) -> Iterator[tuple[Line, bool]]:
    """Lines, each with whether a document begins at it; RE2 reads them in linear time."""
    import pyarrow.compute as pc  # late: for those who split

    held: list[Line] = []
    size = 0

    def matched() -> Iterator[tuple[Line, bool]]:
        heads = [decode_as((line.data or b"")[:SPLIT_LINE_BYTES], charset, replace=True) for line in held]
        yield from zip(held, pc.match_substring_regex(heads, pattern).to_pylist(), strict=True)
        held.clear()

    try:
        for line in lines:
            held.append(line)
            size += len(line.data or b"")
            if size > SPLIT_BATCH_BYTES:
                yield from matched()
                size = 0
    except DamagedStream:  # it costs no line before it
        yield from matched()
        raise
    yield from matched()


def _to_record(block: list[Line], charset: str, config: SourcesConfig) -> Record | BadRecord:
    offset = block[0].offset
    length = block[-1].offset + block[-1].length - offset
    if length > config.max_line_bytes or any(line.data is None for line in block):
        return BadRecord(offset, length, "too_long", f"a document of {length:,} bytes")
    raw = b"\n".join(line.data.rstrip(b"\r") for line in block if line.data is not None)
    try:
        text = decode_as(raw, charset, replace=True)
    except ValueError as error:
        return BadRecord(offset, length, "charset", f"not {charset}: {error}")
    return Record("", offset, raw, "text", text=text.removeprefix("\ufeff"), charset=charset)


def sniff_charset(path: Path) -> str:
    """The codec of a file of lines, from its first 64 KiB."""
    head = first_piece(path)[:SNIFFED_BYTES]
    try:
        name = decode(head[: head.rfind(b"\n") + 1] or head).encoding
    except UndecodableError:
        return "utf-8"
    return "utf-8" if name.startswith("utf-16") else name  # as `to_utf8` gives them
