"""How long a step takes on a machine that need not be there: `predict` one layout, with where its time and memory go.

Seconds of a product are those of its multiplications at the rate of large ones, or those of the bytes that it reads and writes,
whichever are more (a roofline: Williams, Waterman and Patterson 2009), and of everything else those of its bytes (`plan.operations`). Collectives are
`plan.collectives`, memory is `plan.memory` or, for published programs, `plan.megatron_memory`.

The pipeline is the schedule's own list of actions, run against these durations; with `exact=False` its closed form
(`parallel.schedule`), which ranks thousands of layouts in the time of one simulation.

| part of a step | seconds on the busiest rank |
|---|---|
| products, memory, launches | of all its micro-batches, forward and backward |
| recompute | the forward again |
| tensor | collectives between tensor-parallel ranks that nothing hides |
| messages | between stages, where a rank waits for them |
| bubble | it waits for other stages |
| data | gathering weights and reducing gradients, as far as no computation hides them |
| optimizer, offload | the update; and what goes to the host and back |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from corpus.engine.errors import UsageError
from pretrain.batch_size import local_batches
from pretrain.config import ModelConfig, ParallelConfig, RunConfig
from pretrain.parallel.mesh import layout
from pretrain.parallel.schedule import Action, actions, stage_ranks
from pretrain.parallel.simulate import simulate
from pretrain.parallel.stages import Stage, cut
from pretrain.plan import megatron_memory, memory, operations, parameters
from pretrain.plan.cluster import Cluster
from pretrain.plan.collectives import Collectives, Group
from pretrain.plan.flops import flops_per_token, hardware_flops_per_token
from pretrain.plan.memory import ITEM_BYTES, Estimate
from pretrain.plan.operations import Operation, Shape, Work
from pretrain.plan.software import OURS, Software

RESERVED = 0.92  # of a device's memory that a layout may take; the rest is the driver's and the allocator's


@dataclass(frozen=True)
class Seconds:
    """Of a step, or of a part of one."""

    products: float = 0.0
    memory: float = 0.0
    launches: float = 0.0
    recompute: float = 0.0
    tensor: float = 0.0
    messages: float = 0.0
    bubble: float = 0.0
    data: float = 0.0
    optimizer: float = 0.0
    offload: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def times(self, number: float) -> Seconds:
        """As many of these."""
        return Seconds(*(getattr(self, field.name) * number for field in fields(self)))


@dataclass(frozen=True)
class Prediction:
    """One layout on one cluster."""

    config: RunConfig
    devices: int
    cluster: Cluster
    software: Software
    seconds: Seconds
    estimates: Sequence[Estimate]  # memory of a rank of each place of the pipeline
    micro_batches: int

    @property
    def step_seconds(self) -> float:
        """Of one step."""
        return self.seconds.total

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks."""
        return self.devices // (self.config.parallel.tp * self.config.parallel.pp)

    @property
    def tokens_per_second(self) -> float:
        """Of all devices together."""
        return self.tokens_per_step / self.step_seconds

    @property
    def tokens_per_step(self) -> int:
        """Of the full batch."""
        return self.config.training.global_batch_size * self.config.model.sequence_length

    @property
    def tflops_per_gpu(self) -> float:
        """Of the hardware, as published tables count: what is recomputed counts, attention is the whole square."""
        flops = hardware_flops_per_token(self.config.model, self.config.parallel)
        if self.software.operations != "ours":
            flops = _published_flops_per_token(self.config.model, self.config.parallel)
        return flops * self.tokens_per_second / self.devices / 1e12

    @property
    def model_tflops_per_gpu(self) -> float:
        """Of the model alone, nothing counted twice."""
        return flops_per_token(self.config.model) * self.tokens_per_second / self.devices / 1e12

    @property
    def worst(self) -> Estimate:
        """Memory where most is needed."""
        return memory.worst(self.estimates)

    @property
    def memory_bytes(self) -> int:
        """On the fullest device."""
        return self.worst.device_bytes


def predict(
    config: RunConfig, devices: int, cluster: Cluster, software: Software = OURS, exact: bool = True
) -> Prediction:
    """The step of a configuration on `devices` devices of a cluster.

    Raises:
        UsageError: the layout does not fit the number of devices, the batch not the layout, or nobody knows the peak.
    """
    step = _Step(config, devices, cluster, software)
    estimates = (
        memory.estimate(config, devices, "cuda")
        if software.operations == "ours"
        else megatron_memory.estimate(config, devices, software)
    )
    return Prediction(config, devices, cluster, software, step.seconds(exact), estimates, step.micro_batches)


class _Step:
    """The durations of one layout."""

    def __init__(self, config: RunConfig, devices: int, cluster: Cluster, software: Software) -> None:
        self.config, self.model, self.parallel = config, config.model, config.parallel
        self.cluster, self.software, self.devices = cluster, software, devices
        self.pp, self.replicas, self.shards, self.tp = layout(config.parallel, devices)
        training = config.training
        samples, self.micro_batch_size = local_batches(
            training, training.global_batch_size, self.replicas * self.shards
        )
        self.micro_batches = samples // self.micro_batch_size
        peak = cluster.device.peak_flops(training.precision)
        if peak is None:
            raise UsageError(
                f"cluster {cluster.name}: nobody has said what a {cluster.device.name} does in {training.precision}. Give "
                f"[device.peak] {training.precision} in its file, or another training.precision"
            )
        self.peak = peak * cluster.efficiency.products
        self.bandwidth = cluster.device.memory_bandwidth * cluster.efficiency.memory
        self.item = ITEM_BYTES[training.precision]
        self.collectives = Collectives(cluster)
        token_ranks = self.tp if self.parallel.sequence_parallel else 1
        tokens = self.micro_batch_size * self.model.sequence_length
        self.shape = Shape(self.model, tokens, self.tp, token_ranks, self.item)
        self.stages = cut(self.model, self.parallel.num_stages, self.parallel.layers_per_stage)
        self.owners = stage_ranks(self.parallel.schedule, self.pp, self.parallel.chunks)

    def seconds(self, exact: bool) -> Seconds:
        """All parts of the step, on its busiest rank."""
        own = [Seconds() for _ in range(self.pp)]
        for stage, rank in zip(self.stages, self.owners, strict=True):
            for part in self.of_stage(stage).values():
                own[rank] += part
        busiest = max(own, key=lambda seconds: seconds.total).times(self.micro_batches)
        bubble = self.simulated_bubble(busiest.total) if exact else self.closed_bubble(busiest.total)
        return busiest + self.at_the_end + Seconds(bubble=bubble)

    def simulated_bubble(self, busy: float) -> float:
        """Of the schedule's own lists."""
        durations = [{kind: part.total for kind, part in self.of_stage(stage).items()} for stage in self.stages]
        for duration in durations:
            duration["B"] = duration["I"] + duration["W"]

        def of_action(action: Action) -> float:
            return durations[action.stage][action.kind]

        lists = actions(self.parallel.schedule, self.pp, self.parallel.chunks, self.micro_batches)
        send = 0.0 if self.software.waits_for_messages else self.message
        return simulate(lists, self.owners, of_action, send).total - busy

    def closed_bubble(self, busy: float) -> float:
        """Of the closed forms in `parallel.schedule`, for stages that are not quite equal."""
        stages = [self.of_stage(stage) for stage in self.stages]
        total = {kind: sum(stage[kind].total for stage in stages) for kind in ("F", "I", "W")}
        share = (self.pp - 1) / len(stages)
        kind = self.parallel.schedule
        if kind == "zbv" and self.pp > 1:
            return share * total["I"]
        if kind == "zero-bubble":
            return share * (total["F"] + total["I"] - total["W"])
        return share * sum(total.values())

    @cached_property
    def by_stage(self) -> dict[tuple[int, bool, bool], dict[str, Seconds]]:
        return {}

    def of_stage(self, stage: Stage) -> dict[str, Seconds]:
        """One micro-batch: forward (F), backward of inputs (I), of weights (W)."""
        key = (len(stage.layers), stage.is_first, stage.is_last)
        if key not in self.by_stage:
            self.by_stage[key] = self._of_stage(stage)
        return self.by_stage[key]

    def _of_stage(self, stage: Stage) -> dict[str, Seconds]:
        num = len(stage.layers)
        parts = {kind: seconds.times(num) for kind, seconds in self.of_layer.items()}
        parts["I"] += Seconds(recompute=self.again * self._num_recomputed(stage.layers))
        if stage.is_last:
            work = operations.head(self.shape, self.software)
            for kind, own in zip("FIW", (work.forward, work.inputs, work.weights), strict=True):
                parts[kind] += self.of_operations(own)
        if stage.is_first:
            parts["F"] += Seconds(memory=3 * self.item * self.shape.between / self.bandwidth)
        if self.software.waits_for_messages and self.pp > 1:
            parts["F"] += Seconds(messages=self.message)
            parts["I"] += Seconds(messages=self.message)
        gather, reduce = self._data_each(stage)
        for kind, waiting in (("F", gather), ("W", gather + reduce)):
            work_there = parts[kind].total + (parts["I"].total if kind == "W" else 0)
            parts[kind] += Seconds(data=max(0.0, waiting - work_there))
        return parts

    @cached_property
    def work(self) -> Work:
        return operations.layer(self.shape, self.software)

    @cached_property
    def of_layer(self) -> dict[str, Seconds]:
        """One layer and micro-batch, nothing recomputed."""
        weights = self.of_operations(self.work.weights)
        forward, backward = self._tensor(weights.total)
        return {
            "F": self.of_operations(self.work.forward) + Seconds(tensor=forward),
            "I": self.of_operations(self.work.inputs) + Seconds(tensor=backward),
            "W": weights,
        }

    @cached_property
    def again(self) -> float:
        """What the backward of a layer computes a second time."""
        kind = self.parallel.recompute
        if kind == "full":
            repeated = [op for op in self.work.forward if self.software.operations != "ours" or op.name != "down"]
            return self.of_operations(repeated).total + self._tensor(0.0)[0]
        if kind == "selective":
            names = (
                ("norm", "rotary", "swiglu", "gelu")
                if self.software.operations == "ours"
                else ("scores", "softmax", "dropout", "context")
            )
            return self.of_operations(op for op in self.work.forward if op.name in names).total
        return 0.0

    def _num_recomputed(self, layers: Iterable[int]) -> int:
        if self.parallel.recompute == "full":
            return sum(index % self.parallel.recompute_every == 0 for index in layers)
        return len(list(layers))

    def _tensor(self, hiding: float) -> tuple[float, float]:
        """Collectives of a layer's forward and backward; `hiding`: seconds of products that can run beside them."""
        if self.tp == 1:
            return 0.0, 0.0
        group, whole = Group(self.tp, 1), self.item * self.shape.tokens * self.model.hidden_size
        if not self.parallel.sequence_parallel:
            both = 2 * self.collectives.all_reduce(group, whole)
            return both, both - min(both * self.software.tensor_overlap, hiding)
        gather, scatter = (
            2 * self.collectives.all_gather(group, whole),
            2 * self.collectives.reduce_scatter(group, whole),
        )
        beside = gather + scatter * self.software.tensor_overlap  # what a product needs again comes beside another one
        return gather + scatter, gather + gather + scatter - min(beside, hiding)

    def of_operations(self, work: Iterable[Operation]) -> Seconds:
        """Of some operations, one after the other."""
        products = moved = 0.0
        launches = 0
        for operation in work:
            moving = operation.bytes / self.bandwidth
            if operation.flops:
                products += max(operation.flops / (self.peak * operation.rate), moving)
            else:
                moved += moving
            launches += operation.kernels
        return Seconds(products, moved, launches * self.cluster.efficiency.seconds_per_operation)

    @cached_property
    def message(self) -> float:
        """What a stage passes on."""
        if self.pp == 1:
            return 0.0
        num_bytes = self.item * self.shape.tokens * self.model.hidden_size
        stride = self.devices // self.pp
        if self.parallel.sequence_parallel or self.tp == 1:
            return self.collectives.send(stride, num_bytes / self.shape.token_ranks)
        if not self.software.scatters_messages:
            return self.collectives.send(stride, num_bytes)
        whole_again = self.collectives.all_gather(Group(self.tp, 1), num_bytes)
        return self.collectives.send(stride, num_bytes / self.tp) + whole_again

    def parameters(self, stage: Stage) -> float:
        """Of a stage on one rank of a tensor-parallel group."""
        return parameters.of_stage(self.model, stage) / self.tp

    def _data_each(self, stage: Stage) -> tuple[float, float]:
        """Seconds of gathering and of reducing that each micro-batch of a stage costs."""
        if self.software.operations != "ours" or self.shards * self.replicas == 1 or self.parallel.zero == 1:
            return 0.0, 0.0
        numbers = self.parameters(stage)
        gather = self._gather(numbers) if self.parallel.zero == 3 or self.pp == 1 else 0.0
        return gather, self._reduce(numbers)

    def _gather(self, numbers: float) -> float:
        return self.collectives.all_gather(Group(self.shards, self.tp), numbers * self.item)

    def _reduce(self, numbers: float) -> float:
        """Gradients over shards, then over replicas of them."""
        size = numbers * self.software.gradient_bytes
        inside = self.collectives.reduce_scatter(Group(self.shards, self.tp), size)
        return inside + self.collectives.all_reduce(Group(self.replicas, self.tp * self.shards), size / self.shards)

    @cached_property
    def at_the_end(self) -> Seconds:
        """Once a step: gradients of all ranks of data parallelism, and the update."""
        owned = [0.0] * self.pp
        for stage, rank in zip(self.stages, self.owners, strict=True):
            owned[rank] += self.parameters(stage)
        numbers = max(owned)
        data = 0.0
        if self.shards * self.replicas > 1:
            if self.software.operations != "ours":
                group = Group(self.shards * self.replicas, self.tp)
                data = self.collectives.all_reduce(group, numbers * self.software.gradient_bytes)
            elif self.parallel.zero == 1:
                data = self._reduce(numbers) + self._gather(numbers)
            elif self.pp > 1 and self.parallel.zero == 2:
                data = self._gather(numbers)
            stage = self.stages[-1]
            last = self.of_stage(stage)
            data -= min(data * self.software.data_overlap, last["I"].total + last["W"].total)
        sharded = self.software.operations == "ours"
        updated = numbers / (self.shards if sharded else 1)
        if not self.parallel.offload:
            update = updated * self.software.optimizer_traffic / self.bandwidth
            return Seconds(data=data, optimizer=update)
        host = self.cluster.host
        update = updated * self.software.optimizer_traffic * self.cluster.devices_per_node / host.memory_bandwidth
        moved = updated * 4 * (1 + self.micro_batches * (2 if self.parallel.zero == 3 else 1))
        return Seconds(data=data, optimizer=update, offload=moved / host.link_bandwidth)


def _published_flops_per_token(model: ModelConfig, parallel: ParallelConfig) -> float:
    """As Narayanan et al. 2021 count (their equation 3): 96 B S L h^2 (1 + S / 6h + V / 16 L h) with full recompute."""
    hidden, layers, window = model.hidden_size, model.num_layers, model.sequence_length
    blocks = 24 * layers * hidden**2 * (1 + window / (6 * hidden))
    scores = 4 * layers * hidden * window
    logits = 6 * model.padded_vocab_size * hidden
    again = {"none": 0.0, "selective": scores, "full": blocks / parallel.recompute_every}[parallel.recompute]
    return 3 * blocks + again + logits


def with_layout(config: RunConfig, micro_batch_size: int, **parallel: object) -> RunConfig:
    """The configuration in another layout."""
    training = config.training.model_copy(update={"micro_batch_size": micro_batch_size})
    return config.model_copy(update={"training": training, "parallel": ParallelConfig.model_validate(parallel)})
