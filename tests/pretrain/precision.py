"""How far losses in bf16 and fp16 are from those in fp32: 20 steps of a tiny model, on several layouts of ranks.

The limits, in units of the roundoff u of a precision (fp16 2^-11, bf16 2^-8), for the tiny model of two layers:

- The first loss is of equal weights. Some 26 roundings lie between a token and its logits (12 a layer, two at the end),
  of independent signs: sqrt(26) u of a logit, whose magnitude is 0.5 or less. The loss is a mean over 128 tokens, of
  magnitude 5.5, in fp32: three deviations are 3 sqrt(26) 0.5 / sqrt(128) / 5.5 u, an eighth of u.
- Weights and their updates are in fp32, from gradients of a relative error of sqrt(26) u or so. What was learned, 1.2
  of 5.5 nats after 20 steps, is off by as much: 5.1 x 1.2 / 5.5 u, rounded up to 2 u. (Not so in deeper models: AdamW
  makes whole steps of gradients that are little but rounding, and of four layers fp16 is no nearer than bf16 after
  three steps; with an epsilon above them, 1e-2, it is again nearer by about the eight times of its roundoff.)
- fp32 itself, summed in another order, is off by 1e-5 or less (`parity.test_quick`): that comes on top.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from pretrain.config import Precision, RunConfig
from pretrain.parallel.engine.pipeline import DTYPES
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

NUM_STEPS = 20
OF_ORDER = 1e-5
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "1 rank": (1, {}),
    "dp 2": (2, {}),
    "pp 2, zero-bubble": (2, {"pp": 2, "schedule": "zero-bubble"}),
    "tp 2 x pp 2": (4, {"tp": 2, "pp": 2}),
    "tp 2 x dp 2": (4, {"tp": 2}),
    "pp 2 x dp 2": (4, {"pp": 2, "zero": 3}),
    "tp 2 x pp 2 x dp 2": (8, {"tp": 2, "pp": 2}),
}


class Agreement(NamedTuple):
    """Losses, and how far they are from those of fp32 on one rank, relative to them; with the limits."""

    losses: list[float]
    first: float
    first_limit: float
    largest: float
    largest_limit: float

    @property
    def is_within(self) -> bool:
        return self.first <= self.first_limit and self.largest <= self.largest_limit


def agreement(layout: str, precision: Precision) -> Agreement:
    """Train, and compare."""
    num_ranks, parallel = LAYOUTS[layout]
    ours, theirs = _losses(num_ranks, _config(precision, parallel)), _losses(1, _config("fp32", {}))
    off = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
    roundoff = torch.finfo(DTYPES[precision]).eps / 2
    return Agreement(ours, off[0], roundoff / 8 + OF_ORDER, max(off), 2 * roundoff + OF_ORDER)


def _config(precision: Precision, parallel: dict[str, Any]) -> RunConfig:
    return tiny_config(training={"precision": precision, "num_steps": NUM_STEPS}, parallel=parallel)


def _losses(num_ranks: int, config: RunConfig) -> list[float]:
    return _trained(num_ranks, config.model_dump_json())


@cache
def _trained(num_ranks: int, config: str) -> list[float]:
    losses, *others = reused_ranks(_train_here, num_ranks, RunConfig.model_validate_json(config))
    assert all(other == losses for other in others), "ranks have different losses"
    return list(losses)


def _train_here(config: RunConfig) -> list[float]:
    with tiny_run(config) as run:
        assert {parameter.dtype for parameter in run.parameters.values()} == {torch.float32}
        return train_steps(run, NUM_STEPS)[0]
