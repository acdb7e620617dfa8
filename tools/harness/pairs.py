"""Tasks as the harness asks them: strings of a context and a continuation, and the tokens that it makes of them.

Strings come from our own prompts (`pretrain.tasks`), by decoding their tokens, which is exact: both sides see the same
text, also where a text was cut to fit. The tokens need not be the same:

| | ours | the harness |
|---|---|---|
| boundary | context and continuation are encoded each for itself | encoded together, cut at the context's length |
| white space at the end of a context | stays there | moves to the continuation |
| beginning | the end-of-document token | the same, with `add_bos_token=True`; an empty context is that token alone |
| too long | fields are cut, so that nothing is | left-truncated; never reached with our prompts |

Cut its way, a token that holds characters of both sides costs nothing, and what follows it is scored after a context
that was never there. Where nothing is left of a continuation the harness ends with an error; such items are left out
here and counted.

The files for it: a YAML file for each task, and its items as JSONL, whose strings are complete.

| | contexts of an item | continuations | in the harness' words |
|---|---|---|---|
| label probability | one | the words | multiple choice |
| conditional loss | one for each word | one | multiple choice with several inputs, as Winogrande |
| texts | none | the text | rolling log-likelihood |

YAML holds names of fields alone, no templates, so nothing in a text is taken for one. `target_delimiter` is empty: the
harness would put a space before an answer. Perplexity by words is left out: what stands between white space is a word
to the harness, a Chinese text is one, and the perplexity of one so long overflows and ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.inference.scoring import Continuation, Request
from pretrain.tasks.items import Item
from pretrain.tasks.prompts import Prompted, Prompter
from tokenizer.model import EOD_PIECE, Tokenizer

TEXTS = "texts"
CHOICES = {"output_type": "multiple_choice", "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
ROLLING = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "text",
    "metric_list": [{"metric": "bits_per_byte"}, {"metric": "byte_perplexity"}],
}


class Cut(NamedTuple):
    """Tokens of a pair, as the harness feeds and scores them; the end-of-document token stands before the context."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """An item: a context and a continuation for each answer."""

    item: Item
    prompted: Prompted  # our own request
    contexts: list[str]
    continuations: list[str]
    cuts: list[Cut]
    own: list[Cut]  # the same pairs by our own tokens

    @property
    def num_other_tokens(self) -> int:
        """Pairs whose tokens are not ours."""
        return sum(one != other for one, other in zip(self.cuts, self.own, strict=True))

    @property
    def requests(self) -> list[Request]:
        """The harness' tokens as requests to our model: one for each context, in the order of `cuts`."""
        groups: dict[tuple[int, ...], list[Continuation]] = {}
        for cut in self.cuts:
            groups.setdefault(cut.context, []).append(Continuation(cut.continuation))
        return [Request(context, continuations) for context, continuations in groups.items()]


@dataclass
class Questions:
    """Those of a task."""

    name: str
    asked: list[Question] = field(default_factory=list)
    num_left_out: int = 0  # the harness cannot ask them


def questions(name: str, prompter: Prompter, items: Sequence[Item], tokenizer: Tokenizer) -> Questions:
    """The items of a task, without those that the harness would end at."""
    found = Questions(name)
    for item in items:
        question = _question(prompter.prompted(item), item, tokenizer)
        if question is None:
            found.num_left_out += 1
        else:
            found.asked.append(question)
    return found


def cut_together(tokenizer: Tokenizer, context: str, continuation: str) -> Cut:
    """A pair by the rule of `TemplateLM._encode_pair` and `loglikelihood` of lm_eval.api.model."""
    kept = context.rstrip()
    if not context:
        return Cut((), tuple(tokenizer.encode(continuation)))
    before = tokenizer.encode(kept)
    whole = tokenizer.encode(context + continuation)
    return Cut(tuple(before), tuple(whole[len(before) :]))


def _question(prompted: Prompted, item: Item, tokenizer: Tokenizer) -> Question | None:
    request = prompted.request
    context = tokenizer.decode(request.context)
    found = Question(item, prompted, [], [], [], [])
    for tokens, first in request.continuations:
        found.contexts.append(context + tokenizer.decode(tokens[:first]))
        found.continuations.append(tokenizer.decode(tokens[first:]))
        found.cuts.append(cut_together(tokenizer, found.contexts[-1], found.continuations[-1]))
        found.own.append(Cut((*request.context, *tokens[:first]), tuple(tokens[first:])))
    # at a text that begins with the symbol the harness takes it for its own, and puts none before it
    begins_itself = any(context.startswith(EOD_PIECE) for context in found.contexts)
    return found if all(cut.continuation for cut in found.cuts) and not begins_itself else None


def write_choices(folder: Path, found: Questions) -> str:
    """Write the files of a task; returns the name by which the harness knows it.

    Raises:
        UsageError: the prompt changes both the context and the continuation from answer to answer, and the harness has
            no form for that.
    """
    name = f"wenhai_{found.name}"
    several = [len(set(question.contexts)) > 1 for question in found.asked]
    form = {"doc_to_text": "context", "doc_to_choice": "choices", "doc_to_target": "gold"}
    if any(several):
        if any(len(set(question.continuations)) > 1 for question in found.asked):
            raise UsageError(
                f"task {found.name}: its prompt changes the context and the continuation with the answer, which the "
                f"harness "
                "cannot ask. Choose another --method."
            )
        form = {"doc_to_text": "gold", "doc_to_choice": "choices", "doc_to_target": "continuation"}
    _write(folder, name, CHOICES | form, (_line(question, any(several)) for question in found.asked))
    return name


def write_texts(folder: Path, texts: Sequence[str]) -> str:
    """Write the files of the rolling log-likelihood of texts; returns its name."""
    name = f"wenhai_{TEXTS}"
    _write(folder, name, ROLLING, ({"text": text} for text in texts))
    return name


def _line(question: Question, several_contexts: bool) -> dict[str, Any]:
    answer = {"id": question.item.id, "gold": question.item.choice}
    if several_contexts:
        return {**answer, "choices": question.contexts, "continuation": question.continuations[0]}
    return {**answer, "context": question.contexts[0], "choices": question.continuations}


def _write(folder: Path, name: str, form: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    path = folder.resolve() / f"{name}.jsonl"
    durable.write_bytes(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    described = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        **form,
        "metadata": {"version": 1.0},
    }
    yaml = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in described.items())
    durable.write_bytes(folder / f"{name}.yaml", yaml.encode())
