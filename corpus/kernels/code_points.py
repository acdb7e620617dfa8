"""What all kernels over Arrow text share: decoding, the class of a code point, a hash.

An Arrow large_string column is a byte buffer and offsets; the kernels read it in place and make no Python string
(creating them costs more than the cheapest kernel itself). The GIL is released. Results are integers, but for one
entropy, so that a statistic never depends on the order or the batch a document came in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.kernels.tables import CODE_POINTS, HAN_EXTENSION, OTHER, PRIVATE_USE

Array = npt.NDArray[Any]


@kernel(leaf=True)
def decode(data: Array, i: Any) -> tuple[Any, int]:
    """The code point at byte i of valid UTF-8, and the index after it."""
    c = np.uint32(data[i])
    if c < 0x80:
        return c, i + 1
    if c < 0xE0:
        return ((c & 0x1F) << 6) | (np.uint32(data[i + 1]) & 0x3F), i + 2
    if c < 0xF0:
        return (
            ((c & 0x0F) << 12) | ((np.uint32(data[i + 1]) & 0x3F) << 6) | (np.uint32(data[i + 2]) & 0x3F),
            i + 3,
        )
    return (
        ((c & 0x07) << 18)
        | ((np.uint32(data[i + 1]) & 0x3F) << 12)
        | ((np.uint32(data[i + 2]) & 0x3F) << 6)
        | (np.uint32(data[i + 3]) & 0x3F)
    ), i + 4


@kernel(leaf=True)
def code_point_class(table: Array, c: Any) -> int:
    """Class and flags of a code point; planes 2 and 3 are Han, 15 and 16 private use."""
    if c < CODE_POINTS:
        return int(table[c])
    if c < 0x40000:
        return HAN_EXTENSION
    if c >= 0xF0000:
        return PRIVATE_USE
    return OTHER


@kernel(leaf=True)
def mix(x: Any) -> Any:
    """A 64-bit finaliser: every input bit reaches every output bit."""
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x


@kernel(leaf=True)
def slots_for(count: Any) -> int:
    """A power of two at least twice as large: the slots of a hash table of so many keys."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    return slots
