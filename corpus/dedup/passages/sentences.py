"""Texts to sentences: where they end in bytes, and their folded characters.

A sentence ends behind 。！？； or …, behind a line feed, or behind a full stop that white space follows. What else cannot
begin one belongs to it: further marks, closing quotes and brackets, white space, combining marks. A break therefore
stands before a letter, an ideograph, a digit, a symbol or an opening quote, never inside a character or before its
accent, and texts that fold to the same characters with the same marks are cut at the same places.

What never ends (tables, code, unpunctuated classics) is cut by its content, so that two copies agree wherever they
start: a sentence of more than `LONG_SENTENCE` folded characters at one in eight of its commas, colons and spaces, and a
piece of more than `LONG_PIECE` at one in 64 of its characters. A hash of the eight characters before (the gear hash of
Xia et al. 2016, FastCDC) chooses them; where it chooses none, as in 哈哈哈哈, there is a break after `LONG_PIECE`
characters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.dedup.passages.sentence_classes import END, EXTENDS, JOINER, OTHER, SPACE, STOP, Classes, class_table
from corpus.dedup.text.fold import Bytes, Codes, Offsets, decode
from corpus.dedup.text.fold_table import SKIP, fold_table
from corpus.dedup.text.hashing import GOLDEN
from corpus.engine.compiled import kernel

LONG_SENTENCE = 128  # folded characters; the median of Chinese prose is near 25
LONG_PIECE = 512
PIECE_SHIFT = np.uint64(61)  # one comma in 8: the top 3 bits of the hash are zero
ANCHOR_SHIFT = np.uint64(58)  # one character in 64

ANCHOR, COMMA, SENTENCE = 1, 2, 3  # strengths of breaks

Int64s = npt.NDArray[np.int64]


class Sentences(NamedTuple):
    """The sentences of n documents, one after another; a document that folds to nothing is one sentence at most."""

    bounds: Offsets  # int64[sentences + 1], into the texts' bytes
    codes: Codes  # folded characters of all
    offsets: Offsets  # int64[sentences + 1], into the codes
    edges: Int64s  # int64[n + 1], the first sentence of each document


def read_sentences(offsets: Offsets, data: Bytes) -> Sentences:
    """Cut n UTF-8 texts, the i-th being `data[offsets[i]:offsets[i + 1]]`, into sentences.

    >>> data = np.frombuffer("他说：“走。”她问…… 3.14?".encode(), np.uint8)
    >>> bounds = read_sentences(np.array([0, len(data)]), data).bounds
    >>> [bytes(data[a:b]).decode() for a, b in zip(bounds[:-1], bounds[1:])]
    ['他说：“走。”', '她问…… ', '3.14?']
    """
    num_characters = np.count_nonzero((data[offsets[0] : offsets[-1]] & 0xC0) != 0x80)
    codes = np.empty(num_characters, np.uint32)
    positions, places = np.empty((2, num_characters + len(offsets)), np.int64)
    strengths = np.empty(num_characters + len(offsets), np.uint8)
    used, count = _breaks(offsets, data, fold_table(), class_table(), codes, positions, places, strengths)
    places, strengths = np.append(places[:count], used), strengths[:count]
    keep = strengths == SENTENCE
    for strength, longest in ((COMMA, LONG_SENTENCE), (ANCHOR, LONG_PIECE)):
        lengths = np.diff(np.append(places[:-1][keep], used))
        keep |= (strengths >= strength) & (lengths[np.cumsum(keep) - 1] > longest if len(lengths) else keep)
    bounds = np.append(positions[:count][keep], offsets[-1])
    return Sentences(
        bounds, codes[:used], np.append(places[:-1][keep], used), np.searchsorted(bounds[:-1], offsets).astype(np.int64)
    )


@kernel()
def _breaks(
    offsets: Offsets,
    data: Bytes,
    table: Codes,
    classes: Classes,
    codes: Codes,
    positions: Offsets,
    places: Offsets,
    strengths: Classes,
) -> tuple[int, int]:
    """Write folded characters, and each possible break as its byte, the characters before it and its strength.

    Returns the number of characters and of breaks; every text that is not empty begins with a break. Between two of a
    text there is at least one folded character: ruled lines and the like belong to what follows, at the end to what is
    before. Bytes are decoded as in `fold`.
    """
    used, count = 0, 0
    for text in range(len(offsets) - 1):
        i, end = offsets[text], offsets[text + 1]
        if i == end:
            continue
        first_break = count
        positions[count], places[count], strengths[count] = i, used, SENTENCE
        count += 1
        gear, pending, stop, joined = np.uint64(0), 0, False, False
        while i < end:
            start = i
            first = np.int64(data[i])
            if 0xE0 <= first < 0xF0 and i + 3 <= end:  # Han: what most characters are, and never beyond the table
                code = (first & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | np.int64(data[i + 2] & 0x3F)
                i += 3
            elif first < 0x80:
                code = first
                i += 1
            elif first < 0xC0:  # a continuation byte without its lead
                i += 1
                continue
            else:
                decoded, length = decode(data, i, end)
                code = np.int64(decoded)
                i += length
            kind = classes[code]
            if kind == OTHER:
                strength = pending
                if pending == COMMA and gear >> PIECE_SHIFT:
                    strength = 0
                last = places[count - 1]
                if strength == 0 and (gear >> ANCHOR_SHIFT == 0 or used - last >= LONG_PIECE):
                    strength = ANCHOR
                if strength and not joined:
                    if used == last:
                        strengths[count - 1] = max(strengths[count - 1], strength)
                    else:
                        positions[count], places[count], strengths[count] = start, used, strength
                        count += 1
                pending, stop = 0, False
            elif kind == END or (kind == SPACE and stop):
                pending = SENTENCE
            elif kind == STOP:
                stop = True
            elif kind != EXTENDS:
                pending = max(pending, COMMA)
            joined = code == JOINER
            folded = table[code]
            if folded != SKIP:
                gear = (gear << np.uint64(8)) + np.uint64(folded) * GOLDEN
                codes[used] = folded
                used += 1
        if count - 1 > first_break and places[count - 1] == used:
            count -= 1
    return used, count
