"""`clusters.resolve` for more edges than memory has room for: the same fates, from arrays in files of a scratch folder.

Edges are read four times, a block at a time: to find components, to count and then place the neighbours below each
document (a counting sort, 4 bytes an edge), and to choose survivors, 130 bytes a document that has an edge. Kernels
work on mapped files, so memory is what the system has to spare.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpus.dedup import records
from corpus.dedup.near.candidates import EXACT, NEAR
from corpus.dedup.near.clusters import FATE_DTYPE, SURVIVOR, mark_survivors
from corpus.dedup.near.components import Components, Parents, flatten, mapped, number_all
from corpus.dedup.records import Array, Ordinals, Runs, pick
from corpus.dedup.text.hashing import Keys
from corpus.engine.compiled import kernel

Similarities = npt.NDArray[np.float32]


def resolve_mapped(edges: Runs, scratch: Path) -> Array:
    """Return what `clusters.resolve` returns, mapped from a file of `scratch`, an empty folder."""
    found = Components.of(edges, scratch / "parents")
    documents, size = found.list_marked(scratch / "documents"), len(found.parents)
    flatten(found.parents)

    starts = mapped(scratch / "starts", np.int64, size + 1)
    for block in edges.blocks():
        _count(found.numbers(block["a"][block["kind"] == NEAR]), starts)
    np.cumsum(starts, out=starts)
    lower = mapped(scratch / "lower", np.uint32, int(starts[-1]))
    for block in edges.blocks():
        near = block["kind"] == NEAR
        _place(found.numbers(block["a"][near]), found.numbers(block["b"][near]), starts, lower)
    survives = mapped(scratch / "survives", np.bool_, size)
    survives[:] = True
    counts = mapped(scratch / "counts", np.int64, size)
    mark_survivors(starts, lower, counts, mapped(scratch / "queue", np.int64, size), survives)

    survivor, original = (mapped(scratch / name, np.uint32, size) for name in ("survivor", "original"))
    number_all(survivor)
    number_all(original)
    similarity = mapped(scratch / "similarity", np.float32, size)
    similarity[:] = 1
    ids, original_ids = (mapped(scratch / name, np.uint64, 2 * size).reshape(-1, 2) for name in ("ids", "original_ids"))
    for block in edges.blocks():
        for kind in (NEAR, EXACT):
            part = pick(block, np.flatnonzero(block["kind"] == kind))
            a, b, names = found.numbers(part["a"]), found.numbers(part["b"]), np.ascontiguousarray(part["id"])
            if kind == NEAR:
                _choose(a, b, np.ascontiguousarray(part["similarity"]), names, survives, survivor, similarity, ids)
            else:
                _copy(a, b, names, original, original_ids)

    fates = mapped(scratch / "fates", FATE_DTYPE, size)
    members, sizes = (mapped(scratch / name, np.int64, size) for name in ("members", "sizes"))
    _count(found.parents, members)
    blocks = [slice(start, start + records.BLOCK_RECORDS) for start in range(0, size, records.BLOCK_RECORDS)]
    for here in blocks:
        _count(survivor[original[here]], sizes)
    for here in blocks:
        part, first, root = fates[here], original[here], found.parents[here]
        stays, is_copy = survivor[first] == first, first != np.arange(here.start, here.start + len(first))
        part["document"], part["component"], part["members"] = documents[here], documents[root], members[root]
        part["survivor"], part["size"] = documents[survivor[first]], sizes[survivor[first]]
        part["similarity"] = similarity[first]
        part["kind"] = np.where(stays, np.where(is_copy, EXACT, SURVIVOR), NEAR)
        part["survivor_id"] = np.where((stays & is_copy)[:, None], original_ids[here], ids[first])
    return fates


@kernel()
def _count(numbers: Parents, counts: Ordinals) -> None:
    for i in range(len(numbers)):
        counts[numbers[i]] += 1


@kernel()
def _place(higher: Parents, lower: Parents, ends: Ordinals, below: Parents) -> None:
    """Put each lower end among those of its higher one, from its end on down; at last `ends` are where they start."""
    for i in range(len(higher)):
        ends[higher[i]] -= 1
        below[ends[higher[i]]] = lower[i]


@kernel()
def _choose(
    higher: Parents,
    lower: Parents,
    similarity: Similarities,
    names: Keys,
    survives: npt.NDArray[np.bool_],
    survivor: Parents,
    best: Similarities,
    ids: Keys,
) -> None:
    """Name the most similar survivor above each document, the smallest id among equals, then the first document."""
    for i in range(len(higher)):
        x, y = higher[i], lower[i]
        if not survives[x]:
            continue
        if survivor[y] == y or similarity[i] != best[y]:
            better = survivor[y] == y or similarity[i] > best[y]
        elif names[i, 0] != ids[y, 0] or names[i, 1] != ids[y, 1]:
            better = names[i, 0] < ids[y, 0] or (names[i, 0] == ids[y, 0] and names[i, 1] < ids[y, 1])
        else:
            better = x < survivor[y]
        if better:
            survivor[y], best[y] = x, similarity[i]
            ids[y, 0], ids[y, 1] = names[i, 0], names[i, 1]


@kernel()
def _copy(higher: Parents, lower: Parents, names: Keys, original: Parents, ids: Keys) -> None:
    """Name the original of each exact copy, the last one where there are several."""
    for i in range(len(higher)):
        x, y = higher[i], lower[i]
        if original[y] == y or x >= original[y]:
            original[y] = x
            ids[y, 0], ids[y, 1] = names[i, 0], names[i, 1]
