"""Learning rates, parameter groups, and the norm that clips."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pretrain.config import ModelConfig, OptimizerConfig, ParallelConfig, ScheduleConfig
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.parallel.base.params import param_specs
from pretrain.training.optim import clip_grad_norm, create_state, learning_rate, new_optimizer
from tests.pretrain.tiny import tiny_config

MODEL = tiny_config(model={"bias": True, "norm": "layernorm"}).model


def new_parameters(config: ModelConfig = MODEL) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return {s.name: nn.Parameter(torch.randn(s.shape, generator=generator)) for s in param_specs(config)}


def test_cosine_falls_from_the_peak_to_its_final_ratio() -> None:
    schedule = ScheduleConfig(kind="cosine", warmup_steps=10, final_ratio=0.1)
    rates = [learning_rate(2.0, schedule, step, 110) for step in range(110)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert rates[59] == pytest.approx(2.0 * (0.1 + 0.9 / 2))  # half way down
    assert rates[-1] == pytest.approx(0.2)
    short = ScheduleConfig(kind="cosine", decay_steps=5, final_ratio=0.25)
    assert [learning_rate(1.0, short, step, 100) for step in (4, 99)] == pytest.approx([0.25] * 2), "it stays there"


def test_wsd_and_constant() -> None:
    wsd = ScheduleConfig(kind="wsd", warmup_steps=2, final_ratio=0.0)
    rates = [learning_rate(1.0, wsd, step, 100) for step in range(100)]
    assert rates[1:90] == [1.0] * 89
    assert rates[90:] == pytest.approx([1 - (step + 1) / 10 for step in range(10)])
    assert {learning_rate(1.0, ScheduleConfig(kind="constant"), step, 9) for step in range(9)} == {1.0}


@given(
    st.sampled_from(["constant", "cosine", "wsd"]),
    st.integers(0, 20),
    st.integers(1, 40),
    st.floats(0, 1),
    st.integers(1, 60),
)
def test_rates_stay_between_zero_and_the_peak(kind: str, warmup: int, decay: int, ratio: float, steps: int) -> None:
    values = {"kind": kind, "warmup_steps": warmup, "decay_steps": decay, "final_ratio": ratio}
    schedule = ScheduleConfig.model_validate(values)
    rates = [learning_rate(1.0, schedule, step, warmup + steps) for step in range(warmup + steps)]
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert all(later <= earlier + 1e-12 for earlier, later in zip(rates[warmup:], rates[warmup + 1 :], strict=False))


@pytest.mark.parametrize("decay_embeddings", [False, True])
def test_only_what_should_decay_decays(decay_embeddings: bool) -> None:
    """With zero gradients AdamW does nothing but decay: lr x weight_decay of each weight."""
    parameters = new_parameters()
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.5, decay_embeddings=decay_embeddings)
    optimizer = new_optimizer(parameters, {}, MODEL, config)
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in parameters.items():
        decays = parameter.dim() == 2 and (decay_embeddings or "embedding" not in name)
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if decays else 1.0))


def test_creating_state_moves_no_weight() -> None:
    parameters = new_parameters()
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    optimizer = new_optimizer(parameters, {}, MODEL, OptimizerConfig(learning_rate=0.1))
    create_state(optimizer)
    for name, parameter in parameters.items():
        assert torch.equal(parameter.detach(), before[name])
        assert set(optimizer.state[parameter]) == {"step", "exp_avg", "exp_avg_sq"}
        assert parameter.grad is None
        assert not optimizer.state[parameter]["step"].any(), "the first update is still the first"
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}


@pytest.fixture
def world() -> Iterator[World]:
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        yield world


def gradients_of(parameters: dict[str, nn.Parameter], scale: float = 1.0) -> dict[str, torch.Tensor]:
    """Gradients that are the weights' values times `scale`."""
    for parameter in parameters.values():
        parameter.grad = parameter.detach() * scale
    return {name: parameter.detach().double() for name, parameter in parameters.items()}


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**16, 2.0**32])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_scales_all_gradients_by_one_factor(max_norm: float, loss_scale: float, world: World) -> None:
    """Copies too, which the norm does not count; and what the loss was multiplied by is taken off, clipped or not."""
    parameters = new_parameters()
    copies = {"embedding.weight": nn.Parameter(parameters["embedding.weight"].detach().clone())}
    gradients = gradients_of(parameters, loss_scale)
    gradients_of(copies, loss_scale)
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
    found = clip_grad_norm(parameters, copies, max_norm, world, loss_scale)
    assert found.total == pytest.approx(norm, rel=1e-6) and found.is_finite_here
    factor = min(1.0, max_norm / norm)
    for name, parameter in [*parameters.items(), *copies.items()]:
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, parameter.detach() * factor, rtol=1e-5, atol=1e-7, msg=name)
