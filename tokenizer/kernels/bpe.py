"""BPE without SentencePiece: from the UTF-8 bytes of an Arrow batch to ids, with no Python string between.

The rule (SentencePiece 0.2, bpe_model.cc): symbols are at first the user's symbols, the longest that begins at a place,
and else single characters; of all neighbouring characters or pieces whose concatenation is a piece, those that give the
piece of the highest score are merged, the leftmost first, until none are left. The trainer numbers pieces in the order
of their scores, so the smallest id is the highest score.

Only models of this form are encoded here: BPE as `tokenizer.train` trains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer.kernels import trie
from tokenizer.kernels.bpe_kernels import (
    FREE,
    ID_BITS,
    NO_PIECE,
    USER,
    Tables,
    encode,
    fill_joins,
    fill_merges,
    make_scratch,
)
from tokenizer.kernels.lexicon import Lexicon, UnsupportedError
from tokenizer.model import CHUNK_CHARACTERS, Tokenizer

SHORT_CHUNK = 48  # symbols; longer chunks are merged by a heap
JOIN_BITS = 16  # of the filter, for each pair: at most one in sixteen others passes


@dataclass(frozen=True)
class BpeKernel:
    """The tables of a BPE vocabulary; called with offsets, bytes, and where ids and ends go, it gives the number of
    ids."""

    tables: Tables
    short_chunk: int = SHORT_CHUNK

    def __call__(
        self,
        offsets: NDArray[np.int64],
        data: NDArray[np.uint8],
        ids: NDArray[Any],
        ends: NDArray[np.int64],
        chunk_characters: int = CHUNK_CHARACTERS,
    ) -> int:
        return encode(offsets, data, self.tables, make_scratch(chunk_characters), self.short_chunk, ids, ends)


def build_kernel(tokenizer: Tokenizer, lexicon: Lexicon) -> BpeKernel:
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
    return BpeKernel(Tables(symbols, spelled, joins, merges, *_user_tables(lexicon.user, symbols)))


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


def _user_tables(user: dict[str, int], symbols: NDArray[np.int32]) -> tuple[NDArray[np.int32], ...]:
    """The trie of the user's symbols, and the pieces of its characters; first characters are marked in `symbols`."""
    found = trie.build({symbol: (id, 0.0) for symbol, id in user.items()})
    known = np.flatnonzero(found.numbers)
    characters = np.full(len(known) + 1, NO_PIECE, np.int32)
    characters[found.numbers[known]] = symbols[known]
    symbols[[ord(symbol[0]) for symbol in user]] = USER
    return found.numbers, found.nodes, characters
