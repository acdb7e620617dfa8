"""The executor of pipeline schedules: this rank goes through its list of actions, whatever the schedule.

An action takes what the neighbouring stage has sent (`channels`), computes, and sends what comes out; it knows nothing
of the schedule. A single process is a pipeline of one stage: without neighbours the loop is a plain one. Nothing is
asked of the first step that is not asked of the others: the shape of a message follows from that of the micro-batch, so
a step may have any number of micro-batches, of any size.

Of a micro-batch between its forward and its backward a stage keeps the input, the place in autograd's graph where the
gradient of the output enters, and what the graph holds; the output is freed once it has arrived.

With schedules that cut the backward in two (I and W), the linear layers leave the gradients of their weights in the
part's list (`weight_gradients`).

What the data-parallel ranks of a stage exchange once a step holds up no other stage: a rank begins to gather the
weights that stay whole before it waits for its first message, and sends its last gradient before it waits for
reductions (`fsdp`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from pretrain.config import ModelConfig, ParallelConfig, Precision, ScheduleKind
from pretrain.model import GPT
from pretrain.model.attention_mask import target_rows
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base import weight_gradients
from pretrain.parallel.base.mesh import World
from pretrain.parallel.engine import fsdp
from pretrain.parallel.engine.channels import Channels, Message
from pretrain.schedules import Action, actions, stage_ranks

RECEIVES_AHEAD = 2  # actions whose input is expected before their turn, so that it comes while others compute
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


class Pipeline:
    """The stages of this rank, and its channels to the neighbouring ones."""

    def __init__(
        self, parts: Mapping[int, GPT], world: World, parallel: ParallelConfig, model: ModelConfig, precision: Precision
    ) -> None:
        """`parts` are this rank's, by stage. Every rank of the world makes its own at the same time."""
        self.phases = world.phases
        self._parts = parts
        self._world = world
        self._parallel = parallel
        self._zero = parallel.zero_over(world.mesh["dp_shard"].size())
        self._num_stages = parallel.num_stages
        self._channels = Channels(stage_ranks(parallel.schedule, parallel.pp, parallel.chunks), world)
        self._model = model
        self._dtype = DTYPES[precision]
        self._left: dict[int, list[weight_gradients.DeferredWeightGradient]] = {stage: [] for stage in parts}
        if self._plan(num_micro_batches=1).is_split:
            for stage, part in parts.items():
                weight_gradients.defer_weight_gradients(self._left[stage], part)

    def step(self, micro_batches: Sequence[MicroBatch], num_tokens: int, loss_scale: float = 1.0) -> Tensor:
        """Forward and backward of all micro-batches: gradients are added to the parameters'.

        The loss is the sum over targets divided by `num_tokens`; the gradients are those of `loss_scale` times that.
        Returns the addends [micro-batches] of the loss that this rank has, unscaled: 0 on ranks without the last stage.

        Raises:
            LostPeer: a neighbour is gone, or silent for longer than the run's timeout.
        """
        plan = self._plan(len(micro_batches))
        mine = plan.lists[self._world.pp_rank]
        step = _Step(micro_batches, num_tokens, loss_scale, plan)
        gathers_at = 1 if _input(mine[0], self._num_stages) is None else 0  # a forward at once gathers for itself
        try:
            for place, action in enumerate(mine):
                if place == gathers_at:
                    self._gather()
                for coming in mine[place : place + 1 + RECEIVES_AHEAD]:
                    self._expect(_input(coming, self._num_stages), micro_batches)
                self._run(step, action)
            self._channels.finish()
        except BaseException:
            self._channels.abandon()
            raise
        if not step.losses:
            return torch.zeros(len(micro_batches), device=self._world.device)
        return torch.stack([loss for _, loss in sorted(step.losses.items())])

    @torch.no_grad()
    def token_losses(self, batch: MicroBatch) -> Tensor:
        """-ln p(target) [B, T] in fp32 at least, 0 where there is no target: a forward alone; the same on every rank.

        The length of the samples must divide over the ranks that share the tokens.
        """
        rows_N = target_rows(batch.targets)
        losses_N = self._forward_all(batch, rows_N, batch.targets)
        dtype = torch.promote_types(self._dtype, torch.float32)
        losses_BT = torch.zeros(batch.targets.shape, dtype=dtype, device=self._world.device)
        if losses_N is not None:
            losses_BT.view(-1)[rows_N] = losses_N
        return self._from_last(losses_BT)

    @torch.no_grad()
    def last_logits(
        self,
        tokens_BT: Tensor,
        document_ids_BT: Tensor | None = None,
        prefix_ends_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, 1, V] of a window's last place, on every rank of the pipeline; the others' are not computed.

        The window's length need not divide over the ranks that share the tokens.
        """
        num_tokens = tokens_BT.shape[1]
        missing = -num_tokens % self._token_ranks  # nobody sees what follows it, except in a prefix, which ends before

        def padded(x_BT: Tensor | None, value: int) -> Tensor | None:
            return None if x_BT is None else F.pad(x_BT, (0, missing), value=value)

        tokens_BT = F.pad(tokens_BT, (0, missing))
        ids_BT, ends_BT = padded(document_ids_BT, -1), padded(prefix_ends_BT, 0)
        batch = MicroBatch(tokens_BT, tokens_BT, ids_BT, ends_BT, padded(positions_BT, 0), 0)
        rows_N = torch.arange(len(tokens_BT), device=tokens_BT.device) * tokens_BT.shape[1] + num_tokens - 1
        local = self._forward_all(batch, rows_N)
        if local is None:
            shape = (len(tokens_BT), 1, self._model.padded_vocab_size)
            whole = torch.empty(shape, dtype=self._dtype, device=self._world.device)
        else:
            whole = self._parts[self._num_stages - 1].axis.whole_logits(local)
        return self._from_last(whole)

    @property
    def _token_ranks(self) -> int:
        """Ranks that share the tokens of a micro-batch between matrix products."""
        return self._parallel.tp if self._parallel.sequence_parallel else 1

    def _run(self, step: _Step, action: Action) -> None:
        """Take the input of an action, compute, and send what comes out."""
        plan, incoming, outgoing = step.plan, _input(action, self._num_stages), _output(action, self._num_stages)
        x = None if incoming is None else self._channels.take(incoming, sent_at=plan.sent_at[incoming])
        y: Tensor | None = None
        with self.phases("forward" if action.kind == "F" else "backward"):
            if action.kind == "F":
                y = self._forward(step, action, x)
            elif action.kind == "W":
                self._backward_of_weights(step, action)
            else:
                y = self._backward(step, action, x)
        if outgoing is not None:
            assert y is not None
            self._channels.send(outgoing, y, taken_at=plan.taken_at[outgoing])
        if _reduces_after_sending(step, action):
            with self.phases("backward"):
                fsdp.reduce_deferred(self._parts[action.stage], self._zero, is_last=True)

    def _gather(self) -> None:
        """Begin to gather the weights of this rank's parts, in the order in which their forwards begin."""
        if self._parallel.pp > 1:
            for stage in sorted(self._parts):
                fsdp.begin_to_gather(self._parts[stage], self._zero)

    def _forward(self, step: _Step, action: Action, x: Tensor | None) -> Tensor:
        """From the stage before's output to this one's, or to the loss."""
        part, batch = self._parts[action.stage], step.micro_batches[action.micro_batch]
        if x is not None:
            x = x.detach().requires_grad_()  # the leaf whose gradient the stage before waits for
        is_last = action.stage == self._num_stages - 1
        y: Tensor = part(batch.tokens if x is None else x, *batch.marks, targets_BT=batch.targets if is_last else None)
        if is_last:
            y = y / step.num_tokens
            step.losses[action.micro_batch] = y.detach()
            y = y * step.loss_scale
        step.held[action.stage, action.micro_batch] = _Held(x, get_gradient_edge(y))
        return y.detach()

    def _backward(self, step: _Step, action: Action, gradient: Tensor | None) -> Tensor | None:
        """From the gradient of a stage's output to that of its input; B also adds those of all weights."""
        part = self._parts[action.stage]
        held = step.held.pop((action.stage, action.micro_batch))
        if action.kind == "I":
            fsdp.before_backward_of_inputs(part, self._zero)
        else:
            is_last = action == step.plan.last[action.stage] and not _reduces_after_sending(step, action)
            fsdp.before_backward(part, self._zero, is_last, pipelined=self._parallel.pp > 1)
        torch.autograd.backward(held.output, gradient)
        if action.kind == "I":
            left = self._left[action.stage]
            step.left[action.stage, action.micro_batch] = left.copy()
            left.clear()
        return None if held.input is None else held.input.grad

    def _backward_of_weights(self, step: _Step, action: Action) -> None:
        """Add the gradients of weights that this backward's first half has left."""
        weight_gradients.accumulate_weight_gradients(step.left.pop((action.stage, action.micro_batch)))
        is_last = action == step.plan.last[action.stage]
        fsdp.reduce_deferred(self._parts[action.stage], self._zero, is_last)

    def _forward_all(self, batch: MicroBatch, rows_N: Tensor, targets_BT: Tensor | None = None) -> Tensor | None:
        """The local logits [N, 1, V/t] of a forward through all stages, or, with targets, the losses [N] of the rows,
        on the rank of the last stage."""
        y: Tensor | None = None
        try:
            for stage in sorted(self._parts):
                forward = Action("F", stage, 0)
                x, incoming, outgoing = (
                    batch.tokens,
                    _input(forward, self._num_stages),
                    _output(forward, self._num_stages),
                )
                if incoming is not None:
                    self._expect(incoming, [batch])
                    x = self._channels.take(incoming, sent_at=stage - 1)
                y = self._parts[stage](x, *batch.marks, rows_N, targets_BT=targets_BT)
                if outgoing is not None:
                    self._channels.send(outgoing, y, taken_at=stage + 1)
            self._channels.finish()
        except BaseException:
            self._channels.abandon()
            raise
        return y if self._num_stages - 1 in self._parts else None

    def _from_last(self, x: Tensor) -> Tensor:
        """The tensor of the last stage's rank, on every rank of the pipeline."""
        if self._parallel.pp > 1:
            dist.broadcast(x, src=self._channels.ranks[-1], group=self._world.mesh.get_group("pp"))
        return x

    def _expect(self, message: Message | None, micro_batches: Sequence[MicroBatch]) -> None:
        if message is not None:
            num_samples, num_tokens = micro_batches[message.micro_batch].tokens.shape
            width = self._model.hidden_size
            self._channels.expect(message, (num_samples, num_tokens // self._token_ranks, width), self._dtype)

    def _plan(self, num_micro_batches: int) -> _Plan:
        parallel = self._parallel
        return _plan(parallel.schedule, parallel.pp, parallel.chunks, num_micro_batches)


class _Held(NamedTuple):
    """What a stage keeps of a micro-batch until its backward, besides what autograd does."""

    input: Tensor | None  # None on the first stage
    output: GradientEdge


@dataclass
class _Step:
    """A step under way."""

    micro_batches: Sequence[MicroBatch]
    num_tokens: int
    loss_scale: float
    plan: _Plan
    losses: dict[int, Tensor] = field(default_factory=dict)  # by micro-batch, on the last stage
    held: dict[tuple[int, int], _Held] = field(default_factory=dict)  # by stage and micro-batch
    left: dict[tuple[int, int], list[weight_gradients.DeferredWeightGradient]] = field(default_factory=dict)


def _reduces_after_sending(step: _Step, action: Action) -> bool:
    """Whether this is the last backward of a stage, and the stage before waits for its gradient.

    The first stage's reductions run beside its last backward, as FSDP2 orders them.
    """
    return action.kind == "B" and action.stage > 0 and action == step.plan.last[action.stage]


class _Plan(NamedTuple):
    """The lists of all ranks, and what follows from them."""

    lists: list[list[Action]]
    is_split: bool  # backwards are cut in two
    last: dict[int, Action]  # by stage: after it no gradient of a weight comes
    sent_at: dict[Message, int]  # place in the list of the sender
    taken_at: dict[Message, int]  # and of the receiver


@lru_cache(maxsize=64)
def _plan(schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int) -> _Plan:
    lists = actions(schedule, num_ranks, chunks, num_micro_batches)
    plan = _Plan(lists, any(action.kind == "W" for action in lists[0]), {}, {}, {})
    for mine in lists:
        for place, action in enumerate(mine):
            if action.kind in "BW":
                plan.last[action.stage] = action
            for message, places in (
                (_input(action, num_ranks * chunks), plan.taken_at),
                (_output(action, num_ranks * chunks), plan.sent_at),
            ):
                if message is not None:
                    places[message] = place
    for places in (plan.sent_at, plan.taken_at):
        _check_order(sorted(places, key=places.__getitem__))
    return plan


def _check_order(messages: Iterable[Message]) -> None:
    """A channel has no numbers on its messages: they must come in the order of micro-batches."""
    coming: dict[tuple[str, int], int] = {}
    for message in messages:
        channel = (message.direction, message.stage)
        assert message.micro_batch == coming.get(channel, 0), message
        coming[channel] = message.micro_batch + 1


def _input(action: Action, num_stages: int) -> Message | None:
    """What an action takes from another stage."""
    if action.kind == "F":
        return Message("forward", action.stage, action.micro_batch) if action.stage > 0 else None
    if action.kind == "W" or action.stage == num_stages - 1:
        return None
    return Message("backward", action.stage, action.micro_batch)


def _output(action: Action, num_stages: int) -> Message | None:
    """What comes out of it for another stage."""
    if action.kind == "F":
        is_last = action.stage == num_stages - 1
        return None if is_last else Message("forward", action.stage + 1, action.micro_batch)
    if action.kind == "W" or action.stage == 0:
        return None
    return Message("backward", action.stage - 1, action.micro_batch)
