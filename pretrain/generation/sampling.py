"""How the next token is chosen from a model's logits: greedy, or drawn by each text's own generator.

In the order of transformers: repetition penalty, temperature, the k most probable, the most probable up to p. Draws are
made on the CPU in fp64 from numbers that depend on the seed, the prompt's number and the sample's number alone: a text
does not depend on the device, nor on what else is in its batch (but for logits that rounding moves over an edge).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from corpus.engine.errors import UsageError, WenhaiError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.8  # 0 takes the most probable token
    top_k: int = 0  # only the k most probable; 0 for all
    top_p: float = 1.0  # only the fewest most probable whose sum reaches p
    repetition_penalty: float = 1.0  # divides positive logits of tokens that the text has, multiplies negative ones
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0 <= self.temperature < math.inf, "0 (greedy) or a larger number"),
            "top_k": (self.top_k >= 0, "0 (all tokens) or more"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "repetition_penalty": (0 < self.repetition_penalty < math.inf, "above 0; 1 changes nothing"),
            "seed": (0 <= self.seed < 2**63, "0 or more, and below 2**63"),
        }
        for name, (is_inside, wanted) in ranges.items():
            if not is_inside:
                raise UsageError(f"{name} {getattr(self, name)}: it must be {wanted}")


class Draws:
    """What the choice of one text's tokens depends on besides logits."""

    def __init__(self, sampling: Sampling, prompt: int, sample: int, tokens: Sequence[int]) -> None:
        """Of a text that begins with `tokens`: the `sample`-th of the `prompt`-th prompt."""
        self._random = np.random.default_rng((sampling.seed, prompt, sample))
        self._first = tokens
        self._seen: Tensor | None = None

    def uniform(self) -> float:
        """The next number of [0, 1)."""
        return self._random.random()

    def seen(self, vocabulary: int) -> Tensor:
        """Which tokens the text has, bool [V]."""
        if self._seen is None:
            self._seen = torch.zeros(vocabulary, dtype=torch.bool)
            self._seen[list(self._first)] = True
        return self._seen


def choose(logits_BV: Tensor, sampling: Sampling, draws: Sequence[Draws]) -> list[int]:
    """The next token of each row. A tie, also at the edge of k or p, goes to the smaller token.

    Raises:
        WenhaiError: a logit is not a number, or all of a row are -inf.
    """
    is_greedy, penalty = sampling.temperature == 0, sampling.repetition_penalty
    if is_greedy and penalty == 1:
        return _greatest(logits_BV)
    logits_BV = logits_BV.cpu().double()
    if penalty != 1:  # Keskar et al. 2019, section 4.1, with the sign minded as transformers does
        seen_BV = torch.stack([each.seen(logits_BV.shape[1]) for each in draws])
        penalized_BV = torch.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty)
        logits_BV = torch.where(seen_BV, penalized_BV, logits_BV)
    greatest = _greatest(logits_BV)
    tokens = greatest if is_greedy else _draw(logits_BV, sampling, [each.uniform() for each in draws])
    if penalty != 1:
        for each, token in zip(draws, tokens, strict=True):
            each.seen(logits_BV.shape[1])[token] = True
    return tokens


def _greatest(logits_BV: Tensor) -> list[int]:
    """The first of the largest of each row; NaN counts as the largest."""
    values_B, tokens_B = logits_BV.max(dim=-1)
    if not values_B.isfinite().all():
        raise WenhaiError("the model's logits are not finite: its training diverged. Choose an earlier checkpoint.")
    tokens: list[int] = tokens_B.tolist()
    return tokens


def _draw(logits_BV: Tensor, sampling: Sampling, uniforms: Iterable[float]) -> list[int]:
    """A token of each row by the inverse of its cumulative probabilities; candidates are sorted only where p asks for
    it."""
    scaled_BC = (logits_BV - logits_BV.max(dim=-1, keepdim=True).values) / sampling.temperature
    tokens_BC: Tensor | None = None
    if 0 < sampling.top_k < logits_BV.shape[1]:
        tokens_BC = _most_probable(scaled_BC, sampling.top_k)
        scaled_BC = scaled_BC.gather(1, tokens_BC)
    probabilities_BC = scaled_BC.softmax(dim=-1)
    if sampling.top_p < 1:
        probabilities_BC, order_BC = probabilities_BC.sort(dim=-1, descending=True, stable=True)
        before_BC = probabilities_BC.cumsum(dim=-1) - probabilities_BC
        probabilities_BC = torch.where(before_BC < sampling.top_p, probabilities_BC, 0.0)
        tokens_BC = order_BC if tokens_BC is None else tokens_BC.gather(1, order_BC)
    sums_BC = probabilities_BC.cumsum(dim=-1)
    uniforms_B1 = torch.tensor(list(uniforms), dtype=torch.float64)[:, None]
    # the first whose sum is above u times the whole: never one of probability 0, which adds nothing to its sum
    places_B1 = torch.searchsorted(sums_BC, uniforms_B1 * sums_BC[:, -1:], right=True)
    places_B1 = places_B1.clamp(max=sums_BC.shape[1] - 1)
    tokens: list[int] = (places_B1 if tokens_BC is None else tokens_BC.gather(1, places_B1))[:, 0].tolist()
    return tokens


def _most_probable(scores_BV: Tensor, k: int) -> Tensor:
    """The tokens [B, k] of the k largest scores of each row, in the order of tokens; of equals the smaller ones."""
    edge_B1 = scores_BV.topk(k, dim=-1).values[:, -1:]
    is_above_BV, is_edge_BV = scores_BV > edge_B1, scores_BV == edge_B1
    num_free_B1 = k - is_above_BV.sum(dim=-1, keepdim=True)
    kept_BV = is_above_BV | (is_edge_BV & (is_edge_BV.cumsum(dim=-1) <= num_free_B1))
    return kept_BV.nonzero()[:, 1].view(len(scores_BV), k)
