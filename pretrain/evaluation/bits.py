"""Held-out bits per character: what a model pays to predict each character of text it never trained on.

Loss per token cannot be compared across tokenizers (a larger vocabulary has fewer, harder tokens); bits per
character can: the sum of -log2 p over all tokens of the held-out split, over the number of its characters.
Every token is scored exactly once, the last window being padded; the end-of-document tokens are scored too
and stand for no character, so that knowing where a text ends is part of the price. The first token of all is
predicted from an end-of-document token, as every later document's is. Windows do not overlap, so on average a
token sees half a window of context: a sliding window would flatter the figure at twice the cost or more. Attention is
causal throughout, also for a model trained with prefixes: no token may see itself.

The same text is priced by character unigrams, bigrams and 5-grams (`kneser_ney`). They pay for the ends of documents
as the model does, and for characters they never saw through a uniform distribution over all of Unicode.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.checkpoint import TOKENIZER, load_model, local_folder
from pretrain.data import IGNORED_TARGET, Shard, ShardReader
from pretrain.evaluation.kneser_ney import character_baselines
from pretrain.parallel.mesh import DATA_AXES, World, choose_device
from pretrain.reading import Reading, TokenLosses
from pretrain.staging import staged
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split

MAX_HELD_OUT_TOKENS = 10_000_000  # more would cost memory and time and move the third digit
MAX_BASELINE_TOKENS = 4_000_000  # of training text: some 15 seconds and 1 GB


@dataclass(frozen=True)
class HeldOut:
    """Whole documents: their tokens one after another, each closed by `eod`, and their texts."""

    tokens: NDArray[Any]
    texts: list[str]
    eod: int

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))


@dataclass(frozen=True)
class Evaluation:
    """What the held-out text cost a model."""

    bits: float
    num_tokens: int
    num_characters: int

    @property
    def bits_per_character(self) -> float:
        return self.bits / self.num_characters

    @property
    def loss(self) -> float:
        """Nats per token, as in training."""
        return self.bits * math.log(2) / self.num_tokens


def read_held_out(data: Path, split: str, tokenizer: Tokenizer, max_tokens: int = MAX_HELD_OUT_TOKENS) -> HeldOut:
    """Whole documents of one split: all, or an equal share of each shard where they exceed `max_tokens`.

    Raises:
        ShardError: a shard is missing or damaged.
        UsageError: it is another tokenizer's, or the documents hold no character.
    """
    shards = open_split(data, split)
    for shard in shards:
        if shard.tokenizer_sha256 != tokenizer.sha256:
            raise UsageError(f"{shard.meta_path}: was not encoded with {tokenizer.path}. Name its tokenizer.")
    tokens = leading_documents([ShardReader(shard) for shard in shards], max_tokens)
    documents = split_documents(tokens, tokenizer.eod)
    found = HeldOut(tokens, [tokenizer.decode(ids) for ids in documents], tokenizer.eod)
    if found.num_characters == 0:
        raise UsageError(
            f"{data}: the {split} split has no text in documents of up to {max_tokens:,} tokens. Allow more of them, "
            "or encode with a larger share held out."
        )
    return found


@torch.no_grad()
def evaluate(
    model: TokenLosses,
    held_out: HeldOut,
    reading: Reading,
    micro_batch_size: int,
    device: torch.device,
    world: World | None = None,
) -> Evaluation:
    """Score every held-out token once.

    In a `world` each data-parallel rank takes its share, and all get the sum. All ranks ask the model equally often,
    on padding where the windows do not divide: a sharded model's forward is collective.
    """
    rank, num_ranks = (world.dp_rank, world.dp_size) if world else (0, 1)
    nats = torch.zeros((), dtype=torch.float64, device=device)
    for tokens, targets in rank_batches(held_out, reading.sequence_length, micro_batch_size, rank, num_ranks):
        nats += model.token_losses(reading.micro_batch(tokens, targets, device)).sum(dtype=torch.float64)
    (total,) = world.sum_over(DATA_AXES, nats) if world else [nats.item()]
    return Evaluation(total / math.log(2), len(held_out.tokens), held_out.num_characters)


def together(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The cost of several held-out texts as one."""
    return Evaluation(
        sum(each.bits for each in evaluations),
        sum(each.num_tokens for each in evaluations),
        sum(each.num_characters for each in evaluations),
    )


def rank_batches(
    held_out: HeldOut, sequence_length: int, micro_batch_size: int, rank: int, num_ranks: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The (tokens, targets) batches [micro_batch_size, T] of one rank; padding has the target IGNORED_TARGET."""
    num_tokens = len(held_out.tokens)
    batch_tokens = micro_batch_size * sequence_length
    stream = np.insert(held_out.tokens, 0, held_out.eod)
    for first in range(0, num_tokens, batch_tokens * num_ranks):
        start = min(first + rank * batch_tokens, num_tokens)
        stop = min(start + batch_tokens, num_tokens)
        tokens = np.full(batch_tokens, held_out.eod, dtype=np.int64)
        targets = np.full(batch_tokens, IGNORED_TARGET, dtype=np.int64)
        tokens[: stop - start] = stream[start:stop]
        targets[: stop - start] = stream[start + 1 : stop + 1]
        shape = (micro_batch_size, sequence_length)
        yield tokens.reshape(shape), targets.reshape(shape)


def leading_documents(shards: Sequence[Shard], max_tokens: int) -> NDArray[Any]:
    """Whole documents from the start of each shard, `max_tokens` at most; shards hold theirs in seeded order."""
    parts: list[NDArray[Any]] = [np.empty(0, dtype=np.uint16)]
    remaining = max_tokens
    for num_before, shard in enumerate(sorted(shards, key=lambda shard: shard.num_tokens)):
        share = remaining // (len(shards) - num_before)  # what small shards leave, larger ones may take
        tokens = shard.tokens(0, min(shard.num_tokens, share))
        ends = np.flatnonzero(tokens == shard.eod)
        parts.append(tokens[: ends[-1] + 1 if len(ends) else 0])
        remaining -= len(parts[-1])
    return np.concatenate(parts)


def split_documents(tokens: NDArray[Any], eod: int) -> list[NDArray[Any]]:
    """The documents of a stream in which each is closed by `eod`, without it."""
    ends = np.flatnonzero(tokens == eod)
    return [part[:-1] for part in np.split(tokens, ends + 1)[:-1]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain evaluate`."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL of a run")
    parser.add_argument("--data", required=True, help="a folder, or URL, with token shards of the same tokenizer")
    parser.add_argument("--split", default="validation", help="which of its documents (default: validation)")
    parser.add_argument("--max-tokens", type=int, default=MAX_HELD_OUT_TOKENS, metavar="N")
    parser.add_argument("--micro-batch-size", type=int, default=8, metavar="B")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")


def main(args: argparse.Namespace) -> None:
    """Print what the held-out text costs a checkpoint and the character models."""
    for option in ("max_tokens", "micro_batch_size"):
        if getattr(args, option) < 1:
            raise UsageError(f"--{option.replace('_', '-')} {getattr(args, option)}: it must be 1 or more")
    device = choose_device(args.device)
    folder = local_folder(args.checkpoint)
    model, config = load_model(folder)
    tokenizer = Tokenizer(folder / TOKENIZER)
    with staged(config.data, {"": args.data}) as places:
        held_out = read_held_out(places[""], args.split, tokenizer, args.max_tokens)
        train_texts = read_held_out(places[""], config.data.train_split, tokenizer, MAX_BASELINE_TOKENS).texts
    result = evaluate(model.to(device), held_out, Reading.of(config, tokenizer.eod), args.micro_batch_size, device)
    baselines = character_baselines(train_texts, held_out.texts)
    values: dict[str, float] = {
        "bits_per_character": result.bits_per_character,
        **{f"{name}_bits_per_character": bits for name, bits in baselines.items()},
        "loss": result.loss,
        "num_tokens": result.num_tokens,
        "num_characters": result.num_characters,
    }
    if args.json:
        print(json.dumps(values))
    else:
        for name, value in values.items():
            print(f"{name:28} {value:,}" if isinstance(value, int) else f"{name:28} {value:.4f}")
