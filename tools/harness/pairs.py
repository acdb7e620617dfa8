"""Tasks as the harness asks them: strings of a context and a continuation, and the tokens that it makes of them.

Strings come from our own prompts (`pretrain.tasks`), by decoding their tokens, which is exact: both sides see the same
text, also where a text was cut to fit. The tokens need not be the same:

| | ours | the harness |
|---|---|---|
| boundary | context and continuation are encoded each for itself | encoded together, and cut after as many tokens as the context alone has |
| white space at the end of a context | stays there | moves to the continuation |
| beginning | the end-of-document token | the same, with `add_bos_token=True`; an empty context is that token alone |
| too long | fields are cut, so that nothing is | left-truncated; never reached with our prompts |

Cut its way, a token that holds characters of both sides costs nothing, and what follows it is scored after a context
that was never there. Where nothing is left of a continuation the harness ends with an error; such items are left out
here and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pretrain.inference.scoring import Continuation, Request
from pretrain.tasks.items import Item
from pretrain.tasks.prompts import Prompted, Prompter
from tokenizer.model import EOD_PIECE, Tokenizer


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
    is_asked = all(cut.continuation for cut in found.cuts) and not any(map(_begins_itself, found.contexts))
    return found if is_asked else None


def _begins_itself(context: str) -> bool:
    """Whether the harness takes the first characters of a text for the symbol, and puts none before it."""
    return context.startswith(EOD_PIECE)
