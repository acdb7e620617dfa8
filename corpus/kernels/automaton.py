"""Finding any of many words in a batch at once: a filter of pairs before a tree of words, as numba kernels.

A code point becomes a symbol by one table: 0 where no word holds it, SKIP where it may stand between the characters of
a word (only in a folded view, see folding.py), else its number in the words' alphabet. Folding is part of that table
and costs nothing: text is read where it lies. Two neighbouring symbols that begin no word are one bit in a small table,
which is nearly all of a text; only from the others is the tree of words walked. (An Aho-Corasick automaton of the same
words is slower: its state decides the next load and the next branch.) Edges are in one hash table, so 200,000 words
cost memory by their characters. One engine everywhere: a corpus does not depend on the machine.

Where asked for, a word that begins or ends with a Latin letter or a digit is found only where the text does not go on
in kind: 加v is in 加V：abc and in 加v123, not in 添加Vue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.kernels.code_points import Array, decode

MAX_CODE_POINTS = 0x110000
MAX_WORD_CHARS = 64
MIN_PAIR_BITS = 1 << 17  # 16 KB
BYTES_A_HIT = 24  # text with more hits is read twice
MAX_SKIPPED = 3  # characters between two of a word
SKIP = np.uint16(0xFFFF)
LETTER_FIRST, LETTER_LAST, DIGIT_FIRST, DIGIT_LAST = 1, 2, 4, 8
NO_LETTER, IS_LETTER, IS_DIGIT = 0, 1, 2

# Columns of what `find_and_measure` measures.
COVERED_CHARS, DISTINCT_WORDS = range(2)
NUM_WORD_COLUMNS = 2


class Hits(NamedTuple):
    """Occurrences by row, then start, shortest first: byte spans [start, end) of the batch and the place of the word
    among those to find."""

    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]


class Tables(NamedTuple):
    """The words as arrays; node 0 of the tree is the root."""

    symbols: npt.NDArray[np.uint16]  # by code point
    pairs: npt.NDArray[np.uint8]  # bits by hash of two symbols: may a word begin with them?
    alphabet: int
    keys: npt.NDArray[np.int64]  # edges, open addressing: node * alphabet + symbol, -1 where free
    children: npt.NDArray[np.int32]
    word: npt.NDArray[np.int32]  # by node: the word that ends here, -1
    edges: npt.NDArray[np.uint8]  # by word: LETTER_FIRST, ...
    whole: bool  # no word begins with a letter inside a run of letters


class Automaton:
    """A fixed set of words; may be used from several threads."""

    def __init__(
        self,
        words: Sequence[str],
        fold: npt.NDArray[np.uint32] | None = None,
        skipped: Sequence[int] = (),
        whole: bool = False,
    ) -> None:
        """Words are given as they are after `fold` (a code point for each of the first planes).

        `skipped` are code points that may stand between a word's characters; no word holds one.
        With `whole`, a word's Latin letters or digits at its edge do not count where the text goes on in kind.

        Raises:
            ValueError: a word is empty or longer than 64 characters.
        """
        self._tables = _build(words, fold, skipped, whole)
        self._num_words = len(words)

    def find(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Hits:
        """All occurrences of all words in a batch, none across two documents."""
        return self.find_and_measure(offsets, data, range(self._num_words), range(0))[0]

    def find_and_measure(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], find: range, measure: range
    ) -> tuple[Hits, npt.NDArray[np.int64]]:
        """Occurrences of some words, and what others cover, in one pass; the ranges are of places in the words.

        The second is int64[documents, NUM_WORD_COLUMNS]: characters inside words (once each), and different words.
        """
        capacity = 1024 + int(offsets[-1] - offsets[0]) // BYTES_A_HIT if find else 0
        while True:
            hits = np.empty((4, capacity), np.int64)
            out = np.zeros((len(offsets) - 1, NUM_WORD_COLUMNS), np.int64)
            last_row = np.full(len(measure), -1, np.int64)
            count = _walk(
                offsets, data, self._tables, find.start, find.stop, hits, measure.start, measure.stop, last_row, out
            )
            if count <= capacity:
                return Hits(*hits[:, :count]), out
            capacity = count


def _build(words: Sequence[str], fold: npt.NDArray[np.uint32] | None, skipped: Sequence[int], whole: bool) -> Tables:
    ids = {character: index for index, character in enumerate(sorted(set("".join(words))), 1)}
    if len(ids) >= SKIP:
        raise ValueError(f"{len(ids):,} different characters in the words; at most {int(SKIP) - 1:,}.")
    plain = np.zeros(MAX_CODE_POINTS, np.uint16)
    plain[list(skipped)] = SKIP
    for character, index in ids.items():
        plain[ord(character)] = index
    symbols = plain.copy()
    if fold is not None:
        symbols[: len(fold)] = plain[fold]
    alphabet = len(ids) + 1
    nodes: dict[int, int] = {}  # node * alphabet + symbol -> node
    word_at: dict[int, int] = {}
    begins: set[tuple[int, int]] = set()
    for index, word in enumerate(words):
        if not 1 <= len(word) <= MAX_WORD_CHARS:
            raise ValueError(f"a word has 1 to {MAX_WORD_CHARS} characters, word {index + 1} has {len(word)}.")
        node = 0
        for character in word:
            node = nodes.setdefault(node * alphabet + ids[character], len(nodes) + 1)
        word_at.setdefault(node, index)
        seconds = range(alphabet) if len(word) == 1 else (ids[word[1]],)
        begins.update((ids[word[0]], second) for second in seconds)
    ends = np.full(len(nodes) + 1, -1, np.int32)
    ends[list(word_at)] = list(word_at.values())
    pairs = np.zeros(max(MIN_PAIR_BITS, 1 << (32 * len(begins)).bit_length()) >> 3, np.uint8)
    _set_pairs(np.array(sorted(begins), np.int64).reshape(-1, 2), pairs)
    keys = np.full(1 << max(4, (2 * len(nodes)).bit_length()), -1, np.int64)
    children = np.zeros(len(keys), np.int32)
    _fill(np.fromiter(nodes, np.int64), np.fromiter(nodes.values(), np.int64), keys, children)
    edges = np.array([_edges(word) if whole else 0 for word in words], np.uint8)
    return Tables(symbols, pairs, alphabet, keys, children, ends, edges, whole)


def _edges(word: str) -> int:
    first, last = word[0], word[-1]
    return (
        LETTER_FIRST * (first.isascii() and first.isalpha())
        | LETTER_LAST * (last.isascii() and last.isalpha())
        | DIGIT_FIRST * (first.isascii() and first.isdigit())
        | DIGIT_LAST * (last.isascii() and last.isdigit())
    )


@kernel(leaf=True)
def _slot(key: Any, mask: Any) -> Any:
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(24)) & mask


@kernel()
def _set_pairs(begins: Array, pairs: Array) -> None:
    for k in range(len(begins)):
        bit = _slot((begins[k, 0] << 16) | begins[k, 1], 8 * len(pairs) - 1)
        pairs[bit >> 3] |= np.uint8(1 << (bit & 7))


@kernel()
def _fill(new_keys: Array, new_values: Array, keys: Array, values: Array) -> None:
    for k in range(len(new_keys)):
        slot = _slot(new_keys[k], len(keys) - 1)
        while keys[slot] >= 0:
            slot = (slot + 1) & (len(keys) - 1)
        keys[slot] = new_keys[k]
        values[slot] = new_values[k]


@kernel(leaf=True)
def _child(keys: Array, children: Array, key: Any) -> Any:
    """The node that an edge leads to; 0 where there is none."""
    slot = _slot(key, len(keys) - 1)
    while keys[slot] >= 0:
        if keys[slot] == key:
            return np.int64(children[slot])
        slot = (slot + 1) & (len(keys) - 1)
    return np.int64(0)


@kernel(leaf=True)
def _is_letter(byte: Any) -> Any:
    return 97 <= (byte | 32) <= 122


@kernel(leaf=True)
def _kind(data: Array, at: Any, first: Any, end: Any) -> int:
    """Whether the character that holds byte `at` is a Latin letter or a digit, half-width or full-width."""
    if at < first or at >= end:
        return NO_LETTER
    while (data[at] & 0xC0) == 0x80 and at > first:
        at -= 1
    c, _ = decode(data, at)
    if 0xFF01 <= c < 0xFF5F:
        c -= 0xFEE0
    if 48 <= c <= 57:
        return IS_DIGIT
    return IS_LETTER if 97 <= (c | 32) <= 122 else NO_LETTER


@kernel(leaf=True)
def _is_whole(data: Array, start: Any, stop: Any, first: Any, end: Any, edges: Any) -> bool:
    """False where the text goes on in kind before or behind a word that has letters or digits at its edge."""
    if edges & (LETTER_FIRST | DIGIT_FIRST):
        before = _kind(data, start - 1, first, end)
        if (edges & LETTER_FIRST and before == IS_LETTER) or (edges & DIGIT_FIRST and before == IS_DIGIT):
            return False
    if edges & (LETTER_LAST | DIGIT_LAST):
        behind = _kind(data, stop, first, end)
        if (edges & LETTER_LAST and behind == IS_LETTER) or (edges & DIGIT_LAST and behind == IS_DIGIT):
            return False
    return True


@kernel(leaf=True)
def _next_start(
    data: Array, i: Any, end: Any, symbols: Array, pairs: Array, before: Any, at: Any, read: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Read on from byte i to the next pair of symbols that may begin a word.

    `before` is the last symbol, `at` its byte, `read` the symbols read so far. Returns (byte where a word may begin or
    -1 at the end, byte to go on from, symbol there, its byte, symbols read).
    """
    mask = 8 * len(pairs) - 1
    while i < end:
        lead = data[i]
        if 0xE0 <= lead < 0xF0:
            symbol = symbols[
                (np.int64(lead & 15) << 12) | (np.int64(data[i + 1] & 63) << 6) | np.int64(data[i + 2] & 63)
            ]
            after = i + 3
        elif lead < 0x80:
            symbol = symbols[lead]
            after = i + 1
        else:
            c, after = decode(data, i)
            symbol = symbols[c]
        if symbol != SKIP:
            read += 1
            bit = _slot((np.int64(before) << 16) | np.int64(symbol), mask)
            start = at
            before = symbol
            at = i
            if pairs[bit >> 3] >> np.uint8(bit & 7) & 1:
                return start, after, before, at, read
        i = after
    if before:
        bit = _slot(np.int64(before) << 16, mask)
        if pairs[bit >> 3] >> np.uint8(bit & 7) & 1:
            return at, end, np.uint16(0), end, read + 1
    return np.int64(-1), end, np.uint16(0), end, read


@kernel(leaf=True)
def _word_step(
    data: Array, i: Any, end: Any, symbols: Array, keys: Array, children: Array, alphabet: Any, node: Any
) -> tuple[Any, Any]:
    """From byte i over skipped characters to the next symbol of a word: (node, byte after it); node 0 where it ends."""
    skipped = 0
    while i < end:
        c, i = decode(data, i)
        symbol = symbols[c]
        if symbol == 0:
            break
        if symbol != SKIP:
            return _child(keys, children, node * alphabet + symbol), i
        skipped += 1
        if skipped > MAX_SKIPPED:
            break
    return np.int64(0), i


@kernel(leaf=True)
def _walk(
    offsets: Array,
    data: Array,
    tables: Any,
    first_found: int,
    end_found: int,
    hits: Array,
    first_measured: int,
    end_measured: int,
    last_row: Array,
    out: Array,
) -> int:
    """Write occurrences of the words to find into `hits`, int64[4, capacity], as far as it goes; returns their number.

    What the words to measure cover goes into `out`; `last_row` is the last row that each of them was found in.
    """
    symbols, pairs, alphabet, keys, children, word_at, edges, whole = tables
    count = 0
    for row in range(len(offsets) - 1):
        first, end = offsets[row], offsets[row + 1]
        i, before, at, read = first, np.uint16(0), first, 0
        covered_to = 0  # in symbols read
        while True:
            start, i, before, at, read = _next_start(data, i, end, symbols, pairs, before, at, read)
            if start < 0:
                break
            if whole and start > first and _is_letter(data[start]) and _is_letter(data[start - 1]):
                continue
            node, after = _word_step(data, start, end, symbols, keys, children, alphabet, np.int64(0))
            length = 1
            while node:
                word = np.int64(word_at[node])
                if word >= 0 and _is_whole(data, start, after, first, end, edges[word]):
                    if first_found <= word < end_found:
                        if count < hits.shape[1]:
                            hits[0, count] = row
                            hits[1, count] = start
                            hits[2, count] = after
                            hits[3, count] = word - first_found
                        count += 1
                    if first_measured <= word < end_measured:
                        begin = read - 2  # of the pair's first symbol
                        out[row, COVERED_CHARS] += max(0, begin + length - max(begin, covered_to))
                        covered_to = max(covered_to, begin + length)
                        out[row, DISTINCT_WORDS] += last_row[word - first_measured] != row
                        last_row[word - first_measured] = row
                node, after = _word_step(data, after, end, symbols, keys, children, alphabet, node)
                length += 1
    return count
