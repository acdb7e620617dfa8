"""The join between buckets and signatures, a shard at a time.

A shard reads its records of every partition's buckets, merges them with its keys and signatures, each file from front
to back, and writes what each partition will compare as one section. The price is a copy of the sketch (2 B x k) for each bucket a
document is in; documents without a twin, nearly all of them, cost nothing. The gain is that no task ever reads at
random in a file of the whole corpus.

Buckets of the very same documents have the same edges, and a pair of documents has up to one such bucket a band: only
the first of them in the order of keys is kept, which its members find out each by itself, from a hash of its documents.
Of exact copies in one shard only the highest in rank is compared: it is in every bucket the others are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from corpus.dedup.buckets import EXACT_FLAG
from corpus.dedup.candidates import Int64s, SketchArray, arrange, sketches
from corpus.dedup.keys import KEY_DTYPE
from corpus.dedup.minhash import GOLDEN, Keys, mix
from corpus.dedup.records import Array, Ordinals, Runs, cuts_of
from corpus.engine.compiled import kernel

MEMBER_DTYPE = np.dtype([("bucket", "<u4"), ("row", "<u4"), ("keys", KEY_DTYPE)])
GATHERED_ROWS = 1 << 15  # signatures copied at once


def join_keys(parts: Sequence[Array], keys: Runs) -> tuple[Array, Ordinals]:
    """Return the `MEMBER_DTYPE` records of a shard and where each partition's begin (int64[partitions + 1]).

    Args:
        parts: the shard's `SHARED_DTYPE` records of each partition.
        keys: its `KEY_DTYPE` records.
    """
    shared = np.concatenate(parts)
    partition = np.repeat(np.arange(len(parts), dtype=np.uint16), [len(part) for part in parts])
    rows, which = distinct(shared["row"], keys.bases[-1])
    document_keys = keys.take(rows)
    order, original = arrange(np.zeros(len(rows), np.uint32), document_keys)
    is_copy = np.zeros(len(rows), bool)
    is_copy[order[original != order]] = True
    stays = is_exact(shared["bucket"])
    stays |= ~is_copy[which] & _first(*map(np.ascontiguousarray, (shared["row"], shared["content"], stays)))
    members = np.empty(int(stays.sum()), MEMBER_DTYPE)
    members["bucket"], members["row"] = shared["bucket"][stays], shared["row"][stays]
    members["keys"] = document_keys[which[stays]]
    return members, cuts_of(np.bincount(partition[stays], minlength=len(parts)))


def join_signatures(members: Array, cuts: Ordinals, signatures: Runs) -> tuple[Iterator[SketchArray], Ordinals]:
    """Return the sketches of the members that are compared, in their order, and where each partition's begin."""
    compared = ~is_exact(members["bucket"])
    rows, which = distinct(members["row"][compared], signatures.bases[-1])
    mine = sketches(signatures.take(rows))
    before = cuts_of(compared.astype(np.int64))
    chunks = (mine[which[start : start + GATHERED_ROWS]] for start in range(0, len(which), GATHERED_ROWS))
    return chunks, before[cuts]


@kernel("boolean[::1](uint32[::1], uint64[::1], boolean[::1])")
def _first(rows: npt.NDArray[np.uint32], contents: Keys, skipped: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which records are the first of their row and content; the skipped ones are none and take no part."""
    size = 2
    while size < 2 * len(rows):
        size *= 2
    table, mask = np.full(size, -1, np.int64), np.uint64(size - 1)
    first = np.zeros(len(rows), np.bool_)
    for i in range(len(rows)):
        if skipped[i]:
            continue
        slot = mix(contents[i] ^ (np.uint64(rows[i]) * GOLDEN)) & mask
        while table[slot] >= 0 and (rows[table[slot]] != rows[i] or contents[table[slot]] != contents[i]):
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            table[slot] = i
            first[i] = True
    return first


def is_exact(bucket: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Which numbers are those of buckets of the exact key."""
    exact: npt.NDArray[np.bool_] = (bucket & EXACT_FLAG) != 0
    return exact


def distinct(rows: npt.NDArray[np.uint32], num_rows: int) -> tuple[Int64s, Int64s]:
    """`np.unique(rows, return_inverse=True)` for small numbers, without a sort."""
    present = np.zeros(int(num_rows), bool)
    present[rows] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[rows]
