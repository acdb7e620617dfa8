"""Personal data become typed placeholders: mobile numbers, identity cards, e-mail addresses.

No `\\b`: it does not fire between Han and ASCII, which is how English-born patterns leak in Chinese text. A number may
not touch further digits or Latin letters, so that order numbers and hashes stay; an identity card must satisfy the
check character of GB 11643-1999 (ISO 7064 MOD 11-2). Full-width digits count as digits. All patterns are linear: every
repeat is bounded and starts at the edge of a run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

Kind = Literal["id_card", "mobile", "email"]
KINDS: tuple[Kind, ...] = ("id_card", "mobile", "email")
PLACEHOLDERS: dict[str, str] = {kind: f"<{kind.upper()}>" for kind in KINDS}

ID_CARD_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
ID_CARD_CHECKS = "10X98765432"

_D = "[0-9０-９]"
_EDGE = "(?<![0-9０-９A-Za-z][0-9０-９])(?<![0-9０-９][.．][0-9０-９])"  # looks back from behind the first character
_END = "(?![0-9０-９A-Za-z])"
_PATTERNS: dict[str, re.Pattern[str]] = {  # each starts with a small set of characters, which `re` finds fast
    "id_card": re.compile(f"[1-9１-９]{_EDGE}{_D}{{16}}[0-9０-９XxＸｘ]{_END}"),
    "mobile": re.compile(
        rf"(?:(?:[+＋][8８]|[8８]{_EDGE})[6６][- ]?[1１]|[1１]{_EDGE})[3-9３-９]{_D}"
        rf"(?:{_D}{{8}}|-{_D}{{4}}-{_D}{{4}}| {_D}{{4}} {_D}{{4}}){_END}"
    ),
    "email": re.compile(r"(?<=[A-Za-z0-9._%+-])[@＠](?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"),
}
_LOCAL_PART = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-"
MAX_LOCAL_CHARS = 64  # of an address, before the at sign (RFC 5321)


def mask(text: str, kinds: tuple[Kind, ...] = KINDS) -> str:
    """`text` with personal data replaced by placeholders.

    >>> mask("联系人王先生，手机13800138000，身份证11010519491231002X，邮箱wang@example.com。订单号2023113800138000。")
    '联系人王先生，手机<MOBILE>，身份证<ID_CARD>，邮箱<EMAIL>。订单号2023113800138000。'
    """
    return mask_with_counts(text, kinds)[0]


def mask_with_counts(text: str, kinds: tuple[Kind, ...] = KINDS) -> tuple[str, dict[str, int]]:
    """`mask`, and how many of each kind were replaced."""
    counts: dict[str, int] = {}
    for kind in kinds:
        spans = list(_find(kind, text))
        if spans:
            counts[kind] = len(spans)
            starts, ends = [start for start, _ in spans] + [len(text)], [0] + [end for _, end in spans]
            text = PLACEHOLDERS[kind].join(text[end:start] for end, start in zip(ends, starts, strict=True))
    return text, counts


def _find(kind: Kind, text: str) -> Iterator[tuple[int, int]]:
    """Spans of one kind of personal data, in order, apart from each other."""
    done = 0
    for match in _PATTERNS[kind].finditer(text):
        start, end = match.span()
        if kind == "email":
            before = text[max(done, start - MAX_LOCAL_CHARS) : start]
            start -= len(before) - len(before.rstrip(_LOCAL_PART))
        if kind != "id_card" or is_id_card(match[0]):
            yield start, end
            done = end


def is_id_card(number: str) -> bool:
    """True for 18 characters with a possible birth date and the right check character.

    >>> is_id_card("11010519491231002X"), is_id_card("110105194912310021")
    (True, False)
    """
    digits = unicodedata.normalize("NFKC", number).upper()
    year, month, day = int(digits[6:10]), int(digits[10:12]), int(digits[12:14])
    if not (1800 <= year < 2100 and 1 <= month <= 12 and 1 <= day <= 31):
        return False
    total = sum(weight * int(digit) for weight, digit in zip(ID_CARD_WEIGHTS, digits[:17], strict=True))
    return ID_CARD_CHECKS[total % 11] == digits[17]
