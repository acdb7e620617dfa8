"""The bubble of each schedule on stages that only sleep: what our executor loses, beside the simulator and the
formula."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

from pretrain.config import ModelConfig, ParallelConfig, ScheduleKind
from pretrain.model import GPT
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base import deferred, mesh
from pretrain.parallel.base.schedule import Action, actions, stage_ranks
from pretrain.parallel.base.simulate import simulate
from pretrain.parallel.engine.pipeline import Pipeline
from tools.bench.pretrain.ranks import on_ranks

NUM_RANKS, NUM_MICRO_BATCHES = 4, 8
SCHEDULES: tuple[ScheduleKind, ...] = ("gpipe", "1f1b", "interleaved", "zero-bubble", "zbv")
UNIT = 0.1  # seconds: a message and the executor's own work cost about one ms an action where other programs run too
SECONDS = {"F": UNIT, "I": UNIT, "W": UNIT, "B": 2 * UNIT}  # of one stage
RUNS = 3
MODEL = ModelConfig(num_layers=8, hidden_size=2, num_heads=1, sequence_length=2, padded_vocab_size=128)


class Record(NamedTuple):
    """When an action computed: seconds of a clock that the processes of a machine share. Waiting lies between."""

    action: Action
    start: float
    end: float


def run() -> None:
    """Print a row for each schedule."""
    print(f"bubble, {NUM_RANKS} stages that sleep, {NUM_MICRO_BATCHES} micro-batches: (total - ideal) / ideal")
    print(f"{'':<46}{'measured':>10}{'simulated':>11}{'(p-1)/(vm)':>12}")
    for schedule in SCHEDULES:
        parallel = ParallelConfig(pp=NUM_RANKS, schedule=schedule, zero=1)
        found = measured(parallel)
        formula = (NUM_RANKS - 1) / (parallel.chunks * NUM_MICRO_BATCHES)
        shown = f"{formula:>12.1%}" if schedule in ("gpipe", "1f1b", "interleaved") else ""
        print(f"{schedule:<46}{found:>10.1%}{simulated(parallel):>11.1%}{shown}", flush=True)


def measured(parallel: ParallelConfig) -> float:
    """Of the shortest of several steps: from the first start to the last end, over the time of the busiest rank."""
    by_rank: list[list[list[Record]]] = on_ranks(records, parallel.pp, parallel, SECONDS)
    steps: list[tuple[float, float]] = []
    for of_step in zip(*by_rank, strict=True):
        total = max(rank[-1].end for rank in of_step) - min(rank[0].start for rank in of_step)
        ideal = max(sum(record.end - record.start for record in rank) for rank in of_step)
        steps.append((total, ideal))
    total, ideal = min(steps)
    return total / ideal - 1


def simulated(parallel: ParallelConfig) -> float:
    """What the simulator says of the same durations."""
    lists = actions(parallel.schedule, parallel.pp, parallel.chunks, NUM_MICRO_BATCHES)
    ranks = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    return simulate(lists, ranks, lambda action: SECONDS[action.kind]).bubble


def records(parallel: ParallelConfig, seconds: Mapping[str, float]) -> list[list[Record]]:
    """On one rank: when it computed, in steps after a short one that is not counted."""
    tokens = torch.zeros(1, MODEL.sequence_length, dtype=torch.int64)
    batches = [MicroBatch(tokens, tokens, None, None, None, tokens.numel())] * NUM_MICRO_BATCHES
    steps: list[list[Record]] = []
    with mesh.start(parallel, "cpu", timeout_minutes=1.0) as world, ExitStack() as stack:
        stack.enter_context(patch.object(deferred, "accumulate", _later))
        ranks = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
        parts = {stage: SleepingStage(seconds) for stage, rank in enumerate(ranks) if rank == world.pp_rank}
        pipeline = Pipeline(cast(Mapping[int, GPT], parts), world, parallel, MODEL, "fp32")
        pipeline.step(batches[:1], num_tokens=1)
        for name in ("_forward", "_backward", "_backward_of_weights"):
            stack.enter_context(patch.object(pipeline, name, _recorded(getattr(pipeline, name), steps)))
        for _ in range(RUNS):
            world.any_of(False)  # a barrier
            steps.append([])
            pipeline.step(batches, num_tokens=1)
    return steps


def _recorded(compute: Callable[..., Any], steps: list[list[Record]]) -> Callable[..., Any]:
    def call(step: Any, action: Action, *inputs: Any) -> Any:
        start = time.monotonic()
        value = compute(step, action, *inputs)
        steps[-1].append(Record(action, start, time.monotonic()))
        return value

    return call


class SleepingStage(nn.Module):
    """A stage whose forward and backward take a known time."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__()
        self.seconds = seconds  # by kind of action
        self.deferred: list[Any] | None = None  # set by the pipeline where backwards are cut in two
        self.weight = nn.Parameter(torch.zeros(1, MODEL.sequence_length, MODEL.hidden_size))

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        """x [B, T, D] of the stage before, or tokens."""
        function: Any = _Sleep
        out: Tensor = function.apply(x, self.weight, self)
        return out

    def loss_sum(self, x: Tensor, _: Tensor) -> Tensor:
        """Any scalar."""
        return x.sum()


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stage: SleepingStage) -> Tensor:
        ctx.stage = stage
        time.sleep(stage.seconds["F"])
        return weight.detach().clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        stage: SleepingStage = ctx.stage
        if stage.deferred is None:
            time.sleep(stage.seconds["B"])
        else:
            time.sleep(stage.seconds["I"])
            stage.deferred.append(stage)
        return gradient if ctx.needs_input_grad[0] else None, gradient, None


def _later(left: list[Any]) -> None:
    """`deferred.accumulate` of what sleeping stages have left."""
    for stage in left:
        time.sleep(stage.seconds["W"])
    left.clear()
