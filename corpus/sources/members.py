"""A zstd file as a row of frames, each read like a file of its own and each damaged alone.

`ZstdMembers` has the verbs of `compression.GzipMembers`: gzip members and bzip2 streams end where their data say so,
zstd frames where their block headers say so, which is known before anything is decompressed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from corpus.sources.compression import (
    ZSTD_MAGIC,
    DamagedStream,
    Meter,
    next_member,
    unzstd_frame,
    zstd_decoder,
    zstd_frames,
)

READ_BYTES = 64 << 10
DICTIONARY_MAGIC = b"\x5d\x2a\x4d\x18"  # a skippable frame at the start of a .warc.zst, by IIPC's specification
MAX_DICTIONARY_BYTES = 16 << 20


class ZstdMembers:
    """A zstd file as a row of frames, each readable like a file; damage raises `DamagedStream`."""

    def __init__(self, file: BinaryIO, first: bytes) -> None:
        self._first = first
        self.start = 0  # where the current frame begins in the file
        self._file = file
        try:
            self._decoder = zstd_decoder(_dictionary(file))
        except zstandard.ZstdError:  # the dictionary is damaged: so is every frame that needs it
            self._decoder = zstd_decoder()
        self._frames = zstd_frames(file)
        self._pieces: Iterator[bytes] = iter(())
        self._damage: DamagedStream | None = None
        self._held = memoryview(b"")
        self._told = 0

    def advance(self) -> bool:
        """Go to the next frame; False at the end."""
        self._held = memoryview(b"")
        self._told = 0
        try:
            frame = next(self._frames, None)
        except DamagedStream as damage:
            self.start, self._damage = damage.start, damage
            return True
        if frame is None:
            return False
        self.start = frame[0]
        self._pieces = unzstd_frame(self._file, *frame, self._decoder, Meter())
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` decompressed bytes of the current frame, nothing at its sound end."""
        if self._damage is not None:
            raise self._damage
        if not self._held:
            self._held = memoryview(next(self._pieces, b""))
        size = READ_BYTES if size < 0 else max(1, size)
        data, self._held = bytes(self._held[:size]), self._held[size:]
        self._told += len(data)
        return data

    def tell(self) -> int:
        return self._told

    def resync(self, start: int) -> bool:
        """Go to the next frame from `start` on that begins as the first one should; False when there is none."""
        self._damage = None
        found = next_member(self._file, "zstd", start, lambda head: head.startswith(self._first), self._decoder)
        self.start = self._file.seek(0, io.SEEK_END) if found is None else found
        self._frames = zstd_frames(self._file, self.start)
        return found is not None


def _dictionary(file: BinaryIO) -> bytes | None:
    """The dictionary that the first frame of a .warc.zst may hold, itself compressed or not."""
    file.seek(0)
    head = file.read(8)
    length = int.from_bytes(head[4:], "little")
    if not head.startswith(DICTIONARY_MAGIC) or length > MAX_DICTIONARY_BYTES:
        return None
    data = file.read(length)
    if not data.startswith(ZSTD_MAGIC):
        return data
    with zstd_decoder().stream_reader(data) as reader:
        return reader.read(MAX_DICTIONARY_BYTES)
