"""Scans over a batch's bytes that decide where work is needed, fold text for matching, and count covered characters.

Each replaces a per-document regular expression by one pass at several hundred MB/s, so that Python strings are made
only of the few documents that need a change.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.filters.kernels import decode
from corpus.filters.tables import CODE_POINTS, script_pairs
from corpus.normalize import MAX_INNER_SPACES, is_suspicious

Array = npt.NDArray[Any]

MIN_PERSONAL_DIGITS = 11  # a mobile number; an identity card has 17 and a check character
CHARACTERS, SHAPE = 1, 2  # bits of needs_normalizing
INNER_SPACES = MAX_INNER_SPACES  # a kernel sees module constants only


@lru_cache(maxsize=1)
def suspicious_table() -> npt.NDArray[np.bool_]:
    """bool[0x20000]: code points of planes 0 and 1 that normalisation may have to change."""
    table = np.array([is_suspicious(code) for code in range(CODE_POINTS)], np.bool_)
    table.setflags(write=False)
    return table


@kernel()
def needs_normalizing(offsets: Array, data: Array, table: Array, out: Array) -> None:
    """What `corpus.normalize` may change in each document, into uint8[documents]: CHARACTERS, SHAPE, both or nothing.

    A false alarm costs time only.
    """
    for row in range(len(offsets) - 1):
        i = offsets[row]
        end = offsets[row + 1]
        bad_shape = i < end and data[i] == 10
        characters = False
        feeds = spaces = 0
        inside = False  # something other than a space stood in this line
        while i < end and not characters:
            c, after = decode(data, i)
            if c == 10:
                feeds += 1
                if feeds >= 3 or spaces > 0:
                    bad_shape = True
                spaces = 0
                inside = False
            elif c == 32 or c == 9:
                feeds = 0
                spaces += 1
                if inside and spaces > INNER_SPACES:
                    bad_shape = True
            elif c == 0x3000:
                feeds = 0
                spaces = 1
                inside = True
            else:
                feeds = spaces = 0
                inside = True
                if c < CODE_POINTS:
                    characters = table[c]
                else:
                    characters = (
                        (c & 0xFFFE) == 0xFFFE
                        or 0x2F800 <= c < 0x2FA20
                        or 0xE0000 <= c < 0xE0080
                        or 0xE0100 <= c < 0xE01F0
                    )
            i = after
        out[row] = CHARACTERS * characters + SHAPE * (bad_shape or feeds > 0 or spaces > 0)


@kernel()
def may_hold_personal_data(offsets: Array, data: Array, out: Array) -> None:
    """True for documents with an at sign or a run of 11 digits (full-width ones and separators among them allowed)."""
    for row in range(len(offsets) - 1):
        digits = 0
        found = False
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            byte = data[i]
            if 48 <= byte <= 57:
                digits += 1
            elif byte == 0xEF and i + 2 < end and data[i + 1] == 0xBC and 0x90 <= data[i + 2] <= 0x99:
                digits += 1
                i += 2
            elif byte == 64 or (byte == 0xEF and i + 2 < end and data[i + 1] == 0xBC and data[i + 2] == 0xA0):
                found = True
                break
            elif byte != 32 and byte != 45:
                digits = 0
            if digits >= MIN_PERSONAL_DIGITS:
                found = True
                break
            i += 1
        out[row] = found


@lru_cache(maxsize=1)
def matching_table() -> npt.NDArray[np.uint32]:
    """uint32[0x20000]: each code point as word lists see it: half-width, lower case, Simplified, one for one.

    A character folds only to a single one that is no longer in UTF-8, so a folded text keeps its line feeds, its
    number of characters, and fits in the space of the original.
    """
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    simplified, _ = script_pairs()
    for code in (*range(0x4E00), *range(0xA000, 0xAC00), *range(0xF900, CODE_POINTS)):
        if 0xD800 <= code < 0xF900:
            continue
        character = chr(code)
        folded = unicodedata.normalize("NFKC", character).lower()
        folded = simplified.get(folded, folded)
        if len(folded) == 1 and len(folded.encode()) <= len(character.encode()) and ord(folded) < CODE_POINTS:
            table[code] = ord(folded)
    for old, new in simplified.items():
        if ord(new) < CODE_POINTS and len(new.encode()) <= len(old.encode()):
            table[ord(old)] = ord(new)
    table[0x0A] = 0x0A
    table.setflags(write=False)
    return table


def fold_for_matching(text: str) -> str:
    """The folded view of one string; `fold_batch` does the same to a batch.

    >>> fold_for_matching("加ＶＸ：①②③，開發票 ABC")
    '加vx:123,开发票 abc'
    """
    table = matching_table()
    return "".join(chr(int(table[ord(c)])) if ord(c) < CODE_POINTS else c for c in text)


@kernel()
def fold_batch(offsets: Array, data: Array, table: Array, out_offsets: Array, out: Array) -> None:
    """Fold each document into `out`, uint8 of the batch's size, and its int64 `out_offsets`."""
    position = 0
    for row in range(len(offsets) - 1):
        out_offsets[row] = position
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            c, after = decode(data, i)
            if c < CODE_POINTS and table[c] != c:
                c = table[c]
                if c < 0x80:
                    out[position] = c
                    position += 1
                elif c < 0x800:
                    out[position] = 0xC0 | (c >> 6)
                    out[position + 1] = 0x80 | (c & 0x3F)
                    position += 2
                elif c < 0x10000:
                    out[position] = 0xE0 | (c >> 12)
                    out[position + 1] = 0x80 | ((c >> 6) & 0x3F)
                    out[position + 2] = 0x80 | (c & 0x3F)
                    position += 3
                else:
                    out[position] = 0xF0 | (c >> 18)
                    out[position + 1] = 0x80 | ((c >> 12) & 0x3F)
                    out[position + 2] = 0x80 | ((c >> 6) & 0x3F)
                    out[position + 3] = 0x80 | (c & 0x3F)
                    position += 4
            else:
                for k in range(i, after):
                    out[position] = data[k]
                    position += 1
            i = after
    out_offsets[len(offsets) - 1] = position


@kernel()
def covered_characters(offsets: Array, data: Array, starts: Array, ends: Array, out: Array) -> None:
    """Characters of each document inside the byte spans [starts, ends), sorted by start, into int64[documents].

    A span that reaches over the end of a document is two neighbours read as one word, and counts for neither.
    """
    k = 0
    for row in range(len(offsets) - 1):
        covered = 0
        to = offsets[row]
        while k < len(starts) and starts[k] < offsets[row + 1]:
            if starts[k] >= offsets[row] and ends[k] <= offsets[row + 1]:
                for i in range(max(to, starts[k]), ends[k]):
                    covered += (data[i] & 0xC0) != 0x80
                to = max(to, ends[k])
            k += 1
        out[row] = covered
