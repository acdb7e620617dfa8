"""Band records of one partition to buckets: documents that share a key.

Runs of sorted records (one a shard) are scattered into cells of the key space of about a thousand records, which run by
run is a sequential write, and each cell goes through a small hash table that stays in the first-level cache. What nobody
shares, which is nearly everything, is touched twice and never sorted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.dedup.minhash import EXACT_BAND, GOLDEN, Keys, mix
from corpus.dedup.records import RECORD_DTYPE, Array, Ordinals, Runs
from corpus.engine.compiled import kernel

EXACT_FLAG = np.uint32(1 << 31)  # set in the number of a bucket of the exact key
SHARED_DTYPE = np.dtype([("row", "<u4"), ("bucket", "<u4"), ("content", "<u8")])  # content: of the bucket's documents
CELL_BITS = 10  # records a cell
Buckets = npt.NDArray[np.uint32]


def shared_records(runs: Runs) -> tuple[Array, Ordinals, dict[str, int]]:
    """Return the records of one partition whose key another record has, in the order of the runs.

    Args:
        runs: a run of `RECORD_DTYPE` for each shard.

    Returns:
        `SHARED_DTYPE` records, where those of each run begin (int64[runs + 1]), and counts.
    """
    records = runs.read()
    buckets, count = number_buckets(records)
    shared = np.flatnonzero(buckets)
    found = np.empty(len(shared), SHARED_DTYPE)
    found["row"], found["bucket"] = records["row"][shared], buckets[shared]
    cuts = np.searchsorted(shared, runs.bases)
    run = np.repeat(np.arange(len(cuts) - 1, dtype=np.uint64), np.diff(cuts))
    found["content"] = _contents(buckets[shared], (run << np.uint64(32)) | found["row"], count)
    return found, cuts, {"records": len(records), "buckets": count}


def number_buckets(records: Array) -> tuple[Buckets, int]:
    """Return uint32[n], the number of each record's bucket from 1 on (0: nobody shares its key), and their number."""
    words = np.ascontiguousarray(records).view(np.uint32).reshape(-1, RECORD_DTYPE.itemsize // 4)
    first = int(records["key"].min()) if len(records) else 0
    last = int(records["key"].max()) if len(records) else 0
    common = 64 - (first ^ last).bit_length()  # leading bits that all keys of the partition share
    buckets, count = _number(words, common)
    return buckets, int(count)


@kernel("uint64[::1](uint32[::1], uint64[::1], int64)")
def _contents(buckets: Buckets, documents: Keys, num_buckets: int) -> Keys:
    """For each member the sum of its bucket's hashed documents: equal for buckets of the same documents."""
    sums, contents = np.zeros(num_buckets + 1, np.uint64), np.empty(len(buckets), np.uint64)
    for i in range(len(buckets)):
        sums[buckets[i] & ~EXACT_FLAG] += mix(documents[i] + GOLDEN)
    for i in range(len(buckets)):
        contents[i] = sums[buckets[i] & ~EXACT_FLAG]
    return contents


@kernel("Tuple((uint32[::1], int64))(Array(uint32, 2, 'C', True), int64)")
def _number(words: Buckets, common: int) -> tuple[Buckets, int]:
    count = len(words)
    bits = 1
    while count >> (bits + CELL_BITS):
        bits += 1
    left, right = np.uint64(min(common, 63)), np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(count):
        key = np.uint64(words[i, 0]) | (np.uint64(words[i, 1]) << np.uint64(32))
        starts[((key << left) >> right) + np.uint64(1)] += 1
    largest = starts.max()
    starts = np.cumsum(starts)
    after = starts.copy()
    keys, source = np.empty(count, np.uint64), np.empty(count, np.uint32)
    for i in range(count):
        key = np.uint64(words[i, 0]) | (np.uint64(words[i, 1]) << np.uint64(32))
        place = after[(key << left) >> right]
        keys[place], source[place] = key, i
        after[(key << left) >> right] = place + 1

    buckets, num_buckets = np.zeros(count, np.uint32), 0
    capacity = 2
    while capacity < 2 * largest:
        capacity *= 2
    table = np.empty(capacity, np.int64)
    for cell in range(len(starts) - 1):
        start, end = starts[cell], starts[cell + 1]
        size = 2
        while size < 2 * (end - start):
            size *= 2
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
            if buckets[source[owner]] == 0:
                num_buckets += 1
                flag = EXACT_FLAG if (keys[i] & np.uint64(0xFF)) == EXACT_BAND else np.uint32(0)
                buckets[source[owner]] = np.uint32(num_buckets) | flag
            buckets[source[i]] = buckets[source[owner]]
    return buckets, num_buckets
