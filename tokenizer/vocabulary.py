"""What a vocabulary is like: how far its tokens go, how often it falls back to bytes, what its pieces are made of."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenizer.model import Tokenizer

LONGEST_SHOWN = 50
SCRIPTS = (
    ("CJK UNIFIED", "han"),
    ("CJK COMPATIBILITY IDEOGRAPH", "han"),
    ("HIRAGANA", "kana"),
    ("KATAKANA", "kana"),
    ("HANGUL", "hangul"),
    ("LATIN", "latin"),
    ("FULLWIDTH LATIN", "latin"),
    ("CYRILLIC", "cyrillic"),
    ("GREEK", "greek"),
)


def vocabulary_report(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, Any]:
    """Figures of a vocabulary measured on `texts`; ratios are None where there is no text.

    `characters_per_token` and `bytes_per_token` count code points and UTF-8 bytes of text; `byte_fallback_ratio` is the
    share of tokens that are single bytes. `pieces_by_script` and `pieces_by_length` count the vocabulary itself.
    """
    ids = np.concatenate([np.empty(0, np.int32), *tokenizer.encode_batch(texts)])
    frequency = np.bincount(ids, minlength=tokenizer.vocab_size)
    kinds = [_kind(tokenizer, id) for id in range(tokenizer.vocab_size)]
    pieces = [tokenizer.piece_bytes(id).decode() for id, kind in enumerate(kinds) if kind not in ("byte", "control")]
    in_bytes = int(sum(count for count, kind in zip(frequency, kinds, strict=True) if kind == "byte"))
    return {
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "measured_tokens": len(ids),
        "characters_per_token": _ratio(sum(map(len, texts)), len(ids)),
        "bytes_per_token": _ratio(sum(len(text.encode()) for text in texts), len(ids)),
        "byte_fallback_ratio": _ratio(in_bytes, len(ids)),
        "used_pieces_ratio": _ratio(int((frequency > 0).sum()), tokenizer.vocab_size),
        "pieces_by_script": dict(sorted(Counter(kinds).items())),
        "pieces_by_length": {str(length): count for length, count in sorted(Counter(map(len, pieces)).items())},
        "longest_pieces": sorted(pieces, key=lambda piece: (-len(piece), piece))[:LONGEST_SHOWN],
    }


def _kind(tokenizer: Tokenizer, id: int) -> str:
    if tokenizer.is_control(id):
        return "control"
    if tokenizer.is_byte(id):
        return "byte"
    kinds = {script(character) for character in tokenizer.piece_bytes(id).decode()}
    letters = kinds - {"space", "other"}
    if len(letters) > 1:
        return "mixed"
    return min(letters or kinds - {"space"} or {"space"})


def script(character: str) -> str:
    """The script of a character: han, kana, hangul, latin, cyrillic, greek, digit, space or other.

    >>> [script(character) for character in "学のa7， "]
    ['han', 'kana', 'latin', 'digit', 'other', 'space']
    """
    if character.isspace():
        return "space"
    if unicodedata.category(character) == "Nd":
        return "digit"
    name = unicodedata.name(character, "")
    return next((kind for prefix, kind in SCRIPTS if name.startswith(prefix)), "other")


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
