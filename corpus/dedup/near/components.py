"""Connected components of the documents that edges name: a bitmap of all, union-find over those.

A document's number among the marked ones is a popcount before it, so the array of parents has 4 bytes for each marked
document and none for the others, which are nearly all. It is mapped from a scratch file: the system may put it out.
In memory are 1.1 bits a document: 0.3 GB for 2 billion of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corpus.dedup.records import Ordinals, Runs
from corpus.dedup.text.hashing import Keys
from corpus.engine.compiled import kernel
from corpus.engine.errors import WenhaiError

BLOCK_WORDS = 8  # of 64 documents each, between two counts
MAX_MARKED = 1 << 32
BLOCK_BITS = 1 << 23  # of the bitmap, one byte each in memory

Parents = npt.NDArray[np.uint32]


class Components:
    """Mark the ends of all edges, then `number` them, then unite, then ask for roots."""

    def __init__(self) -> None:
        self._bits = np.zeros(1, np.uint64)
        self._before = np.zeros(0, np.int64)
        self.parents = np.zeros(0, np.uint32)  # of each marked document, by its number

    @classmethod
    def of(cls, edges: Runs, path: Path) -> Self:
        """The components of edges with fields `a` and `b`, which are read twice; `path` as in `number`."""
        found = cls()
        for block in edges.blocks():
            found.mark(block["a"])
            found.mark(block["b"])
        found.number(path)
        for block in edges.blocks():
            unite(found.parents, found.numbers(block["a"]), found.numbers(block["b"]))
        return found

    def mark(self, documents: Ordinals) -> None:
        """Take note of documents."""
        words = (int(documents.max()) >> 6) + 1
        if words > len(self._bits):
            self._bits = np.concatenate((self._bits, np.zeros(max(words - len(self._bits), words >> 3), np.uint64)))
        _mark(self._bits, np.ascontiguousarray(documents))

    def number(self, path: Path) -> None:
        """Make each marked document a component; `path` becomes a file of 4 bytes for each of them.

        Raises:
            WenhaiError: they are more than 2^32.
        """
        self._before = _counts(self._bits)
        marked = int(self._before[-1])
        if marked > MAX_MARKED:
            raise WenhaiError(
                f"{marked:,} documents have a duplicate; at most {MAX_MARKED:,} can be clustered at once."
            )
        self.parents = mapped(path, np.uint32, marked)
        number_all(self.parents)

    def numbers(self, documents: Ordinals) -> Parents:
        """Return uint32[n]: how many marked documents are before each."""
        return _numbers(self._bits, self._before, np.ascontiguousarray(documents))

    def roots(self, documents: Ordinals) -> Parents:
        """Return uint32[n]: the number of the smallest document of each one's component, once all edges are in."""
        return _roots(self.parents, self.numbers(documents))

    def list_marked(self, path: Path) -> Ordinals:
        """Return int64[marked], the marked documents in order, mapped from a new file."""
        found, done = mapped(path, np.int64, len(self.parents)), 0
        for start in range(0, len(self._bits), BLOCK_BITS // 64):
            bits = np.unpackbits(self._bits[start : start + BLOCK_BITS // 64].view(np.uint8), bitorder="little")
            marked = np.flatnonzero(bits)
            found[done : done + len(marked)] = marked + 64 * start
            done += len(marked)
        return found


def mapped(path: Path, dtype: npt.DTypeLike, size: int) -> npt.NDArray[Any]:
    """Return `size` zeros in a new file: the system may put them out of memory, and it takes the disk they need."""
    return np.asarray(np.memmap(path, dtype, "w+", shape=(max(1, size),)))[:size]


@kernel()
def number_all(parents: Parents) -> None:
    """Make everyone a root."""
    for x in range(len(parents)):
        parents[x] = x


@kernel()
def unite(parents: Parents, a: Parents, b: Parents) -> None:
    """Union-find with path halving: joins the components of both ends of each edge, the smaller root staying."""
    for i in range(len(a)):
        x, y = a[i], b[i]
        while parents[x] != x:
            parents[x] = parents[parents[x]]
            x = parents[x]
        while parents[y] != y:
            parents[y] = parents[parents[y]]
            y = parents[y]
        parents[max(x, y)] = min(x, y)


@kernel()
def flatten(parents: Parents) -> None:
    """Point everyone at the smallest of its component: a parent is never larger than its child, so one pass does."""
    for x in range(len(parents)):
        parents[x] = parents[parents[x]]


@kernel()
def _roots(parents: Parents, numbers: Parents) -> Parents:
    found = np.empty_like(numbers)
    for i in range(len(numbers)):
        x = numbers[i]
        while parents[x] != x:
            parents[x] = parents[parents[x]]
            x = parents[x]
        found[i] = x
    return found


@kernel()
def _popcount(x: np.uint64) -> np.uint64:
    """Set bits, added up in parallel (Warren, Hacker's Delight, 5-2)."""
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel()
def _mark(bits: Keys, documents: Ordinals) -> None:
    for i in range(len(documents)):
        bits[documents[i] >> 6] |= np.uint64(1) << np.uint64(documents[i] & 63)


@kernel()
def _counts(bits: Keys) -> Ordinals:
    """How many are marked before each block of words, and in all."""
    blocks = (len(bits) + BLOCK_WORDS - 1) // BLOCK_WORDS
    before = np.zeros(blocks + 1, np.int64)
    for word in range(len(bits)):
        before[word // BLOCK_WORDS + 1] += np.int64(_popcount(bits[word]))
    return np.cumsum(before)


@kernel()
def _numbers(bits: Keys, before: Ordinals, documents: Ordinals) -> Parents:
    """How many are marked before each document."""
    numbers = np.empty(len(documents), np.uint32)
    for i in range(len(documents)):
        own = documents[i] >> 6
        block = own // BLOCK_WORDS
        number = before[block]
        for word in range(block * BLOCK_WORDS, own):
            number += np.int64(_popcount(bits[word]))
        below = (np.uint64(1) << np.uint64(documents[i] & 63)) - np.uint64(1)
        numbers[i] = np.uint32(number + np.int64(_popcount(bits[own] & below)))
    return numbers
