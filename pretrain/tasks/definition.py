"""Tasks as data: a TOML file says where the items lie, which answers there are, and how a model is asked.

Those in `definitions/` come with the package, nine of them FewCLUE's and ZeroCLUE's; a user's own is a file of the same
form, named by its path.

A prompt is three templates, one after another: `context`, the same for every answer; `given`, which may name the answer
and costs nothing; `scored`, whose log-likelihood speaks for the answer. So one form holds both ways of asking:

    label probability    context = "{sentence}。这句话的情感是"    scored = "{word}"
    conditional loss     context = "{sentence1}？"    given = "{word}，"    scored = "{sentence2}"

`{field}` and `{field.sub}` are replaced by what the item has there, `{word}` by a word of the answer; a list is joined
with 、. Nothing else can be written in a template, and nothing in an item's text is taken for a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from corpus.engine.config import Strict, load_toml, parse
from corpus.engine.errors import UsageError

NINE = ("eprstmt", "csldcp", "tnews", "iflytek", "ocnli", "bustm", "chid", "csl", "cluewsc")
DEFINITIONS = Path(__file__).with_name("definitions")
WORD = "word"  # the field of a template that is a word of the answer
FIELD = re.compile(r"\{(\w+(?:\.\w+)*)\}")

Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[\w.-]+$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Words = Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
Names = Annotated[tuple[Name, ...], Field(strict=False)]


def fields_of(template: str) -> list[str]:
    """The fields that a template names, in order.

    >>> fields_of("{text}其中{target.span2_text}")
    ['text', 'target.span2_text']
    """
    return FIELD.findall(template)


class Split(Strict):
    """Files of which the first that is there is read; `num_items` are the sizes in which they were published."""

    name: Name
    files: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
    num_items: Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(strict=False)] = ()  # none: any


class Blank(Strict):
    """A mark in a text that stands for the answer: `field` becomes `field.before` and `field.after`."""

    field: Name
    mark: Text


class Prompt(Strict):
    """One way to ask (see above)."""

    context: str = ""
    given: str = ""
    scored: str = "{word}"
    words: dict[str, Words] = {}  # of each label, instead of the task's
    cut: Literal["end", "start"] = "end"  # which side of the context's longest field goes, where an item is too long
    emptied: Names = ()  # fields that a content-free text replaces; none: all those of the context

    @property
    def content_free_fields(self) -> tuple[str, ...]:
        """Fields of the context that a content-free text replaces; none where there is nothing to calibrate."""
        return self.emptied or tuple(dict.fromkeys(fields_of(self.context)))

    @property
    def answer_fields(self) -> set[str]:
        """Fields of what belongs to an answer."""
        return set(fields_of(self.given + self.scored))

    @model_validator(mode="after")
    def _check(self) -> Prompt:
        for part, template in (("context", self.context), ("given", self.given), ("scored", self.scored)):
            if re.search(r"[{}]", FIELD.sub("", template)):
                raise ValueError(f"{part}: a brace without a field. Fields are {{name}} or {{name.sub}}")
        if WORD in fields_of(self.context):
            raise ValueError("context: is the same for all answers and cannot hold {word}; `given` and `scored` can")
        if WORD not in self.answer_fields:
            raise ValueError("neither given nor scored holds {word}: all answers would cost the same")
        if not self.scored:
            raise ValueError("scored: is empty, and all answers would cost nothing")
        for field in self.emptied:
            if field not in fields_of(self.context):
                raise ValueError(f"emptied: the context has no field {{{field}}}")
        return self


class Task(Strict):
    """A question with a right answer, asked of many items."""

    name: Name
    description: Text
    folder: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]  # under the data; the first that is there
    splits: Annotated[tuple[Split, ...], Field(min_length=1, strict=False)]  # in the order in which they are looked for
    split: Name  # which is evaluated
    id: Name  # field that names an item
    label: Name  # field of the right answer: a key of `words`, or a place in `candidates`
    words: dict[str, Words] = {}  # label: the word that stands for it, then others of the same meaning
    unlabelled: tuple[str, ...] = Field((), strict=False)  # labels that say nobody agreed; such items are left out
    candidates: Name | None = None  # field with the item's own answers
    num_candidates: Annotated[int, Field(gt=1)] | None = None
    blank: Blank | None = None
    trimmed: Names = ()  # fields whose closing punctuation is left out, because the prompts put their own
    content_free: tuple[str, ...] = Field(("", "N/A", "空", "，"), strict=False)
    prompts: Annotated[dict[Name, Prompt], Field(min_length=1)]
    prompt: Name  # which of them is meant where none is named

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, in order; of a task whose items have their own answers the places: "0", "1", ..."""
        return tuple(map(str, range(self.num_candidates))) if self.num_candidates else tuple(self.words)

    @property
    def chance(self) -> float:
        """The accuracy of a guess."""
        return 1 / len(self.labels)

    def prompt_named(self, name: str | None = None) -> Prompt:
        """A prompt, or without a name the default; raises `UsageError` where there is none of that name."""
        found = self.prompts.get(name or self.prompt)
        if found is None:
            raise UsageError(f"task {self.name}: no prompt {name!r}; it has {', '.join(self.prompts)}.")
        return found

    @model_validator(mode="after")
    def _check(self) -> Task:
        if (self.candidates is None) != (self.num_candidates is None):
            raise ValueError("candidates and num_candidates belong together")
        if (self.candidates is None) == (not self.words):
            raise ValueError("the answers are either `words` or an item's own `candidates`")
        if len(self.labels) < 2:
            raise ValueError("words: fewer than two answers")
        if self.prompt not in self.prompts:
            raise ValueError(f"prompt: there is no [prompts.{self.prompt}]")
        if self.split not in {split.name for split in self.splits}:
            raise ValueError(f"split: no split is named {self.split}")
        for name, prompt in self.prompts.items():
            if prompt.words and (self.candidates or set(prompt.words) != set(self.words)):
                raise ValueError(f"prompts.{name}.words: not the labels of the task")
            _check_words(f"prompts.{name}.words", prompt.words)
        _check_words("words", self.words)
        return self


def _check_words(where: str, words: dict[str, tuple[str, ...]]) -> None:
    owners: dict[str, str] = {}
    for label, alike in words.items():
        for word in alike:
            if owners.setdefault(word, label) != label or alike.count(word) > 1:
                raise ValueError(f"{where}: {word} stands there twice (of {owners[word]} and of {label})")


def load_tasks(names_or_paths: Iterable[str] = NINE) -> list[Task]:
    """Tasks by name, or by the path of a TOML file (it ends in .toml).

    Raises:
        UsageError: there is no such task or file, the file is not a task's, or two tasks have the same name.
    """
    tasks = [_load(name) for name in names_or_paths]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"tasks: {name} is named twice. Name each once, and give your own a name of its own.")
    return tasks


def _load(name: str) -> Task:
    if name.endswith(".toml"):
        return parse(Task, load_toml(Path(name)), name)
    named = {path.stem: path for path in DEFINITIONS.glob("*.toml")}
    if name not in named:
        raise UsageError(f"task {name}: there is none; {', '.join(sorted(named))}, or the path of a .toml file.")
    return parse(Task, load_toml(named[name]), str(named[name]))
