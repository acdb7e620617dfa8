"""Bits per character and per byte: what a model pays to predict each character of text it never trained on.

Loss per token cannot be compared across tokenizers (a larger vocabulary has fewer, harder tokens); bits per character
can: the sum of -log2 p over all tokens, over the number of characters (Unicode's code points), or of bytes in UTF-8.
Every token is scored exactly once. The end-of-document tokens are scored, too, and stand for no character, so that
knowing where a text ends is part of the price. Attention is causal throughout, also for a model trained with prefixes:
no token may see itself.

Held-out text is read as in training, as one stream of documents: the first token of all is predicted from an
end-of-document token, as every later document's is. Or each document alone, after an end-of-document token, with no
other in sight.

Text longer than a model's window is scored in windows that slide. A text of N tokens stands behind an end-of-document
token, so that its first token has a context, too. A window takes `length` tokens and is asked for what follows each; of
these targets the last `stride` are new, and the others, which an earlier window has scored, are context. With stride =
length windows do not overlap: the cheapest, as while training, where on average a target has half a window of context.
A smaller stride costs length / stride as much, and leaves every target but those of the first window length - stride
tokens of context at least, and the one before it. The last window ends with the text, so that it is full, too (but for
a text shorter than a window). With stride = length these are the rolling windows of lm-evaluation-harness
(`utils.get_rolling_token_windows`, context_len = 1).

The cost of each token goes to the source of its document, that of an end to the document that it closes, so that the
sources add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pretrain.data import IGNORED_TARGET
from pretrain.evaluation.held_out import Document, HeldOut
from pretrain.evaluation.texts import Text, blocks
from pretrain.inference.batcher import EvaluationBatcher, TokenLosses
from pretrain.parallel.base.mesh import DATA_AXES, World
from tokenizer.model import Tokenizer

ROUNDED_TO = 8  # tokens: windows of nearly the same length share a batch
BATCHES_AHEAD = 64  # whose windows are put in the order of their lengths
MOST_SOURCES = 1000  # that are told apart; those that come later are OTHER
OTHER = "other"
ENCODED_TOGETHER = 64  # texts

Integers = NDArray[np.int64]


class Window(NamedTuple):
    """The targets [first, stop) of a text, by number, and [start, first) before them as context."""

    start: int
    first: int
    stop: int


class Row(NamedTuple):
    """A window of a text, or of a batch: arrays [T], in a batch [B, T]."""

    tokens: Integers
    targets: Integers  # what follows each token; IGNORED_TARGET where it costs nothing
    groups: Integers  # to which each target's cost goes


def windows(num_targets: int, length: int, stride: int) -> Iterator[Window]:
    """The windows of a text, each target in [first, stop) of one.

    >>> [tuple(window) for window in windows(10, length=4, stride=2)]
    [(0, 0, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10)]
    >>> [tuple(window) for window in windows(10, length=4, stride=4)]
    [(0, 0, 4), (4, 4, 8), (6, 8, 10)]

    Raises:
        ValueError: the stride is not from 1 to `length`.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"stride {stride}: it must be from 1 to the window's {length} tokens")
    done = 0
    while done < num_targets:
        stop = min(done + (stride if done else length), num_targets)
        yield Window(max(0, stop - length), done, stop)
        done = stop


def rows(tokens: NDArray[Any], groups: NDArray[Any] | int, eod: int, length: int, stride: int) -> Iterator[Row]:
    """The windows of one text; `groups` has one for each of its tokens, or one for all."""
    before = np.insert(tokens, 0, eod)
    groups = np.broadcast_to(groups, tokens.shape)
    for start, first, stop in windows(len(tokens), length, stride):
        targets = tokens[start:stop].astype(np.int64)
        targets[: first - start] = IGNORED_TARGET
        yield Row(before[start:stop].astype(np.int64), targets, groups[start:stop].astype(np.int64))


def batches(
    found: Iterable[Row], length: int, batch_size: int, eod: int, rank: int = 0, num_ranks: int = 1, shared_by: int = 1
) -> Iterator[Row]:
    """One of `num_ranks` ranks' share of the windows in batches, every rank the same number of them.

    A batch has `batch_size` windows of `length` tokens, or more of shorter ones, of about the same length: the windows
    of BATCHES_AHEAD batches are put in that order. Padding has no target.

    Args:
        found: Windows of at most `length` tokens.
        shared_by: How many ranks share the tokens of a window, of whose number its length is a multiple.
    """
    nothing = Row(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    share: Row | None = None
    number = 0
    for number, members in enumerate(_alike(found, batch_size * length, length, ROUNDED_TO * shared_by), start=1):
        if (number - 1) % num_ranks == rank:
            share = _batch(members, length, eod, ROUNDED_TO * shared_by)
        if number % num_ranks == 0:
            assert share is not None
            yield share
            share = None
    if number % num_ranks:
        yield share or _batch([nothing], length, eod, ROUNDED_TO * shared_by)


def _alike(found: Iterable[Row], batch_tokens: int, length: int, multiple: int) -> Iterator[list[Row]]:
    """Windows of about the same length, together of at most `batch_tokens` tokens with their padding."""
    for block in blocks(found, lambda row: len(row.tokens), BATCHES_AHEAD * batch_tokens):
        block.sort(key=lambda row: -len(row.tokens))  # stable: equal ones stay in their order
        while block:
            most = max(1, batch_tokens // _padded(len(block[0].tokens), length, multiple))
            yield block[:most]
            del block[:most]


def _padded(num_tokens: int, length: int, multiple: int) -> int:
    """Up to a multiple, but not beyond a window, which has a length that its ranks can share."""
    return min(length, max(1, -(-num_tokens // multiple)) * multiple)


def _batch(members: list[Row], length: int, eod: int, multiple: int) -> Row:
    shape = len(members), _padded(max(len(row.tokens) for row in members), length, multiple)
    batch = Row(np.full(shape, eod), np.full(shape, IGNORED_TARGET), np.zeros(shape, dtype=np.int64))
    for number, row in enumerate(members):
        for whole, part in zip(batch, row, strict=True):
            whole[number, : len(part)] = part
    return batch


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


def combine(evaluations: Sequence[Evaluation]) -> Evaluation:
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
        {name: combine(parts) for name, parts in sources.items()},
    )


def largest(by_source: Mapping[str, Evaluation], most: int) -> dict[str, Evaluation]:
    """At most so many sources: those with most characters, the first first, and the rest together as OTHER, the
    last."""
    ordered = sorted(by_source.items(), key=lambda item: (item[0] == OTHER, -item[1].num_characters, item[0]))
    if len(ordered) <= most:
        return dict(ordered)
    return {**dict(ordered[: most - 1]), OTHER: combine([part for _, part in ordered[most - 1 :]])}


def evaluate(
    model: TokenLosses,
    held_out: HeldOut,
    batcher: EvaluationBatcher,
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
    found = rows(held_out.tokens, of_token, held_out.eod, batcher.sequence_length, stride or batcher.sequence_length)
    return sources.costs(_nats(model, found, batcher, micro_batch_size, device, world))


def evaluate_documents(
    model: TokenLosses,
    documents: Iterable[Document],
    batcher: EvaluationBatcher,
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
            tokens = np.append(document.tokens, batcher.eod) if with_ends else document.tokens
            group = sources.add(document, len(tokens))
            yield from rows(tokens, group, batcher.eod, batcher.sequence_length, stride or batcher.sequence_length)

    return sources.costs(_nats(model, found(), batcher, micro_batch_size, device, world))


def encode_batches(texts: Iterable[Text], tokenizer: Tokenizer) -> Iterator[Document]:
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
        return replace(combine(list(parts.values())), by_source=parts)


@torch.no_grad()
def _nats(
    model: TokenLosses,
    found: Iterable[Row],
    batcher: EvaluationBatcher,
    micro_batch_size: int,
    device: torch.device,
    world: World | None,
) -> list[float]:
    """The sum of -ln p of each group's targets, in double precision, over all ranks."""
    nats = torch.zeros(MOST_SOURCES + 1, dtype=torch.float64, device=device)
    rank, num_ranks, shared_by = (world.dp_rank, world.dp_size, world.tp_size) if world else (0, 1, 1)
    for batch in batches(found, batcher.sequence_length, micro_batch_size, batcher.eod, rank, num_ranks, shared_by):
        losses = model.token_losses(batcher.micro_batch(batch.tokens, batch.targets, device))
        nats.index_add_(0, torch.from_numpy(batch.groups).to(device).flatten(), losses.flatten().double())
    found_nats = nats.tolist()
    return world.sum_over(DATA_AXES, *found_nats) if world else found_nats
