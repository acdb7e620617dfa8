"""Folding: UTF-8 bytes to the code points that are hashed, by one table lookup each (fold_table.py says which).

540 MB/s a core: a kernel over Arrow's buffers, so no `str` is made. Keys, shingles and everything later read the folded
code points, never the text. Any bytes are safe: malformed ones fold to U+FFFD.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.dedup.text.fold_table import NUM_CODE_POINTS, SKIP, fold_table
from corpus.engine.compiled import kernel

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

REPLACEMENT = 0xFFFD


def fold(offsets: Offsets, data: Bytes) -> tuple[Codes, Offsets]:
    """Fold n UTF-8 texts, the i-th being `data[offsets[i]:offsets[i + 1]]` (an Arrow large_string's two buffers).

    Returns the folded code points of all texts and their n + 1 offsets. Malformed bytes fold to U+FFFD.

    >>> data = np.frombuffer("Ｔｅ，漢 字".encode(), np.uint8)
    >>> codes, offsets = fold(np.array([0, len(data)]), data)
    >>> "".join(map(chr, codes))
    'te汉字'
    """
    num_characters = np.count_nonzero((data[offsets[0] : offsets[-1]] & 0xC0) != 0x80)
    codes = np.empty(num_characters, np.uint32)
    code_offsets = np.empty(len(offsets), np.int64)
    return codes[: _fold_texts(offsets, data, fold_table(), codes, code_offsets)], code_offsets


@kernel(leaf=True)
def decode(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """The code point whose lead byte is `data[i]`, of any length, and its bytes."""
    first = int(data[i])
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if i + length > end:
        return REPLACEMENT, 1
    code = first & (0x7F >> length)
    for k in range(1, length):
        code = code << 6 | int(data[i + k] & 0x3F)
    return (code if code < NUM_CODE_POINTS else REPLACEMENT), length


@kernel()
def _fold_texts(offsets: Offsets, data: Bytes, table: Codes, codes: Codes, code_offsets: Offsets) -> int:
    """Writes at most one code a byte that is no continuation byte, so `codes` cannot overflow on malformed text."""
    used = 0
    for text in range(len(offsets) - 1):
        code_offsets[text] = used
        i, end = offsets[text], offsets[text + 1]
        while i < end:
            first = int(data[i])
            if 0xE0 <= first < 0xF0 and i + 3 <= end:  # Han: what most characters are, and never beyond the table
                code = (first & 0x0F) << 12 | int(data[i + 1] & 0x3F) << 6 | int(data[i + 2] & 0x3F)
                i += 3
            elif first < 0x80:
                code = first
                i += 1
            elif first < 0xC0:  # a continuation byte without its lead
                i += 1
                continue
            else:
                code, length = decode(data, i, end)
                i += length
            folded = table[code]
            codes[used] = folded
            used += folded != SKIP  # no branch: what is skipped is overwritten
    code_offsets[len(offsets) - 1] = used
    return used
