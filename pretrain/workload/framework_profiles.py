"""How a program trains, as far as time and memory depend on it: ours, and those that published tables were measured
with.

What is said of Megatron-LM was read in its code of the time (megatron/mpu/layers.py, p2p_communication.py and
model/distributed.py): in April 2021 all-reduces and messages between stages block, gradients are added in kernels of
their own; by October 2021 the all-reduce of a gradient runs beside the product for the weight's, and Korthikanti et al.
2022 say so (their section 6.2). DeepSpeed's stage 3 gathers a checkpointed block's weights three times: to compute it,
to compute it again, and for its gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from corpus.engine.errors import UsageError


@dataclass(frozen=True)
class FrameworkProfile:
    """A program. Bytes are of one parameter."""

    name: str
    description: str
    operations: Literal["ours", "megatron-2021"]  # the table in `workload.operations`
    gradient_bytes: int  # as gradients are added up
    state_bytes: int  # weights, gradients and optimizer state, where nothing is sharded
    optimizer_traffic: int  # that an update reads and writes
    fuses_accumulation: bool  # the product of a weight's gradient adds to what is there as it ends
    scatters_messages: bool  # each tensor-parallel rank sends its part of what stages pass on (Narayanan et al. 2021)
    waits_for_messages: bool  # a rank computes nothing while it exchanges with its neighbours
    tensor_overlap: float  # share of the backward's tensor-parallel all-reduces that a product of weights hides
    data_overlap: float  # share of the last backward that hides the reduction of gradients
    splits_sequence: bool = False  # what `parallel.sequence_parallel` says (Korthikanti et al. 2022)
    shards: bool = False  # data-parallel ranks share what `parallel.zero` says; else each has all of it
    exchanges_ahead: bool = True  # zero 2 and 3: weights and gradients travel while others are computed with
    gathers_to_recompute: bool = False  # zero 3: weights are gathered to compute a block again, and then once more
    fuses_kernels: bool = (
        True  # scale, mask and softmax of the scores in one kernel; bias and GELU; bias, dropout, residual
    )
    fuses_attention: bool = False  # megatron-2021's table with FlashAttention: no scores in memory
    host_traffic: int = 28  # that an update in host memory reads and writes
    update_bytes: int = 0  # of temporaries that an update has
    launches_ahead: bool = True  # kernels are launched while others run; False: each waits for its launch
    seconds_per_launch: float = 0.0  # of a GPU's host for each kernel, beside the cluster's own `seconds_per_operation`


OURS = FrameworkProfile(
    name="ours",
    description="this package: fused attention, no dropout, fp32 weights and gradients in shards",
    operations="ours",
    gradient_bytes=4,
    state_bytes=16,
    optimizer_traffic=28,
    fuses_accumulation=False,
    scatters_messages=False,
    waits_for_messages=False,
    tensor_overlap=0.0,
    data_overlap=1.0,
    splits_sequence=True,
    shards=True,
    seconds_per_launch=8e-6,  # eager torch with autograd: about, not measured
)
MEGATRON_2021 = FrameworkProfile(
    name="megatron-2021",
    description="Megatron-LM of Narayanan et al. 2021: stored attention scores, dropout, fp16 gradients",
    operations="megatron-2021",
    gradient_bytes=2,
    state_bytes=20,
    optimizer_traffic=48,
    fuses_accumulation=False,
    scatters_messages=True,
    waits_for_messages=True,
    tensor_overlap=0.0,
    data_overlap=0.0,
    launches_ahead=False,
)
MEGATRON_2022 = replace(
    MEGATRON_2021,
    name="megatron-2022",
    description="Megatron-LM of Korthikanti et al. 2022: the same operations, all-reduces beside products of weights",
    gradient_bytes=4,
    state_bytes=18,
    tensor_overlap=1.0,
    splits_sequence=True,
)
DEEPSPEED_2021 = replace(
    MEGATRON_2021,
    name="deepspeed-2021",
    description="Megatron-DeepSpeed, fp16: Megatron-LM of 2021 with the optimizer, or with ZeRO-3 everything, "
    "in shards",
    scatters_messages=False,
    shards=True,
    exchanges_ahead=False,
    gathers_to_recompute=True,
)
BLOOM_2022 = replace(
    DEEPSPEED_2021,
    name="bloom-2022",
    description="Megatron-DeepSpeed of BLOOM, bf16: gradients in fp32, reduced after the last backward",
    gradient_bytes=4,
    state_bytes=18,
)
# torch.optim.AdamW of torch 1.x, one operation after the other in fp32: decay 8, first moment 8 + 12, second 8 + 12,
# root 8, division 8, epsilon 8, update 16; beside it gradients to fp32 6, unscaled 8, their norm 4, and weights to fp16
# 6.
DEEPSPEED_2022 = replace(
    DEEPSPEED_2021,
    name="deepspeed-2022",
    description="DeepSpeed 0.5 on Megatron-LM 1.1.5 (ASC22): no fused kernels, updates on the host by an "
    "un-fused AdamW",
    fuses_kernels=False,
    exchanges_ahead=True,
    host_traffic=112,
    update_bytes=8,
)
DEEPSPEED_2023 = replace(
    BLOOM_2022,
    name="deepspeed-2023",
    description="Megatron-DeepSpeed as it ran on Frontier, bf16: fused attention, gradients in fp32",
    fuses_attention=True,
)
MEGATRON_2024 = replace(
    MEGATRON_2022,
    name="megatron-2024",
    description="Megatron-LM of 2024 and what is like it: fused attention, exchanges beside arithmetic, the "
    "optimizer in shards",
    fuses_accumulation=True,
    waits_for_messages=False,
    data_overlap=1.0,
    shards=True,
    fuses_attention=True,
    launches_ahead=True,
)
MEGATRON_2020 = replace(
    MEGATRON_2021,
    name="megatron-2020",
    description="Megatron-LM 1.1.5 (ASC22's baseline): no fused kernels",
    scatters_messages=False,
    fuses_kernels=False,
)
ALL = {
    software.name: software
    for software in (
        OURS,
        MEGATRON_2020,
        MEGATRON_2021,
        MEGATRON_2022,
        MEGATRON_2024,
        DEEPSPEED_2021,
        BLOOM_2022,
        DEEPSPEED_2022,
        DEEPSPEED_2023,
    )
}


def find_software(name: str) -> FrameworkProfile:
    """One of `ALL` by name; raises `UsageError`, which lists them."""
    if name not in ALL:
        raise UsageError(f"--software {name}: known are {', '.join(ALL)}")
    return ALL[name]
