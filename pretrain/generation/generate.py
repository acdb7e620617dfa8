"""Texts from a model: prompts go in, pieces of text come out as soon as they are certain, of many texts at a time.

A text starts after an end-of-document token, as every document did in training, and ends with one. The engine knows
nothing of how logits are computed: it asks for the next logits of the texts under way (`NextLogits`), chooses a token
for each (`sampling`), makes text of it (`TextStream`), and lets the next prompt take the place of a text that ended.

| next logits | for |
|---|---|
| `kv_cache.KVCachedModel` | a whole model on one process; each token is computed once |
| `UncachedModel` | what gives logits of whole windows, as the model of a mesh does: each token costs its window |

Both see the same windows. A text that outgrows the model's window is read again from the last half of it, under
positions that begin anew there: a token costs two at most, however long the text. (Taking early tokens out of a cache
one by one is cheaper, and breaks models that learned to attend to the first ones: Xiao et al. 2023.)

To a model that was trained with prefixes (`data.prefix_lm`) the prompt is the prefix: its tokens see each other both
ways, what is generated sees what lies before it.

A token may end inside a character, and a stop string may begin in one token and end in another: what is not certain yet
is held back. Both are decided character by character, so that the text does not depend on how it was cut into tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpus.engine.errors import UsageError
from pretrain.generation.sampling import Draws, Sampling, choose
from pretrain.inference.batcher import EvaluationBatcher

End = Literal["eod", "stop", "length"]


class TextStream:
    """The text of one row of tokens."""

    def __init__(self, piece_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        """`piece_bytes` gives the bytes of a token, `Tokenizer.piece_bytes`.

        Raises:
            UsageError: a stop string is empty.
        """
        if not all(stops):
            raise UsageError("a stop string is empty: nothing would be generated. Leave it out")
        self.stopped = False  # a stop string came: no text follows
        self._piece_bytes = piece_bytes
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def take(self, token: int) -> str:
        """The text that is certain with one more token; bytes that can become no character are U+FFFD."""
        return self._release(self._decoder.decode(self._piece_bytes(token)))

    def end(self) -> str:
        """What was held back; no token follows. Bytes of a cut character are U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True))
        text, self._held = text + self._held, ""
        return text

    def _release(self, new: str) -> str:
        """Add text and take what can no longer be part of a stop string."""
        if self.stopped:
            return ""
        text = self._held + new
        if not self._stops:
            return text
        # the stop that is complete first, as if characters came one by one; of several that end there, the longest
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        first_held = len(text) - max(_overlap(text, stop) for stop in self._stops)
        self._held = text[first_held:]
        return text[:first_held]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are a beginning of the stop string.

    >>> _overlap("白日依山", "山尽"), _overlap("aab", "aabaab"), _overlap("", "x")
    (1, 3, 0)
    """
    return next(size for size in range(min(len(stop) - 1, len(text)), -1, -1) if text.endswith(stop[:size]))


@dataclass(frozen=True)
class Settings:
    """What to make of each prompt."""

    sampling: Sampling
    max_tokens: int = 200  # of each text
    num_samples: int = 1  # texts of each prompt
    stops: tuple[str, ...] = ()  # a text ends before the first of these
    batch_size: int = 16  # texts at a time

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise UsageError(f"max_tokens {self.max_tokens}: it must be 0 or more")
        for name in ("num_samples", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} {getattr(self, name)}: it must be 1 or more")


class Text:
    """One text under way."""

    def __init__(
        self,
        prompt: int,
        sample: int,
        tokens: Sequence[int],
        settings: Settings,
        batcher: EvaluationBatcher,
        stream: TextStream,
    ) -> None:
        """The `sample`-th text of the `prompt`-th prompt, whose tokens are given."""
        self.prompt = prompt
        self.sample = sample
        self.tokens = [batcher.eod, *tokens]  # and what is generated
        self.prefix_length = len(self.tokens)
        self.first = 0  # where its window begins
        self.end: End | None = None if settings.max_tokens else "length"
        self.draws = Draws(settings.sampling, prompt, sample, self.tokens)
        self._max_tokens = settings.max_tokens
        self._eod = batcher.eod
        self._sequence_length = batcher.sequence_length
        self._stream = stream
        self._fit()

    @property
    def generated(self) -> list[int]:
        """The tokens after the prompt, without an end-of-document token."""
        return self.tokens[self.prefix_length :]

    @property
    def window(self) -> list[int]:
        """The tokens that the model sees."""
        return self.tokens[self.first :]

    @property
    def window_prefix(self) -> int:
        """How many tokens of the window were given."""
        return max(0, self.prefix_length - self.first)

    def take(self, token: int) -> str:
        """Go on with a token; returns the text that is certain now, and sets `end` after the last."""
        if token == self._eod:
            self.end = "eod"
            return self._stream.end()
        self.tokens.append(token)
        self._fit()
        text = self._stream.take(token)
        if not self._stream.stopped and len(self.tokens) - self.prefix_length < self._max_tokens:
            return text
        text += self._stream.end()
        self.end = "stop" if self._stream.stopped else "length"
        return text

    def _fit(self) -> None:
        """Begin the window anew with its last half, where it is longer than the model's."""
        if len(self.tokens) - self.first > self._sequence_length:
            self.first = len(self.tokens) - max(1, self._sequence_length // 2)


class Piece(NamedTuple):
    """More of a text; the last of each, which may be empty, says why no more comes."""

    of: Text
    text: str
    end: End | None


NextLogits = Callable[[Sequence[Text]], Tensor]
"""What computes the logits [B, V] of the next tokens of texts under way.

It is asked again and again, each time with texts that have one token more, a new window, or begin; a text that is not
among them has ended.
"""


@torch.no_grad()  # not inference_mode: the caller may go on training
def generate(
    next_logits: NextLogits,
    prompts: Iterable[Sequence[int]],
    settings: Settings,
    batcher: EvaluationBatcher,
    piece_bytes: Callable[[int], bytes],
) -> Iterator[Piece]:
    """The texts of all prompts, piece by piece, as they come; those of one batch take turns.

    Raises:
        WenhaiError: a logit is not a number.
    """
    waiting = (
        Text(prompt, sample, tokens, settings, batcher, TextStream(piece_bytes, settings.stops))
        for prompt, tokens in enumerate(prompts)
        for sample in range(settings.num_samples)
    )
    if not settings.max_tokens:
        yield from (Piece(text, "", text.end) for text in waiting)
    texts: list[Text] = []
    while texts := [*texts, *islice(waiting, settings.batch_size - len(texts))]:
        tokens = choose(next_logits(texts), settings.sampling, [text.draws for text in texts])
        for text, token in zip(texts, tokens, strict=True):
            new = text.take(token)
            if new or text.end is not None:
                yield Piece(text, new, text.end)
        texts = [text for text in texts if text.end is None]


def in_order(pieces: Iterable[Piece], num_samples: int) -> Iterator[tuple[Text, str]]:
    """Whole texts in the order of prompts and their samples: one that has ended waits for those before it."""
    parts: dict[int, list[str]] = {}
    ended: dict[int, Text] = {}
    turn = 0
    for text, new, end in pieces:
        number = text.prompt * num_samples + text.sample
        parts.setdefault(number, []).append(new)
        if end is not None:
            ended[number] = text
        while turn in ended:
            yield ended.pop(turn), "".join(parts.pop(turn))
            turn += 1


class UncachedModel:
    """Next logits by windows, one after the other: for what computes no token alone."""

    def __init__(
        self, last_logits: Callable[..., Tensor], batcher: EvaluationBatcher, device: torch.device | str = "cpu"
    ) -> None:
        """`last_logits` maps a window's tokens [1, T], document ids, prefix ends and positions to logits [1, 1, V]."""
        self._last_logits = last_logits
        self._batcher = batcher
        self._device = device

    def __call__(self, texts: Sequence[Text]) -> Tensor:
        logits = []
        for text in texts:
            tokens = np.array([text.window])
            batch = self._batcher.micro_batch(tokens, tokens, self._device, np.array([text.window_prefix]))
            logits.append(self._last_logits(*batch.inputs[:4])[:, -1])
        return torch.cat(logits)
