"""FLOPs of a token: by hand, by the published figures, and by what torch counts as it runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pretrain.config import ParallelConfig, load_config
from pretrain.model import GPT
from pretrain.parallel.base import weight_gradients
from pretrain.workload.flops import flops_per_token, hardware_flops_per_token
from tests.pretrain.tiny import tiny_config

TOKENS = torch.arange(32).reshape(2, 16)


def test_flops_of_gpt2_by_hand() -> None:
    model = load_config("gpt2-124m").model
    matrices = 12 * (3 + 1 + 4 + 4) * 768**2 + 50_304 * 768
    assert flops_per_token(model) == 6 * matrices + 12 * 12 * 768 * 1024


def test_yuan_takes_3071_petaflops_days_without_recomputation() -> None:
    """FACTS 1.1: 6 N D of 180 B tokens; the published 4,095 counts the recomputed forward too."""
    model = load_config("yuan-245b").model
    matmul_only = flops_per_token(model) - 12 * model.num_layers * model.hidden_size * model.sequence_length
    assert matmul_only * 180e9 / 8.64e19 == pytest.approx(3071, rel=2e-3)


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
@pytest.mark.parametrize(
    "parallel",
    [
        {"recompute": "none"},
        {"recompute": "selective"},
        {"recompute": "full"},
        {"recompute": "full", "recompute_every": 2},
        {"recompute": "selective", "pp": 2, "schedule": "zero-bubble"},
        {"recompute": "full", "pp": 2, "schedule": "zero-bubble"},
    ],
)
def test_products_are_as_torch_counts_them(parallel: dict[str, Any], activation: str) -> None:
    """Of attention torch counts nothing on a CPU: its share of ours, 4 H K T a token and layer, is left out here."""
    config = ParallelConfig(**parallel)
    model = tiny_config(model={"activation": activation, "num_layers": 3}).model
    gpt = GPT(model, recompute=config.recompute, recompute_every=config.recompute_every)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.fill_(0.01)
    left: list[weight_gradients.DeferredWeightGradient] = []
    weight_gradients.defer_weight_gradients(left if config.pp > 1 else None, gpt)
    with FlopCounterMode(display=False) as counter:
        gpt.cross_entropy_sum(gpt(TOKENS), TOKENS).backward()
        weight_gradients.accumulate_weight_gradients(left)
    attention = 4 * model.hidden_size * model.sequence_length
    num_recomputed = len(range(0, 3, config.recompute_every)) if config.recompute == "full" else 0
    expected = hardware_flops_per_token(model, config) - attention * (3 * 3 + num_recomputed)
    assert counter.get_total_flops() / TOKENS.numel() == expected
