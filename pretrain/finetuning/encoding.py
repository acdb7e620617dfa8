"""Examples as tokens, of which those of answers count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from pretrain.data.examples import BoolArray
from pretrain.finetuning.sources import Example
from pretrain.finetuning.templates import Template, parts
from tokenizer.model import Ids, Tokenizer

ENCODED_TOGETHER = 256  # examples

TooLong = Literal["error", "drop", "cut"]


class Encoded(NamedTuple):
    """One example."""

    example: Example
    ids: Ids  # [n], without its end-of-document token
    is_counted: BoolArray  # [n + 1], that token included
    num_characters: int
    num_counted_characters: int  # of the answers


@dataclass
class Fit:
    """What becomes of examples that are longer than a row, and how many there were.

    Args:
        num_tokens: A row's, of which an example's end-of-document token is one.
        too_long: "cut" takes tokens from the beginning of its first prompt, of which one stays; an example whose rest is still
            too long is dropped.
    """

    num_tokens: int
    too_long: TooLong
    longest: int = 0  # tokens
    num_longer: int = 0
    num_cut: int = 0

    @property
    def num_dropped(self) -> int:
        return self.num_longer - self.num_cut

    def __call__(self, encoded: Encoded) -> Encoded | None:
        """The example as it fits, or None."""
        self.longest = max(self.longest, len(encoded.is_counted))
        excess = len(encoded.is_counted) - self.num_tokens
        if excess <= 0:
            return encoded
        self.num_longer += 1
        if self.too_long != "cut" or excess >= int(encoded.is_counted.argmax()):
            return None
        self.num_cut += 1
        return encoded._replace(ids=encoded.ids[excess:], is_counted=encoded.is_counted[excess:])


def encode(examples: Iterable[Example], template: Template, tokenizer: Tokenizer) -> Iterator[Encoded]:
    """Examples with their tokens, some at a time: each part of a text is encoded for itself."""
    remaining = iter(examples)
    while block := list(islice(remaining, ENCODED_TOGETHER)):
        spelled = [parts(template, example.messages) for example in block]
        ids = iter(tokenizer.encode_batch([part.text for of_one in spelled for part in of_one]))
        for example, of_one in zip(block, spelled, strict=True):
            own = list(islice(ids, len(of_one)))
            is_counted = np.repeat([part.is_answer for part in of_one], [len(each) for each in own])
            sizes = [len(part.text) for part in of_one]
            num_counted = sum(size for size, part in zip(sizes, of_one, strict=True) if part.is_answer)
            yield Encoded(example, np.concatenate(own), np.append(is_counted, True), sum(sizes), num_counted)
