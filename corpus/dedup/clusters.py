"""Verified edges to survivors.

A document survives unless a verified neighbour of higher rank did. Every edge runs down in rank, so the graph has no
cycles and the rule has one solution, found in one pass in topological order: in a chain A ~ B ~ C whose ends do not
resemble each other, A drops B and C stays. Exact copies are dropped beforehand, their fate that of their original: what
resembles the original resembles them.

Union-find over the same edges only numbers the clusters (root = the smallest ordinal, so the label is a function of the
set of edges): 40 million edges/s a core, the whole of `resolve` 3 million. Memory was 144 bytes an edge; documents
without a duplicate cost nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from corpus.dedup.candidates import EXACT, NEAR, Int64s, Take, unique_edges
from corpus.dedup.keys import id_bytes, rank
from corpus.dedup.records import Array, Ordinals
from corpus.engine.compiled import kernel

FATE_DTYPE = np.dtype(
    [
        ("document", "<i8"),  # ordinal of the document that is dropped
        ("survivor", "<i8"),  # ordinal of the one that stays in its place
        ("similarity", "<f4"),
        ("kind", "u1"),
        ("cluster", "<i8"),  # smallest ordinal of the connected component
    ]
)
DROP_DTYPE = np.dtype(
    [
        ("row", "<u4"),  # position in the shard
        ("survivor", "u1", (16,)),  # id of the document that stays
        ("similarity", "<f4"),
        ("kind", "u1"),
        ("cluster", "<i8"),
    ]
)


def resolve(edges: Array, take_keys: Take) -> tuple[Array, dict[str, int]]:
    """Return one `FATE_DTYPE` record for each dropped document, sorted by ordinal, and counts.

    Args:
        edges: `EDGE_DTYPE` records of all partitions, repeats allowed.
        take_keys: gives the `KEY_DTYPE` records of documents.
    """
    edges = unique_edges(edges)
    documents, ends = np.unique(np.concatenate((edges["a"], edges["b"])), return_inverse=True)
    higher, lower = np.split(ends.astype(np.int64), 2)
    cluster = _components(higher, lower, len(documents))
    near, exact = edges["kind"] == NEAR, edges["kind"] == EXACT

    survives = _survivors(*_by_higher(higher[near], lower[near], len(documents)))
    survivor, similarity = np.arange(len(documents)), np.ones(len(documents), np.float32)
    decided = near & survives[higher]
    best = _best(lower[decided], higher[decided], edges["similarity"][decided], documents, take_keys)
    chosen = np.flatnonzero(decided)[best]
    survivor[lower[chosen]], similarity[lower[chosen]] = higher[chosen], edges["similarity"][chosen]

    kind = np.full(len(documents), NEAR, np.uint8)
    original, copy = higher[exact], lower[exact]
    kind[copy[survives[original]]] = EXACT
    survivor[copy], similarity[copy] = survivor[original], similarity[original]

    dropped = np.flatnonzero(survivor != np.arange(len(documents)))
    fates = np.empty(len(dropped), FATE_DTYPE)
    fates["document"], fates["survivor"] = documents[dropped], documents[survivor[dropped]]
    fates["similarity"], fates["kind"] = similarity[dropped], kind[dropped]
    fates["cluster"] = documents[cluster[dropped]]
    return fates, {
        "edges": len(edges),
        "clusters": len(np.unique(cluster)),
        "clustered_documents": len(documents),
        "exact": int((fates["kind"] == EXACT).sum()),
        "near": int((fates["kind"] == NEAR).sum()),
    }


def shard_drops(fates: Array, bases: Ordinals, take_keys: Take) -> Iterator[Array]:
    """Yield the `DROP_DTYPE` records of each shard, sorted by row; `bases` are the shards' first ordinals."""
    cuts = np.searchsorted(fates["document"], bases)
    for base, start, end in zip(bases[:-1], cuts[:-1], cuts[1:], strict=True):
        part = fates[start:end]
        drops = np.empty(len(part), DROP_DTYPE)
        drops["row"] = part["document"] - base
        for name in ("similarity", "kind", "cluster"):
            drops[name] = part[name]
        if len(part):
            survivors, which = np.unique(part["survivor"], return_inverse=True)
            drops["survivor"] = id_bytes(take_keys(survivors))[which]
        yield drops


def _by_higher(higher: Int64s, lower: Int64s, num_documents: int) -> tuple[Int64s, Int64s]:
    """Edges as adjacency: the lower ends of document i are lower[starts[i]:starts[i + 1]]."""
    order = np.argsort(higher, kind="stable")
    return np.searchsorted(higher[order], np.arange(num_documents + 1)), lower[order]


def _best(lower: Int64s, higher: Int64s, similarity: Array, documents: Int64s, take_keys: Take) -> Int64s:
    """Positions of the edges that name a survivor: the most similar one, the highest in rank among equals."""
    if not len(lower):
        return np.empty(0, np.int64)
    survivors, which = np.unique(higher, return_inverse=True)
    order = np.lexsort((rank(take_keys(documents[survivors]))[which], -similarity, lower))
    first = np.ones(len(order), bool)
    first[1:] = lower[order][1:] != lower[order][:-1]
    return order[first]


@kernel("int64[::1](Array(int64, 1, 'C', True), Array(int64, 1, 'C', True), int64)")
def _components(a: Int64s, b: Int64s, num_documents: int) -> Int64s:
    """The smallest document of each one's connected component, by union-find with path halving."""
    parent = np.arange(num_documents)
    for i in range(len(a)):
        x, y = a[i], b[i]
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        parent[max(x, y)] = min(x, y)
    for x in range(num_documents):  # a parent is never larger than its child, so one pass flattens
        parent[x] = parent[parent[x]]
    return parent


@kernel("boolean[::1](Array(int64, 1, 'C', True), Array(int64, 1, 'C', True))")
def _survivors(starts: Int64s, lower: Int64s) -> npt.NDArray[np.bool_]:
    """Documents in topological order: one that no survivor above it has dropped survives and drops those below it."""
    num_documents = len(starts) - 1
    waiting = np.zeros(num_documents, np.int64)  # neighbours above that are not decided yet
    for i in range(len(lower)):
        waiting[lower[i]] += 1
    survives = np.ones(num_documents, np.bool_)
    queue = np.empty(num_documents, np.int64)
    last = 0
    for x in range(num_documents):
        if waiting[x] == 0:
            queue[last] = x
            last += 1
    first = 0
    while first < last:
        x = queue[first]
        first += 1
        for i in range(starts[x], starts[x + 1]):
            y = lower[i]
            if survives[x]:
                survives[y] = False
            waiting[y] -= 1
            if waiting[y] == 0:
                queue[last] = y
                last += 1
    return survives
