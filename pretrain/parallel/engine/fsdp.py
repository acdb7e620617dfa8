"""Sharded data parallelism by name (ZeRO, Rajbhandari et al. 2020), on torch's FSDP2.

| zero | weights between forward and backward | gradients are reduced | weights gathered a step | in a pipeline |
|---|---|---|---|---|
| 1 | stay whole | once a step | 1 | the same |
| 2 | stay whole | every micro-batch | once a micro-batch | once: they stay whole until the stage's last backward |
| 3 | sharded again after each block | every micro-batch | twice a micro-batch | the same |

Optimizer state is sharded in all three. Where one rank shards, 2 is carried out as 1 (`ParallelConfig.zero_over`). What
is not in a block (embeddings, final norm, head) is gathered once a micro-batch with zero 3 too: used last in the
forward, it is used first in the backward; in a pipeline a backward that lies between the two gives it up, and it is
gathered again.

In a pipeline FSDP2's own order would let the exchanges of its stages follow one another: it gathers in a part's first
forward, behind the arrival of its input, and ends the last backward, whose result the stage before waits for, when all
is reduced. Instead the gathers of zero 1 and 2 begin before a rank awaits its first message (`begin_to_gather`; on the
first rank after its first forward, whose blocks FSDP2 gathers beside each other's arithmetic). And stages send that
result before they wait for the last reductions (`reduce_deferred`): with zero 1 all begin only then, but for the first
stage, which sends nothing; with zero 2 and 3 they begin block by block, and each still waits for the one before.

With `offload` shards, their gradients and so the optimizer's state lie in host memory, with every zero and on one rank
too. On a GPU there is what a step computes with: the gathered weights of the table (whole from the first forward to the
last backward with zero 1 and 2), and with zero 1 the whole gradients until they are reduced. Shards are copied to it
from pinned memory whenever they are gathered, reduced gradients come back beside the backward, and FSDP2 waits for them
at the end of a part's last backward (`FSDPParamGroup.finalize_backward`, `reduce_deferred` included): what follows (the
sum of tied gradients, clipping, the update) reads them on the CPU. Clipping and that sum ask local tensors and gloo
groups, so they need no NCCL for tensors of the CPU (pytorch issue 148532). No arithmetic differs, but for one thing:
weights that nothing else would wrap (one rank, fp32) add up the gradients that a zero-bubble schedule leaves in another
order.

Gradients are summed, not averaged: the loss is already divided by the global number of targets. One rank in fp32 or
fp64 wraps nothing (FSDP2 alone costs 12-14 % there on a CPU); bf16 and fp16 always wrap, because the
wrapper keeps the fp32 master weights and casts, so that one rank computes what many do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from pretrain.config import Precision, Zero
from pretrain.model import GPT
from pretrain.parallel.base.mesh import World
from pretrain.phases import Phases

LOW_PRECISION: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def shard(
    part: GPT, world: World, zero: Zero, precision: Precision, offload: bool = False, always: bool = False
) -> None:
    """Shard each block, then what remains (embeddings, final norm, head), over the data-parallel ranks, in place.

    `offload`: shards and their gradients lie in host memory, and weights are copied to the device when they are
    gathered.
    `always`: also over one rank. Tensor parallelism needs that: it gives each gradient the placement of its parameter.
    """
    low = LOW_PRECISION.get(precision)
    if world.dp_size == 1 and low is None and not offload and not always:
        return
    replicated = world.mesh["dp_replicate"].size() > 1
    mesh = world.mesh["dp_replicate", "dp_shard"] if replicated else world.mesh["dp_shard"]
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)  # x is of the weights' type, rotary angles stay in fp32
    if low is not None:
        policy = replace(policy, param_dtype=low, reduce_dtype=torch.float32)
    where = CPUOffloadPolicy(pin_memory=world.device.type == "cuda") if offload else OffloadPolicy()
    modules: list[nn.Module] = [*part.layers.values(), part]
    for module in modules:
        # the root's weights are used last in the forward and first in the backward: they stay
        reshard = zero == 3 and module is not part
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy, offload_policy=where)
    for module in modules:
        assert isinstance(module, FSDPModule)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
        if world.dp_size > 1:  # alone there is no mean to undo, and FSDP2 would copy all gradients to divide them by 1
            module.set_gradient_divide_factor(1.0)
            _count_communication(module, world.phases)


def begin_to_gather(part: nn.Module, zero: Zero) -> None:
    """Begin to gather what stays whole for a step; the forward of each module waits for its own weights.

    FSDP2 begins in the part's first forward, and behind what the device has to do before it: in a pipeline the arrival
    of the first message, so that the gathers of its stages would follow one another.
    """
    if zero == 3:
        return
    for module in part.modules():
        if isinstance(module, FSDPModule):
            module.unshard(async_op=True)


def before_backward(part: nn.Module, zero: Zero, is_last: bool, pipelined: bool) -> None:
    """Say whether the coming backward reduces its gradients and gives up the gathered weights.

    `is_last`: no other backward of this part follows in the step.
    """
    if isinstance(part, FSDPModule):
        part.set_is_last_backward(is_last or not pipelined)
        part.set_requires_gradient_sync(is_last or zero > 1)
        part.set_reshard_after_backward(is_last or zero == 3 or (zero == 2 and not pipelined))


def before_backward_of_inputs(part: nn.Module, zero: Zero) -> None:
    """The coming backward leaves the weights' gradients for later: reduce nothing. `reduce_deferred` does,
    afterwards."""
    if isinstance(part, FSDPModule):
        part.set_is_last_backward(False)
        part.set_requires_gradient_sync(False)
        part.set_reshard_after_backward(zero == 3)  # the gradient of a weight does not depend on its value


def reduce_deferred(part: nn.Module, zero: Zero, is_last: bool) -> None:
    """Reduce gradients that came outside of autograd, or that backwards have left, and give up the gathered weights.

    After it, if `is_last`, what follows on the device waits for the reductions, as after a part's last backward.
    FSDP2 has no public name for that: these are the calls of torch's own PipelineStage.perform_reduce_grad.
    """
    if not isinstance(part, FSDPModule):
        return
    root: Any = fully_shard.state(part)  # type: ignore[attr-defined]
    groups = [group for state in root._state_ctx.all_states for group in _groups(state)]

    before_backward_of_inputs(part, zero)
    for group in groups:  # all gradients become of the type that they are summed in: one reduction takes one type
        group.post_backward()
    if is_last or zero > 1:
        before_backward(part, zero, is_last, pipelined=True)
        for group in groups:
            group.post_backward()
    root._root_post_backward_final_callback()


def reshard(part: nn.Module) -> None:
    """Give up gathered weights, after forwards that no backward follows."""
    for module in part.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _groups(state: Any) -> list[Any]:
    """A module's groups of parameters: a list in torch 2.13, one or None in 2.11."""
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _count_communication(module: nn.Module, phases: Phases) -> None:
    """Count what FSDP2 sends and waits for as communication, the packing of its messages included.

    FSDP2 has no hook around its waits: these are the four methods of a group of parameters that hold them. On the CPU
    an exchange ends in the method that starts it, unless it was begun ahead; on a GPU it runs beside the arithmetic,
    and the last two of them wait.
    """
    for group in _groups(fully_shard.state(module)):  # type: ignore[attr-defined]
        for name in ("unshard", "post_backward", "wait_for_unshard", "finalize_backward"):
            method = getattr(group, name)
            setattr(group, name, partial(_counted, phases, group, method))


def _counted(phases: Phases, group: Any, method: Callable[..., None], *args: Any, **options: Any) -> None:
    if group.reduce_grads or method.__name__ != "post_backward":
        with phases("communication"):
            method(*args, **options)
    else:  # gradients are added up, and reduced by a later backward
        method(*args, **options)
