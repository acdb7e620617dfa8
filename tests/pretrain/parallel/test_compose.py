"""Tensor, pipeline and data parallelism together: first weights, tied weights, the norm, what `zero` costs,
evaluation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pretrain.config import RunConfig
from pretrain.evaluation.bits import evaluate
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model.micro_batch import read_micro_batches
from pretrain.parallel.base.params import param_specs
from pretrain.training.optim import clip_grad_norm, group_of
from pretrain.training.step import Run
from tests.pretrain.operations import Operations
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import EOD, VOCAB_SIZE, tiny_config, tiny_held_out, tiny_run, train_steps, whole


def fp64(**sections: Any) -> RunConfig:
    """A tiny run of four layers in double precision."""
    sections["model"] = {"num_layers": 4, **sections.get("model", {})}
    sections["training"] = {"precision": "fp64", **sections.get("training", {})}
    return tiny_config(**sections)


def clip(config: RunConfig, max_norm: float, loss_scale: float) -> dict[str, Any]:
    """The norms that clipping finds, with the gradients of this rank's stages before and after, and the copies'
    after."""
    with tiny_run(config) as run:
        step_without_update(run, loss_scale)
        before = {name: whole(gradient_of(parameter)) for name, parameter in run.parameters.items()}
        norms = clip_grad_norm(run.parameters, run.model.copies, max_norm, run.world, loss_scale)
        after = {name: whole(gradient_of(parameter)) for name, parameter in run.parameters.items()}
        copies = {name: whole(gradient_of(copy)) for name, copy in run.model.copies.items()}
        return {"norm": norms.total, "by_group": norms.by_group, "before": before, "after": after, "copies": copies}


def step_without_update(run: Run, loss_scale: float) -> None:
    batch_size = run.config.training.global_batch_size
    micro_batches = list(read_micro_batches(run.loader, 0, batch_size, run.config, run.world))
    num_tokens = sum(batch.num_targets for batch in micro_batches) * run.world.dp_size
    run.model.step(micro_batches, num_tokens, loss_scale)


def gradient_of(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


@pytest.mark.parametrize(("sequence_parallel", "loss_scale"), [(True, 1.0), (False, 2.0**16)])
def test_the_norm_counts_every_number_once(sequence_parallel: bool, loss_scale: float) -> None:
    """What ranks hold copies of (norms, the tied weight), what they share, and what other stages have."""
    parallel = {"pp": 2, "tp": 2, "sequence_parallel": sequence_parallel}
    config = fp64(model={"num_layers": 2}, parallel=parallel)
    results = reused_ranks(clip, 4, config, 0.1, loss_scale)
    gradients = results[0]["before"] | results[-1]["before"]
    assert len(gradients) == len(param_specs(config.model))
    squares = {name: float((gradient**2).sum()) / loss_scale**2 for name, gradient in gradients.items()}
    expected = math.sqrt(sum(squares.values()))
    assert expected > 0.1
    for result in results:
        assert result["norm"] == pytest.approx(expected, rel=1e-12)
        assert set(result["by_group"]) == {"embedding", "attention", "mlp", "norm"}, "the head is the embedding"
        for group, norm in result["by_group"].items():
            of_group = sum(square for name, square in squares.items() if group_of(name) == group)
            assert norm == pytest.approx(math.sqrt(of_group), rel=1e-12)
        for name, gradient in result["after"].items():
            np.testing.assert_allclose(
                gradient, result["before"][name] * (0.1 / expected / loss_scale), rtol=1e-12, atol=0
            )
    np.testing.assert_array_equal(results[-1]["copies"]["embedding.weight"], results[0]["after"]["embedding.weight"])


def count_collectives(parallel: dict[str, Any]) -> tuple[int, ...]:
    """How often a step of two micro-batches gathers weights and reduces gradients."""
    with tiny_run(tiny_config(parallel=parallel)) as run:
        train_steps(run, 1)
        with Operations() as operations:
            train_steps(run, 1)
        return operations.since("c10d::_allgather_base_", "c10d::_reduce_scatter_base_")


@pytest.mark.parametrize(
    ("num_ranks", "parallel", "gathers", "reductions"),
    [
        (2, {"zero": 1}, 3, 3),  # two blocks and the root are three groups
        (2, {"zero": 2}, 6, 6),
        (2, {"zero": 3}, 10, 6),  # the blocks are gathered again in the backward
        (4, {"pp": 2, "zero": 1}, 2, 2),  # a stage has two groups
        (4, {"pp": 2, "zero": 2}, 2, 4),
        (4, {"pp": 2, "zero": 3}, 6, 4),
        (4, {"pp": 2, "schedule": "zero-bubble", "zero": 1}, 2, 2),
        (4, {"pp": 2, "schedule": "zero-bubble", "zero": 2}, 2, 4),
    ],
)
def test_zero_is_what_its_table_says(num_ranks: int, parallel: dict[str, Any], gathers: int, reductions: int) -> None:
    assert reused_ranks(count_collectives, num_ranks, parallel) == [(gathers, reductions)] * num_ranks


def measure(config: RunConfig) -> dict[str, Any]:
    """Bits of a held-out text between steps, and logits of a window that no number of ranks divides."""
    held_out = tiny_held_out()
    with tiny_run(config) as run:
        losses = train_steps(run, 2)[0]
        reading = EvaluationBatcher.of(config, EOD)
        bits = evaluate(run.model, held_out, reading, 2, run.world.device, run.world).bits
        run.model.reshard()
        window = torch.from_numpy(held_out.tokens[:13].astype(np.int64))[None]
        logits = run.model.last_logits(
            window, *(() if not config.data.prefix_lm else (None, torch.full_like(window, 5)))
        )
        losses += train_steps(run, 1)[0]
        return {"bits": bits, "losses": losses, "logits": logits[..., :VOCAB_SIZE].double().numpy()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_ranks", "sections"),
    [
        (2, {"parallel": {"tp": 2}}),
        (4, {"parallel": {"pp": 2, "schedule": "interleaved", "zero": 3}}),
        (4, {"parallel": {"pp": 2, "tp": 2, "schedule": "zbv", "zero": 1}, "data": {"prefix_lm": True}}),
    ],
)
def test_evaluation_and_logits_are_those_of_one_process(num_ranks: int, sections: dict[str, Any]) -> None:
    sections = {**sections, "model": {"document_mask": True}}
    (alone,) = reused_ranks(measure, 1, fp64(**sections | {"parallel": {}}))
    for result in reused_ranks(measure, num_ranks, fp64(**sections)):
        assert result["bits"] == pytest.approx(alone["bits"], rel=1e-10)
        assert result["losses"] == pytest.approx(alone["losses"], rel=1e-10), (
            "an evaluation between steps changes nothing"
        )
        np.testing.assert_allclose(result["logits"], alone["logits"], atol=1e-8)
