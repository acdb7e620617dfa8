"""Unicode normalisation that keeps Chinese as it was written.

Removed: control and invisible characters, bidirectional overrides (text that shows in another order than it is
stored), noncharacters, joiners outside emoji, combining marks beyond eight on one base. Mapped: line ends to a line
feed, exotic spaces to a space, U+2581 (SentencePiece's space mark) to the underscore it looks like, lone surrogates to
U+FFFD; and what fonts put into PDFs instead of the character: Kangxi radicals and those of the supplement (⽬ for 目),
presentation forms (ﬁ for fi, and the vertical marks of GB18030's A6D9 to A6F3). Then NFC, but for compatibility
ideographs, which it would unify. Kept: every Chinese and full-width mark (also ︵ and ︰, with which people draw faces
and write colons), Traditional and variant characters, private-use characters (they are counted, and too many condemn a
document), the ideographic space that opens a paragraph, indentation.

Not NFKC and not ftfy: their tables turn ，！（） into ASCII for good. Joiners are cut everywhere but between emoji: this
is a Chinese corpus, and inside Han they only hide words from filters.

Marks are capped before any `unicodedata.normalize`, which is quadratic in a run of marks. Every step is linear. This
is the definition, for one string; filters/normalizing.py does the same to a batch with kernels and comes here only
for documents that Unicode's composition may touch.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

MAX_MARKS_PER_BASE = 8
MAX_INNER_SPACES = 2  # inside a line of wide characters; longer runs part columns
TRAILING_SPACES = " \t\u3000"

# EquivalentUnifiedIdeograph.txt of Unicode 14: U+2E81 to U+2EF3 in order (U+2E9A is no character). That of a Kangxi
# radical is its compatibility decomposition; strokes (U+31C0 on) stay, they come from no PDF.
_SUPPLEMENT = (
    "厂乛乚乙亻冂𠘨刀刂卜㔾小小兀尣尢𡯂巳幺彑彐忄心扌攵\u2e9a旡日月歺母民氵氺灬爫爫丬牛犭王𤴔目示礻𥫗糹纟罓罒㓁冗𦉫羊𦍌𦍋耂肀聿肉𦥑艹艹艹虎衤覀西见角𧢲讠"
    "贝𧾷车辶辶辶邑钅長镸长门𨸏阝雨青韦页风飞食𩙿飠饣𩠐马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟"
)
RADICALS = dict(zip(map(chr, range(0x2E81, 0x2EF4)), _SUPPLEMENT, strict=True))
RADICALS |= {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0x2F00, 0x2FD6)}
# Compatibility decompositions, but full-width marks where GB18030 has those.
PRESENTATION_FORMS = dict(zip(map(chr, range(0xFE10, 0xFE1A)), "，、。：；！？〖〗…", strict=True))
PRESENTATION_FORMS |= {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}

# (kind, characters, replacement): what is mapped or removed, in this order.
MAPPED: tuple[tuple[str, str, str | dict[str, str]], ...] = (
    ("line_ends", "\r\n|[\r\x0b\x0c\x85\u2028\u2029]", "\n"),
    ("spaces", "[\xa0\u1680\u2000-\u200a\u202f\u205f]", " "),
    ("sentencepiece_space", "\u2581", "_"),
    ("surrogates", "[\ud800-\udfff]", "\ufffd"),
    (
        "invisible",
        "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
        "\ufff9-\ufffb\ufdd0-\ufdef\U000e0000-\U000e007f"
        + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
        + "]",
        "",
    ),
    ("radicals", "[\u2e81-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5]", RADICALS),
    ("presentation_forms", "[\ufb00-\ufb06\ufe10-\ufe19]", PRESENTATION_FORMS),
)
EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"  # where a joiner may stand; stable under NFC


def _replacement(found: str | dict[str, str]) -> str | Callable[[re.Match[str]], str]:
    return found if isinstance(found, str) else lambda match: found[match[0]]


_MAPPED = [(kind, re.compile(pattern), _replacement(replacement)) for kind, pattern, replacement in MAPPED]
_COMPATIBILITY_IDEOGRAPHS = re.compile("([\uf900-\ufaff\U0002f800-\U0002fa1f]+)")
_JOINERS = re.compile("[\u200c\u200d]+")
_IS_EMOJI = re.compile(f"[{EMOJI}]")
_SPACE_RUN = re.compile(
    rf"(?<![ \t])(?:(?<=[^\x00-\x7f]) {{{MAX_INNER_SPACES + 1},}}(?=[^ \t])| "
    rf"{{{MAX_INNER_SPACES + 1},}}(?=[^\x00-\x7f]))"
)
_BLANK_LINES = re.compile(r"\n{3,}")


def normalize_with_changes(text: str) -> tuple[str, dict[str, int]]:
    """`text` in the form described above, the same object when nothing is to be done, and how many characters or runs
    of each kind were changed. Idempotent, linear.

    >>> normalize_with_changes("学而\\u200b时习之，\\u202e不亦说乎？\\r\\n\\r\\n\\r\\n\\r\\n　　有朋自遠方來！　")[0]
    '学而时习之，不亦说乎？\\n\\n\\u3000\\u3000有朋自遠方來！'
    """
    changes: Counter[str] = Counter()
    text = _clean_characters(text, changes)
    shaped = _shape_lines(text)
    if shaped != text:
        changes["white_space"] = 1
    return shaped, dict(+changes)


def _clean_characters(text: str, changes: Counter[str]) -> str:
    for kind, pattern, replacement in _MAPPED:
        text, count = pattern.subn(replacement, text)
        changes[kind] += count
    text, count = _cut_joiners(text)
    changes["joiners"] += count
    text, count = _cap_marks(text)
    composed = _compose(text)
    if composed != text:
        text, extra = _cap_marks(composed)  # U+0344 becomes two marks
        changes["composed"] += 1
        count += extra
    changes["marks"] += count
    return text


def _compose(text: str) -> str:
    """NFC of everything but compatibility ideographs, with which nothing composes."""
    if unicodedata.is_normalized("NFC", text):
        return text
    parts = _COMPATIBILITY_IDEOGRAPHS.split(text)
    parts[::2] = [unicodedata.normalize("NFC", part) for part in parts[::2]]
    return "".join(parts)


def _shape_lines(text: str) -> str:
    """Without white space at the ends of lines, and more than one blank line; columns aligned by spaces get tabs.

    A run of spaces beside a wide character parts columns, unless the line is indented (code, verse). Tabs stay.
    """
    lines = [line.rstrip(TRAILING_SPACES) for line in text.split("\n")]
    if " " * (MAX_INNER_SPACES + 1) in text:
        lines = [line if line.startswith((" ", "\t")) else _SPACE_RUN.sub("\t", line) for line in lines]
    text = "\n".join(lines)
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip("\n")


@lru_cache(maxsize=1)
def _excess_marks() -> re.Pattern[str]:
    codes = (*range(0x20000), *range(0xE0100, 0xE01F0))  # no marks in between
    marks = "".join(character for character in map(chr, codes) if unicodedata.category(character)[0] == "M")
    beyond = marks.lstrip("".join(map(chr, range(0x10000))))  # plane 0; `re` compares the others one by one
    mark = f"(?:[{marks.removesuffix(beyond)}]|(?=[\U00010000-\U0010ffff])[{beyond}])"
    return re.compile(f"({mark}{{{MAX_MARKS_PER_BASE}}}){mark}++")  # possessive: no memory of each mark


def _cap_marks(text: str) -> tuple[str, int]:
    return _excess_marks().subn(r"\1", text)


def _cut_joiners(text: str) -> tuple[str, int]:
    """Remove joiners but one between two emoji (the first may carry U+FE0F)."""
    cut = 0

    def keep(match: re.Match[str]) -> str:
        nonlocal cut
        before = match.string[max(0, match.start() - 2) : match.start()]
        after = match.string[match.end() : match.end() + 1]
        base = before[-2:-1] if before.endswith("\ufe0f") else before[-1:]
        if "\u200d" in match[0] and _IS_EMOJI.match(base) and _IS_EMOJI.match(after):
            return "\u200d"
        cut += 1
        return ""

    return _JOINERS.sub(keep, text), cut
