"""How a program trains, as far as time and memory depend on it: ours, and those that published tables were measured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from corpus.engine.errors import UsageError


@dataclass(frozen=True)
class Software:
    """A program."""

    name: str
    description: str
    operations: Literal["ours", "megatron-2021"]  # the table in `plan.operations`
    gradient_bytes: int  # of a number, as gradients are added up
    state_bytes: int  # of a parameter: weights, gradients and optimizer state, where nothing is sharded
    optimizer_traffic: int  # bytes of a parameter that an update reads and writes
    fuses_accumulation: bool  # the product of a weight's gradient adds to what is there as it ends
    scatters_messages: bool  # each tensor-parallel rank sends its part of what stages pass on (Narayanan et al. 2021)
    waits_for_messages: bool  # a rank computes nothing while it exchanges with its neighbours
    tensor_overlap: float  # share of the backward's tensor-parallel all-reduces that a product of weights hides
    data_overlap: float  # share of the last backward that hides the reduction of gradients


OURS = Software(
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
)
MEGATRON_2021 = Software(
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
)
MEGATRON_2022 = Software(
    name="megatron-2022",
    description="Megatron-LM of Korthikanti et al. 2022: the same operations, all-reduces beside products of weights",
    operations="megatron-2021",
    gradient_bytes=4,
    state_bytes=18,
    optimizer_traffic=48,
    fuses_accumulation=False,
    scatters_messages=True,
    waits_for_messages=True,
    tensor_overlap=1.0,
    data_overlap=0.0,
)
ALL = {software.name: software for software in (OURS, MEGATRON_2021, MEGATRON_2022)}


def find_software(name: str) -> Software:
    """One of `ALL` by name; raises `UsageError`, which lists them."""
    if name not in ALL:
        raise UsageError(f"--software {name}: known are {', '.join(ALL)}")
    return ALL[name]
