"""What a run would be, without a GPU, a process group or memory for it: `python -m pretrain --dry-run --world-size N`.

Numbers of parameters and memory are the workload's own. The bubble is that of the schedule's lists,
simulated with durations in proportion to the arithmetic; communication takes no time there, so it is a lower bound.

FLOPs are those of `workload.flops`; beside them 6 N D and 8 N D (N all parameters, D tokens), as papers count: without
and with full recompute. A checkpoint is the weights in fp32 and AdamW's two moments.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import torch

from corpus.engine.errors import UsageError
from pretrain.batch_size import check_batch_sizes, local_batches, num_tokens
from pretrain.columns import align_table
from pretrain.config import Precision, RunConfig
from pretrain.console import log_message
from pretrain.hardware import DEVICES, find_device
from pretrain.parallel.base.mesh import AXES, layout
from pretrain.parallel.base.stages import Stage, cut, head_flops, layer_flops
from pretrain.plan.time.pipeline_time import Times, own_seconds, simulate_seconds
from pretrain.schedules import stage_ranks
from pretrain.workload import memory, parameters
from pretrain.workload.flops import flops_per_token, hardware_flops_per_token
from pretrain.workload.memory import Estimate
from pretrain.workload.pipeline import num_recomputed

RANKS_PER_NODE = 8
MFU_VALUES = (0.3, 0.4, 0.5)  # at which times are told: a plan does not know which it will be
CHECKPOINT_BYTES = {"fp64": 24}  # of a parameter; in every other precision weights and moments are fp32
MOST_ROWS = 12  # of a table; the rest is in --json
PFLOPS_DAY = 1e15 * 86_400
GIB = ("resting", "gathered", "activations", "logits", "other", "device", "host")  # columns


def run(config: RunConfig, args: argparse.Namespace) -> None:
    """Print the plan that the command line asks for.

    Raises:
        UsageError: as `dry_run`.
    """
    num_ranks = args.world_size or args.nproc * args.nnodes
    plan = dry_run(_laid_out(config, num_ranks, args.device), num_ranks, args.device)
    if args.json:
        print(json.dumps(plan, indent=1))
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
            "parallel: auto chooses for GPUs, and none is here. Say which: --device H100, or a cluster by "
            "name or file, "
            "--set 'parallel={auto=true, cluster=\"h100-80\"}'; or --set training.device=cpu"
        )
    return auto.resolve(config, num_ranks, log_message, device)


def dry_run(config: RunConfig, world_size: int, device: str | None = None) -> dict[str, Any]:
    """All figures of a run on `world_size` ranks, as JSON has them; `device` is a name by which its peak is known.

    Raises:
        UsageError: the layout does not fit the number of ranks, the batch not the layout, or nobody knows the device.
    """
    model, training, parallel = config.model, config.training, config.parallel
    mesh = dict(zip(AXES, layout(parallel, world_size), strict=True))
    data_ranks = mesh["dp_replicate"] * mesh["dp_shard"]
    check_batch_sizes(training, data_ranks)
    samples, micro_batch_size = local_batches(training, training.global_batch_size, data_ranks)
    tokens, per_token = num_tokens(training, model.sequence_length), flops_per_token(model)
    numbers = parameters.of_model(model)
    estimates = memory.estimate(config, world_size, "cpu" if training.device == "cpu" else "cuda")
    peak = _peak(device, training.precision)
    return {
        "world_size": world_size,
        "mesh": mesh,
        "schedule": parallel.schedule,
        "zero": parallel.zero_over(mesh["dp_shard"]),
        "recompute": parallel.recompute,
        "precision": training.precision,
        "parameters": numbers,
        "stages": list(_stages(config, world_size)),
        "samples_per_rank": samples,
        "micro_batch_size": micro_batch_size,
        "micro_batches": samples // micro_batch_size,
        "bubble": _bubble(config, samples // micro_batch_size),
        "memory": [
            {**asdict(one), "device_bytes": one.device_bytes, "host_bytes": one.host_bytes, "gib": _gib(one)}
            for one in estimates
        ],
        "worst_pp_rank": memory.worst(estimates).pp_rank,
        "host_bytes_per_node": _host_bytes_per_node(estimates, world_size),
        "flops_per_token": per_token,
        "hardware_flops_per_token": hardware_flops_per_token(model, parallel),
        "tokens_per_step": training.global_batch_size * model.sequence_length,
        "num_steps": training.num_steps,
        "tokens": tokens,
        "checkpoint_bytes": numbers * CHECKPOINT_BYTES.get(training.precision, 12),
        "device": device,
        "seconds_by_mfu": {f"{mfu:.0%}": per_token * tokens / (world_size * peak * mfu) for mfu in MFU_VALUES if peak},
    }


def _host_bytes_per_node(estimates: Sequence[Estimate], world_size: int) -> int:
    """Of the fullest node: its ranks lie one after the other in the mesh, whose outermost axis is the pipeline."""
    by_rank = [one.host_bytes for one in estimates for _ in range(world_size // len(estimates))]
    return max(sum(by_rank[start : start + RANKS_PER_NODE]) for start in range(0, world_size, RANKS_PER_NODE))


def _gib(estimate: Estimate) -> tuple[float, ...]:
    """The columns of the table; what lies in host memory under offload is not counted twice."""
    known = (estimate.resting, estimate.gathered, estimate.activations, estimate.logits)
    other = estimate.resting + estimate.moving - sum(known)
    return tuple(number / 2**30 for number in (*known, other, estimate.device_bytes, estimate.host_bytes))


def _stages(config: RunConfig, world_size: int) -> Iterator[dict[str, Any]]:
    """The stages of the pipeline, and who holds them: first and last layers, and first and last ranks of the world."""
    parallel = config.parallel
    owners, ranks_each = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks), world_size // parallel.pp
    for stage, owner in zip(cut(config.model, parallel.num_stages, parallel.layers_per_stage), owners, strict=True):
        yield {
            "stage": stage.index,
            "layers": (stage.layers[0], stage.layers[-1]),
            "num_layers": len(stage.layers),
            "holds": " and ".join(["embedding"] * stage.is_first + ["head"] * stage.is_last),
            "parameters": parameters.of_stage(config.model, stage),
            "pp_rank": owner,
            "ranks": (owner * ranks_each, (owner + 1) * ranks_each - 1),
        }


def _bubble(config: RunConfig, num_micro_batches: int) -> float:
    """Of the schedule's lists, where an action takes as long as its arithmetic."""
    model, parallel = config.model, config.parallel
    owners = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    times = [_times(stage, config) for stage in cut(model, parallel.num_stages, parallel.layers_per_stage)]
    work = num_micro_batches * max(own_seconds(times, owners))
    return simulate_seconds(parallel.schedule, times, owners, num_micro_batches, 0.0) / work - 1


def _times(stage: Stage, config: RunConfig) -> Times:
    """Arithmetic of a micro-batch in a stage: of a token, in the unit of `layer_flops`.

    The gradient of a product's weight is as much work as the product; attention has no weight, and its backward is two
    forwards.
    """
    model, parallel = config.model, config.parallel
    attention = 4 * model.num_heads * model.head_size * model.sequence_length * len(stage.layers)
    forward = layer_flops(model) * len(stage.layers) + head_flops(model) * stage.is_last
    of_all = hardware_flops_per_token(model, parallel) - flops_per_token(model)
    again = (
        of_all
        * num_recomputed(stage, parallel.recompute_every)
        / len(range(0, model.num_layers, parallel.recompute_every))
    )
    return Times(forward, forward + attention + again, forward - attention)


def _peak(name: str | None, precision: Precision) -> float | None:
    """FLOP/s of a device, by its name or a part of it."""
    if name is None:
        return None
    known = find_device(name)
    peak = None if known is None else known.peak(precision)
    if peak is None:
        names = ", ".join(device.pattern for device in DEVICES if device.peak(precision))
        raise UsageError(f"--device {name}: its peak in {precision} is not known. Known are {names or 'none'}")
    return peak


def lines(plan: dict[str, Any]) -> Iterator[str]:
    """The plan for a reader: at most 80 columns."""
    mesh, world_size, micro_batches = plan["mesh"], plan["world_size"], plan["micro_batches"]
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.items() if size > 1) or "one rank"
    dp, size = mesh["dp_replicate"] * mesh["dp_shard"], plan["micro_batch_size"]
    nodes, schedule = -(-world_size // RANKS_PER_NODE), plan["schedule"] if mesh["pp"] > 1 else "no pipeline"
    ranks = f"{world_size:,} ranks ({nodes:,} nodes of {RANKS_PER_NODE})"
    yield f"{plan['parameters']:,} parameters on {ranks}, {plan['precision']}"
    yield f"layout      {axes}; {schedule}, zero {plan['zero']}, recompute {plan['recompute']}"
    batch = f"{dp:,} data-parallel ranks x {micro_batches:,} micro-batches of {size}"
    yield f"batch       {dp * micro_batches * size:,} samples: {batch}"
    yield f"step        {plan['tokens_per_step']:,} tokens"
    if mesh["pp"] > 1:
        yield f"bubble      {plan['bubble']:.1%} of the work of the busiest rank (simulated, arithmetic alone)"
    yield f"run         {plan['num_steps']:,} steps, {plan['tokens']:,} tokens"
    yield f"checkpoint  {_size(plan['checkpoint_bytes'])}"
    yield ""
    yield from align_table(
        [("stage", "layers", "each", "holds", "parameters", "ranks"), *_stage_rows(plan)], left=("holds",)
    )
    yield ""
    yield from align_table([("GiB a rank", *GIB, ""), *_memory_rows(plan)], left=("",))
    yield "resting: weights, gradients and optimizer; other: what a step needs in passing"
    worst = plan["memory"][plan["worst_pp_rank"]]
    where = "of host memory" if worst["device"] == "cpu" else "of a GPU's memory"
    yield (
        f"worst rank  {_size(worst['device_bytes'])} {where} (*); host memory of a node: "
        f"{_size(plan['host_bytes_per_node'])}"
    )
    yield ""
    flops = {"model": plan["flops_per_token"], "hardware (recompute counted)": plan["hardware_flops_per_token"]}
    flops |= {f"{times} N D": float(times * plan["parameters"]) for times in (6, 8)}
    rows = [
        (name, f"{one:.3g}", f"{one * plan['tokens_per_step']:.3g}", f"{one * plan['tokens'] / PFLOPS_DAY:,.1f}")
        for name, one in flops.items()
    ]
    yield from align_table([("FLOPs", "a token", "a step", "the run, PFLOP/s-days"), *rows], left=("FLOPs",))
    yield ""
    if not plan["seconds_by_mfu"]:
        yield "time        n/a: name a device, as in --device H100"
    for mfu, seconds in plan["seconds_by_mfu"].items():
        step = f"{seconds / 86_400:,.1f} days, {seconds / plan['num_steps']:.2f} s a step"
        yield f"time        {step}, at {mfu} of the peak of {plan['device']} (MFU)"


def _stage_rows(plan: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Neighbouring stages that are alike share a row."""
    for _, alike in groupby(plan["stages"], key=lambda one: (one["num_layers"], one["holds"], one["parameters"])):
        own = list(alike)
        first, last = own[0], own[-1]
        ranks = _span(min(one["ranks"][0] for one in own), max(one["ranks"][1] for one in own))
        places = (_span(first["stage"], last["stage"]), _span(first["layers"][0], last["layers"][1]))
        yield (*places, f"{first['num_layers']}", first["holds"] or "-", f"{first['parameters']:,}", ranks)


def _memory_rows(plan: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Of each place of the pipeline; neighbours that need the same share a row, of many the ends and the worst are
    shown."""
    rows = [list(own) for _, own in groupby(plan["memory"], key=lambda one: [f"{gib:,.2f}" for gib in one["gib"]])]
    worst = next(at for at, own in enumerate(rows) if any(one["pp_rank"] == plan["worst_pp_rank"] for one in own))
    ends = {0, 1, 2, worst, *range(len(rows) - 3, len(rows))} if len(rows) > MOST_ROWS else range(len(rows))
    last = -1
    for index in sorted(ends):
        if index != last + 1:
            yield ("...", *[""] * (len(GIB) + 1))
        last, own = index, rows[index]
        place = f"pp {_span(own[0]['pp_rank'], own[-1]['pp_rank'])}" if len(plan["memory"]) > 1 else "each"
        yield (place, *(f"{gib:,.2f}" for gib in own[0]["gib"]), "*" if index == worst else "")


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _size(num_bytes: float) -> str:
    """As in `2.7 TiB`."""
    power = max(0, min(4, (int(num_bytes).bit_length() - 1) // 10))
    return f"{num_bytes / 1024**power:,.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
