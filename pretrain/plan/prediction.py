"""What `plan.cost` says of one layout: seconds of a step by part, memory, and the figures that follow from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

from pretrain.config import ModelConfig, ParallelConfig, RunConfig
from pretrain.parallel.base.stages import layer_flops
from pretrain.plan.machines.cluster import Cluster
from pretrain.workload import megatron_memory, memory
from pretrain.workload.flops import flops_per_token, hardware_flops_per_token
from pretrain.workload.framework_profiles import FrameworkProfile
from pretrain.workload.memory import Estimate

if TYPE_CHECKING:
    from pretrain.plan.time.step_time import StepTime

RESERVED = 0.92  # of a device's memory that a layout may take; the rest is the driver's and the allocator's
DAY = 24 * 3600
Axis = Literal["tensor", "pipeline", "data"]
Phase = Literal["forward", "backward of inputs", "backward of weights", "recompute"]


class Seconds(NamedTuple):
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
        return sum(self)

    @property
    def named(self) -> dict[str, float]:
        """The parts by name."""
        return self._asdict()

    def __add__(self, other: Seconds) -> Seconds:  # type: ignore[override]
        if other is NO_SECONDS:
            return self
        return other if self is NO_SECONDS else Seconds(*map(add, self, other))

    def times(self, number: float) -> Seconds:
        """As many of these."""
        return Seconds(*(part * number for part in self))


NO_SECONDS = Seconds()


@dataclass(frozen=True)
class Traffic:
    """Seconds of a step in which a rank exchanges something: while it computes, and while it waits for that."""

    hidden: float = 0.0
    exposed: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.hidden + self.exposed

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.hidden + other.hidden, self.exposed + other.exposed)

    def times(self, number: float) -> Traffic:
        """As many of these."""
        return Traffic(self.hidden * number, self.exposed * number)


@dataclass(frozen=True)
class OperationSeconds:
    """One line of the table of operations: what the busiest rank does with it in a step."""

    name: str
    part: str  # layer, head, embedding, or data: what sharding copies
    phase: Phase
    times: int  # in a step
    flops: float  # of all these times, as the bytes and the seconds
    bytes: float
    seconds: float
    is_bound_by_memory: bool


@dataclass(frozen=True)
class Prediction:
    """One layout on one cluster."""

    config: RunConfig
    devices: int
    cluster: Cluster
    software: FrameworkProfile
    seconds: Seconds  # of a step, on its busiest rank
    micro_batches: int  # of a step, on each data-parallel rank
    micro_batch_size: int
    communication: Mapping[Axis, Traffic]
    step: StepTime = field(repr=False, compare=False)

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

    def days(self, num_tokens: float) -> float:
        """Until that many tokens are trained on, without what is not a step: evaluation, saves, failures."""
        return num_tokens / self.tokens_per_second / DAY

    @property
    def bubble(self) -> float:
        """Time a rank waits for other stages over the time of its own work: (p - 1) / m of 1F1B (Narayanan et al.
        2021)."""
        at_the_end = self.seconds.data + self.seconds.optimizer + self.seconds.offload
        return self.seconds.bubble / (self.seconds.total - at_the_end - self.seconds.bubble)

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
    def mfu(self) -> float:
        """Share of the device's peak that the model's own arithmetic is (`workload.flops`)."""
        return self.model_tflops_per_gpu * 1e12 / self._peak

    @property
    def hfu(self) -> float:
        """The same of the hardware's, as `tflops_per_gpu` counts it."""
        return self.tflops_per_gpu * 1e12 / self._peak

    @cached_property
    def estimates(self) -> Sequence[Estimate]:
        """Memory of a rank of each place of the pipeline."""
        if self.software.operations != "ours":
            return megatron_memory.estimate(self.config, self.devices, self.software)
        return memory.estimate(self.config, self.devices, _kind(self.cluster))

    @property
    def worst(self) -> Estimate:
        """Memory where most is needed."""
        return memory.worst(self.estimates)

    @property
    def memory_bytes(self) -> int:
        """On the fullest device."""
        return self._most_bytes[0]

    @property
    def host_bytes_per_node(self) -> int:
        """In the memory of a machine, of all ranks there; where places of the pipeline differ, of those that need
        most."""
        return ranks_per_machine(self.cluster, self.devices) * self._most_bytes[1]

    @property
    def missing(self) -> tuple[bool, int]:
        """Whether it is the fullest device's memory that is too small, or else a machine's, and by how much."""
        device, host = missing(self.cluster, self.devices, *self._most_bytes)
        return device > 0, max(0, device if device > 0 else host)

    @property
    def missing_bytes(self) -> int:
        """By which that memory is too small; 0: the layout fits."""
        return self.missing[1]

    @property
    def fits(self) -> bool:
        """In the memory of devices (a share `RESERVED` of it) and machines."""
        return self.missing_bytes == 0

    @property
    def work(self) -> Sequence[OperationSeconds]:
        """What the busiest rank computes in a step, by operation."""
        return self.step.operation_seconds()

    @cached_property
    def _most_bytes(self) -> tuple[int, int]:
        return most_bytes(self.config, self.devices, self.cluster, self.software)

    @property
    def _peak(self) -> float:
        return self.cluster.known_peak(self.config.training.precision)


def most_bytes(config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile) -> tuple[int, int]:
    """(device_bytes, host_bytes) of the fullest ranks; raises as `predict` does."""
    if software.operations == "ours":
        return memory.most_bytes(config, devices, _kind(cluster))
    estimates = megatron_memory.estimate(config, devices, software)
    return max(each.device_bytes for each in estimates), max(each.host_bytes for each in estimates)


def _kind(cluster: Cluster) -> memory.Device:
    return "cpu" if cluster.cores else "cuda"


def ranks_per_machine(cluster: Cluster, devices: int) -> int:
    """Those that share its memory: all ranks on CPUs, which may be more than cores, are on one."""
    return devices if cluster.cores is not None else min(devices, cluster.devices_per_node)


def missing(cluster: Cluster, devices: int, device_bytes: int, host_bytes: int) -> tuple[int, int]:
    """Bytes by which a device and a machine are too small for ranks that need so much; not above 0: they have room.

    A device gives a share `RESERVED` of its memory. A CPU's memory is the machine's alone, and what a rank has on it
    counts there.
    """
    held = device_bytes * cluster.efficiency.held
    device = int(held - RESERVED * cluster.device.memory_gib * 2**30) if cluster.cores is None else 0
    if cluster.cores is not None:
        host_bytes += int(held) - device_bytes
    host = ranks_per_machine(cluster, devices) * host_bytes - int(cluster.host.memory_gib * 2**30)
    return device, host


def _published_flops_per_token(model: ModelConfig, parallel: ParallelConfig) -> float:
    """As Narayanan et al. 2021 count (their equation 3): 96 B S L h^2 (1 + S / 6h + V / 16 L h) with full recompute."""
    scores = 4 * model.num_layers * model.num_heads * model.head_size * model.sequence_length
    whole = layer_flops(model) * len(range(0, model.num_layers, parallel.recompute_every))
    return flops_per_token(model) + {"none": 0.0, "selective": scores, "full": whole}[parallel.recompute]
