"""Seven-bit Chinese of mail and news archives: HZ (RFC 1843) and ISO-2022-CN (RFC 1922), which look like ASCII.

Browsers refuse both, because a page in them can hide markup from who reads it as ASCII; here only text comes out. A
text without their escapes is not touched, and one with them must turn out to be Chinese.
"""

from __future__ import annotations

import re

from corpus.euc_tw import PLANE_1, PLANE_2, decode_euc_tw
from corpus.mojibake import MIN_PLAUSIBLE_SCORE, MIN_REPAIR_SCORE, score

MIN_HAN = 4
MANY_HAN = 20
_HZ_RUN = re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+(?:~\}|\n)")
# Designations of G1 (after shift out) and G2 (one character after ESC N), shifts, and everything between two of them.
_TOKEN = re.compile(rb"\x1b\$\)[AGE]|\x1b\$\*H|\x1bN[\x21-\x7e]{2}|[\x0e\x0f]|\n|[^\x1b\x0e\x0f\n]+")


def decode_escapes(data: bytes, *, declared: bool = False) -> tuple[str, str] | None:
    """The text and codec (`hz`, `iso2022_cn`) of ASCII bytes with escapes in them, or None when they are just ASCII.

    Unless one of the two is declared, the text must read like Chinese, a short one all the more.

    >>> decode_escapes("学而时习之。".encode("hz"))
    ('学而时习之。', 'hz')
    >>> decode_escapes(b"~{ is no escape ~}") is None
    True
    """
    text = codec = None
    try:
        if b"\x1b$)" in data:
            text, codec = decode_iso_2022_cn(data), "iso2022_cn"
        elif b"~{" in data and _HZ_RUN.search(data):
            text, codec = data.decode("hz"), "hz"
    except ValueError:
        return None
    if text is None or codec is None:
        return None
    num_han = sum("\u4e00" <= char <= "\u9fff" for char in text)
    needed = MIN_REPAIR_SCORE if num_han < MANY_HAN else MIN_PLAUSIBLE_SCORE
    return (text, codec) if declared or (num_han >= MIN_HAN and score(text) >= needed) else None


def decode_iso_2022_cn(data: bytes) -> str:
    """GB 2312 and CNS 11643 planes 1 and 2; designations end with their line.

    Raises:
        ValueError: anything else.
    """
    parts: list[str] = []
    wide, shifted = b"", False
    position = 0
    while position < len(data):
        token = _TOKEN.match(data, position)
        if token is None:
            raise ValueError(f"byte {position}: no escape of ISO-2022-CN")
        part = token[0]
        position = token.end()
        if part.startswith(b"\x1b$)"):
            wide = part[3:]
        elif part.startswith(b"\x1bN"):
            parts.append(decode_euc_tw(PLANE_2 + _high(part[2:])))
        elif part in (b"\x0e", b"\x0f"):
            shifted = part == b"\x0e"
        elif part == b"\n":
            wide, shifted = b"", False
            parts.append("\n")
        elif part.startswith(b"\x1b"):
            continue  # G2 is CNS plane 2 or nothing
        elif shifted and wide == b"A":
            parts.append(_high(part).decode("gb2312"))
        elif shifted and wide == b"G":
            parts.append(decode_euc_tw(b"".join(PLANE_1 + _high(part[at : at + 2]) for at in range(0, len(part), 2))))
        elif shifted:
            raise ValueError(f"byte {position}: no character set for what is shifted")
        else:
            parts.append(part.decode("ascii"))
    return "".join(parts)


def _high(data: bytes) -> bytes:
    return bytes(byte | 0x80 for byte in data)
