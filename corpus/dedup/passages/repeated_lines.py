"""Lines that stand on many pages of a site: their keys, how many documents hold each, and texts without them.

A line is compared folded (fold.py), within its site: the host of the URL, else the source. What is counted is
different documents, known by a 32-bit digest of their folded lines, so that a page crawled ten times counts once and
duplicates are left to deduplication. A count is exact below `SKETCH` documents. From there on only the `SKETCH`
smallest digests of a key are kept and the count is estimated from the largest of them (the k-minimum-values sketch of
Bar-Yossef et al. 2002, standard error 1/sqrt(SKETCH - 2) = 3 %): the smallest of a union are the smallest of the parts'
smallest, so no line and no site, however common, costs a shard more than 12 KB, and the split into shards changes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpus.dedup.records import Array, Ordinals, Runs, cuts_of, differs, key_ranges, look_up
from corpus.dedup.text.fold import Bytes, Codes, Offsets, fold
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.engine.compiled import kernel
from corpus.filters.columns import one_chunk

SKETCH = 1024  # digests kept of a key
MAX_TIMES = 2  # in one document, at its head and its foot; what is more frequent there is structure: ```rust, 注意
NO_LINE = np.uint64(0)  # the key of a line that is not counted
SITE_SEED = 1  # sets a site's own key apart from those of its lines
COUNT_DTYPE = np.dtype([("key", "<u8"), ("documents", "<u8")])
HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>[^/?#:]+)"

Digests = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]


class Lines(NamedTuple):
    """The lines of n documents, one after another; a line ends behind its line feed."""

    offsets: Offsets  # int64[lines + 1], into the texts' bytes
    documents: Int64s  # int64[lines]
    keys: (
        Keys  # uint64[lines], `NO_LINE` where a line is too short, too long, too frequent, a rule (====) or punctuation
    )
    digests: Digests  # uint32[n], of the documents
    sites: Keys  # uint64[n], the key of each document's site


def read_lines(
    urls: pa.ChunkedArray, sources: pa.ChunkedArray, offsets: Offsets, data: Bytes, min_chars: int, max_chars: int
) -> Lines:
    """Cut texts into lines and key them; lengths are of folded characters."""
    feeds = np.flatnonzero(data[offsets[0] : offsets[-1]] == ord("\n")) + 1 + offsets[0]
    bounds = np.union1d(offsets, feeds)
    documents = np.searchsorted(offsets, bounds[:-1], "right") - 1
    codes, code_offsets = fold(bounds, data)
    sites = site_keys(urls, sources)
    keys, digests = np.empty(len(documents), np.uint64), np.zeros(len(offsets) - 1, np.uint64)
    _line_keys(codes, code_offsets, documents, sites, min_chars, max_chars, keys, digests)
    keys[_often(documents, keys)] = NO_LINE
    return Lines(bounds, documents, keys, (digests >> np.uint64(32)).astype(np.uint32), sites)


def site_keys(urls: pa.ChunkedArray, sources: pa.ChunkedArray) -> Keys:
    """Return uint64[n]: a key for each document's site, the lower-case host of its URL, else its source.

    >>> urls = pa.chunked_array([["https://A.cn/1", "http://a.cn:80/2", None]])
    >>> sources = pa.chunked_array([["x", "y", "a.cn"]])
    >>> a, b, c = site_keys(urls, sources)
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    hosts = pc.struct_field(pc.extract_regex(urls.cast(pa.string()), HOST), "host")
    names = pc.coalesce(pc.utf8_lower(hosts), pc.binary_join_element_wise("", sources.cast(pa.string()), " "))
    encoded = one_chunk(names).dictionary_encode()
    keys = np.array(
        [xxhash.xxh3_64_intdigest(name.encode(), SITE_SEED) for name in encoded.dictionary.to_pylist()], np.uint64
    )
    found: Keys = keys[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def records(lines: Lines) -> tuple[Keys, Digests]:
    """The (key, digest) pairs of some documents: one a document and different line, one a document under its site."""
    counted = lines.keys != NO_LINE
    keys = np.concatenate((lines.keys[counted], lines.sites))
    return smallest(keys, np.concatenate((lines.digests[lines.documents[counted]], lines.digests)))


def smallest(keys: Keys, digests: Digests) -> tuple[Keys, Digests]:
    """Different pairs sorted by key and digest, of each key the `SKETCH` smallest digests."""
    order = np.lexsort((digests, keys))
    keys, digests = keys[order], digests[order]
    new = differs(keys, digests)
    keys, digests = keys[new], digests[new]
    starts = np.flatnonzero(differs(keys))
    place = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return keys[place < SKETCH], digests[place < SKETCH]


def count_documents(keys: Keys, digests: Digests, least: int) -> Array:
    """`COUNT_DTYPE` records, sorted by key, of the keys that at least `least` documents have; pairs in any order."""
    keys, digests = smallest(keys, digests)
    starts = np.flatnonzero(differs(keys))
    sizes = np.diff(np.append(starts, len(keys)))
    found = np.empty(len(starts), COUNT_DTYPE)
    found["key"], found["documents"] = keys[starts], sizes
    full = sizes == SKETCH
    largest = digests[starts[full] + SKETCH - 1].astype(np.uint64)
    found["documents"][full] = (np.uint64(SKETCH - 1) << np.uint64(32)) // (largest + np.uint64(1))
    return found[found["documents"] >= least]


def known_keys(runs: Runs, least: int) -> tuple[Array, Ordinals]:
    """The keys of one range that at least `least` documents have, to each shard those that it has itself.

    Args:
        runs: a run of (key, digest) records sorted by key for each shard.

    Returns:
        `COUNT_DTYPE` records in the order of the runs, and where those of each begin (int64[runs + 1]).
    """
    records = runs.read()
    ranges = key_ranges(records, runs.bases)
    table = np.concatenate([count_documents(found["key"], found["row"], least) for found in ranges])
    parts = [table[:0]]
    for run in np.split(records["key"], runs.bases[1:-1]):
        keys = run[differs(run)] if len(run) else run
        at, found = look_up(table, keys)
        parts.append(table[at[found]])
    return np.concatenate(parts), cuts_of(np.array(list(map(len, parts[1:])), np.int64))


def documents_of(table: Array, keys: Keys) -> Int64s:
    """int64[keys]: documents that have each key, 0 where it was too rare to be counted."""
    unique, places = np.unique(keys, return_inverse=True)
    at, found = look_up(table, unique)
    counts = np.zeros(len(unique), np.int64)
    counts[found] = table["documents"][at[found]]
    return counts[places]


def find_repeated(lines: Lines, counts: Array, least: int, share: float) -> npt.NDArray[np.bool_]:
    """bool[lines]: which stand in at least `least` documents and in more than a share of their site's.

    Args:
        counts: `COUNT_DTYPE` records of what repeats, sorted by key.
    """
    documents = np.where(lines.keys == NO_LINE, 0, documents_of(counts, lines.keys))
    whole = documents_of(counts, lines.sites)[lines.documents]
    return (documents >= least) & (documents > share * whole)


def without(lines: Lines, drop: npt.NDArray[np.bool_], data: Bytes) -> Iterator[tuple[int, str, list[int]]]:
    """For each document that loses lines: its number, its text without them, and the lines' numbers, from 1."""
    edges = np.searchsorted(lines.documents, np.arange(len(lines.digests) + 1))
    for document in np.unique(lines.documents[drop]).tolist():
        first, last = int(edges[document]), int(edges[document + 1])
        pieces = [
            data[lines.offsets[line] : lines.offsets[line + 1]].tobytes()
            for line in range(first, last)
            if not drop[line]
        ]
        text = re.sub(r"\n{3,}", "\n\n", b"".join(pieces).decode("utf-8", "replace")).strip("\n")
        yield document, text, (np.flatnonzero(drop[first:last]) + 1).tolist()


def _often(documents: Int64s, keys: Keys) -> npt.NDArray[np.bool_]:
    """bool[lines]: those that their document has more than `MAX_TIMES` times."""
    order = np.lexsort((keys, documents))
    starts = np.flatnonzero(differs(documents[order], keys[order]))
    sizes = np.diff(np.append(starts, len(order)))
    often = np.empty(len(order), bool)
    often[order] = np.repeat(sizes > MAX_TIMES, sizes)
    return often


@kernel()
def _line_keys(
    codes: Codes,
    offsets: Offsets,
    documents: Int64s,
    sites: Keys,
    min_chars: int,
    max_chars: int,
    keys: Keys,
    digests: Keys,
) -> None:
    """A line's key depends on its site and its characters, a document's digest on its lines in order."""
    for line in range(len(documents)):
        start, end = offsets[line], offsets[line + 1]
        keys[line] = NO_LINE
        if start == end:
            continue
        state, varied = np.uint64(end - start), False
        for i in range(start, end):
            state = state * GOLDEN + np.uint64(codes[i])
            varied |= codes[i] != codes[start]
        state = mix(state)
        document = documents[line]
        digests[document] = mix(digests[document] * GOLDEN + state)
        if varied and min_chars <= end - start <= max_chars:
            keys[line] = max(mix(state ^ sites[document]), np.uint64(1))
