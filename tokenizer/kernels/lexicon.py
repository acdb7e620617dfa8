"""The pieces of a model by kind, as kernels need them, from the model's own bytes: SentencePiece's Python calls do not
tell a user's symbol from a piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenizer.model import SPACE_MARK, Tokenizer
from tokenizer.pieces import NORMAL, UNUSED, USER_DEFINED, parse_model

MAX_PIECE_CHARACTERS = 1024  # a BPE piece of n characters is taken apart in n ways
MAX_CHARACTERS = 1 << 21  # of all pieces: a trie in the making takes some hundred bytes for each


class UnsupportedError(Exception):
    """A model is not of the form that a kernel encodes; the message says why."""


@dataclass(frozen=True)
class Lexicon:
    """What texts can be made of. A space in a piece is a space here, and a piece that no text can match is left out."""

    model_type: int
    normal: dict[str, int]
    unused: dict[str, int]
    user: dict[str, int]  # user-defined symbols
    spelled: NDArray[np.int32]  # (256,): the ids of bytes


def read_lexicon(tokenizer: Tokenizer) -> Lexicon:
    """The pieces of a tokenizer by kind.

    Raises:
        UnsupportedError: they are longer than pieces are.
    """
    model = parse_model(tokenizer.processor.serialized_model_proto())
    found: dict[int, dict[str, int]] = {NORMAL: {}, UNUSED: {}, USER_DEFINED: {}}
    for id, piece in enumerate(model.pieces):
        if piece.type in found and " " not in piece.piece:  # SentencePiece looks for U+2581 only
            found[piece.type][piece.piece.replace(SPACE_MARK, " ")] = id
    lengths = [len(piece) for pieces in found.values() for piece in pieces]
    if max(lengths, default=0) > MAX_PIECE_CHARACTERS or sum(lengths) > MAX_CHARACTERS:
        raise UnsupportedError(
            f"a piece has more than {MAX_PIECE_CHARACTERS:,} characters, or all of them more than {MAX_CHARACTERS:,}"
        )
    spelled = [tokenizer.processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    kinds = found[NORMAL], found[UNUSED], found[USER_DEFINED]
    return Lexicon(model.trainer_spec.model_type, *kinds, np.array(spelled, np.int32))
