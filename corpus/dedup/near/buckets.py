"""Band records of one partition to buckets: documents that share a key.

Runs of sorted records (one a shard) sweep a bitmap of the key space, run by run in rising order, that tells which slots
are hit twice: what nobody shares, which is nearly everything, costs two such sweeps and no more. The rest, and the one
in ten that share a slot only, is scattered into cells of the key space, and each cell goes through a small hash table
that stays in the first-level cache.

A record costs 12 B for itself, 2-4 for the bitmap and, where it shares its key, some 40 more: 17 B in all where 7 % do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.dedup.near.minhash import EXACT_BAND
from corpus.dedup.records import RECORD_DTYPE, Array, Ordinals, Runs
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.engine.compiled import kernel
from corpus.kernels.code_points import slots_for

EXACT_FLAG = np.uint32(1 << 31)  # set in the number of a bucket of the exact key
SHARED_DTYPE = np.dtype([("row", "<u4"), ("bucket", "<u4"), ("content", "<u8")])  # content: of the bucket's documents
CELL_BITS = 10  # records a cell
SLOT_FACTOR = 8  # slots a record, at least: one record in so many is taken for shared at first
Buckets = npt.NDArray[np.uint32]


def shared_records(runs: Runs, num_new: int) -> tuple[Array, Ordinals, dict[str, int]]:
    """Return the records of one partition whose key another record has, in the order of the runs.

    Args:
        runs: a run of `RECORD_DTYPE` for each shard.
        num_new: the first of them are of new documents; a bucket of older ones alone tells nothing.

    Returns:
        `SHARED_DTYPE` records, where those of each run begin (int64[runs + 1]), and counts.
    """
    records = runs.read()
    shared, buckets, count = number_buckets(records)
    if num_new < len(runs.runs):
        has_new = np.zeros(count + 1, bool)
        has_new[buckets[shared < runs.bases[num_new]] & ~EXACT_FLAG] = True
        stays = has_new[buckets & ~EXACT_FLAG]
        shared, buckets = shared[stays], buckets[stays]
    found = np.empty(len(shared), SHARED_DTYPE)
    found["row"], found["bucket"] = records["row"][shared], buckets
    cuts = np.searchsorted(shared, runs.bases)
    run = np.repeat(np.arange(len(cuts) - 1, dtype=np.uint64), np.diff(cuts))
    found["content"] = _contents(buckets, (run << np.uint64(32)) | found["row"], count)
    return found, cuts, {"records": len(records), "buckets": count}


def number_buckets(records: Array) -> tuple[Ordinals, Buckets, int]:
    """Return which records share their key (int64, rising), their bucket's number from 1 on, and the last number."""
    words = np.ascontiguousarray(records).view(np.uint32).reshape(-1, RECORD_DTYPE.itemsize // 4)
    shared, buckets, count = _number(words)
    return shared, buckets, int(count)


@kernel()
def _contents(buckets: Buckets, documents: Keys, num_buckets: int) -> Keys:
    """For each member the sum of its bucket's hashed documents: equal for buckets of the same documents."""
    sums, contents = np.zeros(num_buckets + 1, np.uint64), np.empty(len(buckets), np.uint64)
    for i in range(len(buckets)):
        sums[buckets[i] & ~EXACT_FLAG] += mix(documents[i] + GOLDEN)
    for i in range(len(buckets)):
        contents[i] = sums[buckets[i] & ~EXACT_FLAG]
    return contents


@kernel()
def _key(words: Buckets, i: int) -> np.uint64:
    return np.uint64(words[i, 0]) | (np.uint64(words[i, 1]) << np.uint64(32))


@kernel()
def _colliding(words: Buckets, left: np.uint64) -> Ordinals:
    """The records that share a slot of the key space with another; those that share a key do."""
    slot_bits = 6
    while len(words) * SLOT_FACTOR >> slot_bits:
        slot_bits += 1
    right = np.uint64(64 - slot_bits)
    hits = np.zeros((1 << (slot_bits - 6), 2), np.uint64)  # of 64 slots each: hit, hit again
    for i in range(len(words)):
        slot = (_key(words, i) << left) >> right
        word, bit = slot >> np.uint64(6), np.uint64(1) << (slot & np.uint64(63))
        hits[word, 1] |= hits[word, 0] & bit
        hits[word, 0] |= bit
    found, count = np.empty(len(words) + 1, np.int64), 0
    for i in range(len(words)):
        slot = (_key(words, i) << left) >> right
        found[count] = i
        count += int(hits[slot >> np.uint64(6), 1] >> (slot & np.uint64(63)) & np.uint64(1))
    return found[:count].copy()


@kernel()
def _number(words: Buckets) -> tuple[Ordinals, Buckets, int]:
    differ = np.uint64(1)
    for i in range(len(words)):
        differ |= _key(words, i) ^ _key(words, 0)
    left = np.uint64(0)  # leading bits that all keys of the partition share
    while not (differ << left) >> np.uint64(63):
        left += np.uint64(1)
    source = _colliding(words, left)
    count = len(source)
    bits = 1
    while len(words) >> (bits + CELL_BITS):
        bits += 1
    right = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(count):
        starts[((_key(words, source[i]) << left) >> right) + np.uint64(1)] += 1
    largest = starts.max()
    starts = np.cumsum(starts)
    after = starts.copy()
    keys, order = np.empty(count, np.uint64), np.empty(count, np.int64)
    for i in range(count):
        key = _key(words, source[i])
        place = after[(key << left) >> right]
        keys[place], order[place] = key, i
        after[(key << left) >> right] = place + 1

    buckets, num_buckets, num_shared = np.zeros(count, np.uint32), 0, 0
    table = np.empty(slots_for(largest), np.int64)
    for cell in range(len(starts) - 1):
        start, end = starts[cell], starts[cell + 1]
        size = slots_for(end - start)
        table[:size] = -1
        mask = np.uint64(size - 1)
        for i in range(start, end):
            slot = (keys[i] >> np.uint64(8)) & mask
            while table[slot] >= 0 and keys[table[slot]] != keys[i]:
                slot = (slot + np.uint64(1)) & mask
            owner = table[slot]
            if owner < 0:
                table[slot] = i
                continue
            if buckets[order[owner]] == 0:
                num_buckets += 1
                num_shared += 1
                flag = EXACT_FLAG if (keys[i] & np.uint64(0xFF)) == EXACT_BAND else np.uint32(0)
                buckets[order[owner]] = np.uint32(num_buckets) | flag
            buckets[order[i]] = buckets[order[owner]]
            num_shared += 1

    shared = np.empty(num_shared, np.int64)
    num_shared = 0
    for i in range(count):
        if buckets[i]:
            shared[num_shared], buckets[num_shared] = source[i], buckets[i]
            num_shared += 1
    return shared, buckets[:num_shared].copy(), num_buckets
