"""A prompt of a task as text: its templates filled with what an item holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from corpus.engine.errors import UsageError
from pretrain.tasks.definition import FIELD, WORD, Prompt, Task
from pretrain.tasks.items import Item

LIST_SEPARATOR = "、"
CLOSING = "。！？；，、….!?;,~～ "


@dataclass(frozen=True)
class Wording:
    """Puts items of a task into words."""

    task: Task
    name: str | None = None  # of the prompt; None: the task's default

    @cached_property
    def prompt(self) -> Prompt:
        """Its templates."""
        return self.task.prompt_named(self.name)

    @cached_property
    def where(self) -> str:
        """For errors."""
        return f"task {self.task.name}, prompt {self.name or self.task.prompt}"

    def fields(self, item: Item) -> dict[str, str]:
        """What templates can name of an item."""
        fields = flat(item.fields)
        for name in self.task.trimmed:
            if name in fields:
                fields[name] = fields[name].rstrip(CLOSING) or fields[name]
        return fields

    def words(self, item: Item) -> list[tuple[str, ...]]:
        """The words of each answer, the first the one that is asked for where only one is."""
        if item.candidates:
            return [(candidate,) for candidate in item.candidates]
        words = self.prompt.words or self.task.words
        return [words[label] for label in self.task.labels]

    def text(self, template: str, fields: Mapping[str, str]) -> str:
        """A template with its fields replaced, once: what an item holds is never taken for a template.

        Raises:
            UsageError: the item has no such field, or it is no text, number or list of those.
        """

        def value(name: str) -> str:
            if name not in fields:
                raise UsageError(f"{self.where}: an item has no text {{{name}}}. It has: {', '.join(fields)}.")
            return fields[name]

        return FIELD.sub(lambda match: value(match[1]), template)

    def answered(self, item: Item) -> tuple[str, str]:
        """An item's context, and what its right answer makes of the rest."""
        fields = self.fields(item)
        answer = {**fields, WORD: self.words(item)[item.choice][0]}
        prompt = self.prompt
        return self.text(prompt.context, fields), self.text(prompt.given, answer) + self.text(prompt.scored, answer)


def flat(fields: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Texts, numbers and lists of those; what an object holds by names with a dot.

    >>> flat({"keyword": ["潜热", "相变"], "target": {"span2_index": 3}, "label0": None})
    {'keyword': '潜热、相变', 'target.span2_index': '3'}
    """
    texts: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            texts |= flat(value, f"{above}{name}.")
        elif isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
            texts[above + name] = LIST_SEPARATOR.join(map(str, value))
        elif isinstance(value, str | int | float):
            texts[above + name] = str(value)
    return texts
