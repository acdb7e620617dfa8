"""Long passages that several documents hold word for word: which sentences each of them loses.

A *window* is a run of whole sentences (sentences.py) of at least `min_chars` folded characters that loses this length
without its first or without its last sentence. Each is a 64-bit hash of its folded characters and breaks. Let a run of
sentences a..b with `min_chars` characters stand in two documents. A sentence j of it is in a window inside a..b: the
shortest that ends with j where a..j is long enough, else the shortest that begins with a. So equal hashes cover exactly
the runs that are shared, from their first to their last sentence. Real text has 1.3 windows a sentence, one for 54
bytes; to keep fewer would lose a sentence at each end of one.

Documents are ranked by 32 bits that come from their contents alone. Where documents of different rank share a window,
those below the best lose its sentences. What is lost is therefore a function of the set of documents: order, split and
workers change nothing. Of every lost sentence a copy stays: the window's best document holds it too, and either keeps
it or loses it to a window of a still better one; ranks end, and the last keeps it. That last one is the best of a
window (it *gives* the sentence), and such a document is never dropped for what little it is left with. Two documents of
equal rank (one pair in 32,768 of about equal worth) both keep theirs. Within a document nothing is compared: a refrain,
a clause that a contract repeats, stays.

A false match needs two different windows with one hash. Of n windows n^2 / 2^65 pairs have one: of the 10^11 windows of
5 TB some 270 pairs, a passage of `min_chars` characters each: no check is worth its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.dedup.near.ranks import WORTH_BIT
from corpus.dedup.passages.sentences import Sentences
from corpus.dedup.records import PARTITION_RECORDS, RECORD_DTYPE, Array, Ordinals, Runs, differs, key_ranges, look_up
from corpus.dedup.text.fold import Bytes, Codes, Offsets
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.dedup.text.keys import DocumentKeys
from corpus.engine.compiled import kernel

HASH_BITS = 16  # that tell documents of about the same worth apart, but for the lowest
RANK_SHIFT = WORTH_BIT + 3  # 3 of the 6 bits of a step's fraction are left out

Ranks = npt.NDArray[np.uint32]  # the smaller outranks the larger
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Windows(NamedTuple):
    """Windows of documents, in the order of their last sentences."""

    keys: Keys
    documents: Int64s
    first: Int64s  # sentences
    last: Int64s


class Passage(NamedTuple):
    """A run of sentences that a document loses."""

    line: int  # of the text, from 1, where it begins
    num_chars: int


def windows(sentences: Sentences, min_chars: int, ranks: Ranks | None = None) -> Windows:
    """All windows of some documents; those whose ranks are odd have keys of their own (`scripts = "keep"`)."""
    spans = np.empty((3, 2 * (len(sentences.bounds) - 1)), np.int64)
    keys = np.empty(spans.shape[1], np.uint64)
    used = _windows(sentences.codes, sentences.offsets, sentences.edges, min_chars, keys, spans)
    keys, (documents, first, last) = keys[:used], spans[:, :used]
    if ranks is not None:
        keys ^= (ranks[documents] & np.uint32(1)) * GOLDEN
    return Windows(keys, documents, first, last)


def document_ranks(keys: DocumentKeys) -> Ranks:
    """uint32[n]: deduplication's rank in short: source, script, worth in steps of a sixteenth to a ninth; then a
    hash."""
    better = (keys["rank"] >> np.uint64(RANK_SHIFT)).astype(np.uint32) & np.uint32(0xFFFF)
    hashes = np.empty(len(keys), np.uint64)
    _mix_all(np.ascontiguousarray(keys["id"]), np.ascontiguousarray(keys["digest"]), hashes)
    hashes = hashes >> np.uint64(64 - HASH_BITS) & np.uint64(0xFFFE) | keys["rank"] & np.uint64(1)
    return (np.uint32(0xFFFF) - better) << np.uint32(HASH_BITS) | hashes.astype(np.uint32)


def best_ranks(keys: Keys, ranks: Ranks) -> tuple[Array, Mask]:
    """Each key once, sorted, as (key, its best rank) in `RECORD_DTYPE`, and whether documents of other ranks have
    it."""
    order = np.argsort(keys)
    keys, ranks = keys[order], ranks[order]
    starts = np.flatnonzero(differs(keys))
    found = np.empty(len(starts), RECORD_DTYPE)
    if len(starts):
        found["key"], found["row"] = keys[starts], np.minimum.reduceat(ranks, starts)
    worst = np.maximum.reduceat(ranks, starts) if len(starts) else ranks
    return found, worst != found["row"]


def shared_windows(runs: Runs) -> tuple[Array, Ordinals]:
    """The records of one range of keys that shards have in different ranks, each with the best of them.

    Args:
        runs: a run of `best_ranks` records for each shard, so that no passage, however common, has more than one each.

    Returns:
        `RECORD_DTYPE` records in the order of the runs, and where those of each begin (int64[runs + 1]).
    """
    records = runs.read()
    best = np.concatenate([_differing(part) for part in key_ranges(records, runs.bases)])
    shared, found = [best[:0]], np.zeros(len(records), bool)
    for start in range(0, len(records), PARTITION_RECORDS):
        here = slice(start, start + PARTITION_RECORDS)
        at, found[here] = look_up(best, records["key"][here])
        shared.append(best[at[found[here]]])
    return np.concatenate(shared), np.searchsorted(np.flatnonzero(found), runs.bases)


def judge(sentences: Sentences, found: Windows, ranks: Ranks, table: Array) -> tuple[Mask, Mask]:
    """bool[sentences] twice: which are lost to better documents, and which of the others are given to worse ones.

    Args:
        ranks: of the documents.
        table: the best rank of each key that documents of different rank have, sorted by key.
    """
    at, shared = look_up(table, found.keys)
    best, mine = table["row"][at[shared]], ranks[found.documents[shared]]
    first, last = found.first[shared], found.last[shared]
    lost, given = (_covered(first[some], last[some], len(sentences.bounds) - 1) for some in (mine > best, mine == best))
    return lost, given & ~lost


def without(sentences: Sentences, lost: Mask, data: Bytes) -> Iterator[tuple[int, str, list[Passage]]]:
    """For each document that loses sentences: its number, its text without them, and the passages.

    Line feeds that end a passage stay where its paragraph began before it, so that no two paragraphs become one.
    """
    bounds, edges = sentences.bounds, sentences.edges
    for document in np.unique(np.searchsorted(edges, np.flatnonzero(lost), "right") - 1).tolist():
        here = np.arange(edges[document], edges[document + 1])
        turns = np.flatnonzero(np.diff(lost[here], prepend=False, append=False))
        text, passages, position, lines = b"", [], int(bounds[here[0]]), 1
        for start, end in turns.reshape(-1, 2).tolist():
            kept = data[position : bounds[here[0] + start]].tobytes()
            passage = data[bounds[here[0] + start] : bounds[here[0] + end]].tobytes()
            text += kept
            lines += kept.count(b"\n")
            passages.append(Passage(lines, len(passage.decode("utf-8", "replace"))))
            lines += passage.count(b"\n")
            if not text.endswith(b"\n"):
                text += passage[len(passage.rstrip(b"\n")) :]
            position = int(bounds[here[0] + end])
        text += data[position : bounds[here[-1] + 1]].tobytes()
        yield document, text.decode("utf-8", "replace").strip("\n"), passages


def merge(tables: Sequence[Array]) -> Array:
    """Tables of best ranks as one."""
    joined = np.concatenate([np.empty(0, RECORD_DTYPE), *tables])
    return best_ranks(joined["key"], joined["row"])[0]


def _differing(records: Array) -> Array:
    """Each key that has several ranks, with the best of them."""
    best, differ = best_ranks(records["key"], records["row"])
    return best[differ]


def _covered(first: Int64s, last: Int64s, count: int) -> Mask:
    """bool[count]: which sentences lie in one of these spans."""
    steps = np.bincount(first, minlength=count + 1) - np.bincount(last + 1, minlength=count + 1)
    return np.asarray(np.cumsum(steps)[:count] > 0)


@kernel()
def _mix_all(ids: Keys, digests: Keys, hashes: Keys) -> None:
    for i in range(len(hashes)):
        state = np.uint64(0)
        for word in (ids[i, 0], ids[i, 1], digests[i, 0], digests[i, 1]):
            state = mix(state ^ word) * GOLDEN
        hashes[i] = mix(state)


@kernel()
def _windows(codes: Codes, offsets: Offsets, edges: Int64s, min_chars: int, keys: Keys, spans: Int64s) -> int:
    """Write each window's key, document, first and last sentence; returns their number, at most two a sentence."""
    sums, powers = np.zeros(len(offsets), np.uint64), np.ones(len(offsets), np.uint64)  # of a rolling polynomial
    for i in range(1, len(powers)):
        powers[i] = powers[i - 1] * GOLDEN
    used = 0
    for document in range(len(edges) - 1):
        begin, end = edges[document], edges[document + 1]
        if begin == end or offsets[end] - offsets[begin] < min_chars:
            continue
        for j in range(begin, end):
            state = np.uint64(offsets[j + 1] - offsets[j])
            for i in range(offsets[j], offsets[j + 1]):
                state = state * GOLDEN + np.uint64(codes[i])
            sums[j + 1] = sums[j] * GOLDEN + mix(state)
        first, earliest = begin, begin  # of the last start that is long enough, of the starts not yet in a window
        for j in range(begin, end):
            while offsets[j + 1] - offsets[first + 1] >= min_chars:
                first += 1
            if offsets[j + 1] - offsets[first] < min_chars:
                continue
            for start in range(min(earliest, first), first + 1):
                keys[used] = mix(sums[j + 1] - sums[start] * powers[j + 1 - start])
                spans[0, used], spans[1, used], spans[2, used] = document, start, j
                used += 1
            earliest = first + 1
    return used
