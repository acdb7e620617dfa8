"""What the pages of runs and of plans share: their style sheet, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources

from pretrain.monitor.facts import Row

LONGEST_NUMBER = 20  # characters


def style() -> str:
    """The style sheet."""
    return resources.files("pretrain.monitor").joinpath("report.css").read_text("utf-8")


def table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns of numbers stand to the right; bad rows and marked ones have a class."""
    kinds = ["num" if all(_is_number(row.cells[at]) for row in rows) else "" for at in range(len(columns))]
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for kind, name in zip(kinds, columns, strict=True))
    body = "".join(
        f"<tr{' class=bad' if row.is_bad else ' class=mark' if row.is_marked else ''}>"
        + "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, row.cells, strict=True))
        + "</tr>"
        for row in rows
    )
    narrow = " narrow" if len(columns) == 2 else ""
    return f'<div class="scroll{narrow}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _is_number(cell: str) -> bool:
    """Also one with a unit; not a sentence that begins with one."""
    return cell[:1].isdigit() and len(cell) <= LONGEST_NUMBER
