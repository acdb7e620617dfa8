"""The second attempt at a step, where gradients are held in other ways than most: nothing of the first is left in
it."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.config import RunConfig
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.training.step import StepResult, train_step
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.test_step import ALL, AT, MATRIX, NUM_STEPS, Fault, assert_same, not_finite, on_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, whole_weights


@pytest.mark.long
@pytest.mark.parametrize(
    "sections",
    [
        {"parallel": {"zero": 1}},  # gradients are added up in whole before they are reduced
        {"parallel": {"zero": 1, "offload": True}},
        {"parallel": {"zero": 3}, "training": {"precision": "bf16"}},
        {"parallel": {"tp": 2, "recompute": "full"}},
        {"parallel": {"pp": 2, "schedule": "zero-bubble"}, "training": {"precision": "bf16"}},  # added up by ourselves
        {"parallel": {"pp": 2, "schedule": "zbv"}, "model": {"num_layers": 4}},
    ],
)
def test_nothing_of_a_failed_attempt_is_left_in_the_next(sections: dict[str, Any]) -> None:
    """Wherever gradients are held: bit for bit."""
    config = tiny_config(**sections)
    found, expected = (on_ranks(config, 2, *faults) for faults in ([Fault(1, MATRIX)], []))
    assert [len(scales) for scales in found.scales] == [1, 1, 2, 1]
    assert not_finite(found).verdict == "transient"
    assert [result.loss for result in found.results] == [result.loss for result in expected.results]
    for ours, theirs in zip(found.weights, expected.weights, strict=True):
        assert_same(ours, theirs)


def nan_backward(config: RunConfig, rank: int, attempts: int) -> tuple[list[StepResult], dict[str, NDArray[Any]]]:
    """The gradient that enters the second layer on one rank is not finite in some attempts of the third step."""
    with tiny_run(config) as run:
        tried: list[int] = []
        original = ParallelModel.step

        def attempt(model: ParallelModel, *args: Any) -> Tensor:
            tried.append(run.state.step)
            return original(model, *args)

        def spoil(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
            if 1 <= tried.count(AT) <= attempts and run.state.step == AT:
                output.register_hook(lambda gradient: gradient * math.nan)  # type: ignore[no-untyped-call]

        for part in run.model.parts.values() if run.world.rank == rank else []:
            if "1" in part.layers:
                part.layers["1"].register_forward_hook(spoil)
        with mock.patch.object(ParallelModel, "step", attempt):
            return [train_step(run) for _ in range(NUM_STEPS)], whole_weights(run)


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_a_backward_that_is_not_finite_under_a_finite_loss(schedule: str) -> None:
    """In bf16 on two stages of two shards: from one rank it is in all shards of its stage, and in those of the stage
    before."""
    config = tiny_config(training={"precision": "bf16"}, parallel={"pp": 2, "zero": 3, "schedule": schedule})
    never, once, always = (reused_ranks(nan_backward, 4, config, 3, attempts) for attempts in (0, 1, ALL))
    for results, weights in always:
        report = results[AT].not_finite
        assert report is not None and math.isfinite(report.loss) and math.isnan(report.grad_norm)
        assert (report.verdict, list(report.hosts), report.samples) == ("data", [0, 1, 2, 3], [])
        assert [result.applied for result in results] == [True, True, False, True]
        assert all(np.isfinite(values).all() for values in weights.values())
    for (results, weights), (_, expected) in zip(once, never, strict=True):
        report = results[AT].not_finite
        assert report is not None and report.verdict == "transient" and results[AT].applied
        assert_same(weights, expected)
