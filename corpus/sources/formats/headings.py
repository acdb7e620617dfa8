"""Headings of chapters in plain text books: 第一章, 第３回, 卷三, 楔子, 後記, in both scripts.

A line that begins like a heading is one when it is short, does not end like a sentence, does not go on with the line
before it, and its number goes on from the last one of its kind or begins again at 1. Prose that mentions a chapter
fails at least one of these.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

MAX_HEADING_CHARS = 45
MAX_GAP = 30  # numbers that may be missing between two chapters where nothing but the number tells

_DIGITS = "0-9０-９零〇○Ｏ一二三四五六七八九十百千两兩廿卅"
_VOLUME_UNITS, _CHAPTER_UNITS, _SECTION_UNITS = "部卷集篇册冊编編", "章回折出幕话話", "节節"
_NUMBERED = re.compile(
    rf"(?:正文[ \u3000]*)?(?:第[ \u3000]*([{_DIGITS}]{{1,9}})[ \u3000]*([{_VOLUME_UNITS}{_CHAPTER_UNITS}{_SECTION_UNITS}])"
    rf"|(卷)[ \u3000]*([{_DIGITS}]{{1,9}}))"
    r"(?=$|(?P<separator>[ \t\u3000:：、.．·—-])|\S)"
)
_NAMED = re.compile(
    r"(?:楔子|引子|引言|前言|序言|序章|序幕|自序|代序|原序|序[一二三]?|缘起|緣起|尾声|尾聲|终章|終章|结语|結語|后记|後記|跋|附录|附錄|番外|凡例"
    r"|卷[上中下首末]|[上中下]卷|[上中下]部|[上中下]册|[上中下]冊)(?:[ \t\u3000:：]\s*(?P<title>\S.{0,30}))?"
)
_CLAUSE_ENDS = tuple("。，,；;：、")
_PROSE_ENDS = (*_CLAUSE_ENDS, *"…”』」的了")  # of a line in which nothing stands between number and words
_FULL_STOPS = tuple("。！？!?…”』」）)：:；;—*＊")
_SPELLED = str.maketrans({"廿": "二十", "卅": "三十", "两": "二", "○": "〇", "Ｏ": "〇"})


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading at line `line`; `level` is 1 for volumes, 2 for chapters, 3 for sections."""

    line: int
    level: int
    text: str


def number_of(digits: str) -> int | None:
    """The value of a number in Chinese, full-width or ASCII digits; None for what is no number.

    >>> [number_of(digits) for digits in ("十二", "一百零八", "２０", "廿三", "一二〇", "十百十")]
    [12, 108, 20, 23, 120, None]
    """
    if digits.isdecimal():
        return int(digits)
    values = [int(unicodedata.numeric(char, -1)) for char in digits.translate(_SPELLED)]
    if -1 in values or any(map(str.isdecimal, digits)):
        return None
    if max(values) < 10:
        return int("".join(map(str, values)))
    total, value, last_scale = 0, None, 10_000
    for one in values:
        if one < 10:
            value = one
        elif one >= last_scale:
            return None
        else:
            total += (1 if value is None else value) * one
            value, last_scale = None, one
    return total + (value or 0)


def find_headings(lines: Sequence[str]) -> list[Heading]:
    """The headings of a book's lines, in order; sections only where a book has no chapters."""
    found: list[Heading] = []
    last: dict[int, int] = {}  # numbers by level
    before = ""
    for index, line in enumerate(lines):
        text = " ".join(line.split())
        if not text:
            before = ""
            continue
        level, number = _read(text)
        is_below_heading = bool(found) and found[-1].line == index - 1
        is_alone = not before or before.endswith(_FULL_STOPS) or len(before) <= MAX_HEADING_CHARS // 2
        if level and (is_alone or is_below_heading) and _goes_on(number, last.get(level), not before):
            found.append(Heading(index, level, text))
            if number is not None:
                last[level] = number
        before = text
    deepest = 2 if any(heading.level == 2 for heading in found) else 3
    return [heading for heading in found if heading.level <= deepest]


def _read(text: str) -> tuple[int, int | None]:
    """The level of what looks like a heading, else 0, and its number if it has one that can be read."""
    if len(text) > MAX_HEADING_CHARS or text.endswith(_CLAUSE_ENDS):
        return 0, None
    found = _NUMBERED.match(text)
    if text.endswith(_PROSE_ENDS) and not (found and found.group("separator")):
        return 0, None
    if found:
        rest = text[found.end() :]
        if rest and not found.group("separator") and (any(stop in rest for stop in "，。！？；,") or rest[0] in _PROSE):
            return 0, None
        unit = found.group(2) or found.group(3)
        level = 1 if unit in _VOLUME_UNITS else 2 if unit in _CHAPTER_UNITS else 3
        return level, number_of(found.group(1) or found.group(4))
    named = _NAMED.fullmatch(text)
    if named is None:
        return 0, None
    return (1, None) if text[0] in "卷上中下" else (2, None)


_PROSE = "的是里中在和与與讲講说說写寫就也都便了，。；"  # behind 第三章: prose about it


def _goes_on(number: int | None, last: int | None, is_behind_blank: bool) -> bool:
    """Whether a number follows the last one; behind a blank line more may be missing between them."""
    if number is None or last is None or number in (0, 1):
        return True
    return last <= number and (number <= last + MAX_GAP or is_behind_blank)
