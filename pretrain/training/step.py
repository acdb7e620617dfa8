"""One training step: it fits one screen, and is a function of the configuration and of counters.

The loss is the sum over target tokens divided by their number in the global batch, known before the first
backward: it does not depend on micro-batches or ranks, nor on the size of the batch where that ramps up.

Nothing that is not finite reaches a weight. Loss and gradient norm are sums over the world, so that all ranks decide
alike, and the batch is computed again at once, never skipped unseen:

| loss | gradient | what follows |
|---|---|---|
| finite | not, in fp16 | an overflow: again with half the loss scale, until that is 1 |
| otherwise not finite | | again, once; finite then: "transient", of the hardware; the step is applied |
| again not finite | | "data": of the batch or the weights; the step changes nothing |
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from pretrain.batch_size import check_batch_sizes
from pretrain.config import RunConfig
from pretrain.data import Loader
from pretrain.model.micro_batch import MicroBatch, read_micro_batches
from pretrain.parallel.base.mesh import AXES, DATA_AXES, World
from pretrain.parallel.engine import compose
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.phases import PIPELINE
from pretrain.training import loss_scale
from pretrain.training.optim import (
    GradNorms,
    clip_grad_norm,
    create_state,
    learning_rate,
    new_optimizer,
)
from pretrain.training.state import Order, State


@dataclass(frozen=True)
class NotFinite:
    """What was not finite at the first attempt of a step; the same on all ranks.

    Ranks of one data-parallel position compute its loss together, and share what comes of a fault of any of them. Where
    the losses are finite and a gradient is not, they are the ranks that hold such a gradient: the data-parallel ranks
    have added theirs up by then.
    """

    verdict: Literal["data", "transient"]
    loss: float
    grad_norm: float
    hosts: Mapping[int, str]  # by rank
    samples: Sequence[int]  # of the run, in micro-batches whose loss was not finite


@dataclass(frozen=True)
class StepResult:
    """What one step measured; `applied` is False if it was not finite and changed nothing."""

    loss: float  # nats per target token of the global batch
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int
    batch_size: int  # samples
    applied: bool
    grad_norms: Mapping[str, float] = field(default_factory=dict)  # by `optim.GROUPS`
    loss_scale: float | None = None  # fp16: the one that the step was applied with
    overflows: int = 0  # attempts before that
    not_finite: NotFinite | None = None


@dataclass
class Run:
    """The parts of a run in this process."""

    config: RunConfig
    world: World
    loader: Loader
    model: ParallelModel
    optimizer: torch.optim.Optimizer
    state: State = field(default_factory=State)

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """What this rank holds of the weights, by name."""
        return self.model.parameters

    @property
    def order(self) -> Order:
        """The order the next samples are taken in."""
        return self.state.orders[-1]


def new_run(config: RunConfig, world: World, loader: Loader, order: Order, fill: bool = True) -> Run:
    """A model with its first weights (or, without `fill`, any), laid out over the ranks, and its optimizer.

    Raises:
        UsageError: a batch of the run does not divide over the ranks.
    """
    check_batch_sizes(config.training, world.dp_size)
    model = compose.build(config, world, fill)
    fused = config.training.fused_kernels
    optimizer = new_optimizer(model.parameters, model.copies, config.model, config.optimizer, fused)
    create_state(optimizer)
    run = Run(config, world, loader, model, optimizer)
    note_order(run.state, order)
    return run


def note_order(state: State, order: Order) -> None:
    """Let the state say in which order the coming samples are taken, if that is a new one; `trace` asks it."""
    now = order.model_copy(update={"step": state.step, "num_samples": state.num_samples})
    if state.orders:
        last = state.orders[-1]
        if last.model_copy(update={"step": now.step, "num_samples": now.num_samples}) == now:
            return
    state.orders.append(now)


def train_step(run: Run) -> StepResult:
    """Train on the next global batch and advance the counters."""
    training, state, world = run.config.training, run.state, run.world
    rate = learning_rate(run.config.optimizer.learning_rate, run.config.schedule, state.step, training.num_steps)
    batch_size = run.order.batch_sizes.of_step(state.step)[1]
    world.phases.step = state.step + 1
    micro_batches: list[MicroBatch] = []
    with world.phases("data"), world.propagate_errors():  # a damaged shard is met by the rank that reads it
        micro_batches = list(read_micro_batches(run.loader, state.num_samples, batch_size, run.config, world))
    num_tokens = int(world.sum_over(DATA_AXES, sum(batch.num_targets for batch in micro_batches))[0])

    done = _attempt_until_finite(run, micro_batches, num_tokens)
    with world.phases("optimizer"):
        if done.attempt.is_finite:
            for group in run.optimizer.param_groups:
                group["lr"] = rate
            run.optimizer.step()
            loss_scale.advance(state, training, done.scale, done.num_overflows)
        run.optimizer.zero_grad()

    state.step += 1
    state.num_samples += batch_size
    state.num_tokens += num_tokens
    state.num_bad_steps += not done.attempt.is_finite
    state.num_bad_in_a_row = 0 if done.attempt.is_finite else state.num_bad_in_a_row + 1
    return StepResult(
        done.attempt.loss,
        done.attempt.norms.total,
        rate,
        num_tokens,
        batch_size,
        applied=done.attempt.is_finite,
        grad_norms=done.attempt.norms.by_group,
        loss_scale=done.scale if training.precision == "fp16" else None,
        overflows=done.num_overflows,
        not_finite=done.not_finite,
    )


@dataclass(frozen=True)
class _Attempt:
    """Loss and gradient norms of the world, and this rank's addends of the loss, by micro-batch."""

    loss: float
    norms: GradNorms
    own_losses: Tensor

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norms.total)


@dataclass(frozen=True)
class _Attempts:
    """The last attempt of a step, and what came before it."""

    attempt: _Attempt
    scale: float
    num_overflows: int
    not_finite: NotFinite | None


def _attempt_until_finite(run: Run, micro_batches: Sequence[MicroBatch], num_tokens: int) -> _Attempts:
    """Gradients of a batch, clipped, in the optimizer's hands; computed again as the table above says."""
    scale, num_overflows = loss_scale.current(run.state, run.config.training), 0
    report: NotFinite | None = None
    while True:
        attempt = _attempt(run, micro_batches, num_tokens, scale)
        if attempt.is_finite:
            if report is not None:
                report = replace(report, verdict="transient")
            break
        if math.isfinite(attempt.loss) and scale > loss_scale.SMALLEST:
            scale, num_overflows = loss_scale.halve(scale), num_overflows + 1
        elif report is None:
            report = _not_finite(run, attempt, micro_batches)
        else:
            break
        run.optimizer.zero_grad()
    return _Attempts(attempt, scale, num_overflows, report)


def _attempt(run: Run, micro_batches: Sequence[MicroBatch], num_tokens: int, scale: float) -> _Attempt:
    world = run.world
    with world.phases(PIPELINE):  # until all of its ranks are done
        losses = run.model.step(micro_batches, num_tokens, scale)
        # tensor-parallel ranks have the same loss: one counts, the others only where theirs is not a number
        counts = 1.0 if world.tp_rank == 0 else 0.0
        (loss,) = world.sum_over(AXES, losses.sum() * counts)
    with world.phases("optimizer"):
        norms = clip_grad_norm(run.parameters, run.model.copies, run.config.training.max_grad_norm, world, scale)
    return _Attempt(loss, norms, losses)


def _not_finite(run: Run, attempt: _Attempt, micro_batches: Sequence[MicroBatch]) -> NotFinite:
    """Who computed what is not finite, and of which samples; every rank says what it has."""
    world = run.world
    sizes = [len(batch.tokens) for batch in micro_batches]
    first = run.state.num_samples + world.dp_rank * sum(sizes)
    samples: list[int] = []
    for size, is_finite in zip(sizes, attempt.own_losses.isfinite().tolist(), strict=True):
        samples += [] if is_finite else range(first, first + size)
        first += size
    reports = world.gather((socket.gethostname(), world.dp_rank, samples, attempt.norms.is_finite_here))
    positions = {position for _, position, samples, _ in reports if samples}
    hosts = {
        rank: host
        for rank, (host, position, _, is_finite) in enumerate(reports)
        if (position in positions if positions else not is_finite)
    }
    every = sorted({sample for _, _, samples, _ in reports for sample in samples})
    return NotFinite("data", attempt.loss, attempt.norms.total, hosts, every)
