"""Tables and paragraphs for a terminal of 80 columns, where a Chinese character takes two, and that no name may
steer."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len

WIDTH = 80
GAP = "  "
MOST_COLUMNS = 32  # of a cell; names come from other people's files


def printable(text: str) -> str:
    """With what would steer a terminal, or break a line, as ?."""
    return "".join(character if character.isprintable() else "?" for character in text)


def truncate_columns(text: str, columns: int) -> str:
    """As much of a text as so many columns hold.

    >>> truncate_columns("a百科", 4), truncate_columns("BUSTM", 9)
    ('a百', 'BUSTM')
    """
    kept, width = "", 0
    for character in printable(text):
        width += cell_len(character)
        if width > columns:
            break
        kept += character
    return kept


def align_table(
    rows: Sequence[Sequence[str]], indent: str = "", left: Collection[str] | None = None, gap: str = GAP
) -> Iterator[str]:
    """Rows of as many cells each, the first of them the heads.

    Without `left` columns of numbers stand to the right, and long names are cut; else all columns but those with these
    heads stand to the right, and nothing is cut.

    >>> list(align_table([("", "s"), ("step", "1.5")], left=("",)))
    ['        s', 'step  1.5']
    """
    if left is None:
        rows = [[truncate_columns(cell, MOST_COLUMNS) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    to_right = [
        all(not cell or cell[0] in "+-0123456789" for cell in column[1:]) if left is None else column[0] not in left
        for column in columns
    ]
    for row in rows:
        spaces = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            space + cell if right else cell + space for cell, space, right in zip(row, spaces, to_right, strict=True)
        ]
        yield indent + gap.join(cells).rstrip()


def wrap_paragraph(text: str, rest: str = GAP) -> Iterator[str]:
    """A paragraph; its lines after the first are indented."""
    yield from textwrap.wrap(
        printable(text), WIDTH, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
