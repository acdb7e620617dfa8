"""Lines of a byte stream with a cap: a line of any length costs its own length in reading and never memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec


class Line(msgspec.Struct, frozen=True):
    """A line without its line end; `data` is None when it was longer than the cap (`length` says how long).

    `cut` marks a last line that the stream's end, and no line end, closes.
    """

    offset: int
    length: int
    data: bytes | None
    cut: bool = False


def split_lines(pieces: Iterable[bytes], max_line_bytes: int, offset: int = 0) -> Iterator[Line]:
    """Cut pieces at newlines; at most `max_line_bytes` and one piece are held at any time.

    The first line's offset is `offset`. A line that the end of the pieces cuts off is yielded too; where the pieces end
    in an exception it is lost, and the exception says so.

    >>> [line.data for line in split_lines([b"ab\\nc", b"d\\n", b"efgh"], 3)]
    [b'ab', b'cd', None]
    """
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            if length:
                length += len(part)
                yield Line(offset, length, b"".join([*held, part]) if length <= max_line_bytes else None)
                held.clear()
                offset += length + 1
                length = 0
            else:
                size = len(part)
                yield Line(offset, size, part if size <= max_line_bytes else None)
                offset += size + 1
        length += len(rest)
        if length > max_line_bytes:
            held.clear()
        elif rest:
            held.append(rest)
    if length:
        yield Line(offset, length, b"".join(held) if length <= max_line_bytes else None, True)
