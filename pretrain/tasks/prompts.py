"""Items as requests to a model: a prompt's templates filled, as tokens, within the model's window.

The three parts of a prompt (see `definition`) are encoded each for itself, and examples each for itself too. So the
tokens before an answer are the same whatever the answer is, and all of an answer is scored. A program that encodes the
whole text and cuts it where the context would have ended loses an answer's first characters to a token that holds both
(with 需要 + 的, all of it).

Where it is too long for the window, examples are left out, the longest first, so that as many as possible stay. If it
still is, the longest field of the item loses its end (or its beginning, where the prompt says so): the question stays
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine.errors import UsageError
from pretrain.inference.scoring import Continuation, Request
from pretrain.tasks.definition import FIELD, WORD, Prompt, Task, fields_of, load_tasks
from pretrain.tasks.items import Item, read_items
from tokenizer.model import Tokenizer

LIST_SEPARATOR = "、"
CLOSING = "。！？；，、….!?;,~～ "
SEPARATOR = "\n"  # between examples; no token but its own holds one, so that parts can be encoded alone
MAX_KEPT_TEXTS = 1024


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


class Prompted(NamedTuple):
    """An item as one request, whose continuations are the words of all answers."""

    request: Request
    choice_of: list[int]  # of each continuation
    num_characters: list[int]  # of each continuation, that are scored
    num_shots: int  # examples that stand before it
    num_cut: int  # characters of the item that were left out


class Answer(NamedTuple):
    """One word of one choice."""

    choice: int
    word: str
    continuation: Continuation
    num_characters: int  # that are scored


def examples(task: str, split: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The items of a split as (context, right answer), by the prompt `label` where the task has one, else its default.

    Raises:
        UsageError: there is no such task or split, or its file is not as it should be.
    """
    (found,) = load_tasks([task])
    wording = Wording(found, "label" if "label" in found.prompts else None)
    for item in read_items(found, folder, split).items:
        yield wording.answered(item)


@dataclass(frozen=True)
class Prompter:
    """Asks the items of a task in one way. The window (`sequence_length`) holds what the model reads: the end of a
    document, the context, and all but the last token of an answer."""

    task: Task
    tokenizer: Tokenizer
    sequence_length: int
    prompt: str | None = None  # its name; None: the task's default
    expand: bool = False  # ask for every word of an answer, not only the first
    shots: tuple[Item, ...] = ()

    def prompted(self, item: Item, content_free: str | None = None) -> Prompted:
        """The request of an item. With `content_free` that of the item whose context holds this text instead of its
        own, after the same examples, and with the same answers.

        Raises:
            UsageError: the item lacks a field of the prompt, the question alone is longer than the window, or the
                prompt has nothing that could be free of content.
        """
        shots, fields, num_cut = self._fitted(item)
        context_fields = fields
        if content_free is not None:
            emptied = self._asked.content_free_fields
            if not emptied:
                raise UsageError(
                    f"{self._wording.where}: the context holds nothing of an item, so that there is nothing to "
                    "calibrate. Leave calibration out, or choose another prompt."
                )
            context_fields = {**fields, **dict.fromkeys(emptied, content_free)}
        context = [token for shot in shots for token in shot]
        context += self.tokenizer.encode(self._wording.text(self._asked.context, context_fields))
        answers = self._answers(item, fields)
        return Prompted(
            Request(context, [answer.continuation for answer in answers]),
            [answer.choice for answer in answers],
            [answer.num_characters for answer in answers],
            len(shots),
            num_cut,
        )

    @cached_property
    def _wording(self) -> Wording:
        return Wording(self.task, self.prompt)

    @property
    def _asked(self) -> Prompt:
        return self._wording.prompt

    @cached_property
    def _shots(self) -> list[list[int]]:
        return [self.tokenizer.encode("".join([*self._wording.answered(shot), SEPARATOR])) for shot in self.shots]

    def _fitted(self, item: Item) -> tuple[list[list[int]], dict[str, str], int]:
        """The examples that fit before an item, its fields, cut so that it fits, and how many characters that took."""
        fields = self._wording.fields(item)
        room = self.sequence_length - self._num_tokens(fields, self._answers(item, fields))
        shots = list(self._shots)
        while shots and sum(map(len, shots)) > room:
            del shots[max(range(len(shots)), key=lambda place: len(shots[place]))]
        if room >= 0:
            return shots, fields, 0
        before = sum(map(len, fields.values()))
        asked = {*fields_of(self._asked.context), *self._asked.answer_fields} & {*fields}
        for field in sorted(asked, key=lambda name: (-len(fields[name]), name)):
            self._cut(item, fields, field)
            if self._fits(fields, self._answers(item, fields)):
                return shots, fields, before - sum(map(len, fields.values()))
        raise UsageError(
            f"{self._wording.where}: the question without its texts is longer than the {self.sequence_length:,} "
            "tokens that the model reads. Choose a shorter prompt, or another model."
        )

    def _cut(self, item: Item, fields: dict[str, str], field: str) -> None:
        """Shorten one field to the longest beginning (or end) with which the item fits, to nothing where none does."""
        text = fields[field]
        from_start = self._asked.cut == "start" and field in fields_of(self._asked.context)
        longest = max(self._answers(item, fields), key=lambda answer: len(answer.continuation.tokens))

        def keep(num_characters: int) -> None:
            fields[field] = text[len(text) - num_characters :] if from_start else text[:num_characters]

        fewest, most = 0, len(text)
        while fewest < most:
            middle = (fewest + most + 1) // 2
            keep(middle)
            one = self._answer(item, fields, longest.choice, longest.word)  # to ask all of them takes too long here
            fewest, most = (middle, most) if self._fits(fields, [one]) else (fewest, middle - 1)
        keep(fewest)
        while fields[field] and not self._fits(fields, self._answers(item, fields)):
            fewest -= 1
            keep(fewest)

    def _fits(self, fields: Mapping[str, str], answers: Sequence[Answer]) -> bool:
        return self._num_tokens(fields, answers) <= self.sequence_length

    def _num_tokens(self, fields: Mapping[str, str], answers: Sequence[Answer]) -> int:
        """That the model reads: of the end of a document, the context, and the longest answer but for its last."""
        context = self.tokenizer.encode(self._wording.text(self._asked.context, fields))
        return 1 + len(context) + max(len(answer.continuation.tokens) for answer in answers) - 1

    def _answers(self, item: Item, fields: Mapping[str, str]) -> list[Answer]:
        """Every word of every answer."""
        if not item.candidates and self._asked.answer_fields == {WORD}:
            return self._same_answers
        return self._render_answers(item, fields)

    @cached_property
    def _same_answers(self) -> list[Answer]:
        """Those of a prompt in which nothing of an item belongs to an answer."""
        return self._render_answers(Item(0, "", 0, {}), {})

    def _render_answers(self, item: Item, fields: Mapping[str, str]) -> list[Answer]:
        return [
            self._answer(item, fields, choice, word)
            for choice, words in enumerate(self._wording.words(item))
            for word in (words if self.expand else words[:1])
        ]

    def _answer(self, item: Item, fields: Mapping[str, str], choice: int, word: str) -> Answer:
        with_word = {**fields, WORD: word}
        scored = self._wording.text(self._asked.scored, with_word)
        if not scored:
            where = f"{self._wording.where}, item {item.id}"
            raise UsageError(f"{where}: leaves nothing to score, or the window no room for it. Leave the item out.")
        given = self._encode(self._wording.text(self._asked.given, with_word))
        continuation = Continuation([*given, *self._encode(scored)], len(given))
        return Answer(choice, word, continuation, len(scored))

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        """Tokens of a part of an answer: many answers share one of theirs with each other, or with other items."""
        return lru_cache(MAX_KEPT_TEXTS)(self.tokenizer.encode)
