"""Decompressed bytes of gzip and zstd files that insist on the frame's end.

The usual readers lie about damage: python-zstandard's `stream_reader` and `zlib.decompressobj` end quietly where a file
is cut off, and a decompression bomb is unpacked until memory ends. Here every good byte is delivered in bounded pieces
and then `DamagedStream` is raised for what follows: a cut (`truncated`), bad data (`corrupt`), bytes after the last
frame (`trailing`) or a bomb (`bomb`). Members and frames may follow each other; zero padding at the end is allowed.

A bomb is more than MAX_RATIO times its compressed size, beyond the first FREE_BYTES: real text reaches a ratio of 20,
a line of one repeated character 1,000 in gzip and 30,000 in zstd, and both are still read when they stay below 1 GiB.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard

PIECE_BYTES = 256 << 10
MAX_RATIO = 200
FREE_BYTES = 1 << 30
MAX_ZSTD_WINDOW_BYTES = 128 << 20  # zstd's own limit for files packed without --ultra --long

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGICS = tuple(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60))
GZIP_WINDOW_BITS = 31

Compression = Literal["none", "gzip", "zstd"]


class DamagedStream(ValueError):
    """What follows cannot be read; `kind` says why and `offset` where in the compressed file, about."""

    def __init__(self, kind: str, offset: int, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.offset = offset
        self.detail = detail


def compression_of(path: Path) -> Compression:
    """By the name's end, else by the first bytes."""
    if path.suffix in (".gz", ".gzip"):
        return "gzip"
    if path.suffix in (".zst", ".zstd"):
        return "zstd"
    with path.open("rb") as file:
        magic = file.read(4)
    if magic.startswith(GZIP_MAGIC):
        return "gzip"
    return "zstd" if magic == ZSTD_MAGIC else "none"


def read_pieces(file: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """The decompressed bytes of a file in pieces of at most PIECE_BYTES.

    Raises:
        DamagedStream: after every byte before the damage was delivered.
    """
    if compression == "gzip":
        return _gunzip(file)
    if compression == "zstd":
        return _unzstd(file)
    return iter(lambda: file.read(PIECE_BYTES), b"")


class Meter:
    """Counts bytes in and out of a decompressor; refuses a bomb."""

    def __init__(self, free_bytes: int = FREE_BYTES) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.free_bytes = free_bytes

    def add(self, bytes_out: int, offset: int) -> None:
        """Count decompressed bytes; raises `DamagedStream` of kind `bomb`."""
        self.bytes_out += bytes_out
        if self.bytes_out > self.free_bytes + MAX_RATIO * self.bytes_in:
            raise DamagedStream("bomb", offset, f"more than {MAX_RATIO} times its compressed size")


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    meter = Meter()
    members = 0
    data = b""
    while data := data or _more(file, meter):
        if members:
            data = data.lstrip(b"\0")
            if not data:
                continue
        decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
        starved = False
        while not decoder.eof:
            if starved and not data:
                data = _more(file, meter)
                if not data:
                    raise DamagedStream("truncated", meter.bytes_in, "the file ends inside a gzip member")
            try:
                piece = decoder.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                garbage = members > 0 and not data.startswith(GZIP_MAGIC) and not starved
                offset = meter.bytes_in - len(data)
                raise DamagedStream("trailing" if garbage else "corrupt", offset, str(error)) from error
            meter.add(len(piece), meter.bytes_in)
            if piece:
                yield piece
            data, starved = decoder.unconsumed_tail, len(piece) < PIECE_BYTES
        data = decoder.unused_data
        members += 1


def _more(file: BinaryIO, meter: Meter) -> bytes:
    data = file.read(PIECE_BYTES)
    meter.bytes_in += len(data)
    return data


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """Find where the last whole frame ends by walking the block headers, read, then say what followed it."""
    end, damage = _walk_zstd(file)
    meter = Meter()
    file.seek(0)
    source = _Limited(file, end, meter)
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    with decoder.stream_reader(source, read_across_frames=True, closefd=False) as reader:  # type: ignore[arg-type]
        while True:
            try:
                piece = reader.read(PIECE_BYTES)
            except zstandard.ZstdError as error:
                raise DamagedStream("corrupt", meter.bytes_in, str(error)) from error
            if not piece:
                break
            meter.add(len(piece), meter.bytes_in)
            yield piece
    if damage:
        raise damage


class _Limited:
    """The first `end` bytes of a file, counted."""

    def __init__(self, file: BinaryIO, end: int, meter: Meter) -> None:
        self._file, self._end, self._meter = file, end, meter

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._end - self._meter.bytes_in))
        self._meter.bytes_in += len(data)
        return data


def _walk_zstd(file: BinaryIO) -> tuple[int, DamagedStream | None]:
    """Follow frame and block headers to the end of the file (RFC 8878, section 3.1) without decompressing.

    Returns how many bytes there are to decompress, and what is wrong with the file's structure after them.
    """
    size = file.seek(0, 2)
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(18)
        if head.startswith(SKIPPABLE_MAGICS) and len(head) >= 8:
            position += 8 + int.from_bytes(head[4:8], "little")
        elif head.startswith(ZSTD_MAGIC) and len(head) >= 5:
            end = _walk_frame(file, position, head[4])
            if end is None:
                return size, DamagedStream("corrupt", position, "a zstd block of the reserved type")
            position = end
        elif ZSTD_MAGIC.startswith(head[:4]) or head.startswith(SKIPPABLE_MAGICS):
            position = size + 1
        elif position and not head.strip(b"\0") and not _rest_is_data(file):
            return position, None
        else:
            return position, DamagedStream("trailing" if position else "corrupt", position, "not a zstd frame")
    return size, DamagedStream("truncated", size, "the file ends inside a zstd frame") if position > size else None


def _walk_frame(file: BinaryIO, start: int, descriptor: int) -> int | None:
    """The end of a frame as its headers tell it (it may lie beyond the file), or None for a reserved block type."""
    single = descriptor >> 5 & 1
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    position = start + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
    last = 0
    while not last:
        file.seek(position)
        header = file.read(3)
        if len(header) < 3:
            return position + 3
        value = int.from_bytes(header, "little")
        last, kind, length = value & 1, value >> 1 & 3, value >> 3
        if kind == 3:
            return None
        position += 3 + (1 if kind == 1 else length)
    return position + 4 * (descriptor >> 2 & 1)


def _rest_is_data(file: BinaryIO) -> bool:
    return any(piece.strip(b"\0") for piece in iter(lambda: file.read(PIECE_BYTES), b""))
