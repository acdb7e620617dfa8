"""What the answers of held-out examples cost a model, as it reads them in training: packed, each prompt a prefix to a prefix LM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.data import IGNORED_TARGET, Loader
from pretrain.evaluation.bits import Evaluation
from pretrain.micro_batch import read_micro_batches
from pretrain.parallel.mesh import DATA_AXES, World
from pretrain.reading import TokenLosses
from tokenizer.model import Tokenizer

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
            f"evaluation.max_tokens {max_tokens:,}: a sample of held-out examples has {loader.sequence_length:,} tokens. "
            "Allow more."
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


@torch.no_grad()
def evaluate_answers(model: TokenLosses, held_out: HeldOutAnswers, config: RunConfig, world: World) -> Evaluation:
    """What the answers cost; all ranks ask alike and get the sum."""
    nats = torch.zeros((), dtype=torch.float64, device=world.device)
    num_local = config.training.micro_batch_size
    for first in range(0, held_out.num_samples, num_local * world.dp_size):
        own = (
            held_out.num_samples - first - world.dp_rank * num_local
        )  # of what this rank is given; the rest is padding
        for batch in read_micro_batches(held_out.loader, first, num_local * world.dp_size, config, world):
            batch.targets[max(0, own) :] = IGNORED_TARGET
            nats += model.token_losses(batch).sum(dtype=torch.float64)
    (total,) = world.sum_over(DATA_AXES, nats)
    return Evaluation(total / math.log(2), held_out.num_tokens, held_out.num_characters, held_out.num_bytes)
