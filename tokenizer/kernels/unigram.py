"""Unigram without SentencePiece: from the UTF-8 bytes of an Arrow batch to ids, with no Python string between.

The rule (SentencePiece 0.2.3, EncodeUnigram): of all ways to cut a text into pieces, the one with the greatest sum of
scores; at equal sums the one whose last piece begins first. Sums are in float32, so what is equal depends on all that
comes before; beyond 100,000 on either side the sum so far is subtracted. A character that is no piece itself is the
unknown piece, whose score is the least of all less 10; its bytes are spelled. A user's symbol scores a tenth for each
of its bytes but the first, which is more than any piece's logarithm of a probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer.kernels import trie
from tokenizer.kernels.lexicon import Lexicon, UnsupportedError
from tokenizer.kernels.unigram_kernels import Tables, encode, make_scratch
from tokenizer.model import CHUNK_CHARACTERS, SPACE_MARK, Tokenizer

UNKNOWN_PENALTY = np.float32(10)
USER_BONUS = np.float32(0.1)
UNUSED = -np.inf
MAX_SCORE = 1e30  # trained ones are logarithms, some tens; the sum of two may not leave float32


@dataclass(frozen=True)
class UnigramKernel:
    """The tables of a Unigram vocabulary; called with offsets, bytes, and where ids and ends go, it gives their
    number."""

    tables: Tables

    def __call__(
        self,
        offsets: NDArray[np.int64],
        data: NDArray[np.uint8],
        ids: NDArray[Any],
        ends: NDArray[np.int64],
        chunk_characters: int = CHUNK_CHARACTERS,
    ) -> int:
        return encode(offsets, data, self.tables, make_scratch(chunk_characters), ids, ends)


def build_kernel(tokenizer: Tokenizer, lexicon: Lexicon) -> UnigramKernel:
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
    return UnigramKernel(Tables(numbers, found.nodes, found.weights, code_points, lexicon.spelled, unknown))


def _user_score(piece: str) -> float:
    """In float32; in SentencePiece's text a space takes the three bytes of U+2581."""
    return float(USER_BONUS * np.float32(len(piece.replace(" ", SPACE_MARK).encode()) - 1))
