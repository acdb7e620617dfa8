"""Channels keep the order of micro-batches and no other, know what has arrived, and do not cross between pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from pretrain.config import ParallelConfig
from pretrain.parallel.base import mesh
from pretrain.parallel.engine.channels import Channels, Message
from tests.pretrain.ranks import reused_ranks

SHAPE = (2, 3)


@contextmanager
def channels(stage_ranks: Sequence[int], dp: int = 1) -> Iterator[tuple[Channels, mesh.World]]:
    parallel = ParallelConfig(pp=max(stage_ranks) + 1, dp_shard=dp)
    with mesh.start(parallel, "cpu", timeout_minutes=1.0) as world:
        yield Channels(stage_ranks, world), world


def tensor(value: int) -> Tensor:
    return torch.full(SHAPE, float(value))


def value(message: Message, dp_rank: int = 0) -> int:
    return 1000 * dp_rank + 100 * message.stage + 10 * (message.direction == "forward") + message.micro_batch


def every_message(num_stages: int, num_micro_batches: int) -> list[Message]:
    forward = [Message("forward", stage, i) for stage in range(1, num_stages) for i in range(num_micro_batches)]
    backward = [Message("backward", stage, i) for stage in range(num_stages - 1) for i in range(num_micro_batches)]
    return forward + backward


def exchange(stage_ranks: Sequence[int], dp: int) -> int:
    """All send everything before anybody takes anything, and take it channel by channel from the last."""
    with channels(stage_ranks, dp) as (own, world):
        messages = every_message(len(stage_ranks), 3)
        for message in messages:
            if stage_ranks[message.sender] == world.pp_rank:
                own.send(message, tensor(value(message, world.dp_rank)), taken_at=0)
        taken = 0
        for message in sorted(messages, key=lambda message: (-message.stage, message.direction, message.micro_batch)):
            if stage_ranks[message.stage] == world.pp_rank:
                own.expect(message, SHAPE, torch.float32)
                own.expect(message, SHAPE, torch.float32)  # does nothing
                got = own.take(message, sent_at=-1)  # before its sender took anything
                assert torch.equal(got, tensor(value(message, world.dp_rank)))
                taken += 1
        own.finish()
        return taken


@pytest.mark.parametrize(
    ("stage_ranks", "dp"),
    [
        ([0, 1], 1),
        ([0, 1, 0, 1], 1),
        ([0, 1, 1, 0], 1),
        ([0, 1, 2, 2, 1, 0], 1),
        pytest.param([0, 1, 0, 1], 2, marks=pytest.mark.long),
    ],
)
def test_messages_arrive_whatever_the_order_of_the_channels(stage_ranks: list[int], dp: int) -> None:
    num_ranks = (max(stage_ranks) + 1) * dp
    assert sum(reused_ranks(exchange, num_ranks, stage_ranks, dp)) == dp * len(every_message(len(stage_ranks), 3))


def kept() -> tuple[list[int], int]:
    """On rank 0: the sends under way as messages come back; and the number of channels."""
    with channels([0, 1]) as (own, world):
        under_way = []
        if world.rank == 0:
            for index in range(3):
                own.send(Message("forward", 1, index), tensor(index), taken_at=10 * index)
            for index, sent_at in enumerate((9, 10, 25)):
                message = Message("backward", 0, index)
                own.expect(message, SHAPE, torch.float32)
                own.take(message, sent_at)
                under_way.append(len(own._sent))
        else:
            for index in range(3):
                message = Message("forward", 1, index)
                own.expect(message, SHAPE, torch.float32)
                own.take(message, sent_at=index)
            for index in range(3):
                own.send(Message("backward", 0, index), tensor(index), taken_at=100)
        own.finish()
        assert len(own._sent) == 0
        return under_way, len({id(group) for group in own._groups.values()})


def test_a_sent_tensor_is_kept_until_its_arrival_is_known() -> None:
    (under_way, num_groups), _ = reused_ranks(kept, 2)
    assert under_way == [2, 1, 0]
    assert num_groups == 2  # one for each direction


def hand_over() -> None:
    with channels([0]) as (own, _):
        assert not own._groups
        sent = tensor(1).T  # as it is, without a copy
        own.send(Message("forward", 1, 0), sent, taken_at=0)
        with pytest.raises(AssertionError, match="nobody took"):
            own.finish()
        assert own.take(Message("forward", 1, 0), sent_at=0) is sent
        own.finish()


def test_stages_on_one_rank_hand_over_the_tensor_itself() -> None:
    reused_ranks(hand_over, 1)


def strided() -> bool:
    with channels([0, 1]) as (own, world):
        x = torch.arange(6.0).view(3, 2)
        if world.rank == 0:
            own.send(Message("forward", 1, 0), x.T, taken_at=0)
        else:
            own.expect(Message("forward", 1, 0), SHAPE, torch.float32)
            assert torch.equal(own.take(Message("forward", 1, 0), sent_at=0), x.T)
        own.finish()
        return True


def test_a_tensor_that_is_not_contiguous_arrives_as_what_it_is() -> None:
    assert all(reused_ranks(strided, 2))
