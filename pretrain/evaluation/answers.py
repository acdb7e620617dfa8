"""What the answers of held-out examples cost a model, as it reads them in training: packed, each prompt a prefix to a
prefix LM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.corpora import Corpus, stream_of
from pretrain.data import IGNORED_TARGET, Loader
from pretrain.data.examples import read_record
from pretrain.evaluation.bits import Evaluation
from pretrain.evaluation.held_out import HeldOut, check_tokenizer, read_held_out
from pretrain.inference.batcher import TokenLosses
from pretrain.model.micro_batch import read_micro_batch
from pretrain.parallel.base.mesh import DATA_AXES, World
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split

READ_TOGETHER = 64  # samples


@dataclass(frozen=True)
class HeldOutAnswers:
    """Samples of examples that a run is not trained on; sizes are those of their answers, tokens with their ends."""

    loader: Loader
    num_samples: int
    num_tokens: int
    num_characters: int
    num_bytes: int


def read_answers(loader: Loader, tokenizer: Tokenizer, max_tokens: int) -> HeldOutAnswers:
    """The examples of a loader, at most `max_tokens` tokens of them with their prompts.

    Raises:
        UsageError: one sample has more tokens.
    """
    num_samples = min(loader.num_samples_per_epoch, max_tokens // loader.sequence_length)
    if not num_samples:
        raise UsageError(
            f"evaluation.max_tokens {max_tokens:,}: a sample of held-out examples has {loader.sequence_length:,} "
            "tokens. Allow more."
        )
    num_tokens = num_characters = num_bytes = 0
    for first in range(0, num_samples, READ_TOGETHER):
        targets = loader.batch(first, min(READ_TOGETHER, num_samples - first)).targets
        for row in targets:
            answers = tokenizer.decode_bytes(row[row != IGNORED_TARGET])
            num_tokens += int((row != IGNORED_TARGET).sum())
            num_characters += len(answers.decode("utf-8", "replace"))
            num_bytes += len(answers)
    return HeldOutAnswers(loader, num_samples, num_tokens, num_characters, num_bytes)


def open_held_out(
    folder: Path, split: str, config: RunConfig, tokenizer: Tokenizer, max_tokens: int
) -> HeldOut | HeldOutAnswers:
    """The documents of one split, `max_tokens` at most; of a folder of examples its answers, read as in training.

    Raises:
        WenhaiError: a shard is missing, damaged or another tokenizer's, or there is nothing to score.
    """
    record = read_record(folder)
    if record is None:
        return read_held_out(folder, split, tokenizer, max_tokens)
    corpus = Corpus(folder.name, folder, open_split(folder, split), record)
    check_tokenizer(corpus.shards, tokenizer)
    seed = config.training.seed
    stream = stream_of(corpus, config.model.sequence_length, seed, verify=True)
    return read_answers(Loader.of([stream], None, config, seed), tokenizer, max_tokens)


@torch.no_grad()
def evaluate_answers(
    model: TokenLosses,
    held_out: HeldOutAnswers,
    config: RunConfig,
    micro_batch_size: int,
    device: torch.device,
    world: World | None = None,
) -> Evaluation:
    """What the answers cost; in a `world` all ranks ask alike and get the sum."""
    nats = torch.zeros((), dtype=torch.float64, device=device)
    rank, num_ranks = (world.dp_rank, world.dp_size) if world else (0, 1)
    for first in range(
        rank * micro_batch_size, held_out.num_samples + rank * micro_batch_size, num_ranks * micro_batch_size
    ):
        batch = read_micro_batch(held_out.loader, first, micro_batch_size, config, device)
        batch.targets[max(0, held_out.num_samples - first) :] = IGNORED_TARGET  # samples of other ranks, or of no one
        nats += model.token_losses(batch).sum(dtype=torch.float64)
    (total,) = world.sum_over(DATA_AXES, nats) if world else (nats.item(),)
    return Evaluation(total / math.log(2), held_out.num_tokens, held_out.num_characters, held_out.num_bytes)
