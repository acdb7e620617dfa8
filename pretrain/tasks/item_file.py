"""What an evaluation has scored so far, on the disk: `OUT/items/TASK.jsonl`.

The first line of a task's file says what it is of: model, tokenizer, definition, data, and the options that change
scores. Each line after it is one prompt of one item, appended when its batch is done. A run that was killed goes on
behind the last whole line; when all is there, the file is written once more in the order of the items, so that it holds
the same bytes however often the run was cut. What only reads scores (calibration, normalisation) is no part of the
first line: the same file answers for all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine import durable
from corpus.engine.errors import DiskError, UsageError, WenhaiError
from pretrain.tasks.calibration import Word

FORMAT = 1


class Unit(NamedTuple):
    """One prompt of an item: the item's own, or a content-free one by its number."""

    item: int  # its line of the file
    content_free: int = -1


Scored = dict[Unit, list[Word]]


class ItemFile:
    """The scores of one task, appended batch by batch. Hold the folder's `RunLock`."""

    def __init__(self, out: Path, task: str, of: Mapping[str, Any]) -> None:
        """Open or begin the file.

        Raises:
            UsageError: it holds the scores of something else, which the message names.
            WenhaiError: it was altered, or the disk refuses.
        """
        self.path = out / "items" / f"{task}.jsonl"
        self.header = {"format": FORMAT, "task": task, "of": dict(of)}
        self.scored: Scored = {}
        if self.path.exists():
            self._read()
        else:
            durable.write_bytes(self.path, durable.canonical_json(self.header) + b"\n")

    def append(self, scored: Mapping[Unit, list[Word]]) -> None:
        """Add what a batch gave, durably."""
        try:
            with open(self.path, "ab") as file:
                file.write(b"".join(_line(unit, words) for unit, words in scored.items()))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DiskError(
                f"{self.path}: cannot be written ({error.strerror}). Free space, then run the same command again: "
                "what is scored is kept."
            ) from error
        self.scored.update(scored)

    def finish(self) -> None:
        """Put the lines into the order of the items."""
        lines = [_line(unit, self.scored[unit]) for unit in sorted(self.scored)]
        data = b"".join([durable.canonical_json(self.header) + b"\n", *lines])
        if self.path.read_bytes() != data:
            durable.write_bytes(self.path, data)

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        first, *lines = whole.split(b"\n")[:-1] or [b"{}"]
        self._compare(durable.parse_json(first, str(self.path)))
        for number, line in enumerate(lines, 2):
            unit, words = _parse(line, f"{self.path}:{number}")
            self.scored[unit] = words
        if len(whole) < len(data):  # a batch that was being written when the run died
            os.truncate(self.path, len(whole))

    def _compare(self, found: Any) -> None:
        if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("of"), dict):
            raise UsageError(f"{self.path}: is no file of scores of this version. Choose another --out.")
        ours, theirs = self.header["of"], found["of"]
        assert isinstance(ours, dict)
        different = [key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)]
        if different:
            listing = ", ".join(
                f"{key} {_short(theirs.get(key))} there and {_short(ours.get(key))} here" for key in different
            )
            raise UsageError(f"{self.path}: holds the scores of something else ({listing}). Choose another --out.")


def _line(unit: Unit, words: Iterable[Word]) -> bytes:
    values: dict[str, Any] = {"index": unit.item, "words": [list(word) for word in words]}
    if unit.content_free >= 0:
        values["content_free"] = unit.content_free
    return durable.canonical_json(values) + b"\n"


def _parse(line: bytes, where: str) -> tuple[Unit, list[Word]]:
    try:
        values = json.loads(line)
        words = [Word(int(c), float(score), int(tokens), int(chars)) for c, score, tokens, chars in values["words"]]
        return Unit(values["index"], values.get("content_free", -1)), words
    except (ValueError, KeyError, TypeError) as error:
        raise WenhaiError(f"{where}: was altered. Remove the file, and run the same command again.") from error


def _short(value: Any) -> str:
    """A value of the first line; of digests their beginning."""
    text = str(value)
    return text[:12] if len(text) == 64 else text
