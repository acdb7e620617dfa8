"""Texts of one's own to be scored: JSONL with a text in each line, or files that are one text each.

    {"text": "床前明月光，疑是地上霜。", "source": "诗"}

`.jsonl` (`.ndjson`) and `.txt`, each also with `.gz` or `.zst` after it; paths, or URLs of any store. Read once, from
front to back: one text is held at a time, and none that is larger than a bound. What is wrong is an error that names
the file and the line: a score of half a file would be a wrong score.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple

from corpus.engine import storage
from corpus.engine.errors import SetupError, UsageError, WenhaiError

MAX_TEXT_BYTES = 64 << 20  # of a line of JSONL, or of a text file
CHUNK_BYTES = 1 << 16
ZSTD_CHUNK_BYTES = 1 << 10  # a kilobyte of zstd can be 32 MB of zeros
PACKED = (".gz", ".zst")
LINES = (".jsonl", ".ndjson")


class Text(NamedTuple):
    """What is scored, and under which name."""

    text: str
    source: str


@dataclass
class Texts:
    """The texts of some files in the order of the files; those without a character are left out, and counted.

    Args:
        paths: or URLs.
        by: the field of a line that names its source. None, or where a line has none: the file's name.

    Raises:
        UsageError: a file is not there, or its name says nothing of its format.
    """

    paths: Sequence[str]
    by: str | None = None
    num_empty: int = 0  # so far

    def __post_init__(self) -> None:
        for path in self.paths:
            if _suffix(path) not in (*LINES, ".txt"):
                raise UsageError(
                    f"{path}: name it .jsonl (a text in each line) or .txt (one text), or so with .gz or .zst"
                )
            if not storage.exists(path):
                raise UsageError(f"{path}: there is no such file.")
        names = [PurePath(path).name for path in self.paths]
        self._names = [path if names.count(name) > 1 else name for path, name in zip(self.paths, names, strict=True)]

    def __iter__(self) -> Iterator[Text]:
        self.num_empty = 0
        for path, name in zip(self.paths, self._names, strict=True):
            for text in _read(path, name, self.by):
                if text.text:
                    yield text
                else:
                    self.num_empty += 1


def read_texts(paths: str | Sequence[str], by: str | None = None) -> Iterator[Text]:
    """The texts of some files that have a character; see `Texts`, which also counts the others."""
    return iter(Texts([paths] if isinstance(paths, str) else paths, by))


def _suffix(path: str) -> str:
    """The last one that does not say how the file is packed."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in PACKED), "")


def _read(path: str, name: str, by: str | None) -> Iterator[Text]:
    """The texts of a file."""
    if _suffix(path) == ".txt":
        (whole,) = lines(path, b"")
        yield Text(decoded(whole, path), name)
        return
    for number, line in enumerate(lines(path, b"\n"), start=1):
        where = f"{path}, line {number}"
        if text := decoded(line, where).strip():
            yield _of_line(text, where, name, by)


def _of_line(line: str, where: str, name: str, by: str | None) -> Text:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WenhaiError(f"{where}: is no JSON ({error}).") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise WenhaiError(f'{where}: has no "text" that is a string.')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise WenhaiError(f"{where}: its text holds half of a surrogate pair, which is no character.")
    source = record.get(by) if by is not None else None
    if source is None or source == "":
        return Text(text, name)
    if isinstance(source, dict | list):
        raise WenhaiError(f"{where}: its {by!r} is no name of a source.")
    return Text(text, str(source))


def decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WenhaiError(f"{where}: byte {error.start + 1} is not UTF-8. Convert the file first.") from error


def lines(path: str, end: bytes) -> Iterator[bytes]:
    """The parts of a file between `end`s, or all of it as one where that is empty."""
    held = bytearray()
    number = 1
    for chunk in _chunks(path):
        held += chunk
        if end and end in chunk:
            *lines, held = held.split(end)
            number += len(lines)
            yield from map(bytes, lines)
        if len(held) > MAX_TEXT_BYTES:
            where = f"{path}, line {number}" if end else path
            raise WenhaiError(f"{where}: is longer than {MAX_TEXT_BYTES:,} bytes. Cut it into several texts.")
    if held or not end:
        yield bytes(held)


def _chunks(path: str) -> Iterator[bytes]:
    """The bytes of a file, unpacked, some at a time."""
    try:
        with storage.open_stream(path) as stored:
            if path.lower().endswith(".zst"):
                yield from _unzstd(stored, path)
                return
            with gzip.GzipFile(fileobj=stored) if path.lower().endswith(".gz") else nullcontext(stored) as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise WenhaiError(f"{path}: cannot be read ({error}).") from error


def _unzstd(file: BinaryIO, path: str) -> Iterator[bytes]:
    """One frame after another; a file that ends inside of one is an error, which zstandard's own streams do not
    tell."""
    if find_spec("zstandard") is None:
        raise SetupError(f"{path}: to read .zst, run: pip install zstandard")
    import zstandard

    frames = zstandard.ZstdDecompressor()
    frame: Any = None
    try:
        while chunk := file.read(ZSTD_CHUNK_BYTES):
            while chunk:
                frame = frame or frames.decompressobj()
                yield frame.decompress(chunk)
                chunk = frame.unused_data
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise WenhaiError(f"{path}: is damaged ({error}).") from error
    if frame is not None:
        raise WenhaiError(f"{path}: ends in the middle of a frame. Fetch it again.")
