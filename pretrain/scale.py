"""Weak and strong scaling over numbers of ranks: real training steps, the same ones that `train` does.

**Weak**: the global batch grows with the data-parallel ranks, so that each of them has as much work at any number.
**Strong**: the global batch is the configuration's, and each rank has less of it the more there are. Efficiency is
speed a rank, relative to that of the smallest number of ranks. At that number the two are one measurement.

On this machine each number of ranks is started by itself, in new processes. On a cluster each is a job of its own,
which measures the number that it was started with, and draws what has been measured so far:

    python -m pretrain scale --config demo --ranks 1 2 4 --out build/scaling
    srun --ntasks 16 --ntasks-per-node 8 ... python -m pretrain scale --config my.toml --ranks 8 16 32 \\
        --out /shared/scaling
    torchrun --nnodes 4 --nproc-per-node 8 ... -m pretrain scale --config my.toml --ranks 8 16 32 --out /shared/scaling

Tokens are random where no `--data` is given: the speed of a step does not depend on them.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import torch
from pydantic import Field

from corpus.engine import durable
from corpus.engine.chart import Point as Dot
from corpus.engine.chart import Series, picture, plot
from corpus.engine.config import Strict, parse
from corpus.engine.errors import UsageError
from corpus.engine.executor import available_cpus
from pretrain.batch_size import check_batch_sizes, local_batches
from pretrain.config import RunConfig, load_config, named_configs, with_vocab_size
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.hardware import processor_name
from pretrain.launch import launch, this_command
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.plan import auto
from pretrain.run.datasets import open_datasets
from pretrain.training.step import new_run
from pretrain.training.timing import timed_steps
from pretrain.workload.flops import flops_per_token

Kind = Literal["weak", "strong"]

KINDS: dict[Kind, str] = {"weak": "the batch grows with the data-parallel ranks", "strong": "the batch stays"}
COLUMNS = "ranks | layout | batch | micro-batch | s a step | tokens/s | speed-up | efficiency"
FRONTIER = (
    "Published on Frontier (arXiv 2312.12705): weak scaling 100 % at 1,024 GPUs (175 B) and 3,072 (1 T); "
    "strong scaling 89 % and 87 %. Other machines and numbers of ranks: what the curves are called after, not "
    "what they compare with."
)


class Point(Strict):
    """One measurement; rank 0 writes it into OUT/points."""

    kind: Kind
    ranks: int
    global_batch_size: int
    micro_batch_size: int
    tokens_per_second: float  # of all ranks, by the median step
    flops_per_second: float  # of all ranks: model FLOPs, nothing counted twice
    step_seconds: Annotated[tuple[float, ...], Field(strict=False)]  # of each step, the slowest rank's
    run: str  # configuration and what overrides it
    layout: str
    device: str
    machine: str  # the GPU's or the CPU's name
    cores: int  # of a node, for its ranks
    ranks_per_node: int
    threads: int  # of a rank
    tokens: str  # where they came from

    @property
    def file_name(self) -> str:
        """Below OUT/points."""
        return f"{self.kind}-{self.ranks:06d}.json"


class Row(NamedTuple):
    """A point beside the one of the fewest ranks."""

    point: Point
    speedup: float
    efficiency: float  # speed a rank


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain scale`."""
    names = ", ".join(named_configs())
    parser.add_argument("--config", required=True, help=f"a TOML file, or one of: {names}")
    parser.add_argument("--ranks", type=int, nargs="+", required=True, metavar="N", help="numbers of ranks to compare")
    parser.add_argument("--out", type=Path, required=True, help="folder of scaling.json, scaling.md and scaling.svg")
    parser.add_argument("--data", help="the folder or URL of token shards (default: random tokens in memory)")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer, if it is not in --data")
    parser.add_argument("--kind", choices=get_args(Kind), help="only this one (default: both)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="steps that are measured (default 10)")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="steps before them (default 3)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")


def main(args: argparse.Namespace) -> None:
    """Measure here, each number of ranks in turn; or, as a rank of a job, what that job is.

    Raises:
        UsageError: a number of ranks does not fit the layout, or its batch not the ranks.
        SystemExit: with the code of the ranks, where they failed.
    """
    base = load_config(args.config, args.set)
    numbers = sorted(set(args.ranks))
    if args.steps < 1 or args.warm_up < 0 or numbers[0] < 1:
        raise UsageError("--ranks and --steps must be 1 or more, --warm-up 0 or more")
    kinds: Sequence[Kind] = [args.kind] if args.kind else get_args(Kind)
    configs = {(kind, ranks): config_of(base, kind, ranks, numbers[0]) for kind in kinds for ranks in numbers}
    if "RANK" in os.environ:
        ranks = int(os.environ["WORLD_SIZE"])
        if ranks not in numbers:
            raise UsageError(f"--ranks {' '.join(map(str, numbers))}: this job has {ranks} ranks. Name that number too")
        runs = [(kind, configs[kind, ranks]) for kind in kinds]
        if any(config.parallel != runs[0][1].parallel for _, config in runs):
            raise UsageError(
                "parallel: auto chose a layout for each kind. Give --kind, and the other in a job of its own"
            )
        measure(runs, args)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or fewer ranks would have more threads each
    for kind, ranks in configs:
        if kind == "strong" and "weak" in kinds and ranks == numbers[0]:
            continue  # the same as weak
        print(f"{kind} scaling, {ranks} rank{'s' * (ranks > 1)}", file=sys.stderr, flush=True)
        code = launch([*this_command(), "--kind", kind], ranks)
        if code:
            sys.exit(code)
    print((args.out / "scaling.md").read_text(encoding="utf-8"), end="")


def config_of(config: RunConfig, kind: Kind, num_ranks: int, fewest: int) -> RunConfig:
    """The run of a point: its batch is the configuration's, or that by the data-parallel ranks there are more of.

    Raises:
        UsageError: the ranks do not fit the layout, or the batch not the ranks.
    """
    training, is_auto = config.training, config.parallel.auto
    what, few, many = "ranks", fewest, num_ranks
    if not is_auto:
        what = "data-parallel ranks"
        few, many = (math.prod(mesh.layout(config.parallel, number)[1:3]) for number in (fewest, num_ranks))
    batch_size, rest = divmod(training.global_batch_size * (many if kind == "weak" else few), few)
    if rest:
        raise UsageError(
            f"training.global_batch_size {training.global_batch_size} cannot grow from {few} to {many} {what}. "
            f"Let it be a multiple of {few}"
        )
    training = training.model_copy(update={"global_batch_size": batch_size, "rampup": None})
    config = config.model_copy(update={"training": training})
    if is_auto:  # the layout that is best for this number of ranks
        return auto.choose(config, num_ranks).config
    check_batch_sizes(training, many)
    return config


def measure(runs: Sequence[tuple[Kind, RunConfig]], args: argparse.Namespace) -> None:
    """On a rank: train some steps of each run; rank 0 writes the points and draws what there is."""
    training = runs[0][1].training
    with mesh.start(runs[0][1].parallel, training.device, training.timeout_minutes) as world:
        for kind, config in runs:
            seconds = _step_seconds(config, world, args)
            with world.propagate_errors():
                if world.rank == 0:
                    point = _point(kind, config, world, seconds, args)
                    durable.write_json(args.out / "points" / point.file_name, point.model_dump(mode="json"))
                    write_report(args.out)


def _step_seconds(config: RunConfig, world: World, args: argparse.Namespace) -> list[float]:
    """Of each measured step, the slowest rank's time."""
    with world.propagate_errors():
        if args.data is None:
            loader, order = memory_loader(random_tokens(config), config), order_from(config)
        else:
            corpora = open_datasets(config, args.data, args.tokenizer)
            loader, order = corpora.loader, corpora.order
            config = with_vocab_size(config, corpora.tokenizer.vocab_size)
    return timed_steps(new_run(config, world, loader, order), args.warm_up, args.steps)


def _point(kind: Kind, config: RunConfig, world: World, seconds: list[float], args: argparse.Namespace) -> Point:
    training = config.training
    tokens = training.global_batch_size * config.model.sequence_length / statistics.median(seconds)
    axes = {"pp": world.pp_size, "dp": world.dp_size, "tp": world.tp_size}
    return Point(
        kind=kind,
        ranks=world.size,
        global_batch_size=training.global_batch_size,
        micro_batch_size=local_batches(training, training.global_batch_size, world.dp_size)[1],
        tokens_per_second=tokens,
        flops_per_second=tokens * flops_per_token(config.model),
        step_seconds=tuple(seconds),
        run=" ".join([args.config, *args.set]),
        layout=" x ".join(f"{axis} {size}" for axis, size in axes.items() if size > 1) or "one rank",
        device=world.device.type,
        machine=processor_name(world.device),
        cores=available_cpus(),
        ranks_per_node=int(os.environ.get("LOCAL_WORLD_SIZE", world.size)),
        threads=torch.get_num_threads(),
        tokens=str(args.data or "random"),
    )


def write_report(out: Path) -> None:
    """Draw what has been measured so far: scaling.json, scaling.md and scaling.svg in `out`.

    Raises:
        UsageError: the folder has points of different runs.
    """
    points = [parse(Point, durable.read_json(path), str(path)) for path in sorted((out / "points").glob("*.json"))]
    told = {(point.run, point.tokens, point.machine) for point in points}
    if len(told) > 1:
        runs = "; ".join(" | ".join(each) for each in sorted(told))
        raise UsageError(
            f"{out}: has points of different runs ({runs}). Give another --out, or remove {out / 'points'}"
        )
    curves = {
        kind: [
            {**row.point.model_dump(mode="json"), "speedup": row.speedup, "efficiency": row.efficiency}
            for row in rows(points, kind)
        ]
        for kind in KINDS
    }
    durable.write_json(out / "scaling.json", {"note": note(points), "curves": curves})
    durable.write_bytes(out / "scaling.md", "".join(f"{line}\n" for line in table(points)).encode())
    durable.write_bytes(out / "scaling.svg", svg(points).encode())


def rows(points: Sequence[Point], kind: Kind) -> list[Row]:
    """The points of a kind by number of ranks. The fewest ranks of all are measured once, for both kinds."""
    fewest = min(point.ranks for point in points)
    own = {point.ranks: point for point in points if point.ranks == fewest}
    own |= {point.ranks: point for point in points if point.kind == kind}
    speedups = {ranks: own[ranks].tokens_per_second / own[fewest].tokens_per_second for ranks in sorted(own)}
    return [Row(own[ranks], speedup, speedup * fewest / ranks) for ranks, speedup in speedups.items()]


def note(points: Sequence[Point]) -> str:
    """Where this was measured, and what that machine cannot do."""
    point = points[0]
    threads = f"{point.threads} thread{'s' * (point.threads > 1)} a rank"
    where = f"{point.machine}, {point.device}, {threads}, {point.tokens} tokens"
    if point.device != "cpu":
        return where
    most = max(point.ranks_per_node for point in points)
    limit = f": {most} ranks cannot be faster than {point.cores}" if most > point.cores else ""
    shared = f"{point.cores} cores that share memory{limit}"
    return f"{where}. {shared}. A measure of what ranks cost each other here, not of a cluster."


def table(points: Sequence[Point]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"`{points[0].run}`: {note(points)}"
    for kind, about in KINDS.items():
        yield from ("", f"{kind.capitalize()} scaling ({about}):", "", f"| {COLUMNS} |")
        yield "|---" * (COLUMNS.count("|") + 1) + "|"
        for point, speedup, efficiency in rows(points, kind):
            step = statistics.median(point.step_seconds)
            batch = (
                f"{point.global_batch_size} | {point.micro_batch_size} | {step:.3f} | {point.tokens_per_second:,.0f}"
            )
            yield f"| {point.ranks} | {point.layout} | {batch} | {speedup:.2f} | {efficiency:.0%} |"
    yield ""
    yield FRONTIER


def svg(points: Sequence[Point]) -> str:
    """Tokens a second over ranks, beside the speed of the fewest ranks multiplied, in one file that needs nothing
    else."""
    drawings = []
    for kind, about in KINDS.items():
        own = rows(points, kind)
        each = own[0].point.tokens_per_second / own[0].point.ranks
        measured = [
            Dot(point.ranks, point.tokens_per_second, f"{point.ranks} ranks: {efficiency:.0%}")
            for point, _, efficiency in own
        ]
        groups = [
            Series("ideal", [Dot(point.ranks, each * point.ranks) for point, *_ in own], 3),
            Series("measured", measured, 0, radius=4.0),
        ]
        efficiencies = ", ".join(f"{dot.about}" for dot in measured)
        title = f"{kind} scaling: {about}. {efficiencies}"
        ticks = [point.ranks for point, *_ in own]
        drawings.append(plot(title, groups, "ranks", "tokens/s", x_log=True, x_ticks=ticks))
    return picture(drawings, [points[0].run, *note(points).split(". ")])
