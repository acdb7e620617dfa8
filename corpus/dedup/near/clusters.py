"""Verified edges to survivors.

A document survives unless a verified neighbour of higher rank did. Every edge runs down in rank, so the graph has no
cycles and the rule has one solution, found in one pass in topological order: in a chain A ~ B ~ C whose ends do not
resemble each other, A drops B and C stays. Exact copies are dropped beforehand, their fate that of their original: what
resembles the original resembles them.

Union-find over the same edges finds the components (root = the smallest ordinal, so the label is a function of the
set of edges; `components.py`). Then the edges are dealt by component into groups of about a million, and each is
resolved by itself: in memory, 0.2 KB an edge, or, where one component has more than `MAX_EDGES`, on mapped files
(`mapped.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup.near import components
from corpus.dedup.near.candidates import EXACT, NEAR, Int64s, unique_edges
from corpus.dedup.near.components import Components, Parents
from corpus.dedup.records import Array, Ordinals, Runs, cuts_of, pick
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.dedup.text.keys import DocumentKeys, id_bytes, id_words_bytes
from corpus.engine.compiled import kernel

SURVIVOR = 2  # beside EXACT and NEAR
KIND_NAMES = ("exact", "near", "survivor")
BUILD_DTYPE = "S12"  # the name of an earlier build
FATE_DTYPE = np.dtype(
    [
        ("document", "<i8"),  # ordinal of a document that has a verified neighbour
        ("survivor", "<i8"),  # ordinal of the one that stays in its place; its own when it stays
        ("survivor_id", "<u8", (2,)),  # of dropped documents only
        ("similarity", "<f4"),
        ("kind", "u1"),
        ("component", "<i8"),  # smallest ordinal of the connected component
        ("members", "<i8"),  # documents of the component
        ("size", "<i8"),  # documents that the survivor stands for, itself one of them
    ]
)
DROP_DTYPE = np.dtype(
    [
        ("row", "<u4"),  # position in the shard
        ("survivor", "u1", (16,)),  # id of the document that stays
        ("similarity", "<f4"),
        ("kind", "u1"),
        ("cluster", "<i8"),
        ("build", BUILD_DTYPE),  # the earlier build the survivor stands in; empty: this one
    ]
)
CLUSTER_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), False),
        pa.field("row", pa.uint32(), False),  # position in the shard of the stage `filter`
        pa.field("component", pa.int64(), False),  # a number of this build: the component's smallest ordinal
        pa.field("members", pa.int64(), False),  # documents of the component, the survivors too
        pa.field("size", pa.int64(), False),  # documents that the survivor stands for, itself one of them
        pa.field("survivor", pa.binary(16), False),  # who stays in its place: itself, where kind is survivor
        pa.field("build", pa.string()),  # the earlier build the survivor stands in; null: this one
        pa.field("similarity", pa.float32(), False),  # estimated Jaccard with the survivor
        pa.field("kind", pa.string(), False),
    ]
)
GROUP_EDGES = 1 << 20
MAX_GROUPS = 1 << 12
MAX_EDGES = 1 << 23  # that are resolved in memory: 1.7 GB

Builds = bytes | npt.NDArray[np.bytes_]


def num_groups(num_edges: int) -> int:
    """Return into how many groups of components the edges are dealt."""
    return min(MAX_GROUPS, num_edges // GROUP_EDGES + 1)


def deal(edges: Runs, paths: Sequence[Path], scratch: Path) -> Ordinals:
    """Write each edge to the file of its component's group, and return how many each file has.

    Args:
        edges: `EDGE_DTYPE` records.
        scratch: an empty folder, for 4 bytes a document that has an edge.
    """
    found = Components.of(edges, scratch / "parents") if len(paths) > 1 else None
    total = np.zeros(len(paths), np.int64)
    for path in paths:
        path.touch()
    for block in edges.blocks():
        group = _groups(found.roots(block["a"]), len(paths)) if found else np.zeros(len(block), np.uint16)
        dealt, counts = pick(block, np.argsort(group, kind="stable")), np.bincount(group, minlength=len(paths))
        cuts = cuts_of(counts)
        for number in np.flatnonzero(counts).tolist():
            with open(paths[number], "ab", buffering=0) as file:
                file.write(dealt[cuts[number] : cuts[number + 1]].data)
        total += counts
    return total


def resolve(edges: Array) -> Array:
    """Return one `FATE_DTYPE` record for each document of the edges, sorted by ordinal.

    Args:
        edges: `EDGE_DTYPE` records of whole components, repeats allowed.
    """
    edges = unique_edges(edges)
    documents, ends = np.unique(np.concatenate((edges["a"], edges["b"])), return_inverse=True)
    higher, lower = np.split(ends.astype(np.uint32), 2)
    component = np.arange(len(documents), dtype=np.uint32)
    components.unite(component, higher, lower)
    components.flatten(component)
    near, exact = edges["kind"] == NEAR, edges["kind"] == EXACT

    fates = np.zeros(len(documents), FATE_DTYPE)
    fates["document"], fates["component"] = documents, documents[component]
    fates["members"] = np.bincount(component, minlength=len(documents))[component]
    survivor, similarity = np.arange(len(documents)), np.ones(len(documents), np.float32)
    kind, ids = np.full(len(documents), SURVIVOR, np.uint8), np.zeros((len(documents), 2), np.uint64)

    starts = cuts_of(np.bincount(higher[near], minlength=len(documents)))  # edges are sorted by their higher end
    survives = np.ones(len(documents), np.bool_)
    mark_survivors(
        starts, lower[near], np.zeros(len(documents), np.int64), np.empty(len(documents), np.int64), survives
    )
    chosen = np.flatnonzero(near & survives[higher])
    chosen = chosen[_best(lower[chosen], edges["similarity"][chosen], edges["id"][chosen], len(documents))]
    dropped = lower[chosen]
    survivor[dropped], similarity[dropped], kind[dropped] = higher[chosen], edges["similarity"][chosen], NEAR
    ids[dropped] = edges["id"][chosen]

    original, copy = higher[exact], lower[exact]
    stays = survives[original]
    survivor[copy], similarity[copy], kind[copy] = (
        survivor[original],
        similarity[original],
        np.where(stays, EXACT, NEAR),
    )
    ids[copy] = np.where(stays[:, None], edges["id"][exact], ids[original])

    fates["survivor"], fates["similarity"], fates["kind"] = documents[survivor], similarity, kind
    fates["size"] = np.bincount(survivor, minlength=len(documents))[survivor]
    fates["survivor_id"] = ids
    return fates


def count(fates: Array) -> dict[str, int]:
    """Counts over whole components: how many, their documents, and how many of those are dropped as what."""
    return {
        "clusters": int((fates["document"] == fates["component"]).sum()),
        "clustered_documents": len(fates),
        "exact": int((fates["kind"] == EXACT).sum()),
        "near": int((fates["kind"] == NEAR).sum()),
    }


def drops(fates: Array, base: int, builds: Builds = b"") -> Array:
    """Return the `DROP_DTYPE` records of one shard, sorted by row.

    Args:
        base: its first ordinal.
        builds: of the survivors, one a fate, or one for all.
    """
    dropped = fates["kind"] != SURVIVOR
    part = fates[dropped]
    found = np.empty(len(part), DROP_DTYPE)
    found["row"] = part["document"] - base
    found["survivor"] = id_words_bytes(part["survivor_id"])
    found["similarity"], found["kind"], found["cluster"] = part["similarity"], part["kind"], part["component"]
    found["build"] = np.broadcast_to(np.asarray(builds, BUILD_DTYPE), len(fates))[dropped]
    return found


def cluster_table(fates: Array, base: int, keys: DocumentKeys, builds: Builds = b"") -> pa.Table:
    """Return the `CLUSTER_SCHEMA` rows of one shard, one for each document of `fates`; `keys` are theirs."""
    names = np.broadcast_to(np.asarray(builds, BUILD_DTYPE), len(fates))
    own = id_bytes(keys)
    survivor = np.where((fates["kind"] == SURVIVOR)[:, None], own, id_words_bytes(fates["survivor_id"]))
    columns = {
        "id": _binary(own),
        "row": (fates["document"] - base).astype(np.uint32),
        "component": np.ascontiguousarray(fates["component"]),
        "members": np.ascontiguousarray(fates["members"]),
        "size": np.ascontiguousarray(fates["size"]),
        "survivor": _binary(survivor),
        "build": pa.array(names.astype("U"), pa.string(), mask=names == b""),
        "similarity": np.ascontiguousarray(fates["similarity"]),
        "kind": pa.array(KIND_NAMES).take(pa.array(fates["kind"].astype(np.int64))),
    }
    return pa.table([columns[name] for name in CLUSTER_SCHEMA.names], schema=CLUSTER_SCHEMA)


def _binary(ids: npt.NDArray[np.uint8]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))])


@kernel()
def _groups(roots: Parents, groups: int) -> npt.NDArray[np.uint16]:
    """A number below `groups` for each component."""
    found = np.empty(len(roots), np.uint16)
    for i in range(len(roots)):
        found[i] = (mix(np.uint64(roots[i]) * GOLDEN) >> np.uint64(32)) % np.uint64(groups)
    return found


@kernel()
def _best(lower: Parents, similarity: npt.NDArray[np.float32], ids: Keys, num_documents: int) -> Int64s:
    """Positions of the edges that name a survivor: the most similar one, the smallest id among equals."""
    best = np.full(num_documents, -1, np.int64)
    for i in range(len(lower)):
        j = best[lower[i]]
        if j >= 0 and similarity[i] == similarity[j]:
            better = ids[i, 0] < ids[j, 0] or (ids[i, 0] == ids[j, 0] and ids[i, 1] < ids[j, 1])
        else:
            better = j < 0 or similarity[i] > similarity[j]
        if better:
            best[lower[i]] = i
    return best[best >= 0]


@kernel()
def mark_survivors(
    starts: Ordinals, lower: Parents, waiting: Ordinals, queue: Ordinals, survives: npt.NDArray[np.bool_]
) -> None:
    """Documents in topological order: one that no survivor above it has dropped survives and drops those below it.

    Args:
        starts: where each document's edges begin in `lower`, and where the last one's end.
        waiting: 0 for each document: neighbours above that are not decided yet.
        queue: room for all documents.
        survives: True for each document.
    """
    for i in range(len(lower)):
        waiting[lower[i]] += 1
    last = 0
    for x in range(len(waiting)):
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
