"""BPE without SentencePiece: from the UTF-8 bytes of an Arrow batch to ids, with no Python string between.

The rule (SentencePiece 0.2, bpe_model.cc): symbols are at first the user's symbols, the longest that begins at a place,
and else single characters; of all neighbouring characters or pieces whose concatenation is a piece, those that give the
piece of the highest score are merged, the leftmost first, until none are left. The trainer numbers pieces in the order
of their scores, so the smallest id is the highest score. Only models of this form are encoded here: BPE as
`tokenizer.train` trains it.

Two characters that stand side by side in no piece are never merged, nor is anything across them. So a text is cut there
into chunks, a word or a few Han characters each. A short chunk is merged by a scan for each merge, a long one by a
heap, so that no text costs more than n log n. A character without a piece is spelled in bytes, and so is one byte that
merges with nothing. A user's symbol is one id, the longest that begins at a place, and nothing is merged with it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.compiled import kernel
from tokenizer.kernels import trie
from tokenizer.kernels.lexicon import Lexicon, UnsupportedError
from tokenizer.kernels.text_kernels import Kernel, chunk_end, read_character, spell
from tokenizer.kernels.trie import BASE, CHECK, VALUE
from tokenizer.model import Tokenizer

SHORT_CHUNK = 48
JOIN_BITS = 16  # of the filter, for each pair: at most one in sixteen others passes
ID_BITS = 21  # three ids in a word of 64 bits, and one bit to tell a free slot
ID_MASK = np.uint64((1 << ID_BITS) - 1)
FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_PIECE = np.int32(-1)
USER = np.int32(-2)
NO_MERGE = np.int32(0x7FFFFFFF)  # greater than every id
HEAP_ENTRIES = 3  # a character: its first pair, and two with each merge

Array = NDArray[Any]


class Tables(NamedTuple):
    """A vocabulary as arrays."""

    symbols: NDArray[np.int32]  # by code point: its piece; NO_PIECE: it is spelled; USER: it begins a user's symbol
    spelled: NDArray[np.int32]  # by byte: its id there
    joins: NDArray[np.uint8]  # bits by hash of two characters' pieces: does any piece have them side by side?
    merges: NDArray[np.uint64]  # left, right, merged id of ID_BITS each; open addressing
    user_numbers: NDArray[np.int32]  # the trie of the user's symbols
    user_nodes: NDArray[np.int32]
    user_characters: NDArray[np.int32]  # by number there: the piece of a character that is in no such symbol's place
    short_chunk: int  # symbols; longer chunks are merged by a heap


class Scratch(NamedTuple):
    """Working memory for one chunk of symbols; its length is the longest chunk."""

    symbols: NDArray[np.int32]
    pairs: NDArray[np.int32]  # what a symbol and the one behind it merge into, NO_MERGE
    before: NDArray[np.int32]
    behind: NDArray[np.int32]
    heap: NDArray[np.int64]  # merged id and place of the left symbol, 32 bits each, smallest first


def make_scratch(characters: int) -> Scratch:
    """Memory for chunks of so many characters; nothing of it is touched before it is needed."""
    symbols, pairs, before, behind = np.empty((4, characters), np.int32)
    return Scratch(symbols, pairs, before, behind, np.empty(HEAP_ENTRIES * characters, np.int64))


def build_kernel(tokenizer: Tokenizer, lexicon: Lexicon) -> Kernel:
    """The kernel of a BPE vocabulary.

    Raises:
        UnsupportedError: it is not BPE of the form that `tokenizer.train` gives.
    """
    _check(tokenizer, lexicon)
    ids, spelled = lexicon.normal, lexicon.spelled.copy()
    characters = {piece for piece in ids if len(piece) == 1}
    joined = {pair for piece in ids for pair in pairwise(piece)}
    inside = {character for pair in joined for character in pair}
    if inside - characters:
        raise UnsupportedError("a character has no piece of its own, but is part of one")
    symbols = np.full(trie.CODE_POINTS, NO_PIECE, np.int32)
    for character in characters:
        if character.isascii() and character not in inside:  # such a byte is this character in every text
            spelled[ord(character)] = ids[character]
        else:
            symbols[ord(character)] = ids[character]
    pairs = np.array([(ids[left], ids[right]) for left, right in joined], np.uint64).reshape(-1, 2)
    joins = np.zeros(max(64, 1 << (JOIN_BITS * len(pairs)).bit_length()) >> 3, np.uint8)
    fill_joins(pairs, joins)
    rules = np.array([rule for piece, id in ids.items() for rule in _splits(piece, id, ids)], np.uint64).reshape(-1, 3)
    merges = np.full(1 << max(4, (2 * len(rules)).bit_length()), FREE, np.uint64)
    fill_merges(rules, merges)
    user = _user_tables(lexicon.user, symbols)
    return Kernel(Tables(symbols, spelled, joins, merges, *user, short_chunk=SHORT_CHUNK), make_scratch, encode)


def _check(tokenizer: Tokenizer, lexicon: Lexicon) -> None:
    """Raise for a vocabulary of another form."""
    if tokenizer.vocab_size > 1 << ID_BITS:
        raise UnsupportedError(f"it has more than {1 << ID_BITS:,} pieces")
    if lexicon.unused:
        raise UnsupportedError("some pieces are marked as unused")
    if any(tokenizer.is_control(id) and len(tokenizer.piece(id)) == 1 for id in range(tokenizer.vocab_size)):
        raise UnsupportedError("a control symbol is a single character")
    scores = [tokenizer.processor.get_score(id) for id in sorted(lexicon.normal.values())]
    if scores != [-rank for rank in range(len(scores))]:
        raise UnsupportedError("its scores are not the order of BPE merges")


def _splits(piece: str, id: int, ids: dict[str, int]) -> list[tuple[int, int, int]]:
    """Each way to merge a piece out of two others."""
    parts = [(ids.get(piece[:at]), ids.get(piece[at:])) for at in range(1, len(piece))]
    return [(left, right, id) for left, right in parts if left is not None and right is not None]


def _user_tables(
    user: dict[str, int], symbols: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The trie of the user's symbols, and the pieces of its characters; first characters are marked in `symbols`."""
    found = trie.build({symbol: (id, 0.0) for symbol, id in user.items()})
    known = np.flatnonzero(found.numbers)
    characters = np.full(len(known) + 1, NO_PIECE, np.int32)
    characters[found.numbers[known]] = symbols[known]
    symbols[[ord(symbol[0]) for symbol in user]] = USER
    return found.numbers, found.nodes, characters


@kernel(leaf=True)
def _key(left: Any, right: Any) -> Any:
    return (np.uint64(left) << np.uint64(ID_BITS)) | np.uint64(right)


@kernel(leaf=True)
def _slot(key: Any, mask: Any) -> Any:
    return ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & np.uint64(mask)


@kernel(leaf=True)
def fill_joins(pairs: Array, joins: Array) -> None:
    """Set the bit of each pair, (n, 2) of uint64."""
    for k in range(len(pairs)):
        bit = _slot(_key(pairs[k, 0], pairs[k, 1]), 8 * len(joins) - 1)
        joins[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))


@kernel(leaf=True)
def fill_merges(rules: Array, merges: Array) -> None:
    """Add each rule, (n, 3) of uint64: left, right, merged; `merges` is FREE before, and larger than n."""
    mask = np.uint64(len(merges) - 1)
    for k in range(len(rules)):
        key = _key(rules[k, 0], rules[k, 1])
        slot = _slot(key, mask)
        while merges[slot] != FREE:
            slot = (slot + np.uint64(1)) & mask
        merges[slot] = (key << np.uint64(ID_BITS)) | rules[k, 2]


@kernel(leaf=True)
def _joined(joins: Array, left: Any, right: Any) -> Any:
    """False where no piece has the two characters side by side."""
    bit = _slot(_key(left, right), 8 * len(joins) - 1)
    return (joins[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & np.uint8(1) != 0


@kernel(leaf=True)
def _merged(merges: Array, left: Any, right: Any) -> Any:
    """The piece that two pieces merge into; NO_MERGE."""
    mask = np.uint64(len(merges) - 1)
    key = _key(left, right)
    slot = _slot(key, mask)
    while merges[slot] != FREE:
        if merges[slot] >> np.uint64(ID_BITS) == key:
            return np.int32(merges[slot] & ID_MASK)
        slot = (slot + np.uint64(1)) & mask
    return NO_MERGE


@kernel(leaf=True)
def _merge_short(scratch: Any, length: Any, merges: Array) -> Any:
    """Merge a chunk by a scan for each merge; returns the symbols left."""
    symbols, pairs, _, _, _ = scratch
    while length > 1:
        best, at = NO_MERGE, 0
        for k in range(length - 1):
            if pairs[k] < best:
                best, at = pairs[k], k
        if best == NO_MERGE:
            break
        length -= 1
        symbols[at] = best
        for k in range(at + 1, length):
            symbols[k] = symbols[k + 1]
            pairs[k - 1] = pairs[k]
        if at > 0:
            pairs[at - 1] = _merged(merges, symbols[at - 1], best)
        if at < length - 1:
            pairs[at] = _merged(merges, best, symbols[at + 1])
    return length


@kernel(leaf=True)
def _merge_long(scratch: Any, length: Any, merges: Array) -> Any:
    """Merge a chunk by a heap of pairs; returns the symbols left."""
    symbols, pairs, before, behind, heap = scratch
    size = 0
    pairs[length - 1] = NO_MERGE
    for k in range(length):
        before[k], behind[k] = k - 1, k + 1
        size = _push(heap, size, pairs[k], k)
    while size:
        best, at = heap[0] >> 32, heap[0] & 0xFFFFFFFF
        size = _pop(heap, size)
        if pairs[at] != best:
            continue  # one of the two was merged with another
        right = behind[at]
        pairs[right] = NO_MERGE
        symbols[at] = best
        behind[at] = behind[right]
        pairs[at] = NO_MERGE
        if behind[at] < length:
            before[behind[at]] = at
            pairs[at] = _merged(merges, best, symbols[behind[at]])
            size = _push(heap, size, pairs[at], at)
        left = before[at]
        if left >= 0:
            pairs[left] = _merged(merges, symbols[left], best)
            size = _push(heap, size, pairs[left], left)
    count, at = 0, 0
    while at < length:
        symbols[count] = symbols[at]
        count += 1
        at = behind[at]
    return count


@kernel(leaf=True)
def _push(heap: Array, size: Any, merged: Any, at: Any) -> Any:
    if merged == NO_MERGE:
        return size
    entry = (np.int64(merged) << 32) | np.int64(at)
    k = size
    while k > 0 and heap[(k - 1) >> 1] > entry:
        heap[k] = heap[(k - 1) >> 1]
        k = (k - 1) >> 1
    heap[k] = entry
    return size + 1


@kernel(leaf=True)
def _pop(heap: Array, size: Any) -> Any:
    size -= 1
    entry = heap[size]
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = entry
    return size


@kernel(leaf=True)
def _flush(scratch: Any, length: Any, tables: Any, ids: Array, count: Any) -> Any:
    """Merge a chunk and write its ids; returns how many are written now."""
    if length > 1:
        is_short, merges = length <= tables.short_chunk, tables.merges
        length = _merge_short(scratch, length, merges) if is_short else _merge_long(scratch, length, merges)
    for k in range(length):
        ids[count + k] = scratch.symbols[k]
    return count + length


@kernel(leaf=True)
def _user_symbol(data: Array, i: Any, end: Any, tables: Any) -> tuple[Any, Any]:
    """The longest of the user's symbols that begins at byte i, and the index behind it; NO_PIECE where none does."""
    numbers, nodes = tables.user_numbers, tables.user_nodes
    found, behind, base = NO_PIECE, i, 0
    while i < end:
        code, i = read_character(data, i)
        number = numbers[code]
        if number == 0 or (base and nodes[base + number, CHECK] != base):
            break
        slot = base + number
        if nodes[slot, VALUE] >= 0:
            found, behind = nodes[slot, VALUE], i
        base = nodes[slot, BASE]
        if base == 0:
            break
    return found, behind


@kernel(leaf=True)
def _encode_chunk(data: Array, i: Any, end: Any, tables: Any, scratch: Any, ids: Array, count: Any) -> Any:
    """Write the ids of one chunk; returns how many ids are written now."""
    symbols, spelled, joins, merges = tables.symbols, tables.spelled, tables.joins, tables.merges
    length, before = 0, NO_PIECE
    while i < end:
        code, after = read_character(data, i)
        symbol = symbols[code]
        if symbol == USER:
            found, behind = _user_symbol(data, i, end, tables)
            if found != NO_PIECE:
                count = _flush(scratch, length, tables, ids, count)
                ids[count] = found
                count, length, i = count + 1, 0, behind
                continue
            symbol = tables.user_characters[tables.user_numbers[code]]
        if length:
            if symbol != NO_PIECE and _joined(joins, before, symbol):
                scratch.pairs[length - 1] = _merged(merges, before, symbol)
            else:
                count = _flush(scratch, length, tables, ids, count)
                length = 0
        if symbol != NO_PIECE:
            scratch.symbols[length] = symbol
            length += 1
        else:
            count = spell(code, spelled, ids, count)
        before = symbol
        i = after
    return _flush(scratch, length, tables, ids, count)


@kernel(leaf=True)
def encode(offsets: Array, data: Array, tables: Any, scratch: Any, ids: Array, ends: Array) -> int:
    """Write the ids of each row, and into `ends` how many there are up to its end; returns how many in all."""
    count = 0
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            stop = chunk_end(data, i, end, len(scratch.symbols))
            count = _encode_chunk(data, i, stop, tables, scratch, ids, count)
            i = stop
        ends[row] = count
    return count
