"""Chinese conversion markup, `-{zh-hans:软件; zh-hant:軟體}-`, resolved to one variant.

The wiki shows a page in the reader's variant; the source holds all of them. What a rule shows is taken by the flags of
https://www.mediawiki.org/wiki/Writing_systems/Syntax: `A` and no flag show the text of the variant or of the nearest
one it falls back to, `H`, `T`, `D` and `-` show nothing, `R` and a list of variants show the text as it stands. Rules
are not applied to the rest of the page: which characters a corpus wants is the business of its normalisation.
"""

from __future__ import annotations

import re
from itertools import chain

VARIANTS = ("zh-cn", "zh-sg", "zh-my", "zh-tw", "zh-hk", "zh-mo")
_SIMPLIFIED = ("zh-cn", "zh-hans", "zh-sg", "zh-my")
_TRADITIONAL = ("zh-tw", "zh-hant", "zh-hk", "zh-mo")
_MAINLAND = "这为国时来说发会对们后学过还样开与话进长问实现见门"  # frequent characters, pairwise with those below
_TAIWAN = "這為國時來說發會對們後學過還樣開與話進長問實現見門"
_SILENT_FLAGS = frozenset("HTD-")

_TOKEN = re.compile(r"-\{(?!\{)|\}-|\{\{|\}\}")
_RULE = re.compile(r"(?:^|;)\s*+(?:[^;|]*?=>\s*+)?(zh(?:-[a-z]+)?)\s*:", re.IGNORECASE)
_FLAGS = re.compile(
    r"\s*(?:[AHTDRN-]|zh(?:-[a-z]{1,9})?)(?:\s{0,9};\s{0,9}(?:[AHTDRN-]|zh(?:-[a-z]{1,9})?)){0,20}\s*;?\s*",
    re.IGNORECASE,
)


def script_of(text: str) -> str:
    """`zh-cn` or `zh-tw`, by which of 25 pairs of frequent characters stand in a text; a tie is `zh-cn`.

    >>> script_of("這個國家"), script_of("这个国家")
    ('zh-tw', 'zh-cn')
    """
    traditional, simplified = (sum(map(text.count, chars)) for chars in (_TAIWAN, _MAINLAND))
    return "zh-tw" if traditional > simplified else "zh-cn"


def convert(text: str, variant: str) -> str:
    """The text with every `-{...}-` replaced by what it shows in a variant; a `-{` without its end is dropped.

    Linear in the text, nested marks included. `variant` is one of VARIANTS.

    >>> convert("-{zh-hans:计算机;zh-hant:電腦}-的-{A|zh-cn:内存;zh-tw:記憶體}-", "zh-tw")
    '電腦的記憶體'
    """
    open_marks: list[list[str]] = []  # the pieces before each mark
    pieces: list[str] = []
    position = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[position : token.start()])
        position = token.end()
        kind = token.group()
        if kind == "-{":
            open_marks.append(pieces)
            pieces = []
        elif kind == "}-" and open_marks:
            shown = _shown("".join(pieces), variant)
            pieces = open_marks.pop()
            pieces.append(shown)
        else:
            pieces.append(kind)  # a template, whose braces are no mark's, or an end without a start
    pieces.append(text[position:])
    return "".join(chain(*open_marks, pieces))


def _shown(rule: str, variant: str) -> str:
    head, bar, body = rule.partition("|")
    flags: set[str] = set()
    if bar and _FLAGS.fullmatch(head):
        flags, rule = {flag.strip().upper() for flag in head.split(";")}, body
    if flags & _SILENT_FLAGS or "N" in flags:
        return ""
    if "R" in flags or any(flag.startswith("ZH") for flag in flags):
        return rule
    found = list(_RULE.finditer(rule))
    if not found or rule[: found[0].start()].strip():
        return rule
    ends = [match.start() for match in found[1:]] + [len(rule)]
    texts = {
        match.group(1).lower(): rule[match.end() : end].strip().removesuffix(";").strip()
        for match, end in reversed(list(zip(found, ends, strict=True)))
    }
    family = _SIMPLIFIED if variant in _SIMPLIFIED else _TRADITIONAL
    order = (variant, family[1], *family, "zh", *texts)
    return next(texts[name] for name in order if name in texts)
