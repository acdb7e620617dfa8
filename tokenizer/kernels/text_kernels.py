"""What the kernels of all models share: reading UTF-8, and the chunks in which `Tokenizer` encodes a long text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.compiled import kernel

Array = NDArray[Any]

NEWLINE = 10


class Kernel(NamedTuple):
    """A vocabulary, and what encodes by it."""

    tables: Any  # arrays, of the model's own kind
    make_scratch: Callable[[int], Any]  # working memory for chunks of so many characters
    encode: Callable[..., int]
    """Of the offsets and bytes of rows, the tables and the scratch: writes the rows' ids, and into `ends` how many
    there are up to each row's end; returns their number."""


@kernel(leaf=True)
def read_character(data: Array, i: Any) -> tuple[Any, Any]:
    """The code point at byte i of valid UTF-8, and the index behind it."""
    lead = np.int64(data[i])
    if lead < 0x80:
        return lead, i + 1
    second = np.int64(data[i + 1]) & 63
    if lead < 0xE0:
        return (lead & 31) << 6 | second, i + 2
    third = np.int64(data[i + 2]) & 63
    if lead < 0xF0:
        return (lead & 15) << 12 | second << 6 | third, i + 3
    return (lead & 7) << 18 | second << 12 | third << 6 | (np.int64(data[i + 3]) & 63), i + 4


@kernel(leaf=True)
def chunk_end(data: Array, start: Any, end: Any, characters: Any) -> Any:
    """Where the chunk that begins at byte `start` of a text ends: the text's end, or as `tokenizer.model` cuts.

    A text of more characters is cut behind the last newline of so many, else behind the last of them. Linear: what is
    read beyond a newline is read once more at most, as the next chunk begins there.
    """
    if end - start <= characters:
        return end
    i, count, newline = start, 0, start
    while i < end:
        lead = data[i]
        if lead & 0xC0 != 0x80:
            if count == characters:
                return newline if newline > start else i
            count += 1
            if lead == NEWLINE:
                newline = i + 1
        i += 1
    return end


@kernel(leaf=True)
def spell(code: Any, spelled: Array, ids: Array, count: Any) -> Any:
    """Write the ids of the UTF-8 bytes of a code point; returns how many ids are written now."""
    if code < 0x80:
        ids[count] = spelled[code]
        return count + 1
    size = 2 + (code >= 0x800) + (code >= 0x10000)
    for place in range(count + size - 1, count, -1):
        ids[place] = spelled[0x80 | code & 63]
        code >>= 6
    ids[count] = spelled[0xFF00 >> size & 0xFF | code]  # a lead byte begins with as many ones as there are bytes
    return count + size
