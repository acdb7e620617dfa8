"""The pieces of a model by kind, as kernels need them. SentencePiece's Python calls do not tell a user's symbol from a
piece.

The kind is read from the model's own bytes (protocol buffers; sentencepiece_model.proto: field 1 of ModelProto is a
SentencePiece, whose field 3 is its type; field 2 is the TrainerSpec, whose field 3 is the model's type).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenizer.model import SPACE_MARK, Tokenizer

PIECES, TRAINER, TYPE = 1, 2, 3  # field numbers
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5  # types of pieces; the default is NORMAL
UNIGRAM, BPE = 1, 2  # types of models; the default is UNIGRAM
MAX_PIECE_CHARACTERS = 1024  # a BPE piece of n characters is taken apart in n ways
MAX_CHARACTERS = 1 << 21  # of all pieces: a trie in the making takes some hundred bytes for each
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types


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
    model = list(_fields(tokenizer.processor.serialized_model_proto()))
    found: dict[int, dict[str, int]] = {NORMAL: {}, UNUSED: {}, USER_DEFINED: {}}
    for id, piece in enumerate(value for field, value in model if field == PIECES):
        kind, spelling = _type(piece), tokenizer.piece(id)
        if kind in found and " " not in spelling:  # SentencePiece looks for U+2581 only
            found[kind][spelling.replace(SPACE_MARK, " ")] = id
    lengths = [len(piece) for pieces in found.values() for piece in pieces]
    if max(lengths, default=0) > MAX_PIECE_CHARACTERS or sum(lengths) > MAX_CHARACTERS:
        raise UnsupportedError(
            f"a piece has more than {MAX_PIECE_CHARACTERS:,} characters, or all of them more than {MAX_CHARACTERS:,}"
        )
    (model_type,) = [_type(value) for field, value in model if field == TRAINER] or [UNIGRAM]
    spelled = [tokenizer.processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    return Lexicon(model_type, found[NORMAL], found[UNUSED], found[USER_DEFINED], np.array(spelled, np.int32))


def _type(message: int | bytes) -> int:
    """The field `type` of a piece or of the trainer's settings; both have 1 for its default."""
    return next((value for field, value in _fields(message) if field == TYPE and isinstance(value, int)), 1)


def _fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message; numbers of fixed size are left as bytes."""
    assert isinstance(message, bytes)
    i = 0
    while i < len(message):
        tag, i = _varint(message, i)
        kind = tag & 7
        if kind == VARINT:
            value, i = _varint(message, i)
            yield tag >> 3, value
            continue
        if kind == LENGTH:
            size, i = _varint(message, i)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise UnsupportedError(f"its model file has a field of wire type {kind}")
        yield tag >> 3, message[i : i + size]
        i += size


def _varint(message: bytes, i: int) -> tuple[int, int]:
    value, shift = 0, 0
    while message[i] & 0x80:
        value |= (message[i] & 0x7F) << shift
        i, shift = i + 1, shift + 7
    return value | message[i] << shift, i + 1
