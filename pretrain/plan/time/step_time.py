"""The time of one layout's step, put together from its parts (`plan.cost` has their table)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pretrain.attention_backend import backend_of
from pretrain.batch_size import local_batches
from pretrain.config import RunConfig
from pretrain.parallel.base.linear_cross_entropy import is_chunked
from pretrain.parallel.base.mesh import layout
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.machines.collectives import Group
from pretrain.plan.prediction import NO_SECONDS, Axis, OperationSeconds, Phase, Seconds, Traffic
from pretrain.plan.time import pipeline_time
from pretrain.plan.time.data_time import DataTime, Extra, Numbers
from pretrain.plan.time.machine import machine_of
from pretrain.plan.time.pipeline_time import Times
from pretrain.plan.time.stage_time import Kind, Micro, places_of, stage_time
from pretrain.workload import parameters
from pretrain.workload.framework_profiles import FrameworkProfile
from pretrain.workload.operations import Operation, Shape

SUMS = 3  # of a few numbers over all ranks in a step: tokens, loss, norms
PHASES: tuple[Phase, ...] = ("forward", "backward of inputs", "backward of weights", "recompute")
Place = tuple[tuple[Kind, int], ...]  # the stages of a rank: kinds, and how many of each


@dataclass(frozen=True)
class _Stage:
    """A kind of stage: one micro-batch of it, and what data parallelism adds."""

    micro: Micro
    extra: Extra
    forward: Seconds
    inputs: Seconds
    weights: Seconds

    @cached_property
    def each(self) -> Seconds:
        """Of one micro-batch."""
        return self.forward + self.inputs + self.weights

    @cached_property
    def once(self) -> Seconds:
        """Of a step."""
        return self.extra.first + self.extra.last

    @cached_property
    def times(self) -> Times:
        """For the pipeline."""
        parts = (self.forward, self.inputs, self.weights, self.extra.first, self.extra.last)
        return Times(*(part.total for part in parts))


class StepTime:
    """The durations of one layout."""

    def __init__(self, config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile) -> None:
        self.model, self.parallel, self.devices, self.software = config.model, config.parallel, devices, software
        self.pp, self.replicas, self.shards, self.tp = layout(config.parallel, devices)
        training, parallel = config.training, config.parallel
        ranks = self.replicas * self.shards
        samples, self.micro_batch_size = local_batches(training, training.global_batch_size, ranks)
        self.micro_batches = samples // self.micro_batch_size
        self.machine = machine_of(cluster, software, training.precision, devices)
        tokens, entries = self.micro_batch_size * self.model.sequence_length, self.model.padded_vocab_size // self.tp
        is_ours = software.operations == "ours"
        self.shape = Shape(
            model=self.model,
            tokens=tokens,
            tensor=self.tp,
            token_ranks=self.tp if parallel.sequence_parallel else 1,
            item=self.machine.item,
            samples=self.micro_batch_size,
            backend=backend_of(config, "cpu" if self.machine.on_cpu else "cuda", self.machine.item).backend,
            is_compiled=is_ours and config.compiles_blocks(not self.machine.on_cpu),
            on_cpu=self.machine.on_cpu,
            loss_in_chunks=is_ours and is_chunked(tokens, entries, parallel.splits_backward),
        )
        self.places = places_of(self.model, parallel)
        self.stage_time = stage_time(self.shape, parallel.recompute, parallel.splits_backward, self.machine)
        self.data = DataTime(parallel, self.machine, (self.replicas, self.shards), self.micro_batches)
        self._found: dict[Kind, _Stage] = {}

    @cached_property
    def ranks(self) -> list[tuple[Place, Seconds]]:
        """Those of the pipeline that differ: their stages, and seconds of their own work in a step."""
        found = []
        for place in self.places.different:
            own = NO_SECONDS
            for kind, number in place:
                stage = self.of(kind)
                own += stage.each.times(number * self.micro_batches)
                if kind.is_first:  # other stages gather and reduce while they would wait; `pipeline_time` knows how far
                    own += stage.once.times(number)
            found.append((place, own))
        return found

    @cached_property
    def busiest(self) -> tuple[Place, Seconds]:
        """Of these the one with most work."""
        return max(self.ranks, key=lambda rank: rank[1].total)

    def seconds(self, exact: bool) -> Seconds:
        """All parts of the step."""
        busy = self.busiest[1]
        send = 0.0 if self.software.waits_for_messages else self.message
        stages = self.stages
        schedule, owners, number = self.parallel.schedule, self.places.owners, self.micro_batches
        lost = pipeline_time.closed_form_loss(schedule, stages, owners, number, send)
        if exact and self.pp > 1:
            total = pipeline_time.simulate_seconds(schedule, stages, owners, number, send)
            lost = lost.within(max(0.0, total - busy.total))
        waited = Seconds(bubble=lost.bubble, messages=lost.messages, data=lost.ends)
        return busy + waited + self.at_the_end

    @property
    def stages(self) -> list[Times]:
        """What each stage of the pipeline takes of a micro-batch, what it waits for included, and of a step."""
        return [self.of(kind).times for kind in self.places.kinds]

    def communication(self, seconds: Seconds) -> dict[Axis, Traffic]:
        """What the busiest rank exchanges in a step, and how much of it computation hides."""
        place, _ = self.busiest
        tensor, messages = Traffic(), 0.0
        for kind, number in place:
            tensor += self.of(kind).micro.tensor.times(number * self.micro_batches)
            messages += number * self.micro_batches * self.message * (2 - kind.is_first - kind.is_last)
        return {
            "tensor": tensor,
            "pipeline": Traffic(max(0.0, messages - seconds.messages), seconds.messages),
            "data": Traffic(max(0.0, self.data_seconds - seconds.data), seconds.data),
        }

    @property
    def data_seconds(self) -> float:
        """Of the busiest rank's own exchanges with data-parallel ranks in a step, hidden or not."""
        total = 0.0 if self.software.operations == "ours" else self._data_at_the_end[1]
        for kind, number in self.busiest[0]:
            extra = self.of(kind).extra
            total += number * (self.micro_batches * extra.each + extra.once)
        return total

    def of(self, kind: Kind) -> _Stage:
        """One micro-batch in a stage, what data parallelism adds, and messages where a rank waits for them."""
        if kind not in self._found:
            micro = self.stage_time.of(kind)
            extra = self.data.extra(self._numbers(kind), micro)
            message = NO_SECONDS
            if self.software.waits_for_messages and self.pp > 1:
                message = Seconds(messages=self.message)
            self._found[kind] = _Stage(
                micro,
                extra,
                micro.forward + extra.forward + message,
                micro.inputs + extra.inputs + message,
                micro.weights + extra.weights,
            )
        return self._found[kind]

    @cached_property
    def message(self) -> float:
        """What a stage passes on."""
        if self.pp == 1:
            return 0.0
        num_bytes = self.shape.item * self.shape.tokens * self.model.hidden_size
        stride = self.devices // self.pp
        if self.parallel.sequence_parallel or self.tp == 1:
            return self.machine.collectives.send(stride, num_bytes / self.shape.token_ranks, self.pp)
        if not self.software.scatters_messages:
            return self.machine.collectives.send(stride, num_bytes, self.pp)
        whole_again = self.machine.collectives.all_gather(Group(self.tp, 1), num_bytes)
        return self.machine.collectives.send(stride, num_bytes / self.tp, self.pp) + whole_again

    @cached_property
    def at_the_end(self) -> Seconds:
        """Once a step: gradients of programs that shard nothing, of tied weights, sums over all ranks, and the
        update."""
        end = self.data.update(self._most_numbers)
        if self.software.operations != "ours":
            return end + Seconds(data=self._data_at_the_end[0])
        axes = [
            Group(self.pp, self.devices // self.pp),
            Group(self.replicas, self.tp * self.shards),
            Group(self.shards, self.tp),
            Group(self.tp, 1),
        ]
        end += Seconds(
            data=SUMS * sum(self.machine.line("all_reduce", group).of(8) for group in axes if group.size > 1)
        )
        first, last = self.places.owners[0], self.places.owners[-1]
        if self.model.tied and first != last:
            ends = Group(2, (last - first) * self.devices // self.pp)
            table = self.data.wide * self.model.padded_vocab_size * self.model.hidden_size / (self.tp * self.shards)
            end += Seconds(messages=self.machine.line("all_reduce", ends).of(table))
        return end

    @cached_property
    def _data_at_the_end(self) -> tuple[float, float]:
        """Of programs that reduce gradients after the last backward: what nothing hides of that, and all of it."""
        data = self.data.at_the_end(self._most_numbers)
        hiding = self.stage_time.of(self.places.kinds[-1]).backward.total
        return data - min(data * self.software.data_overlap, hiding), data

    def operation_seconds(self) -> list[OperationSeconds]:
        """Of the busiest rank, those that take most first."""
        totals: dict[tuple[str, Phase, Operation], int] = {}
        for kind, number in self.busiest[0]:
            for times, part in self.stage_time.parts(kind):
                for phase, own in zip(PHASES, (*part.work, part.repeated), strict=True):
                    for operation in own:
                        key = (part.name, phase, operation)
                        totals[key] = totals.get(key, 0) + number * times * self.micro_batches
        lines = [self._copies()]
        for (part_name, phase, operation), times in totals.items():
            seconds = self.machine.seconds(operation)
            is_bound = operation.bytes / self.machine.bandwidth >= seconds
            all_of_them = (times, times * operation.flops, times * operation.bytes, times * seconds)
            lines.append(OperationSeconds(operation.name, part_name, phase, *all_of_them, is_bound))
        return sorted((line for line in lines if line.seconds), key=lambda line: -line.seconds)

    def _copies(self) -> OperationSeconds:
        """What sharded data parallelism moves on the busiest rank."""
        seconds = 0.0
        for kind, number in self.busiest[0]:
            stage = self.of(kind)
            extra = stage.extra
            each = extra.forward.memory + extra.inputs.memory + extra.weights.memory
            seconds += number * (self.micro_batches * each + (stage.once.memory if kind.is_first else 0.0))
        num_bytes = seconds * self.machine.bandwidth
        name = "copies of weights and gradients"
        return OperationSeconds(name, "data", "backward of weights", self.micro_batches, 0.0, num_bytes, seconds, True)

    def _numbers(self, kind: Kind) -> Numbers:
        """Parameters of a stage on one rank of a tensor-parallel group."""
        layer, outside = (
            parameters.by_room(self.model)["layer"],
            parameters.outside(self.model, kind.is_first, kind.is_last),
        )
        return Numbers(kind.num_layers, layer / self.tp, outside / self.tp, sends=not kind.is_first)

    @cached_property
    def _most_numbers(self) -> float:
        """Parameters of the rank that has most."""
        return max(sum(self._numbers(kind).all * number for kind, number in kinds) for kinds, _ in self.ranks)
