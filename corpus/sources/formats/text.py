"""Plain text and HTML files: a document is the file, a line, or a block between blank lines.

The encoding is found once a file, from its first 64 KiB, and then holds for every line; with `document = "file"` the
whole file is decoded at once, as a page is. `sources.encoding` overrides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus.encoding import UndecodableError, codec_of, decode
from corpus.sources.compression import DamagedStream, compression_of, first_piece, read_pieces
from corpus.sources.config import SourcesConfig
from corpus.sources.lines import Line, split_lines
from corpus.sources.record import BadRecord, Record
from corpus.whatwg import decode_as

SNIFFED_BYTES = 64 << 10


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


def read_blocks(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """A record a line, or a block of lines that blank lines surround."""
    by_line = config.document == "line"
    charset = codec_of(config.encoding) or sniff_charset(path)
    with path.open("rb") as file:
        block: list[Line] = []
        try:
            for line in split_lines(read_pieces(file, compression_of(path)), config.max_line_bytes):
                blank = line.length == 0 or (line.data is not None and line.data.isspace())
                if block and (blank or by_line):
                    yield _to_record(block, charset, config)
                    block = []
                if not blank:
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
    return "utf-8" if name.startswith("utf-16") else name  # lines of UTF-16 cannot be cut at a byte 0x0A
