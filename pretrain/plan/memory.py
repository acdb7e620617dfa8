"""How much memory a rank of a run will need, in bytes, from its configuration alone: nothing is allocated.

| part | bytes of a number | of which numbers (ZeRO: Rajbhandari et al. 2020, section 3) |
|---|---|---|
| weights, gradients, optimizer | 4, 4, 8 (fp64 twice that) | a shard of this rank's stages: 16 bytes a parameter where nothing is shared |
| unreduced gradients | 4 | zero 1 with several micro-batches: all of its stages; else of what a backward is at |
| gathered weights | 2 or 4 | zero 1 and 2: its stages; zero 3: what lies outside of the blocks, and two blocks |
| activations | 2 or 4 | `plan.activations`, of as many micro-batches as the schedule's own lists hold at once |
| logits | 4 | the softmax that the loss keeps, in fp32; on the last stage |
| working memory | | the largest of what the moments of a step need in passing |

With `offload` the first row lies in host memory; with a GPU in pinned blocks, which torch rounds up to powers of two
(PowerOf2Ceil in ATen's CachingHostAllocator). A save in the background adds a copy of what the rank writes. Training on
a CPU all of it is host memory.

Counts of weights, gradients and optimizer are exact, those of activations as exact as the list of saved tensors there;
`tests/pretrain/plan/test_memory.py` holds them to what tensors take. What an allocator wastes is in none of them. What a
process takes before it has a model is a round allowance, not a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from pretrain.batch_size import local_batches
from pretrain.config import Precision, RunConfig
from pretrain.parallel.mesh import layout
from pretrain.parallel.params import ParamSpec, part_specs
from pretrain.parallel.schedule import actions, stage_ranks
from pretrain.parallel.simulate import most_held
from pretrain.parallel.stages import Stage, cut
from pretrain.plan.activations import Activations

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
        resting, beside = ("weights", "gradients", "optimizer"), ("pinning", "snapshot", "process")
        everywhere = self.device == "cpu"
        return [
            (name, size)
            for name, size in self.rows()
            if everywhere or name in beside or (self.offload and name in resting)
        ]


def worst(estimates: Sequence[Estimate]) -> Estimate:
    """The place of the pipeline whose ranks need most where the arithmetic is."""
    return max(estimates, key=lambda estimate: estimate.device_bytes)


def estimate(config: RunConfig, world_size: int, device: Device = "cuda") -> list[Estimate]:
    """What the ranks of each place of the pipeline need; ranks of one place need the same, but for rounding.

    Raises:
        UsageError: the layout does not fit the number of ranks, or the batch does not divide over them.
    """
    parallel = config.parallel
    layout(parallel, world_size)
    held_by = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    stages = cut(config.model, parallel.num_stages, parallel.layers_per_stage)
    ours: list[list[Stage]] = [[] for _ in range(parallel.pp)]
    for stage, rank in zip(stages, held_by, strict=True):
        ours[rank].append(stage)
    run = _Run(config, world_size, device)
    return [_Place(run, pp_rank, own).estimate() for pp_rank, own in enumerate(ours)]


class _Group(NamedTuple):
    """Parameters that are gathered together: those of a block, or what lies outside of the blocks."""

    shards: list[int]  # numbers of each, on one data-parallel rank
    wholes: list[int]  # and on all of them together

    @property
    def shard(self) -> int:
        return sum(self.shards)

    @property
    def whole(self) -> int:
        return sum(self.wholes)


class _Run:
    """What is the same at all places of the pipeline."""

    def __init__(self, config: RunConfig, world_size: int, device: Device) -> None:
        parallel, training = config.parallel, config.training
        self.config, self.parallel, self.device = config, parallel, device
        _, self.replicas, self.shards, _ = layout(parallel, world_size)
        data_ranks = self.replicas * self.shards
        self.item = ITEM_BYTES[training.precision]
        self.wide = max(4, self.item)
        is_low = training.precision in ("bf16", "fp16")
        self.is_wrapped = data_ranks > 1 or is_low or parallel.offload or parallel.tp > 1  # as `fsdp.shard` decides
        self.num_samples, self.micro_batch_size = local_batches(training, training.global_batch_size, data_ranks)
        self.num_micro_batches = self.num_samples // self.micro_batch_size
        self.tokens = self.micro_batch_size * config.model.sequence_length
        self.plan = actions(parallel.schedule, parallel.pp, parallel.chunks, self.num_micro_batches)
        self.is_split = any(action.kind == "W" for action in self.plan[0])
        has_mask = config.model.document_mask or config.data.prefix_lm
        self.kept = Activations(config.model, parallel, self.item, has_mask, on_cpu=device == "cpu")
        specs = part_specs(config.model)
        self.block = self.group(spec for spec in specs if spec.name.startswith("layers.0."))  # as all others
        self.outside = [spec for spec in specs if not spec.name.startswith("layers.")]

    def group(self, specs: Iterable[ParamSpec]) -> _Group:
        """On one rank of a tensor-parallel group."""
        group = _Group([], [])
        for spec in specs:
            shape = [
                length // self.parallel.tp if dim == spec.tp_dim else length for dim, length in enumerate(spec.shape)
            ]
            rows, columns = shape[0], math.prod(shape[1:])
            if self.is_wrapped:  # the first rank has the largest shard, and all of them room for it
                rows = -(-rows // self.shards)
            group.shards.append(rows * columns)
            group.wholes.append(math.prod(shape))
        return group

    def groups(self, stage: Stage) -> list[_Group]:
        """Of each block, and of what else a stage has."""
        outside = self.group(spec for spec in self.outside if _is_in(spec, stage, self.config.model.tied))
        return [self.block] * len(stage.layers) + [outside]


class _Place:
    """One place of the pipeline: `estimate` is the sum of its parts."""

    def __init__(self, run: _Run, pp_rank: int, stages: Sequence[Stage]) -> None:
        self.run, self.pp_rank, self.stages = run, pp_rank, stages
        self.parts = [run.groups(stage) for stage in stages]
        self.groups = [group for part in self.parts for group in part]

    def estimate(self) -> Estimate:
        """All parts."""
        run = self.run
        held, logits = self._held()
        shards = [number for group in self.groups for number in group.shards]
        weights, num_tensors = run.wide * sum(shards), len(shards)
        optimizer = 2 * weights + num_tensors * STEP_BYTES
        offload, is_gpu = run.parallel.offload, run.device == "cuda"
        written = -(-(weights + optimizer) // run.replicas) if run.config.checkpoint.async_save else 0
        rounding = sum(_power_of_two(run.wide * number) - run.wide * number for number in shards) if is_gpu else 0
        num_pinned = 2 * offload + 3 * (written > 0) / run.replicas  # weights, gradients; the copies of a save
        return Estimate(
            pp_rank=self.pp_rank,
            stages=tuple(stage.index for stage in self.stages),
            device=run.device,
            offload=offload,
            weights=weights,
            gradients=weights,
            optimizer=optimizer,
            unreduced=self._unreduced(),
            gathered=self._gathered(),
            activations=held - logits,
            logits=logits,
            working=self._working(),
            batch=self._batch(),
            pinning=int(rounding * num_pinned),
            snapshot=written,
            process=PROCESS_BYTES[run.device],
        )

    def _held(self) -> tuple[int, int]:
        """What the micro-batches in flight keep at most, and how much of that are logits."""
        run = self.run
        sizes, logits = [0.0] * run.parallel.num_stages, [0.0] * run.parallel.num_stages
        for stage in self.stages:
            sizes[stage.index] = self._kept_of(stage)
            logits[stage.index] = run.tokens * run.kept.logits if stage.is_last else 0
        own = run.plan[self.pp_rank]
        return int(most_held(own, sizes)), int(most_held(own, logits))

    def _kept_of(self, stage: Stage) -> int:
        """By one micro-batch in one stage, its logits included."""
        run, kept = self.run, self.run.kept
        token = kept.of_stage + sum(kept.block(index) for index in stage.layers)
        deferred = len(stage.layers) * kept.block_deferred
        if stage.is_last:
            token += kept.head + kept.logits
            deferred += kept.head_deferred
        return run.tokens * max(token, deferred if run.is_split else 0)

    def _unreduced(self) -> int:
        """Whole gradients that one micro-batch leaves to the next."""
        run = self.run
        keeps = run.is_wrapped and run.parallel.zero == 1 and run.num_micro_batches > 1
        return run.wide * sum(group.whole for group in self.groups) if keeps else 0

    def _gathered(self) -> int:
        run = self.run
        if not run.is_wrapped:
            return 0
        if run.parallel.zero < 3:
            return run.item * sum(group.whole for group in self.groups)
        outside = sum(part[-1].whole for part in self.parts)
        return run.item * (outside + 2 * run.block.whole)  # one in use, and the next one on its way

    def _working(self) -> int:
        """The most that a moment needs in passing; `fsdp` reduces a group from a buffer in fp32, the one before it still there."""
        run, kept, tokens, block = self.run, self.run.kept, self.run.tokens, self.run.block.whole
        outside = max(part[-1].whole for part in self.parts)
        is_last = any(stage.is_last for stage in self.stages)
        at_logits = tokens * kept.logits_in_passing if is_last else 0
        gathering = 2 * run.item * block if run.shards > 1 else 0
        in_block = tokens * kept.block_in_backward
        if not run.is_wrapped:
            return max(at_logits, in_block + run.wide * max(number for group in self.groups for number in group.wholes))
        in_block += (2 * run.wide + run.item) * block + run.item * outside
        at_end = (run.wide + run.item) * outside + run.wide * outside // run.shards
        at_end -= min(self._kept_of(stage) for stage in self.stages)  # of a micro-batch that is done by then
        moments = [at_logits, gathering, in_block, at_end]
        if run.is_split:  # all weights of a stage at once
            moments.append(run.wide * (max(sum(group.whole for group in part) for part in self.parts) + 2 * block))
        return max(moments)

    def _batch(self) -> int:
        """Tokens and targets of the step's micro-batches, and messages between stages."""
        run, config = self.run, self.run.config
        extra = (config.model.document_mask, config.data.prefix_lm, config.data.reset_positions)
        numbers = run.num_samples * config.model.sequence_length * (2 * 8 + 4 * sum(extra))
        return numbers + (MESSAGES * run.tokens * run.kept.message if run.parallel.pp > 1 else 0)


def _is_in(spec: ParamSpec, stage: Stage, is_tied: bool) -> bool:
    """Of what is not in a block; a tied output matrix is the embedding itself where both are in one stage."""
    room = spec.name.partition(".")[0]
    if room == "head":
        return stage.is_last and not (is_tied and stage.is_first)
    return stage.is_last if room == "final_norm" else stage.is_first


def _power_of_two(number: int) -> int:
    """The next one.

    >>> [_power_of_two(number) for number in (1, 1000, 1024)]
    [1, 1024, 1024]
    """
    return 1 << max(0, number - 1).bit_length()
