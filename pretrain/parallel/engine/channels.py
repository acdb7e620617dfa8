"""Messages between neighbouring stages of a pipeline: activations forward, their gradients backward.

Between two stages there are two channels, one in each direction, and each is a process group of its own, of two ranks.
Not one group for all: NCCL runs everything that a communicator sends and receives in the order of the calls, so that
two ranks which first send to each other, or a rank that expects its second chunk's input before its first one's, would
wait for ever. (Gloo has tags, and would not need it.) A channel keeps the order of micro-batches; between channels
there is none to keep. For n stages these are 2(n - 1) communicators in a pipeline, at most 4 for each stage that a rank
holds.

Nothing here blocks but `take`, and `finish` at the end of a step. A sent tensor is kept until a message comes back that
proves its arrival; that needs no question to the backend (of gloo, one cannot ask whether a send is done), and keeps as
many as are under way. Stages on the same rank hand their tensors over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.errors import LostPeer
from pretrain.parallel.base.mesh import World

Direction = Literal["forward", "backward"]


class Message(NamedTuple):
    """What a stage gets of a micro-batch: the stage before's activation, or the stage after's gradient."""

    direction: Direction
    stage: int  # that gets it
    micro_batch: int

    @property
    def sender(self) -> int:
        """The stage it comes from."""
        return self.stage - 1 if self.direction == "forward" else self.stage + 1


class _Sent(NamedTuple):
    message: Message
    tensor: Tensor
    work: Any
    taken_at: int


class Channels:
    """This rank's channels. Every rank of the world makes its own at the same time, as all take part in each group."""

    def __init__(self, stage_ranks: Sequence[int], world: World) -> None:
        """`stage_ranks` says for each stage on which rank of a pipeline it is."""
        pipelines: list[list[int]] = world.mesh.mesh.flatten(1).T.tolist()  # their ranks in the world
        own = next(pipeline for pipeline in pipelines if world.rank in pipeline)
        self.ranks = [own[place] for place in stage_ranks]  # of the world, by stage
        self._world = world
        self._groups: dict[tuple[Direction, int], dist.ProcessGroup] = {}
        self._expected: dict[Message, tuple[Tensor, Any]] = {}
        self._handed_over: dict[Message, Tensor] = {}
        self._sent: list[_Sent] = []
        backend = "nccl" if world.device.type == "cuda" else "gloo"
        for message in _all_channels(len(stage_ranks)):
            pair = (stage_ranks[message.sender], stage_ranks[message.stage])
            if pair[0] == pair[1]:
                continue
            # Not use_local_synchronization: it names a group by how many its ranks have made, and that differs between
            # the ends of a pipeline and its middle. To a rank that is not in it, a group costs microseconds.
            group = world.own_group([[pipeline[place] for place in pair] for pipeline in pipelines], backend)
            if group is not None:
                self._groups[message.direction, message.stage] = group
                self._connect(message)

    def _connect(self, message: Message) -> None:
        """Send one number: NCCL connects two ranks at their first message, and neither goes on before the other is
        there.

        Later that would be a deadlock: a rank expects a gradient before it has sent what the gradient comes from.
        """
        number = torch.zeros(1, device=self._world.device)
        sender, receiver = self.ranks[message.sender], self.ranks[message.stage]
        group = self._groups[message.direction, message.stage]
        with self._naming(message):
            if self._world.rank == sender:
                work = dist.isend(number, dst=receiver, group=group)
            else:
                work = dist.irecv(number, src=sender, group=group)
            assert work is not None
            work.wait()

    def expect(self, message: Message, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Get ready for a message, some time before it is taken; again does nothing."""
        group = self._groups.get((message.direction, message.stage))
        if group is None or message in self._expected:
            return
        buffer = torch.empty(*shape, dtype=dtype, device=self._world.device)
        with self._world.phases("communication"), self._naming(message):
            work = dist.irecv(buffer, src=self.ranks[message.sender], group=group)
        self._expected[message] = (buffer, work)

    def take(self, message: Message, sent_at: int) -> Tensor:
        """Wait for an expected message. `sent_at`: its sender's place, then, in the order of what that rank does.

        Raises:
            LostPeer: it did not come within the timeout, or its sender is gone.
        """
        if message in self._handed_over:
            return self._handed_over.pop(message)
        buffer, work = self._expected.pop(message)
        with self._world.phases("communication"), self._naming(message):
            work.wait()
        self._forget(self.ranks[message.sender], sent_at)
        return buffer

    def send(self, message: Message, tensor: Tensor, taken_at: int) -> None:
        """Send a tensor, which must not change any more. `taken_at`: its receiver's place when it takes it."""
        group = self._groups.get((message.direction, message.stage))
        if group is None:
            self._handed_over[message] = tensor
            return
        tensor = tensor.contiguous()
        with self._world.phases("communication"), self._naming(message):
            work = dist.isend(tensor, dst=self.ranks[message.stage], group=group)
        self._sent.append(_Sent(message, tensor, work, taken_at))

    def finish(self) -> None:
        """Wait until all that was sent has arrived.

        Raises:
            LostPeer: it was not taken within the timeout, or its receiver is gone.
        """
        with self._world.phases("communication"):
            for sent in self._sent:
                with self._naming(sent.message):
                    sent.work.wait()
        self._sent.clear()
        assert not self._expected and not self._handed_over, "messages that nobody took"

    def abandon(self) -> None:
        """Forget all messages under way, after an error: the run is over, and nobody may wait for a rank that
        failed."""
        self._sent.clear()
        self._expected.clear()
        self._handed_over.clear()

    def _forget(self, rank: int, place: int) -> None:
        """A rank has come to that place in its list: what it took before has arrived."""
        kept: list[_Sent] = []
        for sent in self._sent:
            if self.ranks[sent.message.stage] == rank and sent.taken_at <= place:
                with self._naming(sent.message):
                    sent.work.wait()  # returns at once; NCCL's stream learns of it
            else:
                kept.append(sent)
        self._sent = kept

    @contextmanager
    def _naming(self, message: Message) -> Iterator[None]:
        """Say in errors who waited for whom, and for what."""
        try:
            yield
        except RuntimeError as error:
            here = self._world.rank
            if here == self.ranks[message.stage]:
                stage, peer, what = message.stage, self.ranks[message.sender], "from"
            else:
                stage, peer, what = message.sender, self.ranks[message.stage], "to arrive at"
            reason = str(error).partition(". ")[0]  # gloo adds advice
            raise LostPeer(
                f"rank {here} (stage {stage}) waited for the {message.direction} of micro-batch {message.micro_batch} "
                f"{what} rank {peer}: {reason}"
            ) from error


def _all_channels(num_stages: int) -> Iterator[Message]:
    """A message of each channel, in the order in which all ranks make their groups."""
    for stage in range(num_stages - 1):
        yield Message("forward", stage + 1, 0)
        yield Message("backward", stage, 0)
