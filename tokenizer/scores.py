"""Puts the scores of a Unigram vocabulary on a grid, so that sums of them are exact and every library cuts a text
alike.

SentencePiece adds scores in float32, others in float64. A trained score has 24 significant bits, so each sum is
rounded, and which of two ways to cut a text has the greater sum can hang on what stands before: with scores as they are
trained, the same *** is cut as ** * behind one word and as * ** behind another, and another library's rounding cuts
otherwise again.

Multiples of 1/8 have exact sums in float32 up to 2^21. That is 32 for each character of the longest text that is
encoded at once, 65,536 characters; the least score of a vocabulary is around -15, and a character without a piece has
10 less. So ties are ties everywhere, and everyone keeps the first they find: the one whose last piece begins first.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

STEPS = 8  # of a score between two integers


def on_grid(model: bytes) -> bytes:
    """A model whose pieces have the nearest multiples of 1/8 as scores.

    Only of a Unigram model: those of BPE are integers already.
    """
    protocol: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # its classes are made at import
    proto = protocol.ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * STEPS) / STEPS
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
