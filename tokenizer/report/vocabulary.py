"""The report of a tokenizer: how far its tokens go in each source, what its pieces are made of, which it should not
have.

Everything in it follows from the model and the texts alone, so equal ones give equal bytes; speed is measured by
`python -m tokenizer compare`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tokenizer.model import Tokenizer
from tokenizer.report.suspicious import suspicious_pieces
from tokenizer.report.texts import all_texts
from tokenizer.report.usage import Amounts, Frequency, coverage, measure, ratio, renyi_efficiency

NUM_SHOWN = 50  # of the longest, the most frequent, the unused pieces
MAX_SUSPICIOUS = 1000
MAX_SOURCES = 50
OTHER_SOURCES = "(other sources)"
CONTROL, BYTE, HAN = "control", "byte", "han"
SCRIPTS = (
    ("CJK UNIFIED", HAN),
    ("CJK COMPATIBILITY IDEOGRAPH", HAN),
    ("HIRAGANA", "kana"),
    ("KATAKANA", "kana"),
    ("HANGUL", "hangul"),
    ("LATIN", "latin"),
    ("FULLWIDTH LATIN", "latin"),
    ("CYRILLIC", "cyrillic"),
    ("GREEK", "greek"),
)


def vocabulary_report(tokenizer: Tokenizer, texts_by_source: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The figures of a tokenizer on texts of some sources, as JSON; ratios are None where there is no text.

    `characters_per_token` and `bytes_per_token` count code points and UTF-8 bytes of text; `byte_fallback_ratio` is the
    share of tokens that are single bytes; the same by source, and for documents in Traditional characters. A piece is
    shown as it reads, with blanks. `pieces_by_*` count the vocabulary itself, a piece once.

    Raises:
        TokenizerError: a text holds lone surrogates.
    """
    usage = measure(tokenizer, texts_by_source)
    kinds = [_kind(tokenizer, id) for id in range(tokenizer.vocab_size)]
    pieces = {id: tokenizer.piece_bytes(id).decode() for id, kind in enumerate(kinds) if kind not in (BYTE, CONTROL)}
    unused = [id for id in pieces if not usage.frequency[id]]
    used = int(np.count_nonzero(usage.frequency))
    return {
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "measured_documents": usage.total.documents,
        "measured_characters": usage.total.characters,
        "measured_bytes": usage.total.bytes,
        "measured_tokens": usage.total.tokens,
        **usage.total.ratios(),
        "renyi_efficiency": renyi_efficiency(usage.frequency),
        "used_pieces": used,
        "used_pieces_ratio": ratio(used, tokenizer.vocab_size),
        "sources": {name: amounts.as_json() for name, amounts in _largest(usage.sources).items()},
        "scripts": {name: amounts.as_json() for name, amounts in sorted(usage.scripts.items())},
        "coverage": coverage(usage.frequency),
        "pieces_by_script": dict(sorted(Counter(kinds).items())),
        "pieces_by_length": {
            str(length): count for length, count in sorted(Counter(map(len, pieces.values())).items())
        },
        "longest_pieces": _longest(pieces.values()),
        "longest_han_pieces": _longest(piece for id, piece in pieces.items() if kinds[id] == HAN),
        "most_frequent": _most_frequent(tokenizer, usage.frequency, pieces),
        "unused": {
            "pieces": len(unused),
            "by_script": dict(sorted(Counter(kinds[id] for id in unused).items())),
            "longest": _longest(pieces[id] for id in unused),
        },
        **_suspicious(pieces, usage.frequency, texts_by_source),
    }


def _largest(sources: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """The sources with most bytes, by name; the others as one."""
    order = sorted(sources, key=lambda name: (-sources[name].bytes, name))
    found = {name: sources[name] for name in sorted(order[:MAX_SOURCES])}
    if others := [sources[name] for name in order[MAX_SOURCES:]]:
        found[OTHER_SOURCES] = Amounts(
            sum(one.documents for one in others),
            sum(one.characters for one in others),
            sum(one.bytes for one in others),
            sum(one.tokens for one in others),
            sum(one.byte_tokens for one in others),
        )
    return found


def _longest(pieces: Iterable[str]) -> list[str]:
    return sorted(pieces, key=lambda piece: (-len(piece), piece))[:NUM_SHOWN]


def _most_frequent(tokenizer: Tokenizer, frequency: Frequency, pieces: Mapping[int, str]) -> list[list[Any]]:
    """[piece, count] of the most frequent tokens; a byte is shown as the vocabulary spells it, <0xE4>."""
    order = np.argsort(-frequency, kind="stable")[:NUM_SHOWN].tolist()
    return [[pieces.get(id) or tokenizer.piece(id), int(frequency[id])] for id in order if frequency[id]]


def _suspicious(
    pieces: Mapping[int, str], frequency: Frequency, texts_by_source: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    reasons = suspicious_pieces(list(pieces.values()), all_texts(texts_by_source))
    found = [(text, reasons[text], int(frequency[id])) for id, text in pieces.items() if text in reasons]
    found.sort(key=lambda row: (-row[2], row[0]))
    return {
        "suspicious_pieces": len(found),
        "suspicious_ratio": ratio(sum(count for _, _, count in found), int(frequency.sum())),
        "suspicious_by_kind": dict(sorted(Counter(reason.partition(":")[0] for _, reason, _ in found).items())),
        "suspicious": [list(row) for row in found[:MAX_SUSPICIOUS]],
    }


def _kind(tokenizer: Tokenizer, id: int) -> str:
    if tokenizer.is_control(id):
        return CONTROL
    if tokenizer.is_byte(id):
        return BYTE
    kinds = {script(character) for character in tokenizer.piece_bytes(id).decode()}
    letters = kinds - {"space", "other"}
    if len(letters) > 1:
        return "mixed"
    return min(letters or kinds - {"space"} or {"space"})


@lru_cache(maxsize=1 << 16)
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
