"""What data parallelism adds to a step: weights gathered, gradients reduced, and the copies that both need.

`parallel.engine.fsdp` has the table of what each `zero` gathers and reduces, and when. On a GPU blocks are gathered and
reduced while others compute; what no computation hides is

- the first gather of a forward, of what lies outside of the blocks and of the first block: FSDP2's gathers wait
  for all that was computed before (`FSDPState._root_pre_forward`);
- the last reduction of a backward: a step's last backward ends when its gradients are reduced, without a pipeline every
  one;
- as far as a block's gathers and reductions take longer than its arithmetic;
- after a W of a zero-bubble schedule all reductions, one after the other; with zero 1 also after the last backward of a
  stage that sends its gradient on before it reduces its own (`pipeline.Pipeline._run`).

In a pipeline all stages gather at the start of the step, and the first is the only one whose forward waits for all of
that.

Over gloo an exchange ends where it begins: all of it is exposed. With `offload` shards come from host memory before
each gather, and reduced gradients go there; those that add to others wait for the host
(`FSDPParamGroup.post_backward`).

Published programs (`workload.framework_profiles`):

| | exchanges of a micro-batch | after the last backward |
|---|---|---|
| Megatron-LM | | all-reduce of gradients |
| DeepSpeed, stage 1 | | all-reduce of gradients, gather of weights |
| stage 2 | reduce-scatter of gradients | gather of weights |
| stage 3 | gather of weights forward, one backward, one more to compute a block again; reduce-scatter of gradients | |

Those of a micro-batch run beside its arithmetic where a program asks ahead for them
(`FrameworkProfile.exchanges_ahead`). With offload a rank's part comes from host memory before each gather, and reduced
gradients go there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pretrain.config import ParallelConfig
from pretrain.plan.machines.collectives import Group
from pretrain.plan.prediction import NO_SECONDS, Seconds, ranks_per_machine
from pretrain.plan.time.machine import Machine
from pretrain.plan.time.stage_time import Micro

CLIPPING = 3  # times a gradient is read or written to clip it: for its norm, and scaled


@dataclass(frozen=True)
class Extra:
    """What data parallelism adds to a stage's actions: of each micro-batch, and of the step's first and last."""

    forward: Seconds = NO_SECONDS
    inputs: Seconds = NO_SECONDS
    weights: Seconds = NO_SECONDS
    first: Seconds = NO_SECONDS
    last: Seconds = NO_SECONDS
    each: float = 0.0  # seconds of exchanges, hidden or not, of a micro-batch
    once: float = 0.0  # and of a step


class Numbers(NamedTuple):
    """Parameters of a stage on one rank of its tensor-parallel group: of a block, and of all that is in none."""

    blocks: int
    block: float
    outside: float
    sends: bool = False  # its gradients go to a stage before it

    @property
    def all(self) -> float:
        """Of the stage."""
        return self.blocks * self.block + self.outside


class DataTime:
    """Of one layout."""

    def __init__(
        self,
        parallel: ParallelConfig,
        machine: Machine,
        ranks: tuple[int, int],  # replicas, shards
        micro_batches: int,
    ) -> None:
        self.parallel, self.machine, self.software = parallel, machine, machine.software
        self.replicas, self.shards = ranks
        self.num_ranks = self.replicas * self.shards
        inside, outside = Group(self.shards, parallel.tp), Group(self.replicas, parallel.tp * self.shards)
        self.of_gather, self.of_scatter = machine.line("all_gather", inside), machine.line("reduce_scatter", inside)
        self.of_replicas = machine.line("all_reduce", outside)
        self.micro_batches, self.is_split = micro_batches, parallel.splits_backward
        self.wide = max(4, machine.item)
        is_low = machine.item < self.wide
        self.is_wrapped = self.num_ranks > 1 or is_low or parallel.offload or parallel.tp > 1  # as `fsdp.shard` decides
        self.zero = parallel.zero_over(self.shards)
        self.is_pipeline = parallel.pp > 1
        self.gathers_each_forward = self.zero == 3 or (self.zero == 2 and not self.is_pipeline)
        self.offloads = parallel.offload and not machine.on_cpu
        self.num_on_node = ranks_per_machine(machine.cluster, machine.devices)

    def gather(self, numbers: float) -> float:
        """Weights, in the precision of the products, from all shards."""
        return self.of_gather.of(numbers * self.machine.item)

    def reduce(self, numbers: float) -> float:
        """Gradients over shards, then over replicas of them."""
        size = numbers * (self.wide if self.software.operations == "ours" else self.software.gradient_bytes)
        return self.of_scatter.of(size) + self.of_replicas.of(size / self.shards)

    def extra(self, numbers: Numbers, micro: Micro) -> Extra:
        """Of a stage."""
        if self.software.operations != "ours":
            return self._published(numbers, micro)
        copies = self._copies(numbers)
        if not self.is_wrapped:
            return copies
        gathering = self._gathering(numbers, micro)
        forward, first = (gathering, NO_SECONDS) if self.gathers_each_forward else (NO_SECONDS, gathering)
        inputs, weights, last = self._reducing(numbers, micro)
        once = of_gather = self._of_all(self.gather, numbers)
        of_reduce = self._of_all(self.reduce, numbers)
        each = 0.0
        if self.gathers_each_forward:
            each, once = of_gather, 0.0
        if self.zero == 3:
            inputs += self._gathering_again(numbers, micro)
            each += self._of_all(self.gather, numbers if self.is_pipeline else numbers._replace(outside=0.0))
        if self.zero > 1:
            each += of_reduce
        else:
            once += of_reduce
        return Extra(
            copies.forward + forward,
            copies.inputs + inputs,
            copies.weights + weights,
            copies.first + first,
            copies.last + last,
            each,
            once,
        )

    def _published(self, numbers: Numbers, micro: Micro) -> Extra:
        """Of a micro-batch under a published program: as far as it takes longer than what it runs beside."""
        software = self.software
        if not software.shards or self.zero == 1 or (self.num_ranks == 1 and not self.offloads):
            return Extra()
        gather, reduce = self.gather(numbers.all) if self.zero == 3 else 0.0, self.reduce(numbers.all)
        if self.offloads:
            a_byte = numbers.all / self.shards / self.machine.cluster.host.link_bandwidth
            gather += self.machine.item * a_byte
            reduce += software.gradient_bytes * a_byte
        repeats = self.zero == 3 and software.gathers_to_recompute and self.parallel.recompute == "full"
        backward = (2 if repeats else 1) * gather + reduce
        beside = 1.0 if software.exchanges_ahead else 0.0
        return Extra(
            forward=Seconds(data=max(0.0, gather - beside * micro.forward.total)),
            weights=Seconds(data=max(0.0, backward - beside * micro.backward.total)),
            each=gather + backward,
        )

    def at_the_end(self, numbers: float) -> float:
        """Of a published program: after the last backward, of a rank's parameters."""
        if self.num_ranks == 1 or (self.software.shards and self.zero == 3):
            return 0.0
        group = Group(self.num_ranks, self.parallel.tp)
        reduce = self.machine.line("all_reduce", group).of(numbers * self.software.gradient_bytes)
        if not self.software.shards:
            return reduce
        return self.gather(numbers) + (reduce if self.zero == 1 else 0.0)

    def _of_all(self, exchange: Callable[[float], float], numbers: Numbers) -> float:
        """Seconds of an exchange of each group of a stage's parameters, one after the other."""
        return numbers.blocks * exchange(numbers.block) + exchange(numbers.outside)

    def _moving(self, numbers: float) -> float:
        """Shards between device and host, in one direction."""
        if not self.offloads:
            return 0.0
        return self.wide * numbers / self.shards / self.machine.cluster.host.link_bandwidth

    def _gathering(self, numbers: Numbers, micro: Micro) -> Seconds:
        """What of a forward's gathers nothing hides."""
        own, moved = self.gather(numbers.block), self._moving(numbers.block)
        all_own, all_moved = self.gather(numbers.outside), self._moving(numbers.outside)
        if not self.machine.overlaps:
            return Seconds(data=all_own + numbers.blocks * own)
        data = all_own + own + (numbers.blocks - 1) * max(0.0, own - micro.layer_forward)
        both = data + all_moved + moved
        both += (numbers.blocks - 1) * max(0.0, moved - max(own, micro.layer_forward))
        return Seconds(data=data, offload=both - data)

    def _gathering_again(self, numbers: Numbers, micro: Micro) -> Seconds:
        """Zero 3: the same of the backward, whose first gather the host asks for ahead of time."""
        own, moved = self.gather(numbers.block), self._moving(numbers.block)
        outside = self.gather(numbers.outside) if self.is_pipeline else 0.0
        if not self.machine.overlaps:
            return Seconds(data=outside + numbers.blocks * own)
        beside = micro.layer_inputs if self.is_split else micro.layer_backward
        if not self.is_split:  # its reductions are there too
            beside = max(0.0, beside - self.reduce(numbers.block))
        data = numbers.blocks * max(0.0, own - beside)
        return Seconds(data=data, offload=numbers.blocks * max(0.0, moved - max(own, beside)))

    def _reducing(self, numbers: Numbers, micro: Micro) -> tuple[Seconds, Seconds, Seconds]:
        """What of a backward's reductions nothing hides: with its I, with its W, and with a step's last."""
        own, outside = self.reduce(numbers.block), self.reduce(numbers.outside)
        moved = self._moving(numbers.block)
        if not self.machine.overlaps:
            each, tail = numbers.blocks * own, outside
            if self.zero > 1:
                return NO_SECONDS, Seconds(data=each + tail), NO_SECONDS
            return NO_SECONDS, NO_SECONDS, Seconds(data=each + tail)
        if self.is_split or (numbers.sends and self.zero == 1):
            each, tail = numbers.blocks * own, outside
        else:
            each, tail = numbers.blocks * max(0.0, own - micro.layer_backward), own + outside
        to_host = Seconds(offload=self._moving(numbers.outside) + moved)
        if self.zero == 1:
            return NO_SECONDS, NO_SECONDS, Seconds(data=each + tail) + to_host
        adding = NO_SECONDS
        if self.offloads:  # the host adds to what it has, and nothing is launched until then
            waiting = self.num_on_node * 3 * self.wide / self.machine.cluster.host.memory_bandwidth / self.shards
            share = (self.micro_batches - 1) / self.micro_batches
            blocked = self.reduce(numbers.all) + self._moving(numbers.all) + numbers.all * waiting - each
            adding = Seconds(offload=share * max(0.0, blocked))
        if self.is_pipeline:
            return NO_SECONDS, Seconds(data=each) + adding, Seconds(data=tail) + to_host
        return NO_SECONDS, Seconds(data=each + tail) + to_host + adding, NO_SECONDS

    def _copies(self, numbers: Numbers) -> Extra:
        """Casts, and copies into and out of the buffers of collectives; gradients added to those before."""
        item, wide, every = self.machine.item, self.wide, numbers.all
        others = (self.micro_batches - 1) / self.micro_batches
        if not self.is_wrapped:
            return Extra(weights=self._moved(3 * item * others * every))
        gather = self._moved(((wide + item) / self.shards + 2 * item) * every)
        reduce = self._moved((item + wide) * every)
        added = self._moved((item + 2 * wide) * others * every)
        again = gather if self.zero == 3 else NO_SECONDS
        if self.zero == 1:
            return Extra(weights=added, first=gather, last=reduce)
        if not self.offloads:
            reduce += self._moved(3 * wide * others * every / self.shards)
        if self.gathers_each_forward:
            return Extra(forward=gather, inputs=again, weights=reduce)
        return Extra(first=gather, weights=reduce)

    def _moved(self, num_bytes: float) -> Seconds:
        return Seconds(memory=num_bytes / self.machine.bandwidth)

    def update(self, numbers: float) -> Seconds:
        """Clipping, and AdamW, of a rank's shards: on the device, or on the host with `offload`."""
        updated = numbers / (self.shards if self.software.shards else 1)
        traffic = float(self.software.optimizer_traffic)
        if self.software.operations == "ours":
            traffic = (traffic / 4 + CLIPPING) * self.wide
        if not self.offloads:
            return Seconds(optimizer=updated * traffic / self.machine.bandwidth)
        if self.software.operations != "ours":
            traffic = self.software.host_traffic
        return Seconds(optimizer=updated * traffic * self.num_on_node / self.machine.cluster.host.memory_bandwidth)
