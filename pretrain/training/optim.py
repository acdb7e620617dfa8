"""AdamW groups, learning rates over steps, and clipping by the true global norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from pretrain.config import ModelConfig, OptimizerConfig, ScheduleConfig
from pretrain.parallel.base.mesh import AXES, World
from pretrain.parallel.base.params import param_specs

GROUPS = ("embedding", "attention", "mlp", "norm", "head")  # whose gradients' norms are reported


def new_optimizer(
    parameters: Mapping[str, nn.Parameter],
    copies: Mapping[str, nn.Parameter],
    model: ModelConfig,
    config: OptimizerConfig,
    fused: bool = True,
) -> torch.optim.AdamW:
    """AdamW, one kernel for all tensors if fused: matrices decay, norms and biases never do, embeddings (and the output
    matrix) if asked.

    Copies, second storages by the name of their original, are updated as that is.
    """
    decaying = {"matrix", "embedding"} if config.decay_embeddings else {"matrix"}
    kinds = {spec.name: spec.kind for spec in param_specs(model)}
    named = [*parameters.items(), *copies.items()]
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in named if kinds[name] in decaying]},
        {"params": [p for name, p in named if kinds[name] not in decaying], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=fused,
        foreach=False,
    )


def learning_rate(peak: float, schedule: ScheduleConfig, step: int, num_steps: int) -> float:
    """The rate of the update that follows step `step` (from 0).

    Warm-up rises linearly and reaches `peak` at its last step. Then "constant" stays; "cosine" falls over
    `decay_steps` (default: to the end) to `final_ratio` of the peak and stays there; "wsd" stays and falls
    linearly over the last `decay_steps` (default: a tenth of the run) (warm-up, stable, decay: Hu et al.
    2024).

    >>> wsd = ScheduleConfig(kind="wsd", warmup_steps=2, decay_steps=2, final_ratio=0.5)
    >>> [learning_rate(1.0, wsd, step, 6) for step in range(6)]
    [0.5, 1.0, 1.0, 1.0, 0.75, 0.5]
    """
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    if schedule.kind == "cosine":
        length = schedule.decay_steps or num_steps - schedule.warmup_steps
        fallen = 0.5 - 0.5 * math.cos(math.pi * min(1.0, (step + 1 - schedule.warmup_steps) / length))
    elif schedule.kind == "wsd":
        length = schedule.decay_steps or max(1, num_steps // 10)
        fallen = min(1.0, max(0.0, (step + 1 - (num_steps - length)) / length))
    else:
        fallen = 0.0
    return peak * (1.0 - (1.0 - schedule.final_ratio) * fallen)


class GradNorms(NamedTuple):
    """L2 norms of a gradient over all ranks, before clipping and without the loss scale."""

    total: float
    by_group: dict[str, float]  # of `GROUPS` those that have any; their squares add up to the total's
    is_finite_here: bool  # of what this rank holds


@torch.no_grad()
def clip_grad_norm(
    parameters: Mapping[str, nn.Parameter],
    copies: Mapping[str, nn.Parameter],
    max_norm: float,
    world: World,
    loss_scale: float = 1.0,
) -> GradNorms:
    """Divide gradients by the loss scale, and scale them so that their global L2 norm is at most `max_norm`.

    Returns the norms before, the same on all ranks: each number of each gradient is counted by one rank of the world,
    whatever lies where; of what several ranks hold copies of, by the first of them. Whatever is not finite anywhere,
    also in a copy, makes the total so. Then gradients stay as they are.
    """
    gradients = [p.grad for p in (*parameters.values(), *copies.values()) if p.grad is not None]
    counted: dict[str, list[Tensor]] = {group: [] for group in GROUPS}
    others = [_local(p.grad) for p in copies.values() if p.grad is not None]
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            where = counted[group_of(name)] if _counts_here(parameter.grad) else others
            where.append(_local(parameter.grad))
    norms = [get_total_norm(tensors) for tensors in (*counted.values(), others)]  # all, before a GPU is waited for
    own = [float(norm) ** 2 for norm in norms]
    own[-1] *= 0.0  # not a number where a copy is not finite
    squares = world.sum_over(AXES, *own)
    total = math.sqrt(sum(squares)) / loss_scale
    coefficient = (max_norm / total if total > max_norm else 1.0) / loss_scale
    if math.isfinite(total) and coefficient != 1.0:
        torch._foreach_mul_([_local(gradient) for gradient in gradients], coefficient)
    by_group = {group: math.sqrt(square) / loss_scale for group, square in zip(GROUPS, squares, strict=False) if square}
    return GradNorms(total, by_group, all(map(math.isfinite, own)))


def group_of(name: str) -> str:
    """Which of `GROUPS` a parameter is of, by its name. A tied output matrix is the embedding."""
    parts = name.split(".")
    if parts[0] == "layers":
        return "norm" if parts[2].endswith("norm") else parts[2]
    return {"embedding": "embedding", "position_embedding": "embedding", "final_norm": "norm", "head": "head"}[parts[0]]


def _counts_here(gradient: Tensor) -> bool:
    """Whether this rank is the first of those that hold the same part."""
    if not isinstance(gradient, DTensor):
        return True
    coordinate = gradient.device_mesh.get_coordinate()
    assert coordinate is not None
    return all(
        place == 0 or not placement.is_replicate()
        for place, placement in zip(coordinate, gradient.placements, strict=True)
    )


def create_state(optimizer: torch.optim.Optimizer) -> None:
    """Make the optimizer's state tensors exist, placed like their parameters: no step taken, no weight moved.

    So a checkpoint always holds them, also where every step so far was skipped.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for state in optimizer.state.values():
        state["step"].zero_()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
