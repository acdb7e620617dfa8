"""Lines of text files that people give us: bounded, unpacked, decoded, and named where something is wrong.

Paths, or URLs of any store; also packed as `.gz` or `.zst`. Read once, from front to back: one line is held at a time,
and none that is larger than a bound.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any, BinaryIO, NoReturn

from corpus.engine import storage
from corpus.engine.errors import SetupError, UsageError

MAX_BYTES = 64 << 20  # of a line, or of a file that is one text
CHUNK_BYTES = 1 << 16
ZSTD_CHUNK_BYTES = 1 << 10  # a kilobyte of zstd can be 32 MB of zeros


def text_lines(path: str, max_bytes: int | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a file that hold more than blanks, without their ends, each behind its number, from 1.

    Raises:
        UsageError: the file cannot be read or is damaged, or a line is too long or no UTF-8.
    """
    for number, line in enumerate(lines(path, b"\n", max_bytes), start=1):
        if (text := decode_lines(line, f"{path}, line {number}")).strip():
            yield number, text.rstrip("\r")


def json_object(line: str, where: str) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        UsageError: it is none, or holds what is no JSON or no text: NaN, half of a surrogate pair.
    """
    try:
        value = json.loads(line, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate, which no tokenizer reads, comes as an escape
    except UnicodeError as error:
        raise UsageError(f"{where}: half of a surrogate pair is not UTF-8. Mend the line or take it out.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error}). Mend the line or take it out.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: not a JSON object. Mend the line or take it out.")
    return value


def decode_lines(data: bytes, where: str) -> str:
    """UTF-8 as text, without a byte order mark; raises `UsageError` where it is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        advice = "Convert the file first: iconv -f gb18030 -t utf-8."
        raise UsageError(f"{where}: byte {error.start + 1} is not UTF-8. {advice}") from error


def lines(path: str, end: bytes, max_bytes: int | None = None) -> Iterator[bytes]:
    """The parts of a file between `end`s, or all of it as one where that is empty."""
    held, number, most = bytearray(), 1, max_bytes or MAX_BYTES
    for chunk in _chunks(path):
        held += chunk
        if end and end in chunk:
            *whole, held = held.split(end)
            for line in whole:
                _check_length(line, most, path, number)
                yield bytes(line)
                number += 1
        _check_length(held, most, path, number if end else None)
    if held or not end:
        yield bytes(held)


def _check_length(line: bytearray, most: int, path: str, number: int | None) -> None:
    if len(line) > most:
        where = path if number is None else f"{path}, line {number}"
        raise UsageError(f"{where}: is longer than {most:,} bytes. Cut it into several.")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


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
        raise UsageError(f"{path}: cannot be read ({error}).") from error


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
        raise UsageError(f"{path}: is damaged ({error}).") from error
    if frame is not None:
        raise UsageError(f"{path}: ends in the middle of a frame. Fetch it again.")
