"""Where examples come from: files of JSON lines, or a task's items."""

from __future__ import annotations

import codecs
import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from corpus.engine.durable import canonical_json
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.chat.conversations import Message, NotAnExample, conversation_of, validate_conversation
from pretrain.inference.lines import decode_lines, lines


class Example(NamedTuple):
    """One conversation, and where it was found."""

    messages: tuple[Message, ...]
    source: str  # a file's name, its path where two have that name; or a task's
    line: int  # from 1

    @property
    def id(self) -> bytes:
        """16 bytes that equal conversations share, and no others."""
        return hashlib.sha256(canonical_json(self.messages)).digest()[:16]


@dataclass
class Files:
    """The lines of JSONL files (`.jsonl`, also with `.gz` or `.zst`), each an example of any format we know.

    Args:
        paths: or URLs.
        skip_bad: leave lines out that are no examples, and count them.
    """

    paths: Sequence[str]
    skip_bad: bool = False
    num_skipped: int = 0  # lines that were none, in the last reading

    def __iter__(self) -> Iterator[Example]:
        """Each of them; empty lines are nothing.

        Raises:
            WenhaiError: a line is no example, and they are not to be skipped; or a file cannot be read.
        """
        self.num_skipped = 0
        names = [PurePath(path).name for path in self.paths]
        for path, name in zip(self.paths, names, strict=True):
            name = path if names.count(name) > 1 else name
            for number, line in enumerate(lines(path, b"\n"), start=1):
                if not line.strip():
                    continue
                try:
                    yield Example(_conversation(line, f"{path}, line {number}"), name, number)
                except NotAnExample as error:
                    if not self.skip_bad:
                        raise WenhaiError(
                            f"{path}, line {number}: {error}. Mend the line, or leave such lines out with --skip-bad."
                        ) from error
                    self.num_skipped += 1


@dataclass
class TaskItems:
    """The items of one split of a task, answered rightly."""

    task: str  # a name, or a TOML file
    split: str
    folder: Path  # of all tasks
    num_skipped: int = 0

    def __iter__(self) -> Iterator[Example]:
        """Each of them, in the task's default prompt.

        Raises:
            UsageError: there is no such task or split; or a prompt leaves nothing before the answer.
        """
        from pretrain.tasks.prompts import examples

        for number, (prompt, answer) in enumerate(examples(self.task, self.split, self.folder), start=1):
            try:
                messages = validate_conversation([Message("user", prompt), Message("assistant", answer)])
            except NotAnExample as error:
                raise UsageError(
                    f"task {self.task}, {self.split}, item {number}: {error}. Choose another prompt."
                ) from error
            yield Example(messages, f"{self.task}-{self.split}", number)


Source = Files | TaskItems  # examples that can be read more than once


@dataclass(frozen=True)
class Survey:
    """What one reading of a source found."""

    digest: str  # of its examples in their order
    num_examples: int
    num_skipped: int
    last_held_out: int  # an example is held out if its number (see `number_of`) is not above this; -1: none


def survey(source: Source, share: float = 0.0) -> Survey:
    """Read a source once, so that what is wrong with it is told before anything is written.

    Args:
        share: Of its examples that are held out: those whose numbers are smallest, and one at least. Equal examples
            share a number, and so are all held out or all trained on.
    """
    hasher, numbers = hashlib.sha256(), array("Q")
    for example in source:
        hasher.update(example.id)
        numbers.append(number_of(example.id))
    last = -1
    if share and numbers:
        rank = max(1, round(share * len(numbers))) - 1
        last = int(np.partition(np.frombuffer(numbers, dtype=np.uint64), rank)[rank])
    return Survey(hasher.hexdigest(), len(numbers), source.num_skipped, last)


def number_of(id: bytes) -> int:
    """A number that the content of an example draws, below 2^64."""
    return int.from_bytes(id[:8], "little")


def _conversation(line: bytes, where: str) -> tuple[Message, ...]:
    if line.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        raise NotAnExample(
            "begins a JSON array, and examples stand one a line, as `jq -c '.[]'` writes those of an array"
        )
    try:
        return conversation_of(json.loads(decode_lines(line, where)))
    except (ValueError, RecursionError, WenhaiError) as error:
        if isinstance(error, NotAnExample):
            raise
        raise NotAnExample(f"is no JSON ({str(error).removeprefix(f'{where}: ').rstrip('.')})") from error
