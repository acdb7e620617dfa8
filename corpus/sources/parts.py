"""Long documents cut into parts: `split_chars` of a source.

A filter's limit on length drops a book whole. Parts are of about one length, so that none is a rest too short to keep,
and end where a paragraph does, else where a sentence does, else where they must.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import msgspec
import xxhash

from corpus.sources.shards import Row

_SENTENCE_END = re.compile(r"(?:[。！？!?…]+|\.(?=\s))[”’』」）)\"]*")


def split_text(text: str, limit: int) -> list[str]:
    r"""Parts of at most `limit` code points (2 or more); line ends between two parts go.

    >>> split_text("学而时习之。不亦说乎？有朋自远方来\n不亦乐乎？", 12)
    ['学而时习之。不亦说乎？', '有朋自远方来\n不亦乐乎？']
    >>> split_text("学而时习之", 2)
    ['学', '而时', '习之']
    """
    parts, start = [], 0
    while (left := len(text) - start) > limit:
        aim = start + left // -(-left // limit)
        low, high = (start + aim) // 2, start + limit
        end = text.rfind("\n", low, aim) + 1 or text.find("\n", aim, high) + 1
        if not end:
            ends = (found.end() for found in _SENTENCE_END.finditer(text, low, high))
            end = min(ends, key=lambda end: abs(end - aim), default=aim)
        parts.append(text[start:end])
        start = end
    return [part for part in (one.strip("\n") for one in [*parts, text[start:]]) if part.strip()]


def parts_of(identity: bytes, row: Row, place: str, limit: int) -> Iterator[tuple[bytes, Row, str]]:
    """Id, row and place of each part of a document; the first keeps the id. `meta` has `part` and `parts`."""
    parts = split_text(row["text"].decode(), limit) if len(row["text"]) > limit else []
    if len(parts) < 2:
        yield identity, row, place
        return
    meta = msgspec.json.decode(row["meta"] or b"{}")
    for number, text in enumerate(parts, 1):
        own = identity if number == 1 else xxhash.xxh3_128_digest(identity + struct.pack("<I", number))
        about = msgspec.json.encode({**meta, "part": number, "parts": len(parts)}, order="sorted")
        yield own, {**row, "meta": about, "text": text.encode()}, f"{place} part {number}"
