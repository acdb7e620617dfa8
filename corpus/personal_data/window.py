"""What a pattern sees of a text: the surroundings of a place in half-width form, one character for one.

１３８ is 138, ： is :, all dashes are a hyphen, so that forms are written once. Windows are short, and a text is converted
block by block: a place costs the same whatever the text.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

BEFORE, BEHIND = 80, 120  # characters of a window around a place
BLOCK = 128  # characters that share a window
MAX_URL_CHARS = 2048
MAX_JOINT_CHARS = 3  # that the patterns look at before a number, to tell whether it goes on


class Span(NamedTuple):
    """Characters [start, end) of a text, and the kind of personal data there."""

    start: int
    end: int
    kind: str


class Window(NamedTuple):
    """A part of a text in half-width form; `origin` is the text's character where it begins, `at` the place in it."""

    text: str
    raw: str
    at: int
    origin: int

    def without(self, end: int) -> Window:
        """The same window with a Han character for each of the few before the text's character `end`."""
        last = max(0, end - self.origin)
        first = max(0, last - MAX_JOINT_CHARS)
        return self._replace(text=self.text[:first] + "字" * (last - first) + self.text[last:])


_HALF = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
    **{0x2460 + k: str(k + 1) for k in range(9)},
    **{ord(dot): "·" for dot in "•・‧∙"},
    0x24EA: "0",
    0x3000: " ",
    0x3010: "(",
    0x3011: ")",
    0xFFE5: "¥",
}
_WIDE = re.compile("[" + "".join(chr(code) for code in sorted(_HALF)) + "]")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


class Surroundings:
    """A text in half-width form, block by block, as places are looked at in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._block = -1
        self._view = Window("", "", 0, 0)

    @cached_property
    def fences(self) -> list[int]:
        """Where fenced blocks of code begin and end, in turn."""
        return [match.start() for match in _FENCE.finditer(self.text)]

    def of(self, at: int) -> Window:
        """The window of a place."""
        if at // BLOCK != self._block:
            self._block = at // BLOCK
            origin = max(0, self._block * BLOCK - BEFORE)
            raw = self.text[origin : (self._block + 1) * BLOCK + BEHIND]
            self._view = Window(_WIDE.sub(lambda match: _HALF[ord(match[0])], raw), raw, 0, origin)
        return self._view._replace(at=at - self._view.origin)


_URL_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#@!$&'*+,;=%()[]"
_URL = re.compile(r"://|(?:^|[^A-Za-z0-9])www\.|\.(?:com|cn|net|org|gov|edu|io|cc|top|info|me|tv|hk|tw)[/:?]")
_NAMED = re.compile(
    r"(?:\A|[^A-Za-z])(?:tel|sms|smsto|callto|phone|phone_?(?:no|num|number)|mobile|mobile_?(?:no|num|number)|"
    r"cellphone|shouji|"
    r"id_?card|bank_?card|card_?no)(?:=|:(?://)?)\Z",
    re.IGNORECASE,
)
_MAX_NAME_CHARS = 20


def is_named(text: str, at: int) -> bool:
    """True behind what says that a person's number follows, also in an address: `tel://`, `?mobile=`."""
    return _NAMED.search(text[max(0, at - _MAX_NAME_CHARS) : at]) is not None


def is_in_url(text: str, at: int, first: int = 0) -> bool:
    """True where the character is part of a web address that began before it, at `first` or later."""
    before = text[max(first, at - MAX_URL_CHARS) : at]
    run = before[len(before.rstrip(_URL_CHARACTERS)) :]
    return bool(run) and _URL.search(run) is not None
