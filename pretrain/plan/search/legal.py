"""Every layout that a model, a batch and a number of devices allow, as plain numbers that are cheap to make and
compare."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_args

from pretrain.batch_size import increasing_sizes
from pretrain.config import ParallelConfig, Recompute, RunConfig, ScheduleKind, TrainingConfig, Zero
from pretrain.parallel.base.mesh import layout
from pretrain.plan.machines.cluster import Cluster
from pretrain.schedules import DEFAULT, SCHEDULES
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

SELECTIVE = ("ours", "megatron-2022")  # programs with selective recompute and sequence parallelism

T = TypeVar("T")


class Layout(NamedTuple):
    """One layout over ranks: the fields of `ParallelConfig`, nothing left to a default, and the micro-batch."""

    tp: int
    pp: int
    dp_replicate: int
    dp_shard: int
    micro_batch_size: int
    schedule: ScheduleKind = DEFAULT
    stages_per_rank: int = 1
    layers_per_stage: tuple[int, ...] | None = None
    sequence_parallel: bool = True
    zero: Zero = 1
    offload: bool = False
    recompute: Recompute = "none"
    recompute_every: int = 1

    @classmethod
    def of(cls, config: RunConfig, devices: int) -> Layout:
        """The layout of a configuration, what has no effect in its plainest form.

        Raises:
            UsageError: it is not one of that number of devices.
        """
        parallel, training = config.parallel, config.training
        pp, replicate, shard, tp = layout(parallel, devices)
        same = ("layers_per_stage", "zero", "offload", "recompute", "recompute_every")
        return cls(
            tp,
            pp,
            replicate,
            shard,
            min(training.micro_batch_size, max(1, training.global_batch_size // (replicate * shard))),
            schedule=parallel.schedule if pp > 1 else DEFAULT,
            stages_per_rank=parallel.chunks,
            sequence_parallel=parallel.sequence_parallel or tp == 1,
            **{name: getattr(parallel, name) for name in same},
        )

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks."""
        return self.dp_replicate * self.dp_shard

    def configure(self, config: RunConfig) -> RunConfig:
        """The configuration in this layout, unchecked: checking takes longer than predicting."""
        own = self._asdict() | {"stages_per_rank": self.stages_per_rank if self.pp > 1 else None}
        del own["micro_batch_size"]
        parallel = ParallelConfig.model_construct(None, **own)
        training = config.training.model_copy(update={"micro_batch_size": self.micro_batch_size})
        return config.model_copy(update={"training": training, "parallel": parallel})


def neighbours(layout: Layout) -> Iterator[tuple[str, Any, Layout]]:
    """One field changed at a time, with what follows from that in others: its name, its value, the layout."""

    def of(name: str, value: Any, **beside: Any) -> tuple[str, Any, Layout]:
        return name, value, layout._replace(**{name: value}, **beside)

    ranks = layout.pp * layout.data_parallel * layout.tp
    for name, other in (("tp", layout.pp), ("pp", layout.tp)):
        for value in _halves_and_doubles(getattr(layout, name)):
            if ranks % (value * other) == 0:
                beside: dict[str, Any] = {"dp_replicate": 1, "dp_shard": ranks // (value * other)}
                if name == "pp":
                    chunks = layout.stages_per_rank if layout.pp > 1 and value > 1 else 1
                    beside |= {"layers_per_stage": None, "stages_per_rank": chunks}
                yield of(name, value, **beside)
    for value in _halves_and_doubles(layout.micro_batch_size):
        yield of("micro_batch_size", value)
    for recompute in _others(get_args(Recompute), layout.recompute):
        yield of("recompute", recompute, recompute_every=1)
    for zero in _others(get_args(Zero), layout.zero) if layout.data_parallel > 1 else ():
        yield of("zero", zero)
    if layout.pp > 1:
        for schedule in _others(SCHEDULES, layout.schedule):
            fewest, own = SCHEDULES[schedule].fewest_chunks, layout.stages_per_rank
            chunks = own if fewest > 1 and SCHEDULES[schedule].runs(own) else fewest
            yield of("schedule", schedule, stages_per_rank=chunks, layers_per_stage=None)
        for value in filter(SCHEDULES[layout.schedule].runs, _halves_and_doubles(layout.stages_per_rank)):
            yield of("stages_per_rank", value, layers_per_stage=None)
    if layout.tp > 1:
        yield of("sequence_parallel", not layout.sequence_parallel)
    yield of("offload", not layout.offload)


def _others(kinds: Iterable[Any], own: object) -> list[Any]:
    """In a fixed order: of what a set would give nobody knows the first."""
    return [kind for kind in kinds if kind != own]


def _halves_and_doubles(value: int) -> list[int]:
    return [value // 2, 2 * value] if value % 2 == 0 else [2 * value]


def divisors(number: int) -> list[int]:
    """All of them, the smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in reversed(small) if divisor**2 != number]


@dataclass(frozen=True)
class Constraints:
    """What a search leaves open: of each of these the values it may take, None for all that are worth trying."""

    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    data_parallel: tuple[int, ...] | None = None
    dp_replicate: tuple[int, ...] | None = None
    micro_batch_size: tuple[int, ...] | None = None
    schedule: tuple[ScheduleKind, ...] | None = None  # gpipe only where it is named
    stages_per_rank: tuple[int, ...] | None = None
    recompute: tuple[Recompute, ...] | None = None
    recompute_every: tuple[int, ...] | None = None
    zero: tuple[Zero, ...] | None = None
    sequence_parallel: tuple[bool, ...] | None = None
    offload: tuple[bool, ...] | None = None  # None: offload only where nothing fits without


@dataclass(frozen=True)
class Rejected:
    """Layouts that are not among those found, and what they have in common."""

    family: str  # "tensor parallel 16"
    reason: str  # one sentence with numbers
    layouts: int  # how many


@dataclass(frozen=True)
class Space:
    """All layouts of `devices` devices that a program can run, shape by shape (tp x pp x micro-batch size).

    Ours runs what `RunConfig` accepts. Megatron-LM cuts layers into equal stages and interleaves them only where the
    pipeline's ranks divide the micro-batches (Narayanan et al. 2021); it knows selective recompute and sequence
    parallelism since Korthikanti et al. 2022. DeepSpeed's stages 2 and 3 run without a pipeline.
    """

    config: RunConfig
    devices: int
    cluster: Cluster
    software: FrameworkProfile = OURS
    constraints: Constraints = Constraints()

    @property
    def is_ours(self) -> bool:
        """Or a published program."""
        return self.software.operations == "ours"

    def tensor_degrees(self) -> list[int]:
        """Numbers of ranks that can share each matrix, as `RunConfig` checks them."""
        model = self.config.model
        degrees = divisors(math.gcd(model.kv_heads, model.ffn_size, model.padded_vocab_size))
        return [tp for tp in degrees if self.devices % tp == 0]

    def straddles(self, tp: int) -> bool:
        """Whether some groups of tensor-parallel ranks would lie in two nodes while others do not."""
        node = self.cluster.devices_per_node
        return self.devices > node and node % tp != 0 and tp % node != 0

    def shapes(self) -> Iterator[Layout]:
        """Everything but tp, pp, data-parallel ranks and micro-batch size in its plainest form."""
        chosen = self.constraints
        sizes = batch_sizes(self.config.training)
        for tp in _among(self.tensor_degrees(), chosen.tp):
            if self.straddles(tp) and chosen.tp is None:
                continue
            for pp in _among(divisors(self.devices // tp), chosen.pp):
                data = self.devices // (tp * pp)
                if (
                    not self._can_cut(pp)
                    or any(size % data for size in sizes)
                    or not _allowed(data, chosen.data_parallel)
                ):
                    continue
                for size in _among(divisors(sizes[-1] // data), chosen.micro_batch_size):
                    if all(own // data % min(size, own // data) == 0 for own in sizes):
                        shape = Layout(tp, pp, 1, data, size)
                        if self.schedules(shape):
                            yield shape

    def _can_cut(self, num_stages: int) -> bool:
        layers = self.config.model.num_layers
        return num_stages <= layers and (self.is_ours or layers % num_stages == 0)

    def schedules(self, shape: Layout) -> list[tuple[ScheduleKind, int]]:
        """Schedules and stages on each rank."""
        if shape.pp == 1:
            return [(DEFAULT, 1)]
        return [
            (schedule, chunks)
            for schedule in sorted(SCHEDULES, key=lambda name: not SCHEDULES[name].searched_chunks)
            for chunks in self._chunks(schedule, shape)
            if self._can_cut(shape.pp * chunks)
        ]

    def _chunks(self, schedule: str, shape: Layout) -> list[int]:
        """Stages on each rank that a schedule is tried with; none where the program does not run it, or a run is held
        to others."""
        spec, chosen = SCHEDULES[schedule], self.constraints
        tried = spec.searched_chunks or ((spec.fewest_chunks,) if chosen.schedule is not None else ())
        if not tried or not _allowed(schedule, chosen.schedule):
            return []
        if spec.splits_backward and (not self.is_ours or self.config.training.compile is True):
            return []
        if spec.fewest_chunks > 1 and not self.is_ours and self.micro_batches(shape) % shape.pp:
            return []
        if chosen.stages_per_rank is not None:
            return [chunks for chunks in chosen.stages_per_rank if spec.runs(chunks)]
        layers = self.config.model.num_layers
        return [chunks for chunks in tried if chunks in (1, 2, 4) or layers % (shape.pp * chunks) == 0]

    def micro_batches(self, shape: Layout) -> int:
        """Of a step, on each data-parallel rank."""
        return self.config.training.global_batch_size // shape.data_parallel // shape.micro_batch_size

    def sequence_parallel(self, shape: Layout) -> list[bool]:
        """Without tensor parallelism there is nothing to choose."""
        if shape.tp == 1:
            return [True]
        values = [True, False] if self.software.name in SELECTIVE else [False]
        if self.config.model.sequence_length % shape.tp:
            values = [False]
        return _among(values, self.constraints.sequence_parallel)

    def sharding(self, shape: Layout) -> list[tuple[Zero, int]]:
        """ZeRO, and replicas of the shards: none, one for each node, one on each rank."""
        data, node = shape.data_parallel, max(1, self.cluster.devices_per_node // shape.tp)
        zeros: list[Zero] = [1, 2, 3]
        if not self.software.shards or (not self.is_ours and shape.pp > 1):
            zeros = [1]
        replicas = [1] + [data // node] * (1 < node < data and data % node == 0) + [data] * (data > 1)
        if not self.is_ours:
            replicas = [1]
        if self.constraints.dp_replicate is not None:
            replicas = [number for number in self.constraints.dp_replicate if data % number == 0]
        pairs = [(zero, number) for zero in _among(zeros, self.constraints.zero) for number in replicas]
        shared = [(zero, number) for zero, number in pairs if zero == 1 or number < data or data == 1]
        return shared or pairs

    def recomputes(self) -> list[tuple[Recompute, int]]:
        """From the fastest to that which keeps least; of every second layer may be either side of selective."""
        kinds: list[tuple[Recompute, int]] = [("none", 1), ("selective", 1)]
        kinds += [("full", every) for every in ((4, 2, 1) if self.is_ours else (1,))]
        if self.software.name not in SELECTIVE:
            kinds.remove(("selective", 1))
        chosen = self.constraints
        return [
            kind for kind in kinds if _allowed(kind[0], chosen.recompute) and _allowed(kind[1], chosen.recompute_every)
        ]

    def size(self, shape: Layout) -> int:
        """Layouts of a shape, without offload."""
        each = (self.schedules(shape), self.sequence_parallel(shape), self.sharding(shape), self.recomputes())
        return math.prod(len(values) for values in each)

    def cut(self, shape: Layout, schedule: ScheduleKind, chunks: int) -> Layout:
        """A shape in stages."""
        stages = shape.pp * chunks
        equal = None if self.is_ours or shape.pp == 1 else (self.config.model.num_layers // stages,) * stages
        return shape._replace(schedule=schedule, stages_per_rank=chunks, layers_per_stage=equal)


def batch_sizes(training: TrainingConfig) -> list[int]:
    """All that a run takes; the full one last."""
    return [*increasing_sizes(training.global_batch_size, training.rampup), training.global_batch_size]


def _allowed(value: T, chosen: Collection[T] | None) -> bool:
    """Whether a constraint leaves it."""
    return chosen is None or value in chosen


def _among(values: list[T], chosen: Collection[T] | None) -> list[T]:
    return [value for value in values if _allowed(value, chosen)]
