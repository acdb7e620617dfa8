"""Stand-ins and shorthands of the tests of generation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pretrain.generation.generate import NextLogits, Settings, Text, UncachedModel, generate, in_order
from pretrain.generation.kv_cache import KVCachedModel
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model import GPT

EOD = 0


def letters(token: int) -> bytes:
    """A letter of each token, for tests that care for tokens alone."""
    return bytes([97 + token % 26])


def texts_of(
    next_logits: NextLogits, prompts: Sequence[Sequence[int]], settings: Settings, batcher: EvaluationBatcher
) -> list[list[int]]:
    """What is generated, in order."""
    pieces = generate(next_logits, prompts, settings, batcher, letters)
    return [text.generated for text, _ in in_order(pieces, settings.num_samples)]


def recomputed(model: GPT, batcher: EvaluationBatcher) -> UncachedModel:
    """The oracle: logits of whole windows by the model's forward."""

    def last_logits(tokens_BT: Tensor, *marks: Tensor | None) -> Tensor:
        logits: Tensor = model(tokens_BT, *marks)[:, -1:]
        return logits

    return UncachedModel(last_logits, batcher)


class Compared:
    """Both ways to the next logits, which must agree each time."""

    def __init__(self, model: GPT, batcher: EvaluationBatcher) -> None:
        self.cached = KVCachedModel(model, batcher)
        self.oracle = recomputed(model, batcher)
        self.num_compared = 0

    def __call__(self, texts: Sequence[Text]) -> Tensor:
        logits_BV = self.cached(texts)
        torch.testing.assert_close(logits_BV, self.oracle(texts), rtol=0, atol=1e-5)
        self.num_compared += len(texts)
        return logits_BV


class Wheel:
    """Logits by which the next token is 1 more than the last, round `size`; what it was shown is kept."""

    def __init__(self, size: int, noise: float = 0.0) -> None:
        self.size = size
        self.noise = noise
        self.seen: list[list[int]] = []
        self.shown: list[list[int] | None] = []  # document ids, prefix ends and positions of the last

    def next_logits(self, batcher: EvaluationBatcher) -> UncachedModel:
        """For the engine."""
        return UncachedModel(self, batcher)

    def __call__(self, tokens: Tensor, *rest: Tensor | None) -> Tensor:
        self.seen.append(tokens[0].tolist())
        self.shown = [None if tensor is None else tensor[0].tolist() for tensor in rest]
        following = torch.nn.functional.one_hot((tokens + 1) % self.size, self.size).float()
        return (following if self.noise else 50.0 * following)[:, -1:]
