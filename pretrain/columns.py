"""Tables and paragraphs for a terminal of 80 columns, where a Chinese character takes two, and that no name may steer."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from unicodedata import east_asian_width

WIDTH = 80
GAP = "  "
MOST_COLUMNS = 32  # of a cell; names come from other people's files


def num_columns(text: str) -> int:
    """That a text takes.

    >>> num_columns("BUSTM"), num_columns("唐诗 1")
    (5, 6)
    """
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def shown(text: str) -> str:
    """With what would steer a terminal, or break a line, as ?."""
    return "".join(character if character.isprintable() else "?" for character in text)


def fitted(text: str, columns: int) -> str:
    """As much of a text as so many columns hold.

    >>> fitted("a百科", 4), fitted("BUSTM", 9)
    ('a百', 'BUSTM')
    """
    kept, width = "", 0
    for character in shown(text):
        width += num_columns(character)
        if width > columns:
            break
        kept += character
    return kept


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Rows of as many cells each, the first of them the heads; columns of numbers to the right, long names cut."""
    rows = [[fitted(cell, MOST_COLUMNS) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(num_columns, column)) for column in columns]
    numeric = [all(not cell or cell[0] in "+-0123456789" for cell in column[1:]) for column in columns]
    for row in rows:
        spaces = [" " * (width - num_columns(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            space + cell if right else cell + space for cell, space, right in zip(row, spaces, numeric, strict=True)
        ]
        yield indent + GAP.join(cells).rstrip()


def wrapped(text: str, rest: str = GAP) -> Iterator[str]:
    """A paragraph; its lines after the first are indented."""
    yield from textwrap.wrap(shown(text), WIDTH, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
