"""Bytes to text: BOM, header, meta, strict UTF-8, detector, and a Han-frequency score that may overrule what is
declared.

Chinese pages lie about their encoding more than others: `gb2312` means GB18030, Big5 pages are served as UTF-8 and
UTF-8 pages as GBK. The first candidate that decodes without one bad byte is not enough, because GB18030 accepts nearly
anything; so every candidate's text is scored by how much of it is made of the commonest Han characters. Text read with
the right codec scores 0.5-0.8, text read with the wrong one below 0.15, after some twenty characters already.

Most input is UTF-8 that says nothing else: one strict decode and a glance for double encoding. A GB18030 page that
declares nothing costs the score as well; the detectors, far slower, run only on what is neither UTF-8 nor readable
GB18030 or Big5. How right it is, on real files of the 1990s and 2000s too: tests/corpus/test_encoding.py.

Damage costs itself: what a browser shows is returned, with U+FFFD where bytes are bad, as long as the rest reads like
Chinese (`MAX_REPLACED_RATIO`). Such lines are for the caller to drop: `without_damaged_lines`, and extraction for
pages.

Never returned: a lone surrogate.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import cchardet
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from corpus.mojibake import (
    COMMON_HAN,
    MIN_PLAUSIBLE_SCORE,
    MIN_REPAIR_SCORE,
    repair_mojibake,
    replace_surrogates,
    score,
    utf8,
)
from corpus.whatwg import decode_as

__all__ = [
    "COMMON_HAN",
    "Decoded",
    "UndecodableError",
    "codec_of",
    "decode",
    "repair_mojibake",
    "replace_surrogates",
    "score",
    "utf8",
    "without_damaged_lines",
]

MAX_META_BYTES = 4096
MAX_CUT_TAIL_BYTES = 3
GLANCE_BYTES = 1024
NUM_GLANCES = 16
MAX_REPLACED_RATIO = 0.25  # of the characters beyond ASCII that may be U+FFFD where the others read like Chinese
FEW_REPLACED_RATIO = 0.001  # of all characters, whatever the others read like
MAX_CONTROL_RATIO = 0.02  # share of control characters from which on a file is no text
MAX_RATIO_CHARS = 20_000  # that are looked at for it
SURE_SCORE = 0.55  # no other codec makes readable text of the same bytes
OVERRULE_MARGIN = 0.25  # how much better another codec must score than the declared one

_META_CHARSET = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,40})""", re.IGNORECASE)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # C1 is left out: double encoding is full of it
_CONTROL_BYTES = bytes(filter(lambda byte: _CONTROL.match(chr(byte)), range(128)))

# Python's codec for a WHATWG name: a superset of what the label names, because pages use more than they declare.
_SUPERSETS = {
    "gbk": "gb18030",
    "gb2312": "gb18030",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
}
_EXTRA_LABELS = {
    "cp936": "gb18030",
    "windows-936": "gb18030",
    "ms936": "gb18030",
    "cp950": "big5hkscs",
    "ms950": "big5hkscs",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-ukrainian": "mac_cyrillic",
    "cp437": "cp437",
    "ibm437": "cp437",
    "utf-32": "utf-32",
    "utf-32le": "utf-32-le",
    "utf-32be": "utf-32-be",
}
_CHINESE = ("gb18030", "big5hkscs")
# Seven-bit Chinese looks like ASCII and reads as nonsense: ISO-2022-CN (RFC 1922), and four characters of HZ (RFC
# 1843).
_SEVEN_BIT = re.compile(rb"\x1b\$\)[AEG]|~\{(?:[\x21-\x77][\x21-\x7e]){4,}(?:~\}|\n)")
_SINGLE_BYTE = re.compile(r"cp12\d\d|iso8859|koi8|latin|mac|ibm|cp866|cp874", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class UndecodableError(ValueError):
    """No encoding makes plausible text of these bytes."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, the codec that made it, and whether double encoding was undone.

    `utf8` are the bytes that were read where they are the text in UTF-8 as they stand.
    """

    text: str
    encoding: str
    repaired: bool
    utf8: bytes | None = None


def decode(data: bytes, header: str | None = None) -> Decoded:
    """Decode a page or file. `header` is the charset of the HTTP header, or a full Content-Type value.

    >>> decode("学而时习之，不亦说乎".encode("gbk"), "text/html; charset=gb2312").text
    '学而时习之，不亦说乎'
    >>> decode("有朋自远方来，不亦乐乎".encode(), "gbk").encoding
    'utf-8'

    Raises:
        UndecodableError: no candidate makes plausible text, or it is HZ or ISO-2022-CN.
    """
    for bom, name in _BOMS:
        if data.startswith(bom):
            text = _strict(data[len(bom) :], name)
            if text is None and name.startswith("utf-16"):
                text = _lenient(data[len(bom) :], name)
            if text is not None:
                return _repaired(text, name)
            if name == "utf-8":
                data = data[len(bom) :]  # a few bad bytes behind it, or the mark of an editor before another encoding
    declared = _declared(data, header)
    wide = _wide_codec(data)
    if wide is not None and wide.startswith("utf-32") and (text := _strict(data, wide)) is not None:
        if _control_ratio(text) > MAX_CONTROL_RATIO:
            raise UndecodableError("control characters: a binary file?")
        return Decoded(text, wide, False)
    utf8 = _strict(data, "utf-8") if wide is None else None
    if utf8 is not None and utf8.isascii() and ("~{" in utf8 or "\x1b" in utf8) and _SEVEN_BIT.search(data):
        raise UndecodableError("HZ or ISO-2022-CN, which browsers refuse as well: convert it to UTF-8 first")
    if utf8 is not None and (declared in (None, "utf-8") or utf8.isascii()):
        head = data[: 4 * MAX_RATIO_CHARS]
        if len(head.translate(None, _CONTROL_BYTES)) < len(head) and _control_ratio(utf8) > MAX_CONTROL_RATIO:
            raise UndecodableError("control characters: a binary file?")
        decoded = _repaired(utf8, "utf-8")
        is_whole = not decoded.repaired and data[-1:] < b"\x80"  # no character was cut off at the end
        return replace(decoded, utf8=data) if is_whole else decoded
    return _best(data, declared, utf8)


def codec_of(label: str | None) -> str | None:
    """Python's codec for a WHATWG encoding label (`gb2312` -> `gb18030`), or None when the label means nothing."""
    if not label:
        return None
    label = label.strip().strip("\"'").lower()
    if label in _EXTRA_LABELS:
        return _EXTRA_LABELS[label]
    name = map_encoding_to_html5(label, fallback_utf8=False)
    return _SUPERSETS.get(name, name) if name else None


def without_damaged_lines(text: str) -> tuple[str, int, int]:
    """The text without the lines that hold U+FFFD, and how many lines and characters (line ends aside) those were.

    >>> without_damaged_lines("学而时习之\\n有朋自\\ufffd方来\\n不亦乐乎")
    ('学而时习之\\n不亦乐乎', 1, 6)
    """
    if "\ufffd" not in text:
        return text, 0, 0
    lines = text.split("\n")
    damaged = [line for line in lines if "\ufffd" in line]
    return "\n".join(line for line in lines if "\ufffd" not in line), len(damaged), sum(map(len, damaged))


def _declared(data: bytes, header: str | None) -> str | None:
    if header and "=" in header:
        _, _, header = header.lower().partition("charset=")
        header = header.split(";")[0]
    codec = codec_of(header)
    if codec:
        return codec
    head = data[:MAX_META_BYTES]
    for pattern in (_META_CHARSET, _XML_ENCODING):
        found = pattern.search(head)
        codec = codec_of(found.group(1).decode("ascii")) if found else None
        if codec:  # a meta tag that can be read as ASCII cannot be UTF-16: the standard takes it as UTF-8
            return "utf-8" if codec.startswith(("utf-16", "utf-32")) else codec
    return None


def _wide_codec(data: bytes) -> str | None:
    """UTF-16 or UTF-32 by their NUL bytes: of ASCII marks and line ends, or of every character's upper half."""
    head = data[: min(len(data) & ~3, MAX_META_BYTES)]
    if head and head.count(0) * 4 >= len(head):
        for codec, top, plane in (("utf-32-le", head[3::4], head[2::4]), ("utf-32-be", head[::4], head[1::4])):
            if not any(top) and max(plane) <= 2:
                return codec
    head = data[:MAX_META_BYTES]
    even, odd = head[::2].count(0), head[1::2].count(0)
    few, many = sorted((even, odd))  # a few stand on the other side: of U+4E00, which is "one"
    if many * 100 >= len(head) and many > 3 * few:
        return "utf-16-le" if odd > even else "utf-16-be"
    return None


def _candidates(data: bytes, declared: str | None) -> Iterator[str]:
    """Codecs from the likeliest on; the detectors, which are slow, run only when those before them failed."""
    wide = _wide_codec(data)
    if wide is not None:
        yield wide
        return
    tried: set[str | None] = {None}
    for name in (declared, "utf-8", "gb18030", "big5hkscs"):
        if name is not None and name not in tried:
            tried.add(name)
            yield name
    for name in (codec_of(detect_encoding(data)), codec_of(cchardet.detect(data[:65_536])["encoding"])):
        if name is not None and name not in tried:
            tried.add(name)
            yield name


def _best(data: bytes, declared: str | None, utf8: str | None) -> Decoded:
    """The first candidate that surely is Chinese, else the best; the declared one unless OVERRULE_MARGIN worse."""
    tried: list[tuple[float, str, str]] = []
    for name in _candidates(data, declared):
        text = utf8 if name == "utf-8" and utf8 is not None else _strict(data, name)
        if text is None:
            text = _lenient(data, name)
        if text is not None:
            tried.append((score(text), name, text))
            if tried[-1][0] >= SURE_SCORE:
                break
    if max((entry[0] for entry in tried), default=0.0) < MIN_PLAUSIBLE_SCORE:
        bare = ((name, _strict(data, name)) for name in ("utf-16-le", "utf-16-be"))
        tried += [(score(text), name, text) for name, text in bare if text and score(text) >= MIN_REPAIR_SCORE]
    if not tried:
        raise UndecodableError("no encoding decodes these bytes")
    best_score, best_name, best_text = max(tried, key=lambda entry: entry[0])
    first_score, first_name, first_text = tried[0]
    if first_name in (declared, "utf-8") and first_score > best_score - OVERRULE_MARGIN:
        best_name, best_text = first_name, first_text
    if _control_ratio(best_text) > MAX_CONTROL_RATIO:
        raise UndecodableError("control characters: a binary file?")
    decoded = _repaired(best_text, best_name)
    if decoded.repaired or _score_of_sound(best_text) >= MIN_PLAUSIBLE_SCORE:
        return decoded
    if best_name not in (declared, "utf-8") and (best_name in _CHINESE or _SINGLE_BYTE.search(best_name)):
        if first_name == declared:  # hardly damaged, only not Chinese
            return Decoded(first_text, first_name, False)
        raise UndecodableError(f"nothing declared, and as {best_name} it does not read like text")
    return decoded


def _repaired(text: str, encoding: str) -> Decoded:
    repaired = repair_mojibake(text)
    return Decoded(text if repaired is None else repaired, encoding, repaired is not None)


def _strict(data: bytes, name: str) -> str | None:
    """Decode without a bad byte, or with a character cut off at the very end."""
    try:
        return decode_as(data, name)
    except UnicodeDecodeError as error:
        is_cut = error.reason.startswith(("incomplete", "unexpected end", "truncated"))
        if not is_cut or error.start == 0 or error.start < len(data) - MAX_CUT_TAIL_BYTES:
            return None
        return _strict(data[: error.start], name)
    except (LookupError, ValueError):
        return None


def _lenient(data: bytes, name: str) -> str | None:
    """Decode with U+FFFD for bad bytes, if they are few or what stands between them is Chinese."""
    if name not in ("utf-8", "gb18030", "big5hkscs", "utf-16-le", "utf-16-be"):
        return None
    step = max(GLANCE_BYTES, len(data) // NUM_GLANCES) & ~1
    glance = b"".join(data[start : start + GLANCE_BYTES] for start in range(0, len(data), step)).decode(name, "replace")
    if glance.count("\ufffd") > len(glance) * MAX_REPLACED_RATIO or _control_ratio(glance) > MAX_CONTROL_RATIO:
        return None  # replacing is slow, and here in vain
    text = decode_as(data, name, replace=True)
    replaced = text.count("\ufffd")
    if replaced <= len(text) * FEW_REPLACED_RATIO:
        return text
    if replaced > sum(map(len, _BEYOND_ASCII.findall(text))) * MAX_REPLACED_RATIO:
        return None
    return text if _score_of_sound(text) >= MIN_PLAUSIBLE_SCORE else None


def _score_of_sound(text: str) -> float:
    """How Chinese what is not damaged looks: damage tells against a codec, but not against a text."""
    return score(text.replace("\ufffd", ""))


def _control_ratio(text: str) -> float:
    head = text[:MAX_RATIO_CHARS]
    return len(_CONTROL.findall(head)) / max(1, len(head))
