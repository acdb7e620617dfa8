"""Decompressed bytes of gzip, bzip2, xz and zstd files that insist on the frame's end.

The usual readers lie about damage: python-zstandard's `stream_reader` and `zlib.decompressobj` end quietly where a file
is cut off, and a decompression bomb is unpacked until memory ends. Here every good byte is delivered in bounded pieces
and then `DamagedStream` is raised for what follows: a cut (`truncated`), bad data (`corrupt`), bytes after the last
frame (`trailing`) or a bomb (`bomb`). Members and frames may follow each other; zero padding at the end is allowed.

A bomb is more than MAX_RATIO times its compressed size, beyond the first FREE_BYTES: real text reaches a ratio of 20,
one repeated character 1,000 in gzip, 30,000 in zstd and 500,000 in bzip2.

What damage costs is its own member or frame where there are several: `next_member` says where the next one begins.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from corpus.sources.record import BadRecord

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 256 << 10
MEMBER_CHUNK_BYTES = 64 << 10  # read at a time where a member is a record: what is left over is copied
MAX_RATIO = 200
FREE_BYTES = 1 << 20
MAX_ZSTD_WINDOW_LOG = 27  # 128 MiB: zstd's own limit for files packed without --ultra --long

GZIP_MAGIC = b"\x1f\x8b"
GZIP_MEMBER = GZIP_MAGIC + b"\x08"
BZIP2_MAGIC = b"BZh"
BZIP2_HEAD = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")  # a stream, its level, and its first block or its end
BZIP2_HEAD_BYTES = 10
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XZ_MAGIC = b"\xfd7zXZ\0"
MAX_XZ_BYTES = 128 << 20  # of memory; xz -9 takes 65 MiB
MAGICS = {"gzip": GZIP_MAGIC, "bzip2": BZIP2_MAGIC, "xz": XZ_MAGIC, "zstd": ZSTD_MAGIC}
SKIPPABLE_MAGICS = tuple(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60))
DICTIONARY_FRAME = SKIPPABLE_MAGICS[0xD]  # at the start of a .warc.zst, by IIPC's specification
DICTIONARY_MAGIC = b"\x37\xa4\x30\xec"
MAX_DICTIONARY_BYTES = 16 << 20
GZIP_WINDOW_BITS = 31
SCAN_BYTES = 1 << 20
HEAD_INPUT_BYTES = 4096
HEAD_BYTES = 64
MAX_STRETCHES = 64  # of a damaged file: a file made of the heads of members must not be read again and again

Found = TypeVar("Found")
Compression = Literal["none", "gzip", "bzip2", "xz", "zstd"]


SUFFIXES: dict[str, Compression] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
}


class DamagedStream(ValueError):
    """What follows cannot be read; `kind` says why, `offset` where in the compressed file, about.

    `start` is where the damaged member or frame began, as far as is known.
    """

    def __init__(self, kind: str, offset: int, detail: str, start: int | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.offset = offset
        self.detail = detail
        self.start = offset if start is None else start


def compression_of(path: Path) -> Compression:
    """By the name's end, else by the first bytes."""
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    with path.open("rb") as file:
        return magic_of(file.read(BZIP2_HEAD_BYTES))


def magic_of(head: bytes) -> Compression:
    """By a file's first ten bytes."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if BZIP2_HEAD.match(head):
        return "bzip2"
    if head.startswith(XZ_MAGIC):
        return "xz"
    return "zstd" if head.startswith((ZSTD_MAGIC, *SKIPPABLE_MAGICS)) else "none"


def read_pieces(file: BinaryIO, compression: Compression, start: int = 0) -> Iterator[bytes]:
    """The decompressed bytes of a file in pieces of at most PIECE_BYTES, from the member or frame at `start` on.

    Raises:
        DamagedStream: after every byte before the damage was delivered.
    """
    file.seek(start)
    return iter(lambda: file.read(PIECE_BYTES), b"") if compression == "none" else _unpack(file, compression)


def first_piece(path: Path) -> bytes:
    """The first decompressed bytes of a file; none where damage stands before them."""
    with path.open("rb") as file, suppress(DamagedStream):
        return next(read_pieces(file, compression_of(path)), b"")
    return b""


def read_stretches(
    file: BinaryIO,
    compression: Compression,
    read: Callable[[Iterator[bytes]], Iterator[Found]],
    plausible: Callable[[bytes], bool] = lambda head: b"\0" not in head,
) -> Iterator[Found | BadRecord]:
    """What `read` makes of the bytes of a file, called again behind each piece of damage, which is a bad record."""
    start: int | None = 0
    for _ in range(MAX_STRETCHES):
        try:
            yield from read(read_pieces(file, compression, start or 0))
            return
        except DamagedStream as damage:
            start = next_member(file, compression, damage.start + 1, plausible)
            kind = "corrupt" if damage.kind == "truncated" and start is not None else damage.kind
            yield BadRecord(damage.offset, (start or damage.offset) - damage.offset, kind, damage.detail)
            if start is None:
                return
    detail = f"{MAX_STRETCHES} damaged places: what follows was not read. Fetch the file again, or cut it up"
    yield BadRecord(start or 0, 0, "corrupt", detail)


def next_member(
    file: BinaryIO,
    compression: Compression,
    start: int,
    plausible: Callable[[bytes], bool],
    dictionary: zstd.ZstdDict | None = None,
) -> int | None:
    """The first place from `start` on where a gzip member or zstd frame begins whose first bytes are `plausible`.

    `dictionary` is for zstd frames that need one. The three or four bytes that mark one also stand in compressed
    data by chance, so its head is decompressed; the ten of a bzip2 stream do not, and whatever it holds is taken.
    """
    if compression == "none":
        return None
    magic = GZIP_MEMBER if compression == "gzip" else MAGICS[compression]
    while (found := find(file, start, magic)) is not None:
        file.seek(found)
        data = file.read(HEAD_INPUT_BYTES)
        if compression == "bzip2" and BZIP2_HEAD.match(data):
            return found
        head = _head(data, new_decoder(compression, dictionary))
        if head and plausible(head):
            return found
        start = found + 1
    return None


def find(file: BinaryIO, start: int, wanted: bytes) -> int | None:
    """The first place from `start` on where `wanted` stands; reads in blocks that overlap."""
    while True:
        file.seek(start)
        block = file.read(SCAN_BYTES)
        found = block.find(wanted)
        if found >= 0:
            return start + found
        if len(block) < SCAN_BYTES:
            return None
        start += len(block) - len(wanted) + 1


class KeepingDecoder:
    """A decoder of bzip2, xz or zstd with the interface of a zlib decoder; input it cannot use yet it keeps itself."""

    unconsumed_tail = unused_data = b""
    eof = False

    def __init__(self, decoder: bz2.BZ2Decompressor | lzma.LZMADecompressor | zstd.ZstdDecompressor) -> None:
        self._decoder = decoder

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """At most `max_length` bytes; raises `zlib.error`."""
        try:
            piece = self._decoder.decompress(data, max_length)
        except (OSError, lzma.LZMAError, zstd.ZstdError) as error:
            raise zlib.error(str(error)) from error
        self.eof, self.unused_data = self._decoder.eof, self._decoder.unused_data
        return piece


def new_decoder(compression: Compression, dictionary: zstd.ZstdDict | None = None) -> KeepingDecoder | zlib._Decompress:
    """A decoder for one gzip member, bzip2 or xz stream, or zstd frame."""
    if compression == "gzip":
        return zlib.decompressobj(GZIP_WINDOW_BITS)
    if compression == "bzip2":
        return KeepingDecoder(bz2.BZ2Decompressor())
    if compression == "xz":
        return KeepingDecoder(lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_BYTES))
    window = zstd.DecompressionParameter.window_log_max
    return KeepingDecoder(zstd.ZstdDecompressor(dictionary, {window: MAX_ZSTD_WINDOW_LOG}))


class GzipMembers:
    """A gzip, bzip2, xz or zstd file as a row of members, each readable like a file; damage raises `DamagedStream`.

    `first` are the bytes that a member's content begins with: how the next one is recognised after damage. Zero padding
    is passed over. Where they are read as a `whole`, all members count together for a bomb, and what stands before the
    first is no padding.
    """

    def __init__(self, file: BinaryIO, first: bytes, compression: Compression = "gzip", *, whole: bool = False) -> None:
        self._file, self._first, self._compression = file, first, compression
        self.start = 0  # where the current member begins in the file
        self._data = b""  # compressed bytes that were read and not yet used
        self._position = self._counted_from = file.tell()  # of the end of _data in the file
        self._dictionary = _dictionary(file) if compression == "zstd" else None
        file.seek(self._position)
        self._decoder = new_decoder(compression, self._dictionary)
        self._is_full = False  # the last piece was as large as asked for: more may be ready
        self._whole = whole
        self._chunk_bytes = PIECE_BYTES if whole else MEMBER_CHUNK_BYTES
        self._bytes_out = 0  # since _counted_from

    def advance(self) -> bool:
        """Go to the next member, which begins where the last one ended (or at `resync`'s place); False at the end."""
        padding = b"" if self._whole and not self._decoder.eof else b"\0"
        self._data = (self._decoder.unused_data if self._decoder.eof else self._data).lstrip(padding)
        while not self._data:
            if not self._fill():
                return False
            self._data = self._data.lstrip(padding)
        self.start = self._position - len(self._data)
        self._decoder, self._is_full = new_decoder(self._compression, self._dictionary), False
        if not self._whole:
            self._bytes_out, self._counted_from = 0, self.start
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` decompressed bytes of the current member, nothing at its sound end."""
        size = self._chunk_bytes if size < 0 else max(1, size)
        while not self._decoder.eof:
            if not self._data and not self._is_full and not self._fill():
                detail = (
                    f"the file ends inside a {self._compression} {'frame' if self._compression == 'zstd' else 'member'}"
                )
                raise DamagedStream("truncated", self._position, detail, self.start)
            try:
                piece = self._decoder.decompress(self._data, size)
            except zlib.error as error:
                offset = self._position - len(self._data)
                raise DamagedStream("corrupt", offset, f"{self._compression}: {error}", self.start) from error
            self._data, self._is_full = self._decoder.unconsumed_tail, len(piece) == size
            self._bytes_out += len(piece)
            if self._bytes_out > FREE_BYTES + MAX_RATIO * (self._position - self._counted_from):
                raise DamagedStream("bomb", self.start, f"more than {MAX_RATIO} times its compressed size")
            if piece:
                return piece
        return b""

    def tell(self) -> int:
        """Decompressed bytes of the current member that were read."""
        return self._bytes_out

    def resync(self, start: int) -> bool:
        """Go to the next member from `start` on that begins as the first one should; False when there is none."""
        found = next_member(
            self._file, self._compression, start, lambda head: head.startswith(self._first), self._dictionary
        )
        self._file.seek(found or 0, io.SEEK_SET if found is not None else io.SEEK_END)
        self.start = self._position = self._file.tell()
        self._data = b""
        self._decoder = new_decoder(self._compression, self._dictionary)
        return found is not None

    def _fill(self) -> bool:
        self._data = self._file.read(self._chunk_bytes)
        self._position += len(self._data)
        return bool(self._data)


def _unpack(file: BinaryIO, compression: Compression) -> Iterator[bytes]:
    first = file.tell()
    members = GzipMembers(file, b"", compression, whole=True)
    while members.advance():
        try:
            yield from iter(members.read, b"")
        except DamagedStream as damage:
            file.seek(members.start)
            magics = (MAGICS[compression], *SKIPPABLE_MAGICS)
            is_garbage = first < members.start == damage.offset and not file.read(4).startswith(magics)
            kind = "trailing" if is_garbage and damage.kind == "corrupt" else damage.kind
            detail = damage.detail.removeprefix("gzip: ")
            raise DamagedStream(kind, damage.offset, detail, damage.start) from damage


def _head(data: bytes, decoder: KeepingDecoder | zlib._Decompress) -> bytes:
    """The first bytes of a gzip member or zstd frame; none where it is not one."""
    try:
        return decoder.decompress(data, HEAD_BYTES)
    except zlib.error:
        return b""


def _dictionary(file: BinaryIO) -> zstd.ZstdDict | None:
    """The dictionary that the first frame of a .warc.zst may hold, itself compressed or not; None of a damaged one: so
    is every frame that needs it."""
    file.seek(0)
    head = file.read(8)
    length = int.from_bytes(head[4:], "little")
    if not head.startswith(DICTIONARY_FRAME) or length > MAX_DICTIONARY_BYTES:
        return None
    data = file.read(length)
    try:
        if data.startswith(ZSTD_MAGIC):
            data = new_decoder("zstd").decompress(data, MAX_DICTIONARY_BYTES)
        dictionary = zstd.ZstdDict(data, is_raw=not data.startswith(DICTIONARY_MAGIC))
        new_decoder("zstd", dictionary)
    except (zlib.error, zstd.ZstdError, ValueError):
        return None
    return dictionary
