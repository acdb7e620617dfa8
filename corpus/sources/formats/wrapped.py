"""Text that was cut to a page: hard-wrapped lines joined to paragraphs, running heads and page numbers found.

Between two Han characters nothing is put where lines meet, between Latin words a space; a word's hyphen goes. A line at
the edge of a page is a running head (`running_head`) where three pages have it, digits apart, on at least 40 % of the
pages from the first to the last of them; a number there is the page's (`page_number`) where three pages, or all of two,
count on together. For PDF, books and plain text (`sources.hard_wrapped`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

Removed = dict[str, tuple[int, int]]  # lines and characters by rule

MIN_WRAP_WIDTH, MAX_WRAP_WIDTH = 40, 160  # in columns: a Chinese character has two
WRAP_SLACK = 4  # columns by which a full line may be short: a mark that must not begin a line, a Latin word
MIN_FULL_RATIO = 0.2  # of lines that are full in a hard-wrapped text
MIN_LINES = 10
MIN_MARK_RATIO = 0.01  # indents and blank lines, of all lines, above which they mark paragraphs
HYPHEN = "\u00ad"  # of a word that a line end cuts
INDENTS = ("\u3000\u3000", "    ", "\t")
FINAL = tuple("。！？!?…”』」）)：:；;—")

EDGE_LINES = 2  # of a page, at its top and bottom, where heads and numbers stand
MIN_HEADS, MIN_HEAD_RATIO, MAX_HEAD_CHARS = 3, 0.4, 80
MIN_NUMBERED_PAGES = 5  # by which pages are told where no form feed stands between them
MIN_PAGE_LINES, MAX_PAGE_SPREAD, MIN_ALIKE_RATIO = 10, 0.2, 0.7  # those pages are mostly alike in length
_PAGE_NUMBER = re.compile(
    r"[\W_]*+(?:第|page)?[\W_]*+([0-9０-９]{1,5})[\W_]*+[页頁]?[\W_]*+(?:(?:共|of)?[\W_]*+[0-9０-９]{1,5}[\W_]*+[页頁]?)?[\W_]*+",
    re.I,
)
_DIGITS = re.compile(r"[0-9０-９]+|\s+|^[\W_]*[ivxlc]+[\W_]*$", re.I)


def joined(lines: Iterable[tuple[str, bool]]) -> list[str]:
    """Paragraphs of lines without their white space, each with whether it goes on from the one before.

    >>> joined([("学而时习之，不亦", False), ("说乎？", True), ("a hard-", False), ("ware store", True), ("in", True)])
    ['学而时习之，不亦说乎？', 'a hardware store in']
    """
    found: list[list[str]] = []
    for line, goes_on in lines:
        if not (goes_on and found):
            found.append([line])
            continue
        last = found[-1][-1]
        if last.endswith(HYPHEN) or (last.endswith("-") and last[-2:-1].isalpha() and line[:1].islower()):
            found[-1][-1] = last[:-1]
        elif last and line and is_narrow(last[-1]) and is_narrow(line[0]):
            found[-1].append(" ")
        found[-1].append(line)
    return ["".join(parts) for parts in found]


def is_narrow(char: str) -> bool:
    """Whether words of such characters have spaces between them."""
    return char.isascii() or (char.isalpha() and unicodedata.east_asian_width(char) not in "WF")


def columns(line: str) -> int:
    """The width of a line where wide characters, and the quotes and dashes of Chinese, take two columns."""
    if line.isascii():
        return len(line)
    return len(line) + sum(unicodedata.east_asian_width(char) in "WFA" for char in line)


def wrap_width(lines: Sequence[str]) -> int | None:
    """The columns at which lines are wrapped, or None where every paragraph is one line.

    It is the width that hardly any line exceeds and that many lines reach.
    """
    widths = sorted(columns(line.rstrip()) for line in lines if line.strip())
    if len(widths) < MIN_LINES:
        return None
    width = widths[int(len(widths) * 0.98) - 1]
    full = sum(width - WRAP_SLACK <= one <= width + WRAP_SLACK for one in widths)
    is_wrapped = MIN_WRAP_WIDTH <= width <= MAX_WRAP_WIDTH and full >= MIN_FULL_RATIO * len(widths)
    return width if is_wrapped else None


def paragraphs(lines: Sequence[str], width: int | None) -> list[str]:
    """Paragraphs without their indents; with `width`, full lines joined with what follows.

    A full line goes on unless the next one is blank or indented; one that ends a sentence goes on only where indents or
    blank lines mark paragraphs.
    """
    num_marks = sum(line.startswith(INDENTS) or not line.strip() for line in lines)
    is_marked = num_marks >= MIN_MARK_RATIO * len(lines)

    def marked() -> Iterator[tuple[str, bool]]:
        goes_on = False
        for line in lines:
            text = line.strip()
            if text:
                yield text, goes_on and not line.startswith(INDENTS)
            is_full = bool(text) and width is not None and columns(line.rstrip()) >= width - WRAP_SLACK
            goes_on = is_full and (is_marked or not text.endswith(FINAL))

    return joined(marked())


def unwrap(text: str) -> tuple[str, Removed]:
    """A hard-wrapped text as paragraphs, a line each, and what went; any other text as it is."""
    lines = text.split("\n")
    if wrap_width(lines) is None:
        return text, {}
    pages = _pages(lines)
    found = running_lines(pages) if len(pages) > 1 else {}
    kept: list[str] = []
    for page, page_lines in enumerate(pages):
        rest = ["" if (page, index) in found else line for index, line in enumerate(page_lines)]
        at_edges = [index for index, line in enumerate(rest) if line.strip()]
        kept += rest[at_edges[0] : at_edges[-1] + 1] if found and at_edges else rest
    gone = count_removed((rule, pages[page][line]) for (page, line), rule in found.items())
    return "\n".join(paragraphs(kept, wrap_width(kept))), gone


def count_removed(lines: Iterable[tuple[str, str]]) -> Removed:
    """Lines and characters without white space, by rule."""
    found: Removed = {}
    for rule, line in lines:
        before = found.get(rule, (0, 0))
        found[rule] = before[0] + 1, before[1] + num_chars(line)
    return found


def num_chars(text: str) -> int:
    """Characters without white space."""
    return len("".join(text.split()))


def _pages(lines: Sequence[str]) -> list[list[str]]:
    """Lines by form feeds, else by numbers that count on, each alone on an evenly spaced line; else all of them."""
    text = "\n".join(lines)
    if "\f" in text:
        return [page.split("\n") for page in text.split("\f")]
    none = (0, -1)
    chains: dict[int, tuple[int, int]] = {}  # numbers that count on, by the last: how many, and its line
    before: dict[int, int] = {}  # by the line of a number, that of the one before
    for index, line in enumerate(lines):
        if number := _PAGE_NUMBER.fullmatch(line[:MAX_HEAD_CHARS]):
            length, before[index] = chains.pop(int(number[1]) - 1, none)
            chains[int(number[1])] = max((length + 1, index), chains.get(int(number[1]), none))
    longest = [max(chains.values(), default=none)[1]]
    while longest[-1] >= 0:
        longest.append(before[longest[-1]])
    longest = longest[-2::-1]
    lengths = [after - before for before, after in pairwise(longest)]
    usual = median(lengths) if len(longest) >= MIN_NUMBERED_PAGES else 0.0
    num_alike = sum(abs(length - usual) <= MAX_PAGE_SPREAD * usual for length in lengths)
    is_even = usual >= MIN_PAGE_LINES and num_alike >= MIN_ALIKE_RATIO * len(lengths)
    ends = [0, *(index + 1 for index in longest if is_even), len(lines)]
    return [list(lines[begin:end]) for begin, end in pairwise(ends)]


def running_lines(pages: Sequence[Sequence[str]]) -> dict[tuple[int, int], str]:
    """The heads and page numbers of pages: by page and line, the rule that each goes by.

    Of a line with tabs one piece is enough: 第一章, a tab, and the page's number.
    """
    numbers: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by what a number has over the page's own
    heads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    full = [[index for index, line in enumerate(lines) if line.strip()] for lines in pages]
    for page, places in enumerate(full):
        for place in dict.fromkeys((*places[:EDGE_LINES], *places[-EDGE_LINES:])):
            for piece in pages[page][place].split("\t"):
                if number := _PAGE_NUMBER.fullmatch(piece[:MAX_HEAD_CHARS]):
                    numbers[int(number[1]) - page].append((page, place))
                elif len(piece) <= MAX_HEAD_CHARS and (key := _DIGITS.sub("#", piece.strip())):
                    heads[key].append((page, place))
    rules: dict[tuple[int, int], str] = {}
    for key, same in heads.items():
        on = {page for page, _ in same}
        is_dense = len(on) >= MIN_HEAD_RATIO * (max(on) - min(on) + 1)
        if len(on) >= MIN_HEADS and is_dense and (key == "#" or any(map(str.isalpha, key))):
            rules |= dict.fromkeys(same, "running_head")
    for same in numbers.values():
        if len({page for page, _ in same}) >= min(MIN_HEADS, max(2, len(pages))):
            for page, place in same:
                is_alone = "\t" not in pages[page][place].strip()
                rules[page, place] = "page_number" if is_alone else "running_head"
    return {
        (page, place): rules[page, place] for page, places in enumerate(full) for place in _outer(page, places, rules)
    }


def _outer(page: int, places: Sequence[int], rules: dict[tuple[int, int], str]) -> set[int]:
    """Of a page's lines those that go: inside of one that stays, all stay."""
    found: set[int] = set()
    for side in (places[:EDGE_LINES], places[: -EDGE_LINES - 1 : -1]):
        for place in side:
            if (page, place) not in rules:
                break
            found.add(place)
    return found
