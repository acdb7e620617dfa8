"""One model, measured over a grid of layouts with fused kernels on and off: real training steps, beside what the
planner predicts.

High-Flyer's question about Megatron on a cluster without NVLink: which tp x pp x dp x micro-batch is fastest there? The
global batch is the same in all cells, and so is the number of devices: dp is what tp and pp leave.

| kernels | |
|---|---|
| fused | as `train` has them: attention keeps its scores to itself, AdamW updates all tensors in one kernel |
| plain | training.fused_kernels off: attention writes its scores and their softmax, AdamW goes tensor by tensor |
| compiled | fused, and each block by torch.compile: its norms, activations and additions are fused, too |

Each cell runs in new processes, as long as --timeout at the most. What needs too much memory is a result. Each result
is in OUT/cells as soon as it is there; the same command goes on after the last one.

    python -m pretrain sweep --config demo --gpus 2 --grid tp=1,2 pp=1,2 mbs=1,2,4 --out build/sweep

On a cluster each cell is a job of its own, started with all ranks; `--list` prints their numbers:

    python -m pretrain sweep --config firefly-3.8b --gpus 128 --grid tp=1,2,4,8 pp=1,2,4,8 mbs=1,2,4 \\
        --out /shared/sweep --list
    srun --nodes 16 --ntasks-per-node 8 ... python -m pretrain sweep ... --out /shared/sweep --cell $SLURM_ARRAY_TASK_ID
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import torch

from corpus.engine import durable
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from corpus.engine.executor import available_cpus
from pretrain.batch_size import local_batches
from pretrain.config import ParallelConfig, RunConfig, load_config, named_configs, to_json
from pretrain.console import log_message
from pretrain.hardware import compiler_missing, processor_name
from pretrain.plan import auto, naming
from pretrain.plan.cost import Prediction, predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.tuning.measure import Measurement, measure, train_rank
from pretrain.sweep_report import PREDICTED, Cell, Grid, Kernels, write_report
from pretrain.workload.flops import flops_per_token

DEFAULT_GRID = ("tp=1,2,4,8", "pp=1,2,4,8", "mbs=1,2,4,8")
TIMEOUT_SECONDS = 600.0
LOST = ".lost"  # of a cell's file: rank 0 lost another rank, which may know why; a job for that cell measures it again


class Place(NamedTuple):
    """A cell of the grid that can run."""

    layout: str  # as in "tp=2,pp=1,mbs=4,dp=1"
    kernels: Kernels
    config: RunConfig

    @property
    def name(self) -> str:
        """What it is called, and with .json behind it its file below OUT/cells."""
        return f"{self.layout},kernels={self.kernels}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain sweep`."""
    names = ", ".join(named_configs())
    parser.add_argument("--config", required=True, help=f"a TOML file, or one of: {names}")
    parser.add_argument("--gpus", type=int, required=True, metavar="N", help="devices (ranks) of every cell")
    parser.add_argument("--out", type=Path, required=True, help="folder of cells, sweep.jsonl, sweep.md and sweep.svg")
    parser.add_argument(
        "--grid",
        nargs="+",
        default=list(DEFAULT_GRID),
        metavar="NAME=A,B",
        help=f"values of a setting of the layout, or of mbs, the micro-batch (default: {' '.join(DEFAULT_GRID)})",
    )
    parser.add_argument(
        "--kernels",
        nargs="+",
        choices=get_args(Kernels),
        default=["fused", "plain"],
        help="fused, plain, compiled (default: fused plain)",
    )
    parser.add_argument("--cluster", help="what is predicted for, a name or a TOML file (default: what is here)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps that are measured (default 5)")
    parser.add_argument("--warm-up", type=int, default=2, metavar="N", help="steps before them (default 2)")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT_SECONDS, metavar="SECONDS", help="for a cell (default 600)"
    )
    parser.add_argument("--cell", type=int, metavar="N", help="as a rank of a job: measure this cell alone")
    parser.add_argument("--list", action="store_true", help="print the cells and their numbers, and end")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")


def main(args: argparse.Namespace) -> None:
    """Measure here, one cell after the other; or, as a rank of a job, the cell that --cell names.

    Raises:
        UsageError: the grid has no cell that can run, or OUT holds another sweep.
        LockHeld: another sweep is writing to OUT.
        SystemExit: with 1, on a rank of a job whose cell came to no step time.
    """
    config = load_config(args.config, args.set)
    if args.gpus < 1 or args.steps < 1 or args.warm_up < 0 or args.timeout <= 0:
        raise UsageError("--gpus and --steps must be 1 or more, --warm-up 0 or more, --timeout more than 0")
    config = config.model_copy(update={"training": config.training.model_copy(update={"rampup": None})})
    base = config.model_copy(update={"parallel": ParallelConfig()}) if config.parallel.auto else config
    places, refused = cells_of(base, args.gpus, args.grid, list(dict.fromkeys(args.kernels)))
    if not places:
        reasons = "; ".join(f"{', '.join(cells)}: {reason}" for reason, cells in refused.items())
        raise UsageError(f"--grid: no cell can run. {reasons}")
    is_rank = "RANK" in os.environ
    if not is_rank or os.environ["RANK"] == "0":
        for reason, cells in refused.items():
            log_message(f"left out: {', '.join(cells)}: {reason}")
    if args.list:
        for number, place in enumerate(places):
            print(f"{number:>5}  {place.name}{'  (done)' if _file(args.out, place).exists() else ''}")
    elif is_rank:
        _measure_in_job(places, _grid(base, args, refused), config, args)
    else:
        _measure_here(places, _grid(base, args, refused), config, args)


def cells_of(
    config: RunConfig, num_ranks: int, grid: Sequence[str], kernels: Sequence[Kernels]
) -> tuple[list[Place], dict[str, list[str]]]:
    """The cells that can run; and those that cannot by the reason.

    Raises:
        UsageError: the grid cannot be read.
    """
    places: list[Place] = []
    refused: dict[str, list[str]] = {}
    on_gpu = config.training.device != "cpu" and torch.cuda.is_available()
    missing = compiler_missing(on_gpu) if "compiled" in kernels else ""
    if missing:
        refused[missing] = ["kernels=compiled"]
    able = [kind for kind in kernels if kind != "compiled" or not missing]
    for layout, kind in itertools.product(map(",".join, itertools.product(*_axes(grid))), able):
        try:
            own = _configured(config, num_ranks, layout, kind)
        except UsageError as error:
            cells = refused.setdefault(str(error).removeprefix(f"--grid {layout}: "), [])
            cells.extend([layout] * (layout not in cells))
            continue
        dp = num_ranks // (own.parallel.tp * own.parallel.pp)
        places.append(Place(layout if "dp=" in layout else f"{layout},dp={dp}", kind, own))
    return places, refused


def _axes(grid: Sequence[str]) -> list[list[str]]:
    """["tp=1,2"] as [["tp=1", "tp=2"]]."""
    axes: dict[str, list[str]] = {}
    for word in grid:
        name, equals, values = word.partition("=")
        split = [value.strip() for value in values.split(",")]
        if not equals or not all(split):
            raise UsageError(f"--grid {word}: write NAME=A,B, for example --grid tp=1,2 pp=1,2 mbs=1,2,4")
        if name in axes:
            raise UsageError(f"--grid {word}: {name} is said twice. Give all its values at once")
        if naming.SHORT.get(name, name) == "global_batch_size":
            raise UsageError(f"--grid {word}: all cells have one batch. Use --set training.global_batch_size=N")
        axes[name] = [f"{name}={value}" for value in dict.fromkeys(split)]
        for one in axes[name]:
            naming.parse_words(one, "--grid")
    return list(axes.values())


def _configured(config: RunConfig, num_ranks: int, layout: str, kernels: Kernels) -> RunConfig:
    """The configuration of a cell; raises `UsageError` where that cannot run."""
    config = naming.parse_layout(layout, config, num_ranks, "--grid")
    training = config.training.model_copy(
        update={"fused_kernels": kernels != "plain", "compile": kernels == "compiled"}
    )
    config = parse(RunConfig, to_json(config.model_copy(update={"training": training})), f"--grid {layout}")
    data_ranks = num_ranks // (config.parallel.tp * config.parallel.pp)
    samples, micro_batch_size = local_batches(training, training.global_batch_size, data_ranks)
    if micro_batch_size < training.micro_batch_size:
        raise UsageError(f"a rank has {samples} samples, fewer than a micro-batch")
    return config


def _measure_here(places: Sequence[Place], grid: Grid, config: RunConfig, args: argparse.Namespace) -> None:
    device = _device(config)
    if args.cell is not None:
        raise UsageError("--cell is for a rank of a job (srun, torchrun). Here all cells are measured in turn")
    if device.type == "cuda" and torch.cuda.device_count() < args.gpus:
        raise UsageError(
            f"--gpus {args.gpus}: {torch.cuda.device_count()} are here. On a cluster start each cell as a job: "
            "see --list and --cell"
        )
    with durable.RunLock(args.out):
        durable.sweep(args.out / "cells")
        results = _results(places, args.out, grid)
        predictions, chosen, reason = _predictions(places, config, args)
        for number, place in enumerate(places):
            if place.name in results:
                continue
            log_message(f"cell {number + 1} of {len(places)}: {place.name}")
            found = measure(place.config, args.gpus, steps=args.steps, warm_up=args.warm_up, timeout=args.timeout)
            results[place.name] = _cell(place, grid, found)
            durable.write_json(_file(args.out, place), results[place.name].model_dump(mode="json"))
            log_message(f"  {results[place.name].told}")
            write_report(args.out, grid, results, predictions, chosen, reason)
        write_report(args.out, grid, results, predictions, chosen, reason)
    print((args.out / "sweep.md").read_text(encoding="utf-8"), end="")


def _measure_in_job(places: Sequence[Place], grid: Grid, config: RunConfig, args: argparse.Namespace) -> None:
    """One cell, on all ranks of a job; several jobs may write to one folder, each its own cell. Memory is then rank
    0's."""
    if args.cell is None or not 0 <= args.cell < len(places):
        raise UsageError(f"--cell must be from 0 to {len(places) - 1} in a job; --list prints the cells")
    if int(os.environ["WORLD_SIZE"]) != args.gpus:
        raise UsageError(f"--gpus {args.gpus}: this job has {os.environ['WORLD_SIZE']} ranks")
    place, is_first = places[args.cell], os.environ["RANK"] == "0"
    file = _file(args.out, place)
    if not file.exists():
        report = train_rank(place.config, args.steps, args.warm_up)
        if is_first or (report.outcome != "done" and not report.is_of_another):
            peaks = (report.peak_bytes,) if report.peak_bytes else ()
            cell = _cell(place, grid, Measurement(report.outcome, tuple(report.seconds), peaks, report.message))
            path = file.with_suffix(LOST) if report.is_of_another else file
            durable.write_json(path, cell.model_dump(mode="json"))
            log_message(f"{place.name}: {cell.told}")
        if report.outcome != "done":
            sys.exit(1)
    if is_first:
        results = _results(places, args.out, grid)
        write_report(args.out, grid, results, *_predictions(places, config, args))


def _grid(base: RunConfig, args: argparse.Namespace, refused: Mapping[str, Sequence[str]]) -> Grid:
    """What all cells have in common."""
    return Grid(
        run=" ".join([args.config, *args.set]),
        digest=durable.digest(to_json(base)),
        ranks=args.gpus,
        machine=processor_name(_device(base)),
        steps=args.steps,
        warm_up=args.warm_up,
        cores=available_cpus(),
        device=_device(base).type,
        tokens_per_step=base.training.global_batch_size * base.model.sequence_length,
        flops_per_token=flops_per_token(base.model),
        refused={reason: tuple(cells) for reason, cells in refused.items()},
    )


def _cell(place: Place, grid: Grid, found: Measurement) -> Cell:
    values = {name: getattr(found, name) for name in ("outcome", "seconds", "peak_bytes", "message")}
    return Cell(layout=place.layout, kernels=place.kernels, of=grid.identity, load=os.getloadavg()[0], **values)


def _results(places: Sequence[Place], out: Path, grid: Grid) -> dict[str, Cell]:
    """What has been measured of these cells, in their order.

    Raises:
        UsageError: of another run, or on another machine.
    """
    results = {}
    for place in places:
        file = _file(out, place)
        for path in [path for path in (file, file.with_suffix(LOST)) if path.exists()][:1]:
            results[place.name] = cell = parse(Cell, durable.read_json(path), str(path))
            if cell.of != grid.identity:
                another = f"Give another --out, or remove {out / 'cells'}"
                raise UsageError(f"{path}: measured as {cell.of}, this is {grid.identity}. {another}")
    return results


def _predictions(
    places: Sequence[Place], config: RunConfig, args: argparse.Namespace
) -> tuple[dict[str, Prediction], auto.Chosen | None, str]:
    """Of each cell by name, and what the planner would have chosen of all layouts; or why it says nothing."""
    try:
        cluster = load_cluster(args.cluster) if args.cluster else auto.cluster_for(config)
        fused = [place for place in places if place.kernels == PREDICTED]
        predictions = {place.name: predict(place.config, args.gpus, cluster) for place in fused}
    except UsageError as error:
        if args.cluster:
            raise
        return {}, None, f"no predictions, for want of a --cluster: {error}"
    try:
        return predictions, auto.choose(config, args.gpus, cluster), ""
    except UsageError as error:
        return predictions, None, f"the planner would choose nothing: {error}"


def _device(config: RunConfig) -> torch.device:
    on_gpu = config.training.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda", 0) if on_gpu else torch.device("cpu")


def _file(out: Path, place: Place) -> Path:
    return out / "cells" / f"{place.name}.json"
