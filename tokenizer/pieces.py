"""Edits a trained model: takes pieces out, and what can then not be produced, and gives the ids to the next ones; puts
the scores of Unigram on a grid.

SentencePiece's file is a protobuf message with the pieces in the order of their ids; BPE numbers its scores 0, -1, -2,
... in that order and merges by them, Unigram's are logarithms of probabilities. So pieces are taken out, the order
stays, and BPE is numbered anew. Symbols, bytes and single characters stay: they are what every text can be spelled in.

A piece of the rest can be produced exactly if its own text is encoded as itself. In BPE the merges inside the span of a
token are those that are made of its text alone, since one across its border would have left no such token; in Unigram
a part of the best segmentation is the best of its own span. A piece that others were merged through may so take them
with it, and one that Unigram never prefers to its parts is found too.

Scores on a grid have exact sums, so that every library cuts a text alike. SentencePiece adds scores in float32, others
in float64. A trained score has 24 significant bits, so each sum is rounded, and which of two ways to cut a text has the
greater sum can hang on what stands before: with scores as they are trained, the same *** is cut as ** * behind one word
and as * ** behind another, and another library's rounding cuts otherwise again. Multiples of 1/8 have exact sums in
float32 up to 2^21. That is 32 for each character of the longest text that is encoded at once, 65,536 characters; the
least score of a vocabulary is around -15, and a character without a piece has 10 less. So ties are ties everywhere, and
everyone keeps the first they find: the one whose last piece begins first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.engine.errors import WenhaiError
from tokenizer.model import SPACE_MARK

UNIGRAM, BPE = 1, 2  # TrainerSpec.ModelType in sentencepiece_model.proto
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5  # SentencePiece.Type there
STEPS = 8  # of a score between two integers


class TooSmallError(WenhaiError):
    """The pieces that must stay are more than the vocabulary may have."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"{needed} pieces must stay.")
        self.needed = needed


@dataclass(frozen=True)
class Trimmed:
    """A model without some pieces.

    `rejected` gives the reason for each piece that was taken out, as it reads; `unreachable` are those that no text
    could produce any more, and so had to go too.
    """

    model: bytes
    vocab_size: int
    rejected: Mapping[str, str]
    unreachable: Sequence[str]


def trim(model: bytes, vocab_size: int, reject: Callable[[list[str]], Mapping[str, str]]) -> Trimmed:
    """The model without the pieces that `reject` gives reasons against, cut to `vocab_size`.

    `reject` is given the pieces of two characters and more as the vocabulary spells them. Of the others the best stay,
    by score: the first merges of BPE, the most probable ones of Unigram. There may be fewer than asked for.

    Raises:
        TooSmallError: symbols, bytes and single characters alone are more than `vocab_size`.
    """
    proto = parse_model(model)
    spelled = [piece.piece for piece in proto.pieces]
    long = [place for place, piece in enumerate(proto.pieces) if piece.type == NORMAL and len(piece.piece) > 1]
    room = vocab_size - (len(spelled) - len(long))
    if room < 0:
        raise TooSmallError(vocab_size - room)
    long.sort(key=lambda place: -proto.pieces[place].score)
    reasons = reject([spelled[place] for place in long])
    left = [place for place in long if spelled[place] not in reasons]
    unreachable: list[str] = []
    while True:
        cut = set(long) - set(left[:room])
        data = _without(proto, cut)
        lost = _unreachable(data, [spelled[place] for place in left[:room]])
        if not lost:
            break
        unreachable += lost
        gone = set(lost)
        left = [place for place in left if spelled[place] not in gone]
    rejected = {_read(piece): reason for piece, reason in reasons.items()}
    return Trimmed(data, len(spelled) - len(cut), rejected, [_read(piece) for piece in unreachable])


def _without(proto: Any, cut: set[int]) -> bytes:
    """The bytes of a model without the pieces at some places."""
    edited = type(proto)()
    edited.CopyFrom(proto)
    del edited.pieces[:]
    edited.pieces.extend(piece for place, piece in enumerate(proto.pieces) if place not in cut)
    if proto.trainer_spec.model_type == BPE:
        normal = (piece for piece in edited.pieces if piece.type == NORMAL)
        for rank, piece in enumerate(normal):
            piece.score = -rank
    edited.trainer_spec.vocab_size = len(edited.pieces)
    data: bytes = edited.SerializeToString(deterministic=True)
    return data


def _unreachable(model: bytes, pieces: list[str]) -> list[str]:
    """The pieces that no text is encoded to."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    encoded = processor.encode([_read(piece) for piece in pieces], num_threads=1)
    return [
        piece
        for piece, ids in zip(pieces, encoded, strict=True)
        if len(ids) > 1 or processor.id_to_piece(ids[0]) != piece
    ]


def _read(piece: str) -> str:
    """A piece as it reads: no piece holds a U+2581 that is not a blank, because training cuts there."""
    return piece.replace(SPACE_MARK, " ")


def on_grid(model: bytes) -> bytes:
    """A Unigram model whose pieces have the nearest multiples of 1/8 as scores; those of BPE are integers already."""
    proto = parse_model(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * STEPS) / STEPS
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def parse_model(model: bytes) -> Any:
    """SentencePiece's file as its protobuf message."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]  # made when imported
