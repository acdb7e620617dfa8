"""Which documents are Traditional Chinese: those with more characters only Traditional text has than only Simplified.

By OpenCC's character tables and the two standards: 學 is Traditional (OpenCC simplifies it and GB 2312 lacks it), 学
Simplified (OpenCC turns it and Big5 lacks it), and 里, 后, 干 are neither, because Traditional text has them in other
words. A text without either kind (English, code, 人之初) is not Traditional.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

READ_CHARACTERS = 2000  # of a document: enough to tell, and a bound on memory for a batch of books
HAN = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000))  # the others are too rare to decide about a document


def is_traditional(texts: pa.LargeStringArray) -> NDArray[np.bool_]:
    """bool[texts], judged by the first 2,000 characters of each.

    >>> is_traditional(pa.array(["學而時習之", "学而时习之", "人之初", "for i in range(3)", ""], pa.large_string()))
    array([ True, False, False, False, False])
    """
    beginnings = pc.utf8_slice_codeunits(texts, 0, READ_CHARACTERS)
    _, offsets, data = beginnings.buffers()
    if not len(beginnings) or data is None:
        return np.zeros(len(beginnings), np.bool_)
    bounds = np.frombuffer(offsets, np.int64)[beginnings.offset : beginnings.offset + len(beginnings) + 1]
    octets = np.frombuffer(data, np.uint8)[: bounds[-1]]
    leads = np.flatnonzero((octets & 0xF0) == 0xE0)  # of three bytes, as all of HAN are
    codes = (octets[leads].astype(np.uint16) & 0x0F) << 12
    codes |= (octets[leads + 1].astype(np.uint16) & 0x3F) << 6
    codes |= octets[leads + 2] & np.uint16(0x3F)
    sums = np.concatenate([[0], np.cumsum(_sides()[codes], dtype=np.int64)])
    first = np.searchsorted(leads, bounds)
    traditional: NDArray[np.bool_] = sums[first[1:]] > sums[first[:-1]]
    return traditional


def script_table(by_script: bool) -> dict[str, str]:
    """The digest of the table that tells scripts apart, as OpenCC and the standards made it here, for stages that do;
    nothing for others."""
    return {"scripts": xxhash.xxh3_128_hexdigest(_sides().tobytes())} if by_script else {}


@lru_cache(maxsize=1)
def _sides() -> NDArray[np.int8]:
    """int8[65536]: 1 for a character that only Traditional text has, -1 for one that only Simplified has, else 0."""
    import opencc

    han = [chr(code) for block in HAN for code in block]
    sides = np.zeros(1 << 16, np.int8)
    for configuration, other_standard, side in (("t2s", "gb2312", 1), ("s2t", "big5", -1)):
        converted = opencc.OpenCC(configuration).convert("\n".join(han)).split("\n")
        for old, new in zip(han, converted, strict=True):
            if old != new and not old.encode(other_standard, "ignore"):
                sides[ord(old)] += side  # 輼 and three more are both: 0
    return sides
