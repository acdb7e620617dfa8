"""Members of the buckets of one partition to verified edges between documents.

Exact copies in a bucket are set aside first (the bucket of the exact key makes their edges), so a text repeated a
million times costs a sort and no comparison. The others are compared in rank order with the bucket's leaders so far:
one that resembles no leader becomes a leader itself. A bucket therefore costs documents x leaders and not the square,
and what is compared depends on content alone. The number of leaders is bounded, that of documents of earlier builds and
that of new ones each for itself; a document that would have become one more is counted as overflow.

Compared are the low 16 bits of the minima (Li and Koenig 2010, b-bit minwise hashing): half the bytes to bring
together. Two different minima agree in them once in 65,536, which adds (1 - j) / 65,536 to an estimate whose standard
error is 0.04.

An edge (a, b) runs from the document of higher rank to the one of lower rank and carries the id of a. Its similarity is
estimated from both signatures and is at least the threshold: a chain of templates that share bands makes candidates,
never edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from corpus.dedup.near.buckets import EXACT_FLAG, Buckets, number_buckets
from corpus.dedup.near.minhash import SignatureArray, min_matches
from corpus.dedup.records import RECORD_DTYPE, Array, Ordinals, differs, pick
from corpus.dedup.text.hashing import Keys
from corpus.dedup.text.keys import EARLIER, KEY_DTYPE, DocumentKeys
from corpus.engine.compiled import kernel
from corpus.kernels.code_points import slots_for

EXACT, NEAR = 0, 1
EDGE_DTYPE = np.dtype([("a", "<i8"), ("b", "<i8"), ("similarity", "<f4"), ("kind", "u1"), ("id", "<u8", (2,))])
CHUNK_MEMBERS = 1 << 17  # bucket members whose sketches are held at once: 29 MB at k = 112
CHUNK_ROWS = 128  # and as many from each file that they are read from, at least
FIRST_CAPACITY = 1 << 12  # edges
SORTED_AT_ONCE = 16  # members sorted by insertion

Take = Callable[[Ordinals], Array]  # rows of rising numbers
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
SketchArray = npt.NDArray[np.uint16]


def find_edges(
    keys: Keys, ordinals: Ordinals, take_keys: Take, take_signatures: Take, threshold: float, max_leaders: int
) -> tuple[Array, dict[str, int]]:
    """Return the verified edges of band records in memory, and what was counted on the way.

    Args:
        keys, ordinals: band records, in any order.
        take_keys, take_signatures: give the `KEY_DTYPE` records and the signatures of documents.
    """
    records = np.zeros(len(keys), RECORD_DTYPE)
    records["key"] = keys
    shared, bucket, num_buckets = number_buckets(records)
    counts = {"records": len(keys), "buckets": num_buckets}
    if not len(shared):
        return np.empty(0, EDGE_DTYPE), counts | {"comparisons": 0, "overflow": 0, "edges": 0}
    ordinals = ordinals[shared]
    compared = ordinals[bucket & EXACT_FLAG == 0]
    edges, extra = verify(
        bucket,
        ordinals,
        take_keys(ordinals),
        lambda positions: sketches(take_signatures(compared[positions])),
        threshold,
        max_leaders,
    )
    return edges, counts | extra


def verify(
    bucket: Buckets,
    ordinals: Ordinals,
    document_keys: DocumentKeys,
    take_sketches: Take,
    threshold: float,
    max_leaders: int,
    num_files: int = 1,
) -> tuple[Array, dict[str, int]]:
    """Return the edges among the members of buckets, unique and sorted by (a, b), and counts.

    Args:
        bucket, ordinals, document_keys: one a member, in any order.
        take_sketches: the sketches of members of buckets that are not of the exact key, by their rising position
            among those.
        num_files: that they are read from.
    """
    order, original = arrange(bucket, document_keys)
    is_exact, earlier = bucket & EXACT_FLAG != 0, document_keys["rank"] >= EARLIER
    copied = (original != order) & is_exact[order] & ~earlier[order]
    higher, lower = [original[copied]], [order[copied]]
    similarity = [np.ones(len(higher[0]), np.float32)]

    rest = order[(original == order) & ~is_exact[order]]
    rest = rest[_repeated(bucket[rest])]
    place = np.cumsum(~is_exact) - 1
    counts = {"comparisons": 0, "overflow": 0, "edges": 0}
    old = earlier[rest]
    chunk = max(CHUNK_MEMBERS, num_files * CHUNK_ROWS)
    compared = _compare(bucket[rest], place[rest], old, take_sketches, threshold, max_leaders, chunk, counts)
    for a, b, found in compared:
        higher.append(rest[a])
        lower.append(rest[b])
        similarity.append(found)
    kind = np.repeat(np.array([EXACT, NEAR], np.uint8), [len(higher[0]), sum(map(len, higher[1:]))])
    source, target = np.concatenate(higher), np.concatenate(lower)
    kept = _unique_pairs(ordinals[source], ordinals[target])
    edges = np.empty(len(kept), EDGE_DTYPE)
    edges["a"], edges["b"] = ordinals[source[kept]], ordinals[target[kept]]
    edges["similarity"], edges["kind"] = np.concatenate(similarity)[kept], kind[kept]
    edges["id"] = document_keys["id"][source[kept]]
    counts["edges"] = len(edges)
    return edges, counts


def arrange(bucket: Buckets, document_keys: DocumentKeys) -> tuple[Int64s, Int64s]:
    """Return the positions of members sorted by (bucket, rank), and for each the highest in rank of its exact copies.

    Members equal in rank keep their order.
    """
    order, original = _arrange(bucket & ~EXACT_FLAG, key_words(document_keys))
    return order, original


def key_words(document_keys: DocumentKeys) -> Keys:
    """Return uint64[n, 8]: `KEY_DTYPE` as integers."""
    first = document_keys["exact"]
    words = as_strided(first, (len(first), KEY_DTYPE.itemsize // 8), first.strides, writeable=False)
    return np.ascontiguousarray(words)


def sketches(signatures: SignatureArray) -> SketchArray:
    """Return uint16[n, k], what of signatures is compared: the low half of each minimum."""
    return signatures.astype(np.uint16)


def unique_edges(edges: Array) -> Array:
    """Return the edges sorted by (a, b), each pair once: the same pair has the same similarity in every bucket."""
    return pick(edges, _unique_pairs(edges["a"], edges["b"]))


def _unique_pairs(a: Int64s, b: Int64s) -> Int64s:
    """Positions in the order of (a, b), one of each pair."""
    order = _order(a, b)
    return order[differs(a[order], b[order])]


def _order(a: Int64s, b: Int64s) -> Int64s:
    """Positions in the order of (a, b): one sort of one word where both fit into it, which is five times as fast."""
    if not len(a):
        return np.empty(0, np.int64)
    width = int(b.max() - b.min()) + 1
    if (int(a.max() - a.min()) + 1) * width < 1 << 63:
        return np.argsort((a - a.min()) * width + (b - b.min()))
    return np.lexsort((b, a))


def _repeated(values: npt.NDArray[Any]) -> Flags:
    """Which of sorted values occur more than once."""
    new = differs(values)
    repeated: Flags = ~(new & np.append(new[1:], True)[: len(values)])  # not first and last of its run
    return repeated


def _compare(
    bucket: Buckets,
    place: Int64s,
    earlier: Flags,
    take_sketches: Take,
    threshold: float,
    max_leaders: int,
    chunk_members: int,
    counts: dict[str, int],
) -> Iterator[tuple[Int64s, Int64s, npt.NDArray[np.float32]]]:
    """Yield verified pairs of positions among members in (bucket, rank) order, a bounded number of sketches in memory.

    Members of earlier builds come first in their buckets, and lead without being compared with each other.
    A bucket may be larger than that bound: its leaders so far are then carried into the next round, where they meet
    each other again (they do not match) and the members still to come.
    """
    carried = np.empty(0, np.int64)
    for start in range(0, len(bucket), chunk_members):
        end = min(start + chunk_members, len(bucket))
        members = np.concatenate((carried, np.arange(start, end)))
        rising = np.argsort(place[members])
        rows = np.empty(len(members), np.int64)
        rows[rising] = np.arange(len(members))
        chunk: SketchArray = take_sketches(place[members][rising])
        k = chunk.shape[1]
        least = min_matches(threshold, k)
        a, b, matches, leaders, comparisons, overflow = _lead(
            bucket[members], rows, earlier[members], chunk, least, max_leaders
        )
        yield members[a], members[b], (matches / k).astype(np.float32)
        counts["comparisons"] += comparisons
        counts["overflow"] += overflow
        continues = end < len(bucket) and bucket[end] == bucket[end - 1]
        carried = members[leaders] if continues else np.empty(0, np.int64)


@kernel()
def _outranks(words: Keys, x: int, y: int) -> bool:
    """Whether x comes before y: as `keys.rank`, on KEY_DTYPE as eight integers."""
    for column in range(2, 8):
        if words[x, column] != words[y, column]:
            return bool(words[x, column] > words[y, column]) == (column < 4)
    return False


@kernel()
def _rank_sort(order: Int64s, start: int, end: int, spare: Int64s, words: Keys) -> None:
    """Stable merge sort of order[start:end] by rank."""
    for first in range(start, end, SORTED_AT_ONCE):
        for i in range(first + 1, min(first + SORTED_AT_ONCE, end)):
            x, j = order[i], i
            while j > first and _outranks(words, x, order[j - 1]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = x
    width = SORTED_AT_ONCE
    while width < end - start:
        for first in range(start, end, 2 * width):
            middle, last = min(first + width, end), min(first + 2 * width, end)
            spare[first:last] = order[first:last]
            i, j = first, middle
            for out in range(first, last):
                if j < last and (i >= middle or _outranks(words, spare[j], spare[i])):
                    order[out] = spare[j]
                    j += 1
                else:
                    order[out] = spare[i]
                    i += 1
        width *= 2


@kernel()
def _arrange(bucket: Buckets, words: Keys) -> tuple[Int64s, Int64s]:
    count = len(bucket)
    starts = np.zeros(np.int64(bucket.max() if count else 0) + 2, np.int64)
    for i in range(count):
        starts[np.int64(bucket[i]) + 1] += 1
    table = np.empty(slots_for(starts.max()), np.int64)
    starts = np.cumsum(starts)
    after = starts.copy()
    order, original = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        order[after[bucket[i]]] = i
        after[bucket[i]] += 1
    for number in range(len(starts) - 1):
        start, end = starts[number], starts[number + 1]
        if start == end:
            continue
        _rank_sort(order, start, end, original, words)  # `original` is free until the next lines
        size = slots_for(end - start)
        table[:size] = -1
        mask = np.uint64(size - 1)
        for i in range(start, end):
            x = order[i]
            slot = words[x, 0] & mask
            while table[slot] >= 0 and (words[table[slot], 0] != words[x, 0] or words[table[slot], 1] != words[x, 1]):
                slot = (slot + np.uint64(1)) & mask
            if table[slot] < 0:
                table[slot] = x
            original[i] = table[slot]
    return order, original


@kernel()
def _lead(
    bucket: Buckets, rows: Int64s, earlier: Flags, sketches: SketchArray, least: int, max_leaders: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, int, int]:
    """Positions (leader, member) and equal minima of each verified pair; the last bucket's leaders; two counters."""
    edges = np.empty((3, FIRST_CAPACITY), np.int64)
    leaders = np.empty(2 * max_leaders, np.int64)
    num_edges = num_leaders = num_earlier = comparisons = overflow = 0
    for i in range(len(bucket)):
        if i == 0 or bucket[i] != bucket[i - 1]:
            num_leaders = num_earlier = 0
        if num_edges + num_leaders > edges.shape[1]:
            larger = np.empty((3, 2 * edges.shape[1] + num_leaders), np.int64)
            larger[:, :num_edges] = edges[:, :num_edges]
            edges = larger
        alone = True
        compared = 0 if earlier[i] else num_leaders
        for j in range(compared):
            equal = 0
            for p in range(sketches.shape[1]):
                equal += sketches[rows[i], p] == sketches[rows[leaders[j]], p]
            if equal >= least:
                edges[0, num_edges], edges[1, num_edges], edges[2, num_edges] = leaders[j], i, equal
                num_edges += 1
                alone = False
        comparisons += compared
        if alone and num_leaders < max_leaders + (0 if earlier[i] else num_earlier):
            leaders[num_leaders] = i
            num_leaders += 1
            num_earlier += earlier[i]
        elif alone:
            overflow += 1
    return (
        edges[0, :num_edges].copy(),
        edges[1, :num_edges].copy(),
        edges[2, :num_edges].copy(),
        leaders[:num_leaders].copy(),
        comparisons,
        overflow,
    )
