"""JSONL, plain or compressed: one object a line, and a bad line costs itself only.

A line in another encoding (`charset`), broken JSON (`json`), NaN and numbers beyond a double (`json`), nesting bombs
(`json`), no text (`field`), text that is empty (`empty`) and a line over the cap (`too_long`) each become a `BadRecord`
with the line's offset, and the next line is read. Decoding is strict: a GBK line inside a UTF-8 file is an error and is
not guessed at, because one line is too little evidence to bet training data on; a file that is GBK throughout is read
with `sources.encoding`, one in UTF-16 is recognised. After damage in a compressed file reading goes on at its next
member or frame; the line that the damage cut is lost with it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from corpus.encoding import codec_of, replace_surrogates
from corpus.sources.compression import (
    BZIP2_HEAD_BYTES,
    PIECE_BYTES,
    Compression,
    compression_of,
    magic_of,
    read_stretches,
)
from corpus.sources.config import SourcesConfig
from corpus.sources.fields import identity, take
from corpus.sources.lines import Line, split_lines
from corpus.sources.record import BadRecord, Record, RecordError
from corpus.whatwg import decode_as

MAX_NAMES, MAX_NAME_CHARS = 20, 40  # of fields that an error lists
UTF8_BOM = b"\xef\xbb\xbf"
UTF16_STARTS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", b"{\0": "utf-16-le", b"\0{": "utf-16-be"}

_decode = msgspec.json.Decoder().decode  # much faster than json's


def read_jsonl(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The records of a JSONL file in order, bad ones among them; blank lines are not records."""
    with path.open("rb") as file:
        yield from _read_stream(file, compression_of(path), config)


def read_span(file: BinaryIO, config: SourcesConfig, start: int, end: int) -> Iterator[Record | BadRecord]:
    """The records of the lines that begin at bytes `start` to `end` of a plain file.

    Where the first bytes say that the file is compressed or UTF-16 after all, the first span is the whole file.
    """
    head = file.read(BZIP2_HEAD_BYTES)
    if magic_of(head) != "none" or head[:2] in UTF16_STARTS:
        if start == 0:
            file.seek(0)
            yield from _read_stream(file, magic_of(head), config)
        return
    file.seek(max(0, start - 1))
    offset = start
    if start:  # the line that began before the span belongs to the one before, however long it is
        offset = start - 1
        piece = b""
        while offset < end and not piece.endswith(b"\n") and (piece := file.readline(PIECE_BYTES)):
            offset += len(piece)
    for line in split_lines(iter(lambda: file.read(PIECE_BYTES), b""), config.max_line_bytes, offset):
        if line.offset >= end:
            return
        if not _is_blank(line):
            yield read_line(line, config)


def _read_stream(file: BinaryIO, compression: Compression, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    offset = 0

    def read(pieces: Iterator[bytes]) -> Iterator[Record | BadRecord]:
        nonlocal offset
        for line in split_lines(to_utf8(pieces), config.max_line_bytes, offset):
            offset = line.offset + line.length + 1
            if not _is_blank(line):
                yield read_line(line, config)

    yield from read_stretches(file, compression, read, _is_text)


def to_utf8(pieces: Iterator[bytes]) -> Iterable[bytes]:
    """UTF-16 as UTF-8, anything else as it is; offsets then count the bytes of UTF-8."""
    first = next(pieces, b"")
    codec = UTF16_STARTS.get(first[:2])
    if codec is None:
        return chain([first], pieces)
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    return (decoder.decode(piece).encode() for piece in chain([first], pieces))


def _is_text(head: bytes) -> bool:
    """Whether bytes could begin a member of a JSONL file, which may begin inside a line or a character."""
    text = head.decode("utf-8", "replace")
    return "\0" not in text and text.strip("\ufffd").count("\ufffd") == 0


def _is_blank(line: Line) -> bool:
    if line.offset == 0 and line.data == UTF8_BOM:
        return True
    return line.length == 0 or (line.data is not None and line.data.isspace())


def read_line(line: Line, config: SourcesConfig) -> Record | BadRecord:
    """The record of one JSON value, or what is wrong with it."""
    data = line.data
    if data is None:
        return BadRecord(line.offset, line.length, "too_long", f"a line of {line.length:,} bytes")
    if line.offset == 0:
        data = data.removeprefix(UTF8_BOM)
    try:
        return _read_data(data, line.offset, config)
    except RecordError as error:
        return BadRecord(line.offset, line.length, error.kind, str(error))
    except (ValueError, RecursionError) as error:
        if line.cut and data.startswith(b"{") and not data.rstrip().endswith(b"}"):
            return BadRecord(line.offset, line.length, "truncated", "the file ends inside a line")
        if isinstance(error, UnicodeDecodeError):
            return BadRecord(line.offset, line.length, "charset", f"not {config.encoding or 'UTF-8'}")
        if isinstance(error, RecursionError):
            return BadRecord(line.offset, line.length, "json", "nested too deep")
        detail = str(error).split("`")[0].split("'")[0].strip(" -")[:80]  # without what the parser quotes of the line
        return BadRecord(line.offset, line.length, "json", detail or type(error).__name__)


def _read_data(data: bytes, offset: int, config: SourcesConfig) -> Record:
    try:
        recoded = decode_as(data, codec_of(config.encoding) or config.encoding).encode() if config.encoding else data
        fields = _parse(recoded)
    except msgspec.DecodeError:
        data.decode("utf-8")  # what is wrong first of all, if it is not UTF-8
        raise
    return to_record(fields, data, offset, config)


def to_record(fields: Any, raw: bytes, offset: int, config: SourcesConfig, charset: str | None = None) -> Record:
    """A record of an object's fields, which it takes over; those the configuration does not name are its `fields`.

    `charset` says what the fields were decoded with where bytes may have been damaged.

    Raises:
        RecordError: there is no text, or it is not a string, or it is blank.
    """
    if not isinstance(fields, dict):
        raise RecordError("field", "not a JSON object")
    text = take(fields, config.text)
    if text is None:
        raise _without_text(fields, config.text)
    url, source = take(fields, config.url), take(fields, config.name.field)
    title, date = take(fields, config.title), take(fields, config.date)
    key = identity(fields, config.id) or url or ""
    return Record(key, offset, raw, "text", text, url, charset, source, title, date, fields)


def _without_text(fields: Mapping[str, Any], names: Sequence[str]) -> RecordError:
    """What is wrong with a record that has no text, with the names of the fields that it has."""
    asked = " or ".join(map(repr, names))
    values = [fields[name] for name in names if fields.get(name) is not None]
    if any(isinstance(value, str) for value in values):
        return RecordError("empty", f"{asked} is blank")
    there = ", ".join(sorted(str(name)[:MAX_NAME_CHARS] for name in fields)[:MAX_NAMES]) or "none"
    return RecordError("field", f"{asked} is no string" if values else f"no field {asked}; fields: {there}")


def _parse(data: bytes) -> Any:
    try:
        return _decode(data)
    except msgspec.DecodeError:
        if b"\\ud" not in data and b"\\uD" not in data:
            raise
    # An escaped lone surrogate, which Python's json.dumps writes and msgspec refuses: U+FFFD instead of a lost line.
    # What else json lets through (NaN, 1e999), msgspec still refuses.
    return _decode(replace_surrogates(json.dumps(json.loads(data), ensure_ascii=False)))
