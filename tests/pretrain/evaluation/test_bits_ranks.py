"""Evaluation on several ranks: the same bits on every layout, uneven shares included, and training goes on
undisturbed."""

from __future__ import annotations

from typing import Any

import pytest

from pretrain.config import RunConfig
from pretrain.evaluation.bits import evaluate, evaluate_documents
from pretrain.inference.batcher import EvaluationBatcher
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import EOD, tiny_config, tiny_held_out, tiny_run, train_steps

NUM_TOKENS = 105  # 7 windows of 16 in 4 batches of 2, the last of one window


def measure(config: RunConfig, num_steps_between: int) -> dict[str, Any]:
    held_out = tiny_held_out(NUM_TOKENS)
    with tiny_run(config) as run:
        bits, losses = [], []
        for _ in range(2):
            if num_steps_between:
                losses += train_steps(run, num_steps_between)[0]
            how = (EvaluationBatcher.of(config, EOD), 2, run.world.device, run.world)
            stream = evaluate(run.model, held_out, *how)
            alone = evaluate_documents(run.model, held_out.documents(), *how, stride=8)
            bits += [part.bits for whole in (stream, alone) for part in (whole, *whole.by_source.values())]
            run.model.reshard()
        return {"bits": bits, "losses": losses}


@pytest.mark.parametrize(
    ("num_ranks", "sections"),
    [
        (2, {"parallel": {"zero": 3}}),
        (2, {"parallel": {"tp": 2, "sequence_parallel": True}}),
        pytest.param(2, {"parallel": {"pp": 2}}, marks=pytest.mark.long),
        pytest.param(4, {"parallel": {"dp_replicate": 2, "zero": 1}}, marks=pytest.mark.long),
    ],
)
def test_bits_do_not_depend_on_the_ranks(num_ranks: int, sections: dict[str, Any]) -> None:
    model = {"document_mask": True}
    (alone,) = reused_ranks(measure, 1, tiny_config(model=model), 1)
    assert len(alone["bits"]) == 16 and alone["bits"][0] != alone["bits"][8]
    for result in reused_ranks(measure, num_ranks, tiny_config(model=model, **sections), 1):
        assert result["bits"] == pytest.approx(alone["bits"], rel=1e-4)
        assert result["losses"] == pytest.approx(alone["losses"], rel=1e-4), (
            "an evaluation between steps changes nothing"
        )
