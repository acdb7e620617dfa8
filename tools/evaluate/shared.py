"""What the evaluations share: the prose that they read, and the tables that they print."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from corpus.engine.errors import UsageError

Rows = Sequence[Sequence[str]]  # the first one is the head


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file.

    Raises:
        UsageError: there is no such file.
    """
    try:
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error


def read_texts(folder: Path) -> dict[str, list[str]]:
    """The texts of each *.jsonl of a folder, by the file's name."""
    return {path.stem: [row["text"] for row in read_rows(path)] for path in sorted(folder.glob("*.jsonl"))}


def plain(rows: Rows, left: Container[int] = (0,)) -> str:
    """Columns in a line for a terminal, those of `left` to the left; a Chinese character is two wide.

    >>> print(plain([["学而", "8"], ["a", "10"]]))
    学而   8
    a     10
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [cell + gap if i in left else gap + cell for i, (cell, gap) in enumerate(zip(row, gaps, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
