"""Band records of one partition to verified edges between documents.

Documents with one key form a bucket. Exact copies in it are set aside first (the exact band makes their edges), so a
text repeated a million times costs a sort and no comparison. The others are compared in rank order with the bucket's
leaders so far: one that resembles no leader becomes a leader itself. A bucket therefore costs documents x leaders and
not the square, and what is compared depends on content alone. The number of leaders is bounded; a document that would
have become one more is counted as overflow.

An edge (a, b) runs from the document of higher rank to the one of lower rank. Its similarity is estimated from both
signatures and is at least the threshold: a chain of templates that share bands makes candidates, never edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.dedup.keys import DocumentKeys, rank
from corpus.dedup.minhash import EXACT_BAND, Keys, SignatureArray, min_matches
from corpus.dedup.records import Array, Ordinals
from corpus.engine.compiled import kernel

EXACT, NEAR = 0, 1
EDGE_DTYPE = np.dtype([("a", "<i8"), ("b", "<i8"), ("similarity", "<f4"), ("kind", "u1")])
CHUNK_MEMBERS = 1 << 17  # bucket members whose signatures are held at once: 59 MB at k = 112
FIRST_CAPACITY = 1 << 12  # edges

Take = Callable[[Ordinals], Array]  # rows of rising ordinals
Int64s = npt.NDArray[np.int64]


def find_edges(
    keys: Keys, ordinals: Ordinals, take_keys: Take, take_signatures: Take, threshold: float, max_leaders: int
) -> tuple[Array, dict[str, int]]:
    """Return the verified edges of one partition, unique and sorted by (a, b), and what was counted on the way.

    Args:
        keys, ordinals: the partition's band records, in any order.
        take_keys, take_signatures: give the `KEY_DTYPE` records and the signatures of documents.
    """
    counts = {"records": len(keys), "buckets": 0, "comparisons": 0, "overflow": 0, "edges": 0}
    shared = _shared(keys)
    if not len(shared):
        return np.empty(0, EDGE_DTYPE), counts
    documents, member = np.unique(ordinals[shared], return_inverse=True)
    document_keys = take_keys(documents)
    ranks = rank(document_keys)
    bucket = _runs(keys[shared])
    counts["buckets"] = int(bucket[-1]) + 1
    copies, originals, lone = _copies(bucket, member, _classes(document_keys), ranks)

    exact = (keys[shared] & np.uint64(0xFF)) == EXACT_BAND
    edges = np.empty(int(exact[copies].sum()), EDGE_DTYPE)
    edges["a"], edges["b"] = documents[member[originals[exact[copies]]]], documents[member[copies[exact[copies]]]]
    edges["similarity"], edges["kind"] = 1, EXACT

    rest = lone[~exact[lone]]
    rest = rest[np.lexsort((ranks[member[rest]], bucket[rest]))]
    rest = rest[_repeated(bucket[rest])]
    near = _compare(bucket[rest], documents[member[rest]], take_signatures, threshold, max_leaders, counts)
    result = unique_edges(np.concatenate((edges, near)))
    counts["edges"] = len(result)
    return result, counts


def unique_edges(edges: Array) -> Array:
    """Return the edges sorted by (a, b), each pair once: the same pair has the same similarity in every bucket."""
    ordered = edges[np.lexsort((edges["b"], edges["a"]))]
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered["a"][1:] != ordered["a"][:-1]) | (ordered["b"][1:] != ordered["b"][:-1])
    return ordered[new]


def _shared(keys: Keys) -> Int64s:
    """Positions of the records whose key occurs more than once, sorted by key."""
    order = np.argsort(keys)
    return order[_repeated(keys[order])]


def _repeated(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of sorted values occur more than once."""
    equal = values[1:] == values[:-1]
    repeated = np.zeros(len(values), bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return repeated


def _runs(values: npt.NDArray[Any]) -> Int64s:
    """Numbers the runs of equal values 0, 1, ..."""
    return np.concatenate(([0], np.cumsum(values[1:] != values[:-1]))).astype(np.int64)


def _classes(document_keys: DocumentKeys) -> Int64s:
    """Numbers the documents so that equal exact keys have equal numbers."""
    order = np.lexsort((document_keys["exact"][:, 1], document_keys["exact"][:, 0]))
    exact = document_keys["exact"][order]
    classes = np.empty(len(order), np.int64)
    classes[order] = np.concatenate(([0], np.cumsum((exact[1:] != exact[:-1]).any(axis=1))))
    return classes


def _copies(bucket: Int64s, member: Int64s, classes: Int64s, ranks: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Within each bucket and class of exact copies: (the others, the highest in rank of each of them, the highest)."""
    order = np.lexsort((ranks[member], classes[member], bucket))
    first = np.ones(len(order), bool)
    first[1:] = (bucket[order][1:] != bucket[order][:-1]) | (classes[member[order]][1:] != classes[member[order]][:-1])
    highest = order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
    return order[~first], highest[~first], order[first]


def _compare(
    bucket: Int64s,
    documents: Ordinals,
    take_signatures: Take,
    threshold: float,
    max_leaders: int,
    counts: dict[str, int],
) -> Array:
    """Edges among bucket members in rank order, a bounded number of signatures in memory.

    A bucket may be larger than that bound: its leaders so far are then carried into the next round, where they meet
    each other again (they do not match) and the members still to come.
    """
    found = [np.empty(0, EDGE_DTYPE)]
    carried = np.empty(0, np.int64)
    for start in range(0, len(bucket), CHUNK_MEMBERS):
        end = min(start + CHUNK_MEMBERS, len(bucket))
        members = np.concatenate((carried, np.arange(start, end)))
        unique, inverse = np.unique(documents[members], return_inverse=True)
        signatures: SignatureArray = take_signatures(unique)
        k = signatures.shape[1]
        a, b, matches, leaders, comparisons, overflow = _lead(
            bucket[members], inverse, signatures, min_matches(threshold, k), max_leaders
        )
        edges = np.empty(len(a), EDGE_DTYPE)
        edges["a"], edges["b"] = documents[members[a]], documents[members[b]]
        edges["similarity"], edges["kind"] = matches / k, NEAR
        found.append(unique_edges(edges))
        counts["comparisons"] += comparisons
        counts["overflow"] += overflow
        continues = end < len(bucket) and bucket[end] == bucket[end - 1]
        carried = members[leaders] if continues else np.empty(0, np.int64)
    return np.concatenate(found)


@kernel(
    "Tuple((int64[::1], int64[::1], int64[::1], int64[::1], int64, int64))"
    "(Array(int64, 1, 'C', True), Array(int64, 1, 'C', True), Array(uint32, 2, 'C', True), int64, int64)"
)
def _lead(
    bucket: Int64s, rows: Int64s, signatures: SignatureArray, least: int, max_leaders: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, int, int]:
    """Positions (leader, member) and equal minima of each verified pair; the last bucket's leaders; two counters."""
    edges = np.empty((3, FIRST_CAPACITY), np.int64)
    leaders = np.empty(max_leaders, np.int64)
    num_edges = num_leaders = comparisons = overflow = 0
    for i in range(len(bucket)):
        if i == 0 or bucket[i] != bucket[i - 1]:
            num_leaders = 0
        if num_edges + num_leaders > edges.shape[1]:
            larger = np.empty((3, 2 * edges.shape[1] + num_leaders), np.int64)
            larger[:, :num_edges] = edges[:, :num_edges]
            edges = larger
        alone = True
        for j in range(num_leaders):
            equal = 0
            for p in range(signatures.shape[1]):
                equal += signatures[rows[i], p] == signatures[rows[leaders[j]], p]
            if equal >= least:
                edges[0, num_edges], edges[1, num_edges], edges[2, num_edges] = leaders[j], i, equal
                num_edges += 1
                alone = False
        comparisons += num_leaders
        if alone and num_leaders < max_leaders:
            leaders[num_leaders] = i
            num_leaders += 1
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
