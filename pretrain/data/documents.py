"""Where documents begin and end inside windows of tokens, in the forms that models and attention kernels take.

Shapes: B windows of T tokens. `document_ids` comes first; positions and prefixes follow from it.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from pretrain.data.order import Int64Array, UInt64Array, mix

Int32Array = NDArray[np.int32]

PREFIX_VERSION = b"wenhai prefix 1"  # raise it when the same seed draws other prefixes


def document_ids(tokens: Int64Array, eod: int) -> Int32Array:
    """Number the documents of each row from 0; the end-of-document token is the last of its document.

    >>> document_ids(np.array([[5, 6, 0, 7, 0, 0, 8]]), eod=0).tolist()
    [[0, 0, 0, 1, 1, 2, 3]]
    """
    is_start = np.ones(tokens.shape, dtype=np.bool_)
    np.equal(tokens[:, :-1], eod, out=is_start[:, 1:])
    starts = np.flatnonzero(is_start)
    rows = starts // tokens.shape[1]
    numbers = np.arange(len(starts)) - np.searchsorted(starts, rows * tokens.shape[1])
    return np.repeat(numbers.astype(np.int32), np.diff(starts, append=tokens.size)).reshape(tokens.shape)


def positions(ids: Int32Array) -> Int32Array:
    """Places counted from the beginning of each document of a window, int32 [B, T].

    >>> positions(np.array([[0, 0, 1], [0, 0, 0]], dtype=np.int32)).tolist()
    [[0, 1, 0], [0, 1, 2]]
    """
    starts = segment_starts(ids)
    lengths = np.diff(starts, append=ids.size)
    return (np.arange(ids.size) - np.repeat(starts, lengths)).astype(np.int32).reshape(ids.shape)


def prefix_ends(ids: Int32Array, samples: Int64Array, seed: int) -> Int32Array:
    """Where the prefix of each token's segment ends, as a place in its window: int32 [B, T].

    A segment is a run of equal `ids`: give zeros for the window as one. The prefix of segment `i` of sample `s` has
    a length that is uniform in [0, length of the segment) and a function of (seed, s, i) only: no segment is all
    prefix. A query `q` sees a key `k` of its segment if `k <= q or k < prefix_ends[b, q]`.

    Args:
        ids: int32 [B, T], from 0 in each row.
        samples: The numbers in the run of the B samples.
        seed: The run's.
    """
    starts = segment_starts(ids)
    lengths = np.diff(starts, append=ids.size)
    rows, places = np.divmod(starts, ids.shape[1])
    segments = ids.reshape(-1)[starts]
    raw = hashlib.blake2b(b"%s seed %d" % (PREFIX_VERSION, seed), digest_size=16).digest()
    first_key, second_key = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
    hashes = mix(mix(samples[rows].astype(np.uint64) ^ first_key) ^ segments.astype(np.uint64) ^ second_key)
    drawn = scale(hashes, lengths)
    return np.repeat(places + drawn, lengths).astype(np.int32).reshape(ids.shape)


def scale(hashes: UInt64Array, sizes: Int64Array) -> Int64Array:
    """Each hash as a number in [0, size): its upper half times the size (< 2^31), halved again; bias < size / 2^32."""
    half = np.uint64(32)
    return (((hashes >> half) * sizes.astype(np.uint64)) >> half).astype(np.int64)


def segment_starts(ids: Int32Array) -> Int64Array:
    """Where runs of equal ids begin in the flattened batch; each row begins one."""
    is_start = np.ones(ids.shape, dtype=np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=is_start[:, 1:])
    return np.flatnonzero(is_start)
