"""The shape of a page before it is parsed: what would cost a parser quadratic time or memory is refused or defused.

As resiliparse 2.0.1 behaves: depth alone is harmless, but the attributes of one tag cost the square of their number,
misnested formatting tags grow with the square of their depth, and an indent is written for each level of nested lists
and each line in them. The checks are linear; what they miss is left to the limits of corpus.sandbox. Only the backends
that build a tree need them (corpus/extract/backends.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

MAX_NESTING = 2_000
MAX_ROOT_TAGS = 50  # attributes of repeated <html> and <body> tags are merged, one by one
MAX_ATTRIBUTES = 4_000
LONG_TAG_CHARS = 20_000
UNCHECKED_TAGS = 4_000  # pages with fewer tags are harmless whatever their depth (measured)
MAX_INDENT_CHARS = 50_000_000  # bound of list tags times lines, above which lists lose their marks

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_TAG_START = re.compile("<[a-zA-Z]")
_ROOT_TAG = re.compile(r"<(?:[hH][tT][mM][lL]|[bB][oO][dD][yY])\b")
_LIST_TAG = re.compile(r"<[uUoO][lL]\b")
_RAW_START = re.compile(r"<(?:script|style)\b", re.IGNORECASE)
_RAW_END = re.compile(r"</(?:script|style)\b", re.IGNORECASE)
_QUOTED = re.compile(r"""(?<=[^\s=/])=\s*(?:"[^"]*"|'[^']*')""")
_SEPARATORS = re.compile(r"[\s/]+")
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr p".split())
_AUTO_CLOSED = frozenset("li dt dd tr td th thead tbody tfoot option optgroup colgroup rp rt".split())


class RefusedPage(ValueError):
    """A page that would cost more than a page may; `kind` names the limit (`too_long`, `too_deep`, `too_complex`)."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def check_shape(html: str) -> None:
    """Refuse pages whose parsing is quadratic: deep trees and storms of attributes.

    Raises:
        RefusedPage: with kind `too_deep` or `too_complex`.
    """
    num_tags = html.count("<")
    if num_tags > MAX_ROOT_TAGS and len(_ROOT_TAG.findall(html)) > MAX_ROOT_TAGS:
        raise RefusedPage("too_complex", f"more than {MAX_ROOT_TAGS} html or body tags")
    for piece in _long_pieces(html):
        start = _TAG_START.search(piece)
        if start and len(_SEPARATORS.findall(_QUOTED.sub("", piece[start.start() :]))) > MAX_ATTRIBUTES:
            raise RefusedPage("too_complex", f"a tag of more than {MAX_ATTRIBUTES:,} attributes")
    if num_tags > UNCHECKED_TAGS:
        _check_depth(html)


def limit_lists(html: str) -> str:
    """Lists become plain blocks on pages whose indents could fill memory: nesting times lines of them are written."""
    num_lines = html.count("<") + html.count("\n")
    if num_lines < UNCHECKED_TAGS or len(_LIST_TAG.findall(html)) * num_lines < MAX_INDENT_CHARS:
        return html
    return _LIST_TAG.sub("<div", html)


def _long_pieces(html: str) -> Iterator[str]:
    """The stretches of at least LONG_TAG_CHARS without a `>`, found in jumps of that length."""
    position = 0
    while len(html) - position >= LONG_TAG_CHARS:
        last = html.rfind(">", position, position + LONG_TAG_CHARS)
        if last < 0:
            end = html.find(">", position)
            yield html[position : end if end >= 0 else len(html)]
            last = end if end >= 0 else len(html)
        position = last + 1


def _check_depth(html: str) -> None:
    """One pass over the tags outside comments and scripts; an end tag counts only where such an element is open."""
    open_tags: Counter[str] = Counter()
    depth = 0
    for slash, name in _TAG.findall(_without_raw_text(html)):
        name = name.lower()
        if name in _VOID or name in _AUTO_CLOSED or (slash and not open_tags[name]):
            continue
        step = -1 if slash else 1
        open_tags[name] += step
        depth += step
        if depth > MAX_NESTING:
            raise RefusedPage("too_deep", f"elements nested deeper than {MAX_NESTING:,}")


def _without_raw_text(html: str) -> str:
    """The page without comments, scripts and styles; linear also where they do not end."""
    first, *parts = html.split("<!--")
    html = first + "".join(part if part.startswith((">", "->")) else part.partition("-->")[2] for part in parts)
    first, *parts = _RAW_START.split(html)
    ends = ((part, _RAW_END.search(part)) for part in parts)
    return first + "".join(part[end.end() :] for part, end in ends if end)
