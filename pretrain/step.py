"""One training step: it fits one screen, and is a function of the configuration and of counters.

The loss is the sum over target tokens divided by their number in the global batch, known before the first
backward: it does not depend on micro-batches or ranks, nor on the size of the batch where that ramps up. Every rank
agrees that loss and gradient norm are finite before a weight changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pretrain.batch_size import check_batch_sizes, local_batches
from pretrain.checkpoint import Order, State
from pretrain.config import RunConfig
from pretrain.data import Loader
from pretrain.model import GPT, loss_sum
from pretrain.optim import clip_grad_norm, create_state, learning_rate, new_optimizer, set_learning_rate
from pretrain.parallel import fsdp
from pretrain.parallel.mesh import World
from pretrain.parallel.params import init_parameters


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
    model: GPT
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    state: State = field(default_factory=State)

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
    with torch.device("meta"):
        model = GPT(config.model)
    fsdp.shard(model, world, config.parallel.zero, config.training.precision)
    model.to_empty(device=world.device)
    model.tie()
    parameters = dict(model.named_parameters())
    init_parameters(parameters, config.model, config.training.seed)
    optimizer = new_optimizer(parameters, config.model, config.optimizer)
    create_state(optimizer)
    run = Run(config, world, loader, model, parameters, optimizer)
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
        micro_batches = list(read_micro_batches(run, batch_size))
    num_tokens = int(world.sum_over_data(sum(batch.num_targets for batch in micro_batches))[0])

    local_loss = forward_backward(run, micro_batches, num_tokens)
    loss = world.sum_over_data(local_loss)[0]
    norm = clip_grad_norm(run.parameters.values(), training.max_grad_norm)
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


@dataclass(frozen=True)
class MicroBatch:
    """Tensors [B, T] on the device; `num_targets` of this rank's tokens count in the loss."""

    tokens: Tensor
    targets: Tensor
    document_ids: Tensor | None
    prefix_ends: Tensor | None
    positions: Tensor | None
    num_targets: int


def read_micro_batches(run: Run, batch_size: int) -> Iterator[MicroBatch]:
    """This rank's part of the next global batch, in micro-batches."""
    device = run.world.device
    num_local, micro_batch_size = local_batches(run.config.training, batch_size, run.world.dp_size)
    first = run.state.num_samples + run.world.dp_rank * num_local

    def on_device(array: NDArray[Any] | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(array.copy()).to(device)

    for start in range(first, first + num_local, micro_batch_size):
        batch = run.loader.batch(start, micro_batch_size)
        yield MicroBatch(
            torch.from_numpy(batch.tokens.copy()).to(device),
            torch.from_numpy(batch.targets.copy()).to(device),
            on_device(batch.document_ids if run.config.model.document_mask else None),
            on_device(batch.prefix_ends),
            on_device(batch.positions),
            int((batch.targets >= 0).sum()),
        )


def forward_backward(run: Run, micro_batches: list[MicroBatch], num_tokens: int) -> Tensor:
    """Accumulate the gradients of this rank's part of the loss, and return that part."""
    total = torch.zeros((), device=run.world.device)
    for index, batch in enumerate(micro_batches):
        fsdp.before_micro_batch(run.model, run.config.parallel.zero, is_last=index == len(micro_batches) - 1)
        logits = run.model(batch.tokens, batch.document_ids, batch.prefix_ends, batch.positions)
        loss = loss_sum(logits, batch.targets) / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total
