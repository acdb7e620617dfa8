"""The table that cutting into sentences looks up: what each code point does at their ends.

It depends on the Unicode version, so its digest is part of the configuration of the stages that cut.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import xxhash

from corpus.dedup.text.fold_table import NUM_CODE_POINTS

Classes = npt.NDArray[np.uint8]

OTHER, EXTENDS, SPACE, CLAUSE, STOP, END = range(6)
ENDS = "。｡！!？?；;…⋯‼⁇⁈⁉\n\r\v\f\x85\u2028\u2029"
STOPS = ".．﹒"  # part of 3.14 and of names, an end before white space only
CLAUSES = "，,﹐、､﹑：:﹕"
EXTENDING = frozenset(["Pe", "Pf", "Mn", "Mc", "Me", "Cf", "Sk"])
STRAIGHT_QUOTES = "\"'＂＇"  # behind a mark they close
JOINER = 0x200D  # zero width: what stands on both sides is one character


@lru_cache(maxsize=1)
def class_table() -> Classes:
    """Return uint8[0x110000]: the class of each code point."""
    table = np.zeros(NUM_CODE_POINTS, np.uint8)
    for code in range(NUM_CODE_POINTS):
        category = unicodedata.category(chr(code))
        table[code] = EXTENDS if category in EXTENDING else SPACE if category == "Zs" else OTHER
    for characters, kind in ((ENDS, END), (STOPS, STOP), (CLAUSES, CLAUSE), (STRAIGHT_QUOTES, EXTENDS), ("\t", SPACE)):
        for character in characters:
            table[ord(character)] = kind
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def class_digest() -> str:
    """Return the table's digest in hex."""
    return xxhash.xxh3_128_hexdigest(class_table().tobytes())
