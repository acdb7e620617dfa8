"""How much memory a rank of a run will need, in bytes, from its configuration alone: nothing is allocated.

| part | bytes of a number | of which numbers (ZeRO: Rajbhandari et al. 2020, section 3) |
|---|---|---|
| weights, gradients, optimizer | 4, 4, 8 (fp64 twice) | a shard of its stages: 16 bytes each where nothing is shared |
| unreduced gradients | 4 | zero 1 with several micro-batches: of its stages what is not in the shard; else none |
| gathered weights | 2 or 4 | zero 1 and 2: its stages; zero 3: what lies outside of the blocks, and two blocks |
| activations | 2 or 4 | `workload.activations`, of as many micro-batches as the schedule's own lists hold at once |
| logits | 4 | the softmax that the loss keeps, in fp32; on the last stage; none of a loss in chunks |
| working memory | | the largest of what the moments of a step need in passing |

With `offload` the first row lies in host memory; with a GPU in pinned blocks, which torch rounds up to powers of two
(PowerOf2Ceil in ATen's CachingHostAllocator). A save in the background adds a copy of what the rank writes. Training on
a CPU all of it is host memory.

Counts of weights, gradients and optimizer are exact, those of activations as exact as the list of saved tensors there;
`tests/pretrain/workload/test_memory.py` holds them to what tensors take. What an allocator wastes is in none of them.
What a process takes before it has a model is a round allowance, not a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from pretrain.attention_backend import backend_of
from pretrain.batch_size import local_batches
from pretrain.config import ModelConfig, Precision, RunConfig, ScheduleKind
from pretrain.parallel.base import linear_cross_entropy
from pretrain.parallel.base.mesh import layout
from pretrain.parallel.base.stages import Stage
from pretrain.schedules import SCHEDULES
from pretrain.workload.activations import activations_of
from pretrain.workload.parameters import rooms_outside, specs_by_room
from pretrain.workload.pipeline import most_held, num_recomputed, own_stages, stages_of

Device = Literal["cpu", "cuda"]
ITEM_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8}
STEP_BYTES = 4  # AdamW counts the steps of each parameter
MESSAGES = 4  # between stages, on their way and expected
PROCESS_BYTES: dict[Device, int] = {
    "cpu": 400 << 20,
    "cuda": 3 << 30,
}  # allowed for Python, torch, loader; a GPU's driver


@dataclass(frozen=True)
class Estimate:
    """Bytes on each rank of one place of the pipeline."""

    pp_rank: int
    stages: tuple[int, ...]
    device: Device
    offload: bool
    weights: int
    gradients: int
    optimizer: int
    unreduced: int
    gathered: int
    activations: int
    logits: int
    working: int
    batch: int
    pinning: int  # by which pinned blocks are larger than what lies in them
    snapshot: int  # of an asynchronous save
    process: int

    @property
    def resting(self) -> int:
        """Weights, their gradients and the optimizer's state."""
        return self.weights + self.gradients + self.optimizer

    @property
    def moving(self) -> int:
        """What a step computes with."""
        return self.unreduced + self.gathered + self.activations + self.logits + self.working + self.batch

    @property
    def device_bytes(self) -> int:
        """Where the arithmetic is: on the GPU, or, of a run on the CPU, in host memory."""
        return self.moving + (0 if self.offload and self.device == "cuda" else self.resting)

    @property
    def host_bytes(self) -> int:
        """In the memory of the machine."""
        host = self.process + self.snapshot + self.pinning
        if self.device == "cpu":
            return host + self.device_bytes
        return host + (self.resting if self.offload else 0)

    @property
    def host_bytes_at_least(self) -> int:
        """Without what passes, may be there at other moments of a step, or is an allowance (`process`).

        What is left cannot be done without, beside what the process holds before it has a model.
        """
        certain = self.host_bytes - self.pinning - self.process
        if self.device == "cpu":
            certain -= self.working + min(self.gradients, self.activations + self.logits)
        return certain

    def rows(self) -> list[tuple[str, int]]:
        """Every part by name, for tables."""
        parts = [field.name for field in fields(self)][4:]
        return [(name, getattr(self, name)) for name in parts]

    def host_rows(self) -> list[tuple[str, int]]:
        """Those parts that lie in the memory of the machine."""
        return [(name, size) for name, size in self.rows() if self.device == "cpu" or name not in self.device_parts]

    @property
    def device_parts(self) -> dict[str, int]:
        """Those parts, of any size, that lie where the arithmetic is: `device_bytes` together."""
        on_host = {"pinning", "snapshot", "process"}
        if self.offload and self.device == "cuda":
            on_host |= {"weights", "gradients", "optimizer"}
        return {name: size for name, size in self.rows() if name not in on_host}


def worst(estimates: Sequence[Estimate]) -> Estimate:
    """The place of the pipeline whose ranks need most where the arithmetic is."""
    return max(estimates, key=lambda estimate: estimate.device_bytes)


def estimate(config: RunConfig, world_size: int, device: Device = "cuda") -> list[Estimate]:
    """What the ranks of each place of the pipeline need; ranks of one place need the same, but for rounding.

    Raises:
        UsageError: the layout does not fit the number of ranks, or the batch does not divide over them.
    """
    run = _Run(config, world_size, device)
    return [run.place(pp_rank).estimate(pp_rank) for pp_rank in range(config.parallel.pp)]


def most_bytes(config: RunConfig, world_size: int, device: Device = "cuda") -> tuple[int, int]:
    """The most that ranks of any place need (device_bytes, host_bytes), in less time: a search asks it of thousands.

    Raises:
        UsageError: as `estimate` does.
    """
    run, parallel = _Run(config, world_size, device), config.parallel
    cut = (parallel.schedule, parallel.pp, parallel.chunks, parallel.layers_per_stage, parallel.recompute_every)
    places = [(run.place(pp_rank), pp_rank) for pp_rank in _fullest_ranks(config.model, *cut)]
    most = max(place.empty.device_bytes + place.held(pp_rank) for place, pp_rank in places)
    if device == "cpu":
        return most, max(place.empty.host_bytes + place.held(pp_rank) for place, pp_rank in places)
    return most, max(place.empty.host_bytes for place, _ in places)


@lru_cache(maxsize=4096)
def _fullest_ranks(
    model: ModelConfig,
    schedule: ScheduleKind,
    pp: int,
    chunks: int,
    layers_per_stage: tuple[int, ...] | None,
    every: int,
) -> tuple[int, ...]:
    """Ranks of a pipeline among which those that need most are: of places that are alike the first, which never holds
    less where ranks work in turns.

    Under another order, such as ZB-V's, a rank may hold more of one stage and less of another: all of them.
    """
    if SCHEDULES[schedule].turns is None:
        return tuple(range(pp))
    stages = stages_of(model, pp * chunks, layers_per_stage)
    ranks: dict[tuple[object, ...], int] = {}
    for pp_rank, own in enumerate(own_stages(schedule, pp, chunks)):
        ranks.setdefault(_alike([stages[index] for index in own], every), pp_rank)
    return tuple(ranks.values())


def _alike(stages: Sequence[Stage], every: int) -> tuple[object, ...]:
    """What two places have in common whose ranks need the same but for the micro-batches that they hold."""
    return tuple((len(stage.layers), num_recomputed(stage, every), stage.is_first, stage.is_last) for stage in stages)


class _Group(NamedTuple):
    """Parameters that are gathered together: those of a block, or what lies outside of the blocks."""

    shards: tuple[int, ...]  # numbers of each, on one data-parallel rank
    shard: int  # their sum
    pinned: int  # their sum in blocks of powers of two
    whole: int  # the sum on all of them together
    largest: int  # the most of one parameter, on all of them together


class _Run:
    """What is the same at all places of the pipeline."""

    def __init__(self, config: RunConfig, world_size: int, device: Device) -> None:
        parallel, training = config.parallel, config.training
        self.config, self.parallel, self.device = config, parallel, device
        _, self.replicas, self.shards, _ = layout(parallel, world_size)
        data_ranks = self.replicas * self.shards
        self.zero = parallel.zero_over(self.shards)
        self.item = ITEM_BYTES[training.precision]
        self.wide = max(4, self.item)
        is_low = training.precision in ("bf16", "fp16")
        self.is_wrapped = data_ranks > 1 or is_low or parallel.offload or parallel.tp > 1  # as `fsdp.shard` decides
        self.num_samples, self.micro_batch_size = local_batches(training, training.global_batch_size, data_ranks)
        self.num_micro_batches = self.num_samples // self.micro_batch_size
        self.tokens = self.micro_batch_size * config.model.sequence_length
        self.stages = stages_of(config.model, parallel.num_stages, parallel.layers_per_stage)
        self.own = own_stages(parallel.schedule, parallel.pp, parallel.chunks)
        self.is_split = parallel.splits_backward
        kind = (parallel.tp, parallel.sequence_parallel, parallel.recompute)
        backend = backend_of(config, device, self.item).backend
        self.kept = activations_of(config.model, *kind, self.item, backend, device == "cpu")
        self.loss_in_chunks = 0  # bytes that pass
        entries, hidden = config.model.padded_vocab_size // parallel.tp, config.model.hidden_size
        if linear_cross_entropy.is_chunked(self.tokens, entries, self.is_split):
            self.kept = self.kept._replace(logits=0, logits_in_passing=0)
            numbers = linear_cross_entropy.CHUNK_LOGITS + self.tokens * hidden  # of a chunk; of the gradient of x
            self.loss_in_chunks = (self.wide + 2 * self.item) * numbers + self.item * entries * hidden
        self.block = self.group("layer")
        self.places: dict[tuple[object, ...], _Place] = {}

    def group(self, *rooms: str) -> _Group:
        """Parameters of some rooms (`layer`: of one) on one rank of a tensor-parallel group."""
        return _group(self.config.model, rooms, self.parallel.tp, self.shards if self.is_wrapped else 1)

    def place(self, pp_rank: int) -> _Place:
        """One of the pipeline; places whose stages are alike are one object."""
        stages = [self.stages[index] for index in self.own[pp_rank]]
        key = _alike(stages, self.parallel.recompute_every)
        if key not in self.places:
            self.places[key] = _Place(self, stages)
        return self.places[key]


class _Place:
    """A place of the pipeline, or several that are alike but for the micro-batches that they hold."""

    def __init__(self, run: _Run, stages: Sequence[Stage]) -> None:
        self.run, self.stages = run, stages
        self.num_layers = sum(len(stage.layers) for stage in stages)
        self.outside = [run.group(*rooms_outside(run.config.model, stage.is_first, stage.is_last)) for stage in stages]
        self.whole = self.num_layers * run.block.whole + sum(group.whole for group in self.outside)
        self.shard = self.num_layers * run.block.shard + sum(group.shard for group in self.outside)
        self.kept = [self._kept_of(stage) for stage in stages]
        self.logits = [run.tokens * run.kept.logits if stage.is_last else 0 for stage in stages]
        self.empty = self._empty()

    def estimate(self, pp_rank: int) -> Estimate:
        """All parts."""
        logits = self._most(self.logits, pp_rank) if any(self.logits) else 0
        activations = self.held(pp_rank) - logits
        own = self.run.own[pp_rank]
        return replace(self.empty, pp_rank=pp_rank, stages=own, activations=activations, logits=logits)

    def held(self, pp_rank: int) -> int:
        """What the micro-batches in flight keep at most, their logits included."""
        return self._most(self.kept, pp_rank)

    def _most(self, sizes: Sequence[int], pp_rank: int) -> int:
        run, parallel = self.run, self.run.parallel
        num = run.num_micro_batches
        return int(most_held(parallel.schedule, parallel.pp, parallel.chunks, num, pp_rank, sizes))

    def _empty(self) -> Estimate:
        """Before the first micro-batch."""
        run = self.run
        groups = [(1, group) for group in self.outside] + [(self.num_layers, run.block)]
        weights = run.wide * self.shard
        num_tensors = sum(times * len(group.shards) for times, group in groups)
        optimizer = 2 * weights + num_tensors * STEP_BYTES
        offload, is_gpu = run.parallel.offload, run.device == "cuda"
        written = -(-(weights + optimizer) // run.replicas) if run.config.checkpoint.async_save else 0
        num_pinned = 2 * offload + 3 * (written > 0) / run.replicas  # weights, gradients; the copies of a save
        rounding = 0
        if is_gpu and num_pinned:
            rounding = run.wide * sum(times * group.pinned for times, group in groups) - weights
        return Estimate(
            pp_rank=0,
            stages=(),
            device=run.device,
            offload=offload,
            weights=weights,
            gradients=weights,
            optimizer=optimizer,
            unreduced=self._unreduced(),
            gathered=self._gathered(),
            activations=0,
            logits=0,
            working=self._working(),
            batch=self._batch(),
            pinning=int(rounding * num_pinned),
            snapshot=written,
            process=PROCESS_BYTES[run.device],
        )

    def _kept_of(self, stage: Stage) -> int:
        """By one micro-batch in one stage, its logits included."""
        run, kept = self.run, self.run.kept
        num, num_again = len(stage.layers), num_recomputed(stage, run.parallel.recompute_every)
        token = kept.of_stage + num_again * kept.first_block + (num - num_again) * kept.whole_block
        deferred = num * kept.block_deferred
        if stage.is_last:
            token += kept.head + kept.logits
            deferred += kept.head_deferred
        return run.tokens * max(token, deferred if run.is_split else 0)

    def _unreduced(self) -> int:
        """Whole gradients that one micro-batch leaves to the next, beyond what they are reduced to, which replaces
        them."""
        run = self.run
        if not (run.is_wrapped and run.zero == 1 and run.num_micro_batches > 1):
            return 0
        replaced = 0 if run.parallel.offload and run.device == "cuda" else self.shard
        return run.wide * (self.whole - replaced)

    def _gathered(self) -> int:
        run = self.run
        if not run.is_wrapped:
            return 0
        if run.zero < 3:
            return run.item * self.whole
        outside = sum(group.whole for group in self.outside)
        return run.item * (outside + 2 * run.block.whole)  # one in use, and the next one on its way

    def _working(self) -> int:
        """The most that a moment needs in passing; `fsdp` reduces a group from a buffer in fp32, the one before it
        still there."""
        run, kept, tokens, block = self.run, self.run.kept, self.run.tokens, self.run.block.whole
        outside = max(group.whole for group in self.outside)
        is_last = any(stage.is_last for stage in self.stages)
        at_logits = tokens * kept.logits_in_passing + run.loss_in_chunks if is_last else 0
        gathering = 2 * run.item * block if run.shards > 1 else 0
        in_block = tokens * kept.block_in_backward
        if not run.is_wrapped:
            largest = max(group.largest for group in (run.block, *self.outside))
            return max(at_logits, in_block + run.wide * largest)
        in_block += (2 * run.wide + run.item) * block + run.item * outside
        at_end = (run.wide + run.item) * outside + run.wide * outside // run.shards
        at_end -= min(self.kept)  # of a micro-batch that is done by then
        moments = [at_logits, gathering, in_block, at_end]
        if run.is_split:  # all weights of a stage at once
            of_stage = [
                len(stage.layers) * block + group.whole for stage, group in zip(self.stages, self.outside, strict=True)
            ]
            moments.append(run.wide * (max(of_stage) + 2 * block))
        return max(moments)

    def _batch(self) -> int:
        """Tokens and targets of the step's micro-batches, and messages between stages."""
        run, config = self.run, self.run.config
        on_host = config.model.document_mask + config.data.prefix_lm if run.device == "cpu" else 0
        num_extra = config.data.reset_positions + on_host
        numbers = run.num_samples * config.model.sequence_length * (2 * 8 + 4 * num_extra)
        return numbers + (MESSAGES * run.tokens * run.kept.message if run.parallel.pp > 1 else 0)


@lru_cache(maxsize=4096)
def _group(model: ModelConfig, rooms: tuple[str, ...], tp: int, num_shards: int) -> _Group:
    shards, wholes = [], []
    for room in rooms:
        for spec in specs_by_room(model).get(room, ()):
            local = [length // tp if dim == spec.tp_dim else length for dim, length in enumerate(spec.shape)]
            rows, columns = local[0], math.prod(local[1:])
            shards.append(
                -(-rows // num_shards) * columns
            )  # the first rank has the largest, and all of them room for it
            wholes.append(rows * columns)
    pinned = sum(map(_power_of_two, shards))
    return _Group(tuple(shards), sum(shards), pinned, sum(wholes), max(wholes, default=0))


def _power_of_two(number: int) -> int:
    """The next one.

    >>> [_power_of_two(number) for number in (1, 1000, 1024)]
    [1, 1024, 1024]
    """
    return 1 << max(0, number - 1).bit_length()
