"""Sharded data parallelism by name (ZeRO, Rajbhandari et al. 2020), on torch's FSDP2.

| zero | weights between forward and backward | gradients are reduced | weights gathered a step |
|---|---|---|---|
| 1 | stay whole | once a step | 1 |
| 2 | stay whole | every micro-batch | once a micro-batch |
| 3 | sharded again after each block | every micro-batch | twice a micro-batch |

Optimizer state is sharded in all three. Gradients are summed, not averaged: the loss is already divided by
the global number of targets. One rank in fp32 wraps nothing (FSDP2 alone costs 12-14 % there on a CPU); bf16
always wraps, because the wrapper keeps the fp32 master weights and casts, so that one rank computes what many
do.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from pretrain.config import Precision, Zero
from pretrain.model import GPT
from pretrain.parallel.mesh import World


def shard(model: GPT, world: World, zero: Zero, precision: Precision) -> None:
    """Shard each block, then what remains (embeddings, final norm, head), over the data-parallel ranks, in place."""
    if world.dp_size == 1 and precision == "fp32":
        return
    replicated = world.mesh["dp_replicate"].size() > 1
    mesh = world.mesh["dp_replicate", "dp_shard"] if replicated else world.mesh["dp_shard"]
    policy = MixedPrecisionPolicy()
    if precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    modules: list[nn.Module] = [*model.layers.values(), model]
    for module in modules:
        # the root's weights are used last in the forward and first in the backward: they stay
        reshard = zero == 3 and module is not model
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    for module in modules:
        assert isinstance(module, FSDPModule)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum


def before_micro_batch(model: nn.Module, zero: Zero, is_last: bool) -> None:
    """Say whether the coming backward reduces its gradients and gives up the gathered weights."""
    if isinstance(model, FSDPModule):
        now = is_last or zero > 1
        model.set_requires_gradient_sync(now)
        model.set_reshard_after_backward(now)


def reshard(model: nn.Module) -> None:
    """Give up gathered weights, after forwards that no backward follows."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
