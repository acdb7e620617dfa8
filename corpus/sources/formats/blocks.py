"""A byte stream cut into blocks that begin with a mark, in linear time and bounded memory, and without a parser.

Collections of pages (MediaWiki dumps, Sogou's) put one record behind the other. Cut by bytes, a damaged record costs
itself: whatever is wrong in it, the next one begins at its own mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from corpus.sources.compression import Compression, DamagedStream, read_stretches
from corpus.sources.record import BadRecord

MARK_BYTES = 64  # no mark is longer


class Block(msgspec.Struct, frozen=True):
    """The bytes from one mark to the next; `data` is None when there were more than the cap (`length` says how many).

    `cut` marks the last block, which the stream's end closes; `damaged` one that ends where damage begins.
    """

    offset: int
    length: int
    data: bytes | None
    cut: bool = False
    damaged: bool = False


def read_blocks(
    file: BinaryIO, compression: Compression, mark: re.Pattern[bytes], max_bytes: int
) -> Iterator[Block | BadRecord]:
    """The blocks of a file, compressed or not; where it is damaged, from the next member or frame on."""
    done = 0

    def read(pieces: Iterator[bytes]) -> Iterator[Block]:
        nonlocal done
        for block in split_blocks(pieces, mark, max_bytes, done):
            done = block.offset + block.length
            yield block

    yield from read_stretches(file, compression, read)


def split_blocks(pieces: Iterable[bytes], mark: re.Pattern[bytes], max_bytes: int, offset: int = 0) -> Iterator[Block]:
    """Cut pieces before every match of `mark`; at most `max_bytes` and two pieces are held at any time.

    The first block is at `offset`. What stands before the first mark is a block too, if it is anything: the only one
    without a mark. What was read before the pieces end in `DamagedStream` is yielded first, the last block as
    `damaged`.

    >>> mark = re.compile(rb"<p>")
    >>> [block.data for block in split_blocks([b"head <", b"p>a<p", b">b"], mark, 100)]
    [b'head ', b'<p>a', b'<p>b']
    """
    held = bytearray()
    dropped = 0  # bytes of it that are held no more: it is over the cap
    damage: DamagedStream | None = None
    stream = iter(pieces)
    while True:
        try:
            piece = next(stream, None)
        except DamagedStream as error:
            damage, piece = error, None
        is_end = piece is None
        searched = max(0, len(held) - MARK_BYTES)
        if piece is not None:
            held += piece
        begin = 0
        for match in mark.finditer(held, searched):
            start = match.start()
            if start == 0 and not dropped:
                continue  # the block's own
            length = dropped + start - begin
            if length:
                yield Block(offset, length, bytes(held[begin:start]) if length <= max_bytes else None)
            offset, begin, dropped = offset + length, start, 0
        del held[:begin]
        if is_end:
            length = dropped + len(held)
            if length:
                data = bytes(held) if length <= max_bytes else None
                yield Block(offset, length, data, damage is None, damage is not None)
            if damage is not None:
                raise damage
            return
        if dropped + len(held) > max_bytes and len(held) > MARK_BYTES:
            dropped += len(held) - MARK_BYTES
            del held[:-MARK_BYTES]
