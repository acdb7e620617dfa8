"""Which documents contain an evaluation item: overlap of folded character n-grams with the texts of given files.

An item is one string of a JSON line (or a line of plain text) with at least n folded characters; shorter ones are
counted and cannot be looked for. A document contains it to the share of the item's different n-grams that it holds,
in any order. One common n-gram is no contamination: of 6,257 real documents 249 share some 13-gram with a FewCLUE test
(GPT-3's rule, on characters, would drop them), and none more than half of one item's. n = 10 because Chinese items are
short: of 300 planted ones it finds 288, 13 finds 266; 8 finds all, and two documents that hold none.

An index takes 16 bytes an n-gram of the items and lies in the memory of every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup.contamination.built_in import read_sets
from corpus.dedup.contamination.items import read_items
from corpus.dedup.records import differs
from corpus.dedup.text.fold import Codes, Offsets, fold
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.dedup.text.keys import text_buffers
from corpus.engine.compiled import kernel
from corpus.engine.input_digests import check_file
from corpus.engine.storage import File

BITS_A_GRAM = 16  # of the bit table that spares nearly every n-gram a search: at most 1 in 16 passes by chance
MIN_TABLE_BITS = 10  # log2
SHIPPED_SHARE = 0.75  # of an item's few hashes: half of them stood in 3 of 292 good texts, statutes that tests quote
MAX_ITEMS = 64  # an n-gram of more items is the test's own wording and tells none of them from another

Int64s = npt.NDArray[np.int64]


class Index(NamedTuple):
    """The items' n-grams, sorted by hash; one that several items have stands once for each."""

    grams: Keys  # uint64[entries]
    items: Int64s  # int64[entries], which item each is of
    sizes: Int64s  # int64[items], different n-grams of each
    names: tuple[str, ...]  # of the items: file, id or line, field
    bits: npt.NDArray[np.uint8]  # uint8[a power of two]: a hash whose bit is not set is no item's
    too_short: int  # items without an n-gram to look for
    shipped: int  # items from here on are of sets that ship as a few hashes each


class Match(NamedTuple):
    """A document and the item it holds most of."""

    document: int
    item: str
    share: float  # of the item's different n-grams


@lru_cache(maxsize=2)
def load_index(files: tuple[File, ...], ngram: int, sets: tuple[str, ...] = ()) -> Index:
    """Read evaluation files, JSON lines or any other text by lines, and sets that ship as hashes.

    Raises:
        ChangedInputError: a file is not what was listed.
        WenhaiError: as `read_items`.
    """
    names, texts = [], []
    for file in files:
        for name, text in read_items(file, ngram):
            names.append(name)
            texts.append(text)
        check_file(file)
    return build_index(names, texts, ngram, sets)


def build_index(names: Sequence[str], texts: Sequence[str], ngram: int, sets: Sequence[str] = ()) -> Index:
    """Index items by their n-grams."""
    hashes, offsets = _grams(texts, ngram)
    more_names, more_hashes, more_owners = read_sets(sets)
    owners = np.concatenate((np.repeat(np.arange(len(texts)), np.diff(offsets)), more_owners + len(texts)))
    names, hashes = (*names, *more_names), np.concatenate((hashes, more_hashes))
    order = np.lexsort((owners, hashes))
    hashes, owners = hashes[order], owners[order]
    new = differs(hashes, owners)
    hashes, owners = hashes[new], owners[new]
    starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
    owned = np.diff(np.append(starts, len(hashes)))
    telling = np.repeat(owned <= MAX_ITEMS, owned)
    hashes, owners = hashes[telling], owners[telling]
    table_bits = max(MIN_TABLE_BITS, (BITS_A_GRAM * len(hashes)).bit_length())
    bits = np.zeros(1 << (table_bits - 3), np.uint8)
    places = hashes >> np.uint64(64 - table_bits)
    np.bitwise_or.at(bits, places >> np.uint64(3), np.left_shift(1, places & np.uint64(7)).astype(np.uint8))
    sizes = np.bincount(owners, minlength=len(names))
    return Index(hashes, owners, sizes, names, bits, int((sizes == 0).sum()), len(texts))


def find(texts: pa.ChunkedArray | pa.Array, index: Index, ngram: int) -> list[Match]:
    """For each document that shares an n-gram with an item, the item it holds most of; the first of equals."""
    codes, offsets = fold(*text_buffers(texts))
    hashes, documents = _hits(codes, offsets, ngram, index.bits)
    order = np.lexsort((hashes, documents))  # each once a document: a refrain is in many places, an n-gram in 64 items
    hashes, documents = hashes[order], documents[order]
    new = differs(documents, hashes)
    hashes, documents = hashes[new], documents[new]
    first, last = np.searchsorted(index.grams, hashes, "left"), np.searchsorted(index.grams, hashes, "right")
    counts = last - first
    entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    if not len(entries):
        return []
    found = np.stack((np.repeat(documents, counts), index.items[entries]))
    pairs, held = np.unique(found, axis=1, return_counts=True)
    shares = held / index.sizes[pairs[1]]
    told = (pairs[1] < index.shipped) | (shares > SHIPPED_SHARE)
    pairs, shares = pairs[:, told], shares[told]
    order = np.lexsort((pairs[1], -shares, pairs[0]))
    best = order[np.flatnonzero(np.diff(pairs[0][order], prepend=-1))]
    return [Match(int(pairs[0][i]), index.names[pairs[1][i]], float(shares[i])) for i in best]


def _grams(texts: Sequence[str], ngram: int) -> tuple[Keys, Int64s]:
    """The hashes of all n-grams of all texts, repeats included, and each text's offsets among them."""
    codes, offsets = fold(
        *text_buffers(
            pa.array([text.encode("utf-16-le", "replace").decode("utf-16-le") for text in texts], pa.large_string())
        )
    )
    every = np.full(1 << (MIN_TABLE_BITS - 3), 0xFF, np.uint8)
    hashes, documents = _hits(codes, offsets, ngram, every)
    return hashes, np.searchsorted(documents, np.arange(len(texts) + 1))


def _hits(codes: Codes, offsets: Offsets, ngram: int, bits: npt.NDArray[np.uint8]) -> tuple[Keys, Int64s]:
    hashes, documents = np.empty(len(codes), np.uint64), np.empty(len(codes), np.int64)
    shift = np.uint64(64 - (8 * len(bits) - 1).bit_length())
    found = _scan(codes, offsets, ngram, bits, shift, hashes, documents)
    return hashes[:found], documents[:found]


@kernel()
def _scan(
    codes: Codes,
    offsets: Offsets,
    ngram: int,
    bits: npt.NDArray[np.uint8],
    shift: np.uint64,
    hashes: Keys,
    documents: Int64s,
) -> int:
    """Writes the hash and the document of every n-gram whose bit is set; at most one a code."""
    leaving = np.uint64(1)  # the factor of the oldest code point of a window
    for _ in range(ngram):
        leaving *= GOLDEN
    found = 0
    for text in range(len(offsets) - 1):
        start, rolling = offsets[text], np.uint64(0)
        for i in range(start, offsets[text + 1]):
            rolling = rolling * GOLDEN + np.uint64(codes[i])
            if i - start >= ngram:
                rolling -= leaving * np.uint64(codes[i - ngram])
            if i - start >= ngram - 1:
                value = mix(rolling)
                place = value >> shift
                if bits[place >> np.uint64(3)] >> np.uint8(place & np.uint64(7)) & np.uint8(1):
                    hashes[found], documents[found] = value, text
                    found += 1
    return found
