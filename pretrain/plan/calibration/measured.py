"""The planner against this machine: layouts of a small model on one and two ranks, predicted and measured.

    python -m pretrain plan calibrate --out build/here.toml
    python -m pretrain.plan.calibration.measured --cluster build/here.toml

Each layout is a job of its own, as `plan --measure` runs them (`plan.tuning.measure`). All of them are gone through in rounds, and the
median step of all rounds counts: a machine that is busy for a while slows a few steps of each layout, and not all of one. What
autograd saves of a micro-batch is counted beside (`plan.calibration.saved_tensors`), where it must agree to the byte.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from corpus.engine.errors import WenhaiError
from pretrain.config import RunConfig, load_config
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.model.micro_batch import read_micro_batches
from pretrain.parallel.base import mesh
from pretrain.plan.calibration.benchmarks import spread
from pretrain.plan.calibration.saved_tensors import counted_bytes, predicted_bytes
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.naming import parse_layout
from pretrain.plan.published.errors import rank_correlation
from pretrain.plan.tuning.measure import measure
from pretrain.training.step import new_run

MODEL = ("model.num_layers=4", "training.global_batch_size=8", "training.device=cpu")  # over that of --config
LAYOUTS = (  # ranks, layout
    (1, "mbs=1"),
    (1, "mbs=2"),
    (1, "mbs=4"),
    (1, "mbs=2,recompute=selective"),
    (1, "mbs=2,recompute=full"),
    (2, "zero=1,mbs=2"),
    (2, "zero=2,mbs=2"),
    (2, "zero=3,mbs=2"),
    (2, "zero=3,mbs=4,recompute=full"),
    (2, "dp_replicate=2,zero=1,mbs=1"),
    (2, "tp=2,mbs=2"),
    (2, "tp=2,mbs=4,sp=off"),
    (2, "tp=2,mbs=4,recompute=selective"),
    (2, "pp=2,schedule=gpipe,mbs=2"),
    (2, "pp=2,schedule=1f1b,mbs=1"),
    (2, "pp=2,schedule=interleaved,mbs=1"),
    (2, "pp=2,schedule=zero-bubble,mbs=2"),
    (2, "pp=2,schedule=zbv,mbs=1"),
)
HEADING = f"{'ranks':>5}  {'layout':34} {'predicted':>10} {'measured':>10} {'spread':>7} {'error':>7}"
COUNTED = ("mbs=1", "mbs=2", "mbs=4", "mbs=2,recompute=full")  # whose saved bytes are told


@dataclass(frozen=True)
class Row:
    """One layout."""

    ranks: int
    layout: str
    predicted: float  # seconds of a step
    measured: Sequence[float]  # of each step of all rounds

    @property
    def median(self) -> float:
        """Seconds of a step."""
        return statistics.median(self.measured)

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted / self.median - 1


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print what was predicted beside it."""
    parser = argparse.ArgumentParser(
        prog="python -m pretrain.plan.calibration.measured", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--cluster", required=True, metavar="FILE", help="as `plan calibrate` wrote it")
    parser.add_argument("--config", default="demo", help="the model (default: demo, with 4 layers)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="jobs of each layout (default 3)")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="measured steps of a job (default 4)")
    args = parser.parse_args(words)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    base, cluster = load_config(args.config, MODEL), load_cluster(args.cluster)
    print(HEADING, flush=True)
    rows = measure_all(base, cluster, args.rounds, args.steps, say=lambda row: print(line(row), flush=True))
    if args.rounds > 1:
        print("", "all rounds", HEADING, *map(line, rows), sep="\n")
    for text in [summary(rows), "", *saved_lines(base)]:
        print(text, flush=True)


def measure_all(
    base: RunConfig, cluster: Cluster, rounds: int, steps: int, say: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Every layout in every round; `say` is told each job's own row as it ends.

    Raises:
        WenhaiError: a layout did not train; why.
    """
    configs = [(ranks, layout, parse_layout(layout, base, ranks)) for ranks, layout in LAYOUTS]
    predicted = [predict(config, ranks, cluster).step_seconds for ranks, _, config in configs]
    seconds: list[list[float]] = [[] for _ in configs]
    for _ in range(rounds):
        for number, (ranks, layout, config) in enumerate(configs):
            measurement = measure(config, ranks, steps=steps, warm_up=2)
            if measurement.outcome != "done":
                raise WenhaiError(f"{layout} on {ranks} ranks: {measurement.outcome}: {measurement.message}")
            seconds[number].extend(measurement.seconds)
            say(Row(ranks, layout, predicted[number], measurement.seconds))
    each = zip(configs, predicted, seconds, strict=True)
    return [Row(ranks, layout, before, after) for (ranks, layout, _), before, after in each]


def line(row: Row) -> str:
    """Of the table under `HEADING`."""
    return (
        f"{row.ranks:5}  {row.layout:34} {1e3 * row.predicted:7.0f} ms {1e3 * row.median:7.0f} ms "
        f"{spread(row.measured):7.0%} {row.error:+7.1%}"
    )


def summary(rows: Sequence[Row]) -> str:
    """What the errors of the table come to."""
    errors = [abs(row.error) for row in rows]
    correlation = rank_correlation(np.array([row.predicted for row in rows]), np.array([row.median for row in rows]))
    return (
        f"{len(rows)} layouts: mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}, "
        f"rank correlation {correlation:.2f}"
    )


def saved_lines(base: RunConfig) -> Iterator[str]:
    """Bytes that autograd saves of a micro-batch, on one rank."""
    yield f"{'saved of a micro-batch':34} {'predicted':>13} {'counted':>13} {'difference':>11}"
    for layout in COUNTED:
        config = parse_layout(layout, base, 1)
        predicted, counted = predicted_bytes(config), _counted(config)
        yield f"{layout:34} {predicted:13,} {counted:13,} {predicted - counted:11,}"


def _counted(config: RunConfig) -> int:
    with mesh.start(config.parallel, "cpu", config.training.timeout_minutes) as world:
        run = new_run(config, world, memory_loader(random_tokens(config), config), order_from(config))
        batches = read_micro_batches(run.loader, 0, config.training.global_batch_size, config, world)
        return counted_bytes(run, next(batches))


if __name__ == "__main__":
    main()
