"""The order of samples: a keyed permutation that is computed, not stored, and its inverse.

An alternating Feistel network over the next power of two, walking cycles until it falls below n (fewer than two walks
on average). Nothing is built at start, nothing kept in memory; 10^11 windows cost what ten do, and the inverse, which
says when a window comes up, costs the same.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]

NUM_ROUNDS = 8
ORDER_VERSION = b"wenhai sample order 1"  # raise it when the same seed gives another order


def epoch_keys(seed: int, epoch: int, corpus: str = "") -> UInt64Array:
    """The round keys of one epoch's order: a hash, so that neighbouring seeds have unrelated orders.

    `corpus` is the name of one corpus among several, each of which has an order of its own.
    """
    message = b"%s seed %d epoch %d" % (ORDER_VERSION, seed, epoch)
    if corpus:
        message += b" corpus " + corpus.encode()
    raw = hashlib.blake2b(message, digest_size=8 * NUM_ROUNDS).digest()
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64)


def permute(indices: UInt64Array, size: int, keys: UInt64Array) -> Int64Array:
    """Where a keyed permutation of range(size) sends each of `indices` (all below `size`).

    The network permutes the next power of two; a value that lands at `size` or above is sent on until it does
    not ("cycle walking", Black and Rogaway 2002), which permutes range(size) itself.
    """
    return _walk_cycles(indices, size, keys, is_inverse=False)


def unpermute(values: UInt64Array, size: int, keys: UInt64Array) -> Int64Array:
    """The indices that `permute` sends to `values`: the same cycles walked backwards."""
    return _walk_cycles(values, size, keys, is_inverse=True)


def _walk_cycles(values: UInt64Array, size: int, keys: UInt64Array, is_inverse: bool) -> Int64Array:
    if size < 2:
        return values.astype(np.int64)
    bits = (size - 1).bit_length()
    values = feistel(values, bits, keys, is_inverse)
    outside = np.flatnonzero(values >= size)
    while len(outside):
        values[outside] = feistel(values[outside], bits, keys, is_inverse)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def feistel(values: UInt64Array, bits: int, keys: UInt64Array, is_inverse: bool = False) -> UInt64Array:
    """A keyed permutation of range(2**bits): the halves take turns at adding a hash of one to the other.

    Adding is exclusive or, so that a round undoes itself and the rounds in reverse are the inverse.
    """
    num_low_bits = (bits + 1) // 2
    shift = np.uint64(num_low_bits)
    low_mask = np.uint64((1 << num_low_bits) - 1)
    high_mask = np.uint64((1 << (bits - num_low_bits)) - 1)
    low, high = values & low_mask, values >> shift
    rounds = list(enumerate(keys))
    for round_number, key in reversed(rounds) if is_inverse else rounds:
        if round_number % 2 == 0:
            low = low ^ (mix(high ^ key) & low_mask)
        else:
            high = high ^ (mix(low ^ key) & high_mask)
    return (high << shift) | low


def mix(values: UInt64Array) -> UInt64Array:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit in moves every bit out."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
