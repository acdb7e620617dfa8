"""Bits per character and per byte: what a model pays to predict each character of text it never trained on.

Loss per token cannot be compared across tokenizers (a larger vocabulary has fewer, harder tokens); bits per character
can: the sum of -log2 p over all tokens, over the number of characters (Unicode's code points), or of bytes in UTF-8.
Every token is scored exactly once. The end-of-document tokens are scored, too, and stand for no character, so that
knowing where a text ends is part of the price. Attention is causal throughout, also for a model trained with prefixes:
no token may see itself.

Held-out text is read as in training, as one stream of documents: the first token of all is predicted from an
end-of-document token, as every later document's is. Or each document alone, after an end-of-document token, with no
other in sight. How far a token sees back is a matter of `windows`: while training they do not overlap; a smaller stride
gives each token more context, and a lower figure, at a higher cost.

The cost of each token goes to the source of its document, that of an end to the document that it closes, so that the
sources add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import torch

from pretrain.evaluation.held_out import Document, HeldOut
from pretrain.evaluation.texts import Text
from pretrain.evaluation.windows import Row, batches, rows
from pretrain.inference.reading import Reading, TokenLosses
from pretrain.parallel.base.mesh import DATA_AXES, World
from tokenizer.model import Tokenizer

MOST_SOURCES = 1000  # that are told apart; those that come later are OTHER
OTHER = "other"
ENCODED_TOGETHER = 64  # texts


@dataclass(frozen=True)
class Evaluation:
    """What text cost a model."""

    bits: float
    num_tokens: int  # that were scored
    num_characters: int
    num_bytes: int  # of the text in UTF-8
    by_source: Mapping[str, Evaluation] = field(default_factory=dict)  # adds up to the whole; of a source itself: none

    @property
    def bits_per_character(self) -> float:
        return self.bits / self.num_characters if self.num_characters else math.nan

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.num_bytes if self.num_bytes else math.nan

    @property
    def loss(self) -> float:
        """Nats per token, as in training; its exponential is the perplexity."""
        return self.bits * math.log(2) / self.num_tokens if self.num_tokens else math.nan


def together(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The cost of several texts as one; what they have of the same source is one, too."""
    sources: dict[str, list[Evaluation]] = {}
    for each in evaluations:
        for name, part in each.by_source.items():
            sources.setdefault(name, []).append(part)
    return Evaluation(
        math.fsum(each.bits for each in evaluations),
        sum(each.num_tokens for each in evaluations),
        sum(each.num_characters for each in evaluations),
        sum(each.num_bytes for each in evaluations),
        {name: together(parts) for name, parts in sources.items()},
    )


def largest(by_source: Mapping[str, Evaluation], most: int) -> dict[str, Evaluation]:
    """At most so many sources: those with most characters, the first first, and the rest together as OTHER, the
    last."""
    ordered = sorted(by_source.items(), key=lambda item: (item[0] == OTHER, -item[1].num_characters, item[0]))
    if len(ordered) <= most:
        return dict(ordered)
    return {**dict(ordered[: most - 1]), OTHER: together([part for _, part in ordered[most - 1 :]])}


def evaluate(
    model: TokenLosses,
    held_out: HeldOut,
    reading: Reading,
    micro_batch_size: int,
    device: torch.device,
    world: World | None = None,
    stride: int | None = None,
) -> Evaluation:
    """What held-out text costs as one stream of documents.

    In a `world` each data-parallel rank takes its share, and all get the sum. All ranks ask the model equally often,
    on padding where the windows do not divide: a sharded model's forward is collective.

    Args:
        micro_batch_size: Windows in a forward.
        stride: New targets of a window, from 1 to its length, which is what None means.
    """
    sources = _Sources()
    documents = list(held_out.documents())
    groups = [sources.add(document, num_tokens=len(document.tokens) + 1) for document in documents]
    of_token = np.repeat(groups, [len(document.tokens) + 1 for document in documents])
    found = rows(held_out.tokens, of_token, held_out.eod, reading.sequence_length, stride or reading.sequence_length)
    return sources.costs(_nats(model, found, reading, micro_batch_size, device, world))


def evaluate_documents(
    model: TokenLosses,
    documents: Iterable[Document],
    reading: Reading,
    micro_batch_size: int,
    device: torch.device,
    world: World | None = None,
    stride: int | None = None,
    with_ends: bool = True,
) -> Evaluation:
    """What documents cost, each alone; they are read as they come, on every rank, and never held all at once.

    Args:
        micro_batch_size: Whole windows in a forward, or more of shorter documents.
        stride: New targets of a window of a long document, from 1 to its length, which is what None means.
        with_ends: Score the end-of-document tokens, too. Without them, and with windows that do not overlap, this is
            the rolling log-likelihood of lm-evaluation-harness.
    """
    sources = _Sources()

    def found() -> Iterator[Row]:
        for document in documents:
            tokens = np.append(document.tokens, reading.eod) if with_ends else document.tokens
            group = sources.add(document, len(tokens))
            yield from rows(tokens, group, reading.eod, reading.sequence_length, stride or reading.sequence_length)

    return sources.costs(_nats(model, found(), reading, micro_batch_size, device, world))


def encoded(texts: Iterable[Text], tokenizer: Tokenizer) -> Iterator[Document]:
    """Texts with their tokens, some at a time."""
    remaining = iter(texts)
    while block := list(islice(remaining, ENCODED_TOGETHER)):
        tokens = tokenizer.encode_batch([text.text for text in block])
        yield from (Document(ids, *text) for ids, text in zip(tokens, block, strict=True))


class _Sources:
    """What the texts of each source hold, in the order in which these appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sizes: list[list[int]] = []  # tokens, characters, bytes

    def add(self, document: Document, num_tokens: int) -> int:
        """Count a document; returns the number of its source."""
        name = document.source
        if name not in self._numbers and len(self._numbers) >= MOST_SOURCES:
            name = OTHER
        group = self._numbers.setdefault(name, len(self._sizes))
        if group == len(self._sizes):
            self._sizes.append([0, 0, 0])
        for place, number in enumerate((num_tokens, len(document.text), len(document.text.encode()))):
            self._sizes[group][place] += number
        return group

    def costs(self, nats: Sequence[float]) -> Evaluation:
        """What they cost; `nats` has what each did, and then zeros."""
        parts = {}
        for name, group in self._numbers.items():
            num_tokens, num_characters, num_bytes = self._sizes[group]
            parts[name] = Evaluation(nats[group] / math.log(2), num_tokens, num_characters, num_bytes)
        return replace(together(list(parts.values())), by_source=parts)


@torch.no_grad()
def _nats(
    model: TokenLosses,
    found: Iterable[Row],
    reading: Reading,
    micro_batch_size: int,
    device: torch.device,
    world: World | None,
) -> list[float]:
    """The sum of -ln p of each group's targets, in double precision, over all ranks."""
    nats = torch.zeros(MOST_SOURCES + 1, dtype=torch.float64, device=device)
    rank, num_ranks, shared_by = (world.dp_rank, world.dp_size, world.tp_size) if world else (0, 1, 1)
    for batch in batches(found, reading.sequence_length, micro_batch_size, reading.eod, rank, num_ranks, shared_by):
        losses = model.token_losses(reading.micro_batch(batch.tokens, batch.targets, device))
        nats.index_add_(0, torch.from_numpy(batch.groups).to(device).flatten(), losses.flatten().double())
    found_nats = nats.tolist()
    return world.sum_over(DATA_AXES, *found_nats) if world else found_nats
