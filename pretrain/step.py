"""One training step: it fits one screen, and is a function of the configuration and of counters.

The loss is the sum over target tokens divided by their number in the global batch, known before the first
backward: it does not depend on micro-batches or ranks, nor on the size of the batch where that ramps up. Every rank
agrees that loss and gradient norm are finite before a weight changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from pretrain.batch_size import check_batch_sizes
from pretrain.config import RunConfig
from pretrain.data import Loader
from pretrain.micro_batch import MicroBatch, read_micro_batches
from pretrain.optim import clip_grad_norm, create_state, learning_rate, new_optimizer, set_learning_rate
from pretrain.parallel import compose
from pretrain.parallel.compose import ParallelModel
from pretrain.parallel.mesh import DATA_AXES, World
from pretrain.state import Order, State


@dataclass(frozen=True)
class StepResult:
    """What one step measured; `applied` is False if it was not finite and changed nothing."""

    loss: float  # nats per target token of the global batch
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int
    batch_size: int  # samples
    applied: bool


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


def new_run(config: RunConfig, world: World, loader: Loader, order: Order) -> Run:
    """A model with its first weights, laid out over the ranks, and its optimizer.

    Raises:
        UsageError: a batch of the run does not divide over the ranks.
    """
    check_batch_sizes(config.training, world.dp_size)
    model = compose.build(config, world)
    optimizer = new_optimizer(model.parameters, model.copies, config.model, config.optimizer)
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
    micro_batches: list[MicroBatch] = []
    with world.together():  # a damaged shard is met by the rank that reads it
        micro_batches = list(read_micro_batches(run.loader, state.num_samples, batch_size, run.config, world))
    num_tokens = int(world.sum_over(DATA_AXES, sum(batch.num_targets for batch in micro_batches))[0])

    local_loss = run.model.step(micro_batches, num_tokens)
    loss = world.sum_over(("pp", *DATA_AXES), local_loss)[0]
    norm = clip_grad_norm(run.parameters.values(), run.model.copies.values(), training.max_grad_norm, world)
    (is_bad,) = world.any_of(not (math.isfinite(loss) and math.isfinite(norm)))
    if not is_bad:  # every rank agrees before anything changes
        set_learning_rate(run.optimizer, rate)
        run.optimizer.step()
    run.optimizer.zero_grad()

    state.step += 1
    state.num_samples += batch_size
    state.num_tokens += num_tokens
    state.num_bad_steps += is_bad
    state.num_bad_in_a_row = state.num_bad_in_a_row + 1 if is_bad else 0
    return StepResult(loss, norm, rate, num_tokens, batch_size, applied=not is_bad)
