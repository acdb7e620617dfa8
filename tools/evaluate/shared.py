"""What the evaluations share: the prose that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpus.engine.errors import UsageError


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
