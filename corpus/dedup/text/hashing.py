"""Keys of 64 bits: the mixer and the odd constant that all of deduplication hashes with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel

Keys = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 / golden ratio
MIX = np.uint64(0xD6E8FEB86659FD93)


@kernel()
def mix(x: np.uint64) -> np.uint64:
    """A bijection of 64-bit integers whose every output bit depends on every input bit (two multiply-xorshifts)."""
    x = (x ^ (x >> np.uint64(32))) * MIX
    x = (x ^ (x >> np.uint64(32))) * MIX
    return x ^ (x >> np.uint64(32))
