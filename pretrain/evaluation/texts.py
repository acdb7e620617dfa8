"""Texts of one's own to be scored: JSONL with a text in each line, or files that are one text each.

    {"text": "床前明月光，疑是地上霜。", "source": "诗"}

`.jsonl` (`.ndjson`) and `.txt`, each also with `.gz` or `.zst` after it; paths, or URLs of any store. Read once, from
front to back: one text is held at a time, and none that is larger than a bound. What is wrong is an error that names
the file and the line: a score of half a file would be a wrong score.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from corpus.engine import storage
from corpus.engine.errors import UsageError
from pretrain.inference.lines import decode_lines, lines, text_lines

PACKED = (".gz", ".zst")
LINES = (".jsonl", ".ndjson")

Item = TypeVar("Item")


class Text(NamedTuple):
    """What is scored, and under which name."""

    text: str
    source: str


@dataclass
class Texts:
    """The texts of some files in the order of the files; those without a character are left out, and counted.

    Args:
        paths: or URLs.
        by: the field of a line that names its source. None, or where a line has none: the file's name.

    Raises:
        UsageError: a file is not there, or its name says nothing of its format.
    """

    paths: Sequence[str]
    by: str | None = None
    num_empty: int = 0  # so far

    def __post_init__(self) -> None:
        for path in self.paths:
            if _suffix(path) not in (*LINES, ".txt"):
                raise UsageError(
                    f"{path}: name it .jsonl (a text in each line) or .txt (one text), or so with .gz or .zst"
                )
            if not storage.exists(path):
                raise UsageError(f"{path}: there is no such file.")
        names = [PurePath(path).name for path in self.paths]
        self._names = [path if names.count(name) > 1 else name for path, name in zip(self.paths, names, strict=True)]

    def __iter__(self) -> Iterator[Text]:
        self.num_empty = 0
        for path, name in zip(self.paths, self._names, strict=True):
            for text in _read(path, name, self.by):
                if text.text:
                    yield text
                else:
                    self.num_empty += 1


def read_texts(paths: str | Sequence[str], by: str | None = None) -> Iterator[Text]:
    """The texts of some files that have a character; see `Texts`, which also counts the others."""
    return iter(Texts([paths] if isinstance(paths, str) else paths, by))


def _suffix(path: str) -> str:
    """The last one that does not say how the file is packed."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in PACKED), "")


def _read(path: str, name: str, by: str | None) -> Iterator[Text]:
    """The texts of a file."""
    if _suffix(path) == ".txt":
        (whole,) = lines(path, b"")
        yield Text(decode_lines(whole, path), name)
        return
    for number, line in text_lines(path):
        yield _of_line(line, f"{path}, line {number}", name, by)


def _of_line(line: str, where: str, name: str, by: str | None) -> Text:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: is no JSON ({error}).") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise UsageError(f'{where}: has no "text" that is a string.')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{where}: its text holds half of a surrogate pair, which is no character.")
    source = record.get(by) if by is not None else None
    if source is None or source == "":
        return Text(text, name)
    if isinstance(source, dict | list):
        raise UsageError(f"{where}: its {by!r} is no name of a source.")
    return Text(text, str(source))


def blocks(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Items some at a time: as many as reach a sum of sizes."""
    block: list[Item] = []
    held = 0
    for item in items:
        block.append(item)
        held += size(item)
        if held >= most:
            yield block
            block, held = [], 0
    if block:
        yield block
