"""What autograd saves, predicted to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from pretrain.config import RunConfig
from pretrain.model.micro_batch import read_micro_batches
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run
from tests.pretrain.workload.saved_tensors import counted_bytes, predicted_bytes

GELU = {"norm": "layernorm", "activation": "gelu", "positions": "learned", "bias": True}


def counted(config: RunConfig) -> int:
    with tiny_run(config) as run:
        micro_batches = read_micro_batches(run.loader, 0, config.training.global_batch_size, config, run.world)
        return counted_bytes(run, next(micro_batches))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"model": GELU},
        {"model": {"num_kv_heads": 2, "tied": False}},
        {"model": {"num_kv_heads": 2, "positions": "learned"}, "training": {"micro_batch_size": 4}},
        {"parallel": {"recompute": "full"}},
        {"parallel": {"recompute": "full", "recompute_every": 2}, "model": {"num_layers": 3}},
    ],
)
def test_of_one_rank(sections: dict[str, Any], precision: str) -> None:
    sections = {**sections, "training": {**sections.get("training", {}), "precision": precision}}
    config = tiny_config(**sections)
    assert predicted_bytes(config) == counted(config)


@pytest.mark.parametrize(
    "sections",
    [
        {"parallel": {"tp": 2}},
        pytest.param({"parallel": {"tp": 2, "sequence_parallel": False}}, marks=pytest.mark.long),
        {"parallel": {"zero": 1}},
    ],
)
def test_of_two_ranks(sections: dict[str, Any]) -> None:
    config = tiny_config(**sections)
    assert reused_ranks(counted, 2, config) == [predicted_bytes(config)] * 2
