"""Items of a task: JSON lines, read within bounds and checked, so that no accuracy is of a file that is cut off or
another one; and the examples before them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine.errors import UsageError
from pretrain.inference.lines import json_object, text_lines
from pretrain.tasks.definition import Task

MAX_LINE_BYTES = 1 << 20
MAX_ITEMS = 1_000_000


@dataclass(frozen=True)
class Item:
    """One question with its right answer."""

    index: int  # line of the file, from 0
    id: str
    choice: int  # place of the right answer among the task's labels, or among the item's candidates
    fields: Mapping[str, Any]
    candidates: tuple[str, ...] = ()  # its own answers, where the task has such


@dataclass(frozen=True)
class Items:
    """What a file holds."""

    path: Path
    items: list[Item]
    num_unlabelled: int  # lines whose label says that nobody agreed on one; they are left out


def read_items(task: Task, folder: Path, split: str | None = None) -> Items:
    """All items of a split, named as the task names it or by a file's stem; without a name the one that is evaluated.

    Raises:
        UsageError: no split has that name, or none of its files is there; a line is too long, no UTF-8, no JSON object,
            or lacks what an item needs; a label is unknown, or there are none; the number of items is none in which the
            split was published.
    """
    path, published = _find(task, folder, split or task.split)
    items: list[Item] = []
    num_unlabelled = 0
    for number, line in text_lines(str(path), MAX_LINE_BYTES):
        where = f"{path}, line {number}"
        fields = json_object(line, where)
        if fields.get(task.label) in task.unlabelled:
            num_unlabelled += 1
        else:
            items.append(_item(task, number - 1, fields, where))
        if number > MAX_ITEMS:
            raise UsageError(f"{path}: more than {MAX_ITEMS:,} lines. Split it, or take a sample of it.")
    num_items = len(items) + num_unlabelled
    if published and num_items not in published:
        sizes = " or ".join(f"{size:,}" for size in published)
        raise UsageError(
            f"{path}: {num_items:,} items, but this split of {task.name} was published with {sizes}. It is cut off, "
            "or another version: take it anew from where it was published. If it is right, say its number in a task "
            "file of your own."
        )
    if not items:
        raise UsageError(f"{path}: holds no items of {task.name}.")
    return Items(path, items, num_unlabelled)


def _find(task: Task, folder: Path, name: str) -> tuple[Path, tuple[int, ...]]:
    """A split's file, and the sizes in which it was published."""
    files = [(split, file) for split in task.splits for file in split.files]
    wanted = [(split, file) for split, file in files if name in (split.name, Path(file).stem)]
    if not wanted:
        known = list(dict.fromkeys(split.name for split in task.splits))
        raise UsageError(f"task {task.name}: no split {name!r}; it has {', '.join(known)}, and their files by name.")
    for place in task.folder:
        for split, file in wanted:
            if (path := folder / place / file).is_file():
                return path, split.num_items
    looked = ", ".join(file for _, file in wanted)
    raise UsageError(
        f"{folder / task.folder[0]}: none of {looked} is there. Give the folder that holds {task.folder[0]}/ "
        "(of FewCLUE and ZeroCLUE it is datasets/)."
    )


def _item(task: Task, index: int, fields: dict[str, Any], where: str) -> Item:
    if task.label not in fields:
        raise UsageError(
            f"{where}: has no {task.label!r}, the right answer. Accuracy needs labels; the test sets that are "
            "published without them (test.json) cannot be scored here. Name another split."
        )
    label = str(fields[task.label])
    if label not in task.labels:
        raise UsageError(f"{where}: {task.label} {label!r} is none of {_some(task.labels)}.")
    if task.id not in fields:
        raise UsageError(f"{where}: has no {task.id!r}, which names an item of {task.name}.")
    return Item(
        index,
        str(fields[task.id]),
        task.labels.index(label),
        _with_blank(task, fields, where),
        _candidates(task, fields, where),
    )


def _candidates(task: Task, fields: Mapping[str, Any], where: str) -> tuple[str, ...]:
    if task.candidates is None:
        return ()
    found = fields.get(task.candidates)
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise UsageError(f"{where}: {task.candidates} is no list of texts.")
    if len(set(found)) != task.num_candidates:
        raise UsageError(
            f"{where}: {len(set(found))} different {task.candidates}; {task.name} has {task.num_candidates}."
        )
    return tuple(found)


def _with_blank(task: Task, fields: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields, the text before and after the blank in place of the text that holds it."""
    if task.blank is None:
        return fields
    text = fields.get(task.blank.field)
    if not isinstance(text, str) or text.count(task.blank.mark) != 1:
        raise UsageError(f"{where}: {task.blank.field} is no text with one {task.blank.mark}.")
    before, after = text.split(task.blank.mark)
    return {**fields, task.blank.field: {"before": before, "after": after}}


def _some(labels: tuple[str, ...]) -> str:
    shown = ", ".join(labels[:8])
    return shown if len(labels) <= 8 else f"{shown} ... ({len(labels)} labels)"


def draw_shots(items: Sequence[Item], num_shots: int, seed: int) -> tuple[Item, ...]:
    """`num_shots` of the items in random order, of each answer as many as of another as far as that goes.

    The same items, number and seed give the same examples. Answers that have too few items leave their share to others.

    Raises:
        UsageError: fewer items than that.
    """
    if not 0 <= num_shots <= len(items):
        raise UsageError(f"{num_shots} examples: there are {len(items)} to draw from. Ask for no more than that.")
    chance = random.Random(seed)
    by_choice: dict[int, list[Item]] = {}
    for item in chance.sample(items, len(items)):
        by_choice.setdefault(item.choice, []).append(item)
    drawn: list[Item] = []
    while len(drawn) < num_shots:  # one of each answer a round
        for choice in chance.sample(sorted(by_choice), len(by_choice)):
            if by_choice[choice] and len(drawn) < num_shots:
                drawn.append(by_choice[choice].pop())
    chance.shuffle(drawn)
    return tuple(drawn)
