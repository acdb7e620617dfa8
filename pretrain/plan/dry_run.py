"""What a run would be, without a GPU, a process group or memory for it: `python -m pretrain --dry-run --world-size N`.

Memory is what `plan.demand.memory` says. The bubble is that of the schedule's own lists,
run by `parallel.simulate` with durations in proportion to the arithmetic; communication takes no time there, so it is a
lower bound.

FLOPs are those of `plan.demand.flops`; beside them 6 N D and 8 N D (N all parameters, D tokens), as papers count: without and with
full recompute. A checkpoint is the weights in fp32 and AdamW's two moments.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch

from corpus.engine.errors import UsageError
from pretrain.batch_size import BatchSizes, check_batch_sizes, local_batches
from pretrain.config import RunConfig
from pretrain.monitor.console import say
from pretrain.parallel.mesh import AXES, layout
from pretrain.parallel.params import num_parameters
from pretrain.parallel.schedule import stage_ranks
from pretrain.parallel.stages import Stage, cut, head_flops, layer_flops
from pretrain.plan.demand import memory, parameters
from pretrain.plan.demand.flops import flops_per_token, hardware_flops_per_token
from pretrain.plan.demand.memory import Estimate
from pretrain.plan.machines.hardware import DEVICES
from pretrain.plan.pages.text import aligned
from pretrain.plan.time.pipeline_time import Times, own_seconds, simulated

RANKS_PER_NODE = 8
MFU_VALUES = (0.3, 0.4, 0.5)  # at which times are told: a plan does not know which it will be
CHECKPOINT_BYTES = {"fp64": 24}  # of a parameter; in every other precision weights and moments are fp32
MOST_ROWS = 12  # of a table; the rest is in --json
PFLOPS_DAY = 1e15 * 86_400


@dataclass(frozen=True)
class StagePlan:
    """One stage of the pipeline, and who holds it."""

    stage: int
    layers: Sequence[int]  # first and last
    num_layers: int
    holds: str  # besides layers
    parameters: int  # as built, of all tensor-parallel ranks together
    pp_rank: int
    ranks: Sequence[int]  # first and last of the world


@dataclass(frozen=True)
class Plan:
    """All figures of a run on `world_size` ranks."""

    world_size: int
    mesh: Mapping[str, int]
    schedule: str
    zero: int
    recompute: str
    precision: str
    parameters: int
    stages: Sequence[StagePlan]
    samples_per_rank: int
    micro_batch_size: int
    micro_batches: int  # of a rank and step
    bubble: float  # time lost over the busiest rank's work
    memory: Sequence[Estimate]  # of a rank of each place of the pipeline
    flops_per_token: float
    hardware_flops_per_token: float
    tokens_per_step: int
    num_steps: int
    tokens: int
    checkpoint_bytes: int
    device: str | None
    seconds_by_mfu: Mapping[str, float]  # of a run

    @property
    def worst(self) -> Estimate:
        """The place of the pipeline whose ranks need most."""
        return memory.worst(self.memory)

    @property
    def host_bytes_per_node(self) -> int:
        """Of the fullest node: its ranks lie one after the other in the mesh, whose outermost axis is the pipeline."""
        of_rank = [estimate.host_bytes for estimate in self.memory]
        ranks_each = self.world_size // len(of_rank)
        by_rank = [number for number in of_rank for _ in range(ranks_each)]
        starts = range(0, self.world_size, RANKS_PER_NODE)
        return max(sum(by_rank[start : start + RANKS_PER_NODE]) for start in starts)


def run(config: RunConfig, args: argparse.Namespace) -> None:
    """Print the plan that the command line asks for.

    Raises:
        UsageError: as `dry_run`.
    """
    num_ranks = args.world_size or args.nproc * args.nnodes
    plan = dry_run(_laid_out(config, num_ranks, args.device), num_ranks, args.device)
    if args.json:
        print(json.dumps(as_json(plan), indent=1))
    else:
        print("\n".join([f"{args.config}: {'; '.join(args.set)}".rstrip(": "), *lines(plan)]))


def _laid_out(config: RunConfig, num_ranks: int, device: str | None) -> RunConfig:
    """As a run would lay it out; where it would see which GPUs there are, somebody has to say so here."""
    if not config.parallel.auto:
        return config
    from pretrain.plan import auto

    is_told = config.parallel.cluster is not None or device is not None or config.training.device == "cpu"
    if not is_told and not torch.cuda.is_available():
        raise UsageError(
            "parallel: auto chooses for GPUs, and none is here. Say which: --device H100, or a cluster by name or file, "
            "--set 'parallel={auto=true, cluster=\"h100-80\"}'; or --set training.device=cpu"
        )
    return auto.resolve(config, num_ranks, say, device)


def dry_run(config: RunConfig, world_size: int, device: str | None = None) -> Plan:
    """The plan of a run.

    Raises:
        UsageError: the layout does not fit the number of ranks, the batch not the layout, or nobody knows the device.
    """
    shape = dict(zip(AXES, layout(config.parallel, world_size), strict=True))
    num_data_ranks = shape["dp_replicate"] * shape["dp_shard"]
    check_batch_sizes(config.training, num_data_ranks)
    model, training, parallel = config.model, config.training, config.parallel
    num_local, micro_batch_size = local_batches(training, training.global_batch_size, num_data_ranks)
    peak = _peak(device, training.precision)
    tokens = BatchSizes(training.global_batch_size, training.rampup).num_samples(training.num_steps)
    tokens *= model.sequence_length
    per_token = flops_per_token(model)
    seconds = per_token * tokens / (world_size * peak) if peak else 0.0
    return Plan(
        world_size=world_size,
        mesh=shape,
        schedule=parallel.schedule,
        zero=parallel.zero,
        recompute=parallel.recompute,
        precision=training.precision,
        parameters=num_parameters(model),
        stages=list(_stages(config, world_size)),
        samples_per_rank=num_local,
        micro_batch_size=micro_batch_size,
        micro_batches=num_local // micro_batch_size,
        bubble=_bubble(config, num_local // micro_batch_size),
        memory=memory.estimate(config, world_size, "cpu" if training.device == "cpu" else "cuda"),
        flops_per_token=per_token,
        hardware_flops_per_token=hardware_flops_per_token(model, parallel),
        tokens_per_step=training.global_batch_size * model.sequence_length,
        num_steps=training.num_steps,
        tokens=tokens,
        checkpoint_bytes=num_parameters(model) * CHECKPOINT_BYTES.get(training.precision, 12),
        device=device,
        seconds_by_mfu={f"{mfu:.0%}": seconds / mfu for mfu in MFU_VALUES if peak},
    )


def _stages(config: RunConfig, world_size: int) -> Iterator[StagePlan]:
    parallel = config.parallel
    owners, ranks_each = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks), world_size // parallel.pp
    for stage, owner in zip(cut(config.model, parallel.num_stages, parallel.layers_per_stage), owners, strict=True):
        yield StagePlan(
            stage=stage.index,
            layers=(stage.layers[0], stage.layers[-1]),
            num_layers=len(stage.layers),
            holds=" and ".join(["embedding"] * stage.is_first + ["head"] * stage.is_last),
            parameters=parameters.of_stage(config.model, stage),
            pp_rank=owner,
            ranks=(owner * ranks_each, (owner + 1) * ranks_each - 1),
        )


def _bubble(config: RunConfig, num_micro_batches: int) -> float:
    """Of the schedule's lists, where an action takes as long as its arithmetic."""
    model, parallel = config.model, config.parallel
    owners = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    times = [_times(stage, config) for stage in cut(model, parallel.num_stages, parallel.layers_per_stage)]
    work = num_micro_batches * max(own_seconds(times, owners))
    return simulated(parallel.schedule, times, owners, num_micro_batches, 0.0) / work - 1


def _times(stage: Stage, config: RunConfig) -> Times:
    """Arithmetic of a micro-batch in a stage: of a token, in the unit of `layer_flops`.

    The gradient of a product's weight is as much work as the product; attention has no weight, and its backward is two
    forwards.
    """
    model, parallel = config.model, config.parallel
    attention = 4 * model.num_heads * model.head_size * model.sequence_length * len(stage.layers)
    forward = layer_flops(model) * len(stage.layers) + head_flops(model) * stage.is_last
    of_all = hardware_flops_per_token(model, parallel) - flops_per_token(model)
    num = sum(index % parallel.recompute_every == 0 for index in stage.layers)
    again = of_all * num / len(range(0, model.num_layers, parallel.recompute_every))
    return Times(forward, forward + attention + again, forward - attention)


def _peak(name: str | None, precision: str) -> float | None:
    """FLOP/s of a device, by its name or a part of it."""
    if name is None:
        return None
    known = next((device for device in DEVICES if re.search(device.pattern, name)), None)
    peak: float | None = getattr(known, precision, None)
    if peak is None:
        names = ", ".join(device.pattern for device in DEVICES if getattr(device, precision, None))
        raise UsageError(f"--device {name}: its peak in {precision} is not known. Known are {names or 'none'}")
    return peak


def lines(plan: Plan) -> Iterator[str]:
    """The plan for a reader: at most 80 columns."""
    axes = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items() if size > 1) or "one rank"
    nodes, has_pipeline = -(-plan.world_size // RANKS_PER_NODE), plan.mesh["pp"] > 1
    dp, samples = plan.mesh["dp_replicate"] * plan.mesh["dp_shard"], plan.micro_batches * plan.micro_batch_size
    schedule = plan.schedule if has_pipeline else "no pipeline"
    yield f"{plan.parameters:,} parameters on {plan.world_size:,} ranks ({nodes:,} nodes of {RANKS_PER_NODE}), {plan.precision}"
    yield f"layout      {axes}; {schedule}, zero {plan.zero}, recompute {plan.recompute}"
    ranks = f"{dp:,} data-parallel ranks x {plan.micro_batches:,} micro-batches of {plan.micro_batch_size}"
    yield f"batch       {dp * samples:,} samples: {ranks}"
    yield f"step        {plan.tokens_per_step:,} tokens"
    if has_pipeline:
        yield f"bubble      {plan.bubble:.1%} of the work of the busiest rank (simulated, arithmetic alone)"
    yield f"run         {plan.num_steps:,} steps, {plan.tokens:,} tokens"
    yield f"checkpoint  {_size(plan.checkpoint_bytes)}"
    yield ""
    yield from aligned(("stage", "layers", "each", "holds", "parameters", "ranks"), list(_stage_rows(plan)), ("holds",))
    yield ""
    yield from aligned(("GiB a rank", *_GIB, ""), list(_memory_rows(plan)))
    yield "resting: weights, gradients and optimizer; other: what a step needs in passing"
    where = "of host memory" if plan.worst.device == "cpu" else "of a GPU's memory"
    host = _size(plan.host_bytes_per_node)
    yield f"worst rank  {_size(plan.worst.device_bytes)} {where} (*); host memory of a node: {host}"
    yield ""
    yield from aligned(("FLOPs", "a token", "a step", "the run, PFLOP/s-days"), list(_flops_rows(plan)), ("FLOPs",))
    yield ""
    if not plan.seconds_by_mfu:
        yield "time        n/a: name a device, as in --device H100"
    for mfu, seconds in plan.seconds_by_mfu.items():
        step = seconds / plan.num_steps
        yield f"time        {seconds / 86_400:,.1f} days, {step:.2f} s a step, at {mfu} of the peak of {plan.device} (MFU)"


def _stage_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Neighbouring stages that are alike share a row."""
    for _, alike in groupby(plan.stages, key=lambda stage: (stage.num_layers, stage.holds, stage.parameters)):
        own = list(alike)
        first, last = own[0], own[-1]
        ranks = _span(min(stage.ranks[0] for stage in own), max(stage.ranks[1] for stage in own))
        places = (_span(first.stage, last.stage), _span(first.layers[0], last.layers[1]), f"{first.num_layers}")
        yield (*places, first.holds or "-", f"{first.parameters:,}", ranks)


def _memory_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Of each place of the pipeline; neighbours that need the same share a row, of many the first, last and worst are shown."""
    rows = [list(alike) for _, alike in groupby(plan.memory, key=_gib)]
    worst = next(index for index, row in enumerate(rows) if plan.worst in row)
    ends = {0, 1, 2, worst, *range(len(rows) - 3, len(rows))} if len(rows) > MOST_ROWS else set(range(len(rows)))
    last = -1
    for index in sorted(ends):
        if index != last + 1:
            yield ("...", *[""] * (len(_GIB) + 1))
        last, row = index, rows[index]
        place = f"pp {_span(row[0].pp_rank, row[-1].pp_rank)}" if len(plan.memory) > 1 else "each"
        yield (place, *_gib(row[0]), "*" if index == worst else "")


_GIB = ("resting", "gathered", "activations", "logits", "other", "device", "host")


def _gib(estimate: Estimate) -> tuple[str, ...]:
    """The columns of the table; what lies in host memory under offload is not counted twice."""
    known = (estimate.resting, estimate.gathered, estimate.activations, estimate.logits)
    other = estimate.resting + estimate.moving - sum(known)
    return tuple(f"{number / 2**30:,.2f}" for number in (*known, other, estimate.device_bytes, estimate.host_bytes))


def _flops_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Of a token, a step and the run."""
    of_token = {
        "model": plan.flops_per_token,
        "hardware (recompute counted)": plan.hardware_flops_per_token,
        "6 N D": 6.0 * plan.parameters,
        "8 N D": 8.0 * plan.parameters,
    }
    for name, flops in of_token.items():
        yield name, f"{flops:.3g}", f"{flops * plan.tokens_per_step:.3g}", f"{flops * plan.tokens / PFLOPS_DAY:,.1f}"


def as_json(plan: Plan) -> dict[str, Any]:
    """All figures, of memory also the sums."""
    estimates = [
        {**asdict(estimate), "device_bytes": estimate.device_bytes, "host_bytes": estimate.host_bytes}
        for estimate in plan.memory
    ]
    sums = {"worst_pp_rank": plan.worst.pp_rank, "host_bytes_per_node": plan.host_bytes_per_node}
    return {**asdict(plan), "memory": estimates, **sums}


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _size(num_bytes: float) -> str:
    """As in `2.7 TiB`."""
    power = max(0, min(4, (int(num_bytes).bit_length() - 1) // 10))
    return f"{num_bytes / 1024**power:,.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
