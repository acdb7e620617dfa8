"""Pieces and numbers as people read them: on a terminal and in a page."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

BLANK = "␣"
ABSENT = "–"


def printable_piece(piece: str) -> str:
    """A piece with nothing invisible in it: blanks as ␣, and what `plain` escapes.

    >>> printable_piece(" 的\\n")
    '␣的\\\\n'
    """
    return plain(piece).replace(" ", BLANK)


def plain(text: str) -> str:
    """Text of strangers on one line: controls, marks of direction, private use as escapes.

    >>> plain("a b\\u202e\\ue000")
    'a b\\\\u202e\\\\ue000'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: float | None, digits: int = 2) -> str:
    """An integer with commas, another number with so many digits, – for none.

    >>> number(50304), number(1.53456), number(None)
    ('50,304', '1.53', '–')
    """
    if value is None:
        return ABSENT
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """A share of one in percent.

    >>> percent(0.1234), percent(0.0026), percent(0.00004), percent(0.0), percent(None)
    ('12.3 %', '0.26 %', '0.004 %', '0 %', '–')
    """
    if share is None:
        return ABSENT
    if not share:
        return "0 %"
    return f"{100 * share:.{1 if share >= 0.01 else 2 if share >= 0.001 else 3}f} %"


def table(rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> str:
    """Rows of equal length in columns, those of `left` flush left and the others right; Han characters are two wide.

    >>> print(table([["", "甲"], ["诗歌", "1.5"]]))
           甲
    诗歌  1.5
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [cell + gap if i in left else gap + cell for i, (cell, gap) in enumerate(zip(row, gaps, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cut(text: str, limit: int) -> str:
    """Text of at most so many columns, its middle left out where it is longer: names of one folder differ at the end.

    >>> cut("github:古文原文/南史.txt", 16)
    'github:…南史.txt'
    """
    if cell_len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text
    while cell_len(head) > limit // 2 - 1:
        head = head[:-1]
    while cell_len(head) + 1 + cell_len(tail) > limit:
        tail = tail[1:]
    return f"{head}…{tail}"


def by_number(counts: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """The items of a JSON object whose keys are integers, in their order: JSON sorts "10" before "2"."""
    return sorted((int(key), value) for key, value in counts.items())
