"""JSON that is not an object a line: arrays of objects or texts, and objects one after another, printed as they like.

Values are cut out by their brackets before one of them is parsed: a file of any size is read in the memory of its
largest record, and a record that is not JSON costs itself. Where a file ends inside a record, the records before it
come through, and then `truncated`. A bracket too few takes what follows along: then the bound on a record's bytes is
passed, and the rest of the file is one `too_long`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import json, structs

from corpus.encoding import codec_of
from corpus.sources.compression import compression_of, read_stretches
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.jsonl import read_line, to_utf8
from corpus.sources.lines import Line
from corpus.sources.record import BadRecord, Record

# A whole string; the quote of one whose end is not here yet; a bracket. Possessive: no byte is tried twice.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BETWEEN = re.compile(rb"(?:[\s,\x1e]++|\xef\xbb\xbf)*+")  # U+001E: before each record of RFC 7464
_SCALAR = re.compile(rb'[^\[\]{}"]*+')  # numbers and words where objects should stand: one bad record


def read_json(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The objects of a file in order: those at its top, and the elements of arrays at its top."""
    offset = 0

    def read(pieces: Iterator[bytes]) -> Iterator[Record | BadRecord]:
        nonlocal offset
        for value in split_values(_utf8(pieces, config.encoding), config.max_line_bytes, offset):
            offset = value.offset + value.length
            if value.data is not None and value.data.startswith(b'"'):  # an array of texts
                value = structs.replace(value, data=b"{%s:%s}" % (name, value.data))
            yield read_line(value, utf8)

    name = json.encode(config.text[0])
    utf8 = config.model_copy(update={"encoding": None})
    with path.open("rb") as file:
        yield from read_stretches(file, compression_of(path), read)


def _utf8(pieces: Iterator[bytes], encoding: str | None) -> Iterable[bytes]:
    """As UTF-8: a second byte of GBK may be a bracket or a backslash. Offsets then count the bytes of UTF-8."""
    codec = codec_of(encoding) or encoding
    if codec is None:
        return to_utf8(pieces)
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    return (decoder.decode(piece).encode() for piece in pieces)


def split_values(pieces: Iterable[bytes], max_bytes: int, offset: int = 0) -> Iterator[Line]:
    """The values at the top of JSON text, and those in arrays there, in order.

    At most `max_bytes` and two pieces are held. The bytes of a longer value are None; one that the end of the text
    cuts is marked `cut`.

    >>> [value.data for value in split_values([b'[{"a": "]"}, {"b', b'": [1]}]'], 100)]
    [b'{"a": "]"}', b'{"b": [1]}']
    """
    text = _Text(iter(pieces), offset)
    in_array = False
    while first := text.next_byte():
        if first == b"]" or (first == b"[" and not in_array):
            in_array = first == b"["
            text.at += 1
        elif first in b'{["':
            yield _value(text, max_bytes)
        else:
            start = text.offset + text.at
            text.at += 1
            text.skip(_SCALAR)
            yield Line(start, text.offset + text.at - start, b"0")


class _Text:
    """A window on a byte stream: `held` is in memory, `at` its next byte, `offset` where `held` begins."""

    def __init__(self, pieces: Iterator[bytes], offset: int) -> None:
        self.held, self.at, self.offset = b"", 0, offset
        self._pieces = pieces

    def more(self, keep_from: int) -> bool:
        """Read a piece and forget what stands before `keep_from`; False at the end of the stream."""
        piece = next(self._pieces, b"")
        self.held = self.held[keep_from:] + piece
        self.offset += keep_from
        self.at -= keep_from
        return bool(piece)

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        """Go behind what matches, however long it is."""
        while True:
            match = pattern.match(self.held, self.at)
            self.at = match.end() if match else self.at
            if self.at + len(codecs.BOM_UTF8) <= len(self.held) or not self.more(self.at):
                return

    def next_byte(self) -> bytes:
        """The next byte that stands between no values; empty at the end."""
        self.skip(_BETWEEN)
        return self.held[self.at : self.at + 1]


def _value(text: _Text, max_bytes: int) -> Line:
    """Read the value that begins at `text.at`, and go behind it."""
    start, begin = text.offset + text.at, text.at
    depth, in_string, is_kept = 0, False, True
    while True:
        depth, in_string, is_closed = _scan(text, depth, in_string)
        length = text.offset + text.at - start
        is_kept = is_kept and length <= max_bytes
        if is_closed:
            return Line(start, length, text.held[begin : text.at] if is_kept else None)
        is_there, begin = text.more(begin if is_kept else text.at), 0
        if not is_there:
            length = text.offset + len(text.held) - start
            text.at = len(text.held)
            return Line(start, length, text.held if is_kept else None, cut=True)


def _scan(text: _Text, depth: int, in_string: bool) -> tuple[int, bool, bool]:
    """Go on to the end of the value or of the bytes: the depth there, whether in a string, whether the value ended."""
    if in_string:
        match = _STRING.match(text.held, text.at)
        text.at = match.end() if match else text.at
        if text.held[text.at : text.at + 1] != b'"':
            return depth, True, False
        text.at += 1
        if depth == 0:
            return 0, False, True
    for token in _TOKEN.finditer(text.held, text.at):
        byte = token[0][0]
        if byte in b"[{":
            depth += 1
        elif byte in b"]}":
            depth -= 1
        elif token.end() == token.start() + 1:  # the string has no end here
            text.at = token.end()
            return _scan(text, depth, True)
        if depth == 0:
            text.at = token.end()
            return 0, False, True
    text.at = len(text.held)
    return depth, False, False
