"""Unigram without SentencePiece: from the UTF-8 bytes of an Arrow batch to ids, with no Python string between.

The rule (SentencePiece 0.2.3, EncodeUnigram): of all ways to cut a text into pieces, the one with the greatest sum of
scores; at equal sums the one whose last piece begins first. Sums are in float32, so what is equal depends on all that
comes before; beyond 100,000 on either side the sum so far is subtracted. A character that is no piece itself is the
unknown piece, whose score is the least of all less 10; its bytes are spelled. A user's symbol scores a tenth for each
of its bytes but the first, which is more than any piece's logarithm of a probability.

The best path to each character's end is found from left to right, and a place that no piece spans is passed by every
path: what lies before it is written out at once. Such places are a few characters apart, so the working memory stays in
the first cache; only the score goes on, because its rounding depends on all that came before.

A step of the trie is an addition and a comparison on one cache line of 16 bytes that also holds the score. A node where
no piece ends has the score -inf, which is never better: no branch asks. The time goes to mispredicted branches (where a
match ends, which candidate wins) and to the trie of about a megabyte, which the second cache holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.compiled import kernel
from tokenizer.kernels import trie
from tokenizer.kernels.lexicon import Lexicon, UnsupportedError
from tokenizer.kernels.text_kernels import Kernel, chunk_end, read_character, spell
from tokenizer.kernels.trie import BASE, CHECK, VALUE, WEIGHT
from tokenizer.model import SPACE_MARK, Tokenizer

UNKNOWN_PENALTY = np.float32(10)
USER_BONUS = np.float32(0.1)
UNUSED = -np.inf
MAX_SCORE = 1e30  # trained ones are logarithms, some tens; the sum of two may not leave float32
MARK = 0x2581  # `Tokenizer` encodes what is before and behind it apart, and spells it in bytes
UNKNOWN = np.int32(0)  # the slot of no piece
RECENTRE = np.float32(100_000)  # a score beyond it is subtracted from all that is pending, itself included

Array = NDArray[Any]


class Tables(NamedTuple):
    """A vocabulary as arrays."""

    numbers: NDArray[np.int32]  # those of the trie, by code point: ~code point where no piece has the character
    nodes: NDArray[np.int32]
    scores: NDArray[np.float32]  # the weights of the trie
    code_points: NDArray[np.int32]  # by number
    spelled: NDArray[np.int32]  # by byte: its id
    unknown: NDArray[np.float32]  # one: the score of a character without a piece


class Scratch(NamedTuple):
    """Working memory for one chunk of characters."""

    numbers: NDArray[np.int32]  # of the chunk's characters
    best: NDArray[np.float32]  # by characters behind the last cut: the score of the best path there
    starts: NDArray[np.int32]  # where its last piece begins
    slots: NDArray[np.int32]  # the node where that piece ends, or UNKNOWN
    path: NDArray[np.int32]


def make_scratch(characters: int) -> Scratch:
    """Memory for chunks of so many characters; nothing of it is touched before it is needed."""
    numbers, starts, slots, path = np.empty((4, characters + 1), np.int32)
    return Scratch(numbers, np.empty(characters + 1, np.float32), starts, slots, path)


def build_kernel(tokenizer: Tokenizer, lexicon: Lexicon) -> Kernel:
    """The kernel of a Unigram vocabulary.

    Raises:
        UnsupportedError: it has no pieces but the user's, or scores whose sums are no numbers.
    """
    scores = {piece: tokenizer.processor.get_score(id) for piece, id in lexicon.normal.items()}
    if not scores:
        raise UnsupportedError("it has no piece of its own")
    if not max(map(abs, scores.values())) <= MAX_SCORE:
        raise UnsupportedError(f"a score is beyond {MAX_SCORE:g}")
    weighed = {piece: (id, float(scores[piece])) for piece, id in lexicon.normal.items()}
    weighed |= {piece: (id, UNUSED) for piece, id in lexicon.unused.items()}
    weighed |= {piece: (id, _user_score(piece)) for piece, id in lexicon.user.items()}
    found = trie.build(weighed)
    known = np.flatnonzero(found.numbers)
    numbers = np.invert(np.arange(trie.CODE_POINTS, dtype=np.int32))
    numbers[known] = found.numbers[known]
    code_points = np.zeros(len(known) + 1, np.int32)
    code_points[found.numbers[known]] = known
    unknown = np.array([np.float32(min(scores.values())) - UNKNOWN_PENALTY], np.float32)
    tables = Tables(numbers, found.nodes, found.weights, code_points, lexicon.spelled, unknown)
    return Kernel(tables, make_scratch, encode)


def _user_score(piece: str) -> float:
    """In float32; in SentencePiece's text a space takes the three bytes of U+2581."""
    return float(USER_BONUS * np.float32(len(piece.replace(" ", SPACE_MARK).encode()) - 1))


@kernel(leaf=True)
def _find_paths(tables: Any, scratch: Any, first: Any, total: Any) -> Any:
    """The best paths from a cut to the next one, which is returned."""
    nodes, scores = tables.nodes, tables.scores
    numbers, best, starts, slots, _ = scratch
    best[0] = total
    reach, at = first, first
    while True:
        if abs(total) > RECENTRE:
            for k in range(at - first, reach - first + 1):
                best[k] -= total
            total = np.float32(0)
        slot = numbers[at]
        score, base = total + scores[slot, WEIGHT], nodes[slot, BASE]
        if score == -np.inf:
            slot, score = UNKNOWN, total + tables.unknown[0]
        end = at + 1
        while True:
            if end > reach or score > best[end - first]:
                best[end - first], starts[end - first], slots[end - first] = score, at, slot
                reach = max(reach, end)
            number = numbers[end]
            slot = base + number
            if base == 0 or number < 0 or nodes[slot, CHECK] != base:
                break
            score, base = total + scores[slot, WEIGHT], nodes[slot, BASE]
            end += 1
        at += 1
        if at == reach:
            return at
        total = best[at - first]


@kernel(leaf=True)
def _write_path(tables: Any, scratch: Any, first: Any, last: Any, ids: Array, count: Any) -> Any:
    """Write the ids of the best path between two cuts; returns how many ids are written now."""
    numbers, _, starts, slots, path = scratch
    length, at = 0, last
    while at > first:
        slot = slots[at - first]
        at = starts[at - first]
        path[length] = slot if slot != UNKNOWN else ~tables.code_points[numbers[at]]
        length += 1
    for k in range(length - 1, -1, -1):
        if path[k] >= 0:
            ids[count] = tables.nodes[path[k], VALUE]
            count += 1
        else:
            count = spell(~path[k], tables.spelled, ids, count)
    return count


@kernel(leaf=True)
def _encode_chunk(data: Array, i: Any, end: Any, tables: Any, scratch: Any, ids: Array, count: Any) -> Any:
    """Write the ids of one chunk; returns how many ids are written now."""
    length = 0
    while i < end:
        code, i = read_character(data, i)
        scratch.numbers[length] = tables.numbers[code]
        length += 1
    scratch.numbers[length] = -1
    at, total = 0, np.float32(0)
    while at < length:
        number = scratch.numbers[at]
        if number < 0:
            count = spell(~number, tables.spelled, ids, count)
            total = np.float32(0) if ~number == MARK or abs(total) > RECENTRE else total
            total += tables.unknown[0] if ~number != MARK else np.float32(0)
            at += 1
            continue
        cut = _find_paths(tables, scratch, at, total)
        total = scratch.best[cut - at]
        count = _write_path(tables, scratch, at, cut, ids, count)
        at = cut
    return count


@kernel(leaf=True)
def encode(offsets: Array, data: Array, tables: Any, scratch: Any, ids: Array, ends: Array) -> int:
    """Write the ids of each row, and into `ends` how many there are up to its end; returns how many in all."""
    count = 0
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            stop = chunk_end(data, i, end, len(scratch.path) - 1)
            count = _encode_chunk(data, i, stop, tables, scratch, ids, count)
            i = stop
        ends[row] = count
    return count
