"""The join between buckets and signatures, a shard at a time.

A shard reads its records of every partition's buckets, merges them with its keys and signatures, each file from front
to back, and writes what each partition will compare as one section. The price is a copy of the sketch (2 B x k) for
each bucket a document is in; documents without a twin, nearly all of them, cost nothing. The gain is that no task ever
reads at random in a file of the whole corpus.

Buckets of the very same documents have the same edges, and a pair of documents has up to one such bucket a band: only
the first of them in the order of keys is kept, which its members find out each by itself, from a hash of its documents.
Of exact copies in one shard only the highest in rank is compared: it is in every bucket the others are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from corpus.dedup.near.buckets import EXACT_FLAG
from corpus.dedup.near.candidates import Int64s, SketchArray, arrange, key_words, sketches
from corpus.dedup.records import Array, Ordinals, Runs, cuts_of
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.dedup.text.keys import KEY_DTYPE
from corpus.engine.compiled import kernel
from corpus.kernels.code_points import slots_for

MEMBER_DTYPE = np.dtype([("bucket", "<u4"), ("row", "<u4"), ("keys", KEY_DTYPE)])
GATHERED_ROWS = 1 << 15  # signatures copied at once


def join_keys(parts: Sequence[Array], keys: Runs, spread: int = 1) -> tuple[Array, Ordinals]:
    """Return the `MEMBER_DTYPE` records of a shard and where each section begins (int64[partitions x spread + 1]).

    Args:
        parts: the shard's `SHARED_DTYPE` records of each partition.
        keys: its `KEY_DTYPE` records.
        spread: sections a partition, among which its buckets are dealt by number; a power of two.
    """
    shared = np.concatenate(parts)
    partition = np.repeat(np.arange(len(parts), dtype=np.int64), [len(part) for part in parts])
    section = partition * spread + (shared["bucket"] & np.uint32(spread - 1))
    rows, which = np.unique(shared["row"], return_inverse=True)
    document_keys = keys.take(rows)
    order, original = arrange(np.zeros(len(rows), np.uint32), document_keys)
    is_copy = np.zeros(len(rows), bool)
    is_copy[order[original != order]] = True
    words, cuts = _join(
        shared.view(np.uint64).reshape(-1, 2), which, section, len(parts) * spread, is_copy, key_words(document_keys)
    )
    return words.reshape(-1).view(MEMBER_DTYPE), cuts


def join_signatures(members: Array, cuts: Ordinals, signatures: Runs) -> tuple[Iterator[SketchArray], Ordinals]:
    """Return the sketches of the members that are compared, in their order, and where each partition's begin."""
    compared = ~is_exact(members["bucket"])
    rows, which = np.unique(members["row"][compared], return_inverse=True)
    mine = sketches(signatures.take(rows))
    before = cuts_of(compared.astype(np.int64))
    chunks = (mine[which[start : start + GATHERED_ROWS]] for start in range(0, len(which), GATHERED_ROWS))
    return chunks, before[cuts]


@kernel()
def _join(
    shared: Keys, which: Int64s, section: Int64s, num_sections: int, is_copy: npt.NDArray[np.bool_], keys: Keys
) -> tuple[Keys, Ordinals]:
    """Members as words, section by section: all of exact buckets, of the others each document and content once.

    Args:
        shared: uint64[n, 2], `SHARED_DTYPE` as words.
        which, section: of each of them, the position of its keys and the section it goes to.
        is_copy, keys: of each different document.
    """
    size = slots_for(len(shared))
    table, mask = np.full(size, -1, np.int64), np.uint64(size - 1)
    stays, cuts = np.zeros(len(shared), np.bool_), np.zeros(num_sections + 1, np.int64)
    for i in range(len(shared)):
        if shared[i, 0] >> np.uint64(63):  # EXACT_FLAG
            stays[i] = True
        elif not is_copy[which[i]]:
            slot = mix(shared[i, 1] ^ (np.uint64(which[i]) * GOLDEN)) & mask
            while table[slot] >= 0 and (which[table[slot]] != which[i] or shared[table[slot], 1] != shared[i, 1]):
                slot = (slot + np.uint64(1)) & mask
            if table[slot] < 0:
                table[slot] = i
                stays[i] = True
        cuts[section[i] + 1] += stays[i]
    cuts = np.cumsum(cuts)
    after = cuts.copy()
    members = np.empty((cuts[num_sections], 9), np.uint64)
    for i in range(len(shared)):
        if stays[i]:
            place = after[section[i]]
            members[place, 0] = (shared[i, 0] >> np.uint64(32)) | (shared[i, 0] << np.uint64(32))
            for column in range(8):
                members[place, 1 + column] = keys[which[i], column]
            after[section[i]] = place + 1
    return members, cuts


def is_exact(bucket: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Which numbers are those of buckets of the exact key."""
    exact: npt.NDArray[np.bool_] = (bucket & EXACT_FLAG) != 0
    return exact
