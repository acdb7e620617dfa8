"""Examples as tokens, of which those of answers count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from pretrain.chat.templates import Part, Template, parts
from pretrain.data.examples import BoolArray
from pretrain.finetuning.sources import Example
from tokenizer.model import Ids, Tokenizer

ENCODED_TOGETHER = 256  # examples, or fewer that
CHARACTERS_TOGETHER = 1 << 20  # have so many characters: one line may have 64 MB

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
        too_long: "cut" takes tokens from the beginning of its first prompt, of which one stays; an example whose rest
            is still too long is dropped.
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
    for block in _blocks(examples, template):
        ids = iter(tokenizer.encode_batch([part.text for _, spelled in block for part in spelled]))
        for example, spelled in block:
            own = list(islice(ids, len(spelled)))
            is_counted = np.repeat([part.is_answer for part in spelled], [len(each) for each in own])
            sizes = [len(part.text) for part in spelled]
            num_counted = sum(size for size, part in zip(sizes, spelled, strict=True) if part.is_answer)
            yield Encoded(example, np.concatenate(own), np.append(is_counted, True), sum(sizes), num_counted)


def _blocks(examples: Iterable[Example], template: Template) -> Iterator[list[tuple[Example, list[Part]]]]:
    """Examples with the parts of their texts, so many together as are encoded together."""
    block: list[tuple[Example, list[Part]]] = []
    num_characters = 0
    for example in examples:
        spelled = parts(template, example.messages)
        block.append((example, spelled))
        num_characters += sum(len(part.text) for part in spelled)
        if len(block) == ENCODED_TOGETHER or num_characters >= CHARACTERS_TOGETHER:
            yield block
            block, num_characters = [], 0
    if block:
        yield block
