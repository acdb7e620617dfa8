"""Frontier's tuning experiment on the planner's own predictions: how soon a search finds the best layout, and what
matters.

Dash et al. 2023 (arXiv 2312.12705) searched for how to train 175 B parameters on 96 or 128 dies of MI250X. The space,
that a trial out of memory counts as a failure, and the order in which parameters mattered are quoted from memory, not
read again:

| | |
|---|---|
| pipeline stages | 1, 2, 4, 8, 12, 16 |
| tensor-parallel ranks | 4, 8 |
| samples of a micro-batch | 4 to 20 |
| micro-batches of a step (gradient accumulation) | 5, 10 |
| optimizer state in shards (ZeRO-1) | yes, no |
| nodes of 8 dies | 12, 16 |
| mattered, most first | micro-batch, tensor parallelism, stages, nodes; ZeRO-1 least |

Every point is predicted. The first table compares the planner's order, and that by data sheets alone (all efficiencies
1), with Optuna's samplers; the second has the Shapley effects of the parameters, exact, as all points are known: what
knowing one adds to the explained variance Var(E[value | known]), averaged over all orders of knowing (Owen 2014).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.columns import align_table
from pretrain.config import ParallelConfig, RunConfig, load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, Efficiency, load_cluster
from pretrain.workload.framework_profiles import ALL, FrameworkProfile, find_software

SPACE: dict[str, tuple[Any, ...]] = {
    "pp": (1, 2, 4, 8, 12, 16),
    "tp": (4, 8),
    "micro_batch": tuple(range(4, 21)),
    "micro_batches": (5, 10),
    "zero1": (False, True),
    "nodes": (12, 16),
}
RECALLED = ("micro_batch", "tp", "pp", "nodes", "zero1")  # most first; gradient accumulation's place is not recalled
SAMPLERS = {"random": "RandomSampler", "TPE": "TPESampler"}  # of Optuna
SHOWN_TRIALS = (1, 2, 5, 10, 20, 50, 100, 200, 400)
NEAR = 0.99  # of the best
NO_MEMORY, NO_LAYOUT = "out of memory", "do not divide the devices"

Point = tuple[Any, ...]  # a choice of each parameter, in the space's order
Results = dict[Point, float | str]  # TFLOP/s of a device, or why there are none


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain plan tune`."""
    parser.add_argument("--config", default="frontier-175b", help="the model (default: frontier-175b)")
    parser.add_argument("--cluster", default="frontier-mi250x", help="the machine (default: frontier-mi250x)")
    parser.add_argument("--software", default="ours", help=f"the program that trains: {', '.join(ALL)} (default: ours)")
    parser.add_argument("--trials", type=int, default=200, metavar="N", help="of each search (default 200)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="of Optuna's; medians are told (default 5)")


def main(args: argparse.Namespace) -> None:
    """Print both tables.

    Raises:
        UsageError: there is no such model, machine or program; Optuna is not installed; or no point of the space fits.
    """
    if args.trials < 1 or args.seeds < 1:
        raise UsageError(f"--trials {args.trials}, --seeds {args.seeds}: each must be 1 or more")
    config, cluster, software = load_config(args.config), load_cluster(args.cluster), find_software(args.software)
    results = predict_space(config, cluster, software)
    values = {point: 0.0 if isinstance(result, str) else result for point, result in results.items()}
    best = max(values, key=lambda point: values[point])
    if not values[best]:
        raise UsageError(
            f"no point of the space fits {cluster.name} (--software {software.name}). Give a smaller model "
            "(--config) or a larger machine (--cluster)."
        )
    said = [f"{sum(result == why for result in results.values()):,} {why}" for why in (NO_MEMORY, NO_LAYOUT)]
    print(f"{len(results):,} points (space recalled from Dash et al. 2023), of which {', '.join(said)}")
    named = ", ".join(f"{name} {value}" for name, value in zip(SPACE, best, strict=True))
    print(f"best predicted: {values[best]:.1f} TFLOP/s a device with {named}")
    print("nothing is run: the planner's own order is right by construction; what an order is worth before anything is")
    print("measured shows under data sheet (all figures of the cluster as if they were reached)", flush=True)
    sheet = predict_space(config, by_data_sheet(cluster), software)
    print("", *search_lines(values, sheet, args.trials, args.seeds), "", *sensitivity_lines(results), sep="\n")


def predict_space(config: RunConfig, cluster: Cluster, software: FrameworkProfile) -> Results:
    """Every point of the space."""
    return {point: outcome(config, cluster, software, point) for point in product(*SPACE.values())}


def outcome(config: RunConfig, cluster: Cluster, software: FrameworkProfile, point: Point) -> float | str:
    """TFLOP/s of a device as published tables count them, or why there are none."""
    pp, tp, micro_batch, micro_batches, zero1, nodes = point
    devices = nodes * cluster.devices_per_node
    copies, rest = divmod(devices, tp * pp)
    if rest or not copies:
        return NO_LAYOUT
    shards = {"dp_shard": copies} if zero1 else {"dp_shard": 1, "dp_replicate": copies}
    parallel = ParallelConfig(tp=tp, pp=pp, zero=1, recompute="full", **shards)
    sizes = {"micro_batch_size": micro_batch, "global_batch_size": micro_batch * micro_batches * copies}
    training = config.training.model_copy(update=sizes)
    layout = config.model_copy(update={"parallel": parallel, "training": training})
    prediction = predict(layout, devices, cluster, software, exact=False)
    return prediction.tflops_per_gpu if prediction.fits else NO_MEMORY


def by_data_sheet(cluster: Cluster) -> Cluster:
    """The cluster as if all of its figures were reached."""
    networks = tuple(network.model_copy(update={"efficiency": 1.0}) for network in cluster.networks)
    return cluster.model_copy(update={"efficiency": Efficiency(), "networks": networks})


def search_lines(values: Mapping[Point, float], sheet: Results, trials: int, seeds: int) -> Iterator[str]:
    """The best found after so many trials, and how many it took to come near the best of all."""
    orders: list[Mapping[Point, float | str]] = [values, sheet]
    runs = {
        name: [[values[point] for point in sorted(order, key=lambda point: -_rate(order[point]))[:trials]]]
        for name, order in zip(("planner", "data sheet"), orders, strict=True)
    }
    for name, sampler in SAMPLERS.items():
        runs[name] = [sample_trials(values, sampler, seed, trials) for seed in range(seeds)]
    rows = []
    for number in (number for number in SHOWN_TRIALS if number <= trials):
        rows.append(
            (str(number), *(f"{statistics.median(max(run[:number]) for run in each):.1f}" for each in runs.values()))
        )
    near = NEAR * max(values.values())
    needed = {
        name: statistics.median(next((at for at, one in enumerate(run, 1) if one >= near), np.inf) for run in each)
        for name, each in runs.items()
    }
    rows.append(("to 1 %", *("not found" if np.isinf(number) else f"{number:g}" for number in needed.values())))
    failed = [statistics.median(run.count(0.0) for run in each) for each in runs.values()]
    rows.append(("failed", *(f"{number:g}" for number in failed)))
    yield "best TFLOP/s found after so many trials; trials to within 1 % of the best; failed ones (medians over seeds)"
    yield from align_table([("trials", *runs), *rows], left=("trials",))


def sample_trials(values: Mapping[Point, float], sampler: str, seed: int, trials: int) -> list[float]:
    """What trials of one of Optuna's samplers come to, in their order; a failure is 0, so that a search stays away.

    Raises:
        UsageError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UsageError("Optuna is not installed: pip install 'wenhai[tune]' brings it") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=getattr(optuna.samplers, sampler)(seed=seed))

    def objective(trial: Any) -> float:
        return values[tuple(own[trial.suggest_int(name, 0, len(own) - 1)] for name, own in SPACE.items())]

    study.optimize(objective, n_trials=trials)
    return [float(trial.value) for trial in study.trials]


def sensitivity_lines(results: Results) -> Iterator[str]:
    """What matters, of all points (a failure is 0 TFLOP/s, as a search sees it) and among those that run."""
    ran = {point: result for point, result in results.items() if not isinstance(result, str)}
    everywhere = effects(list(results), [_rate(result) for result in results.values()])
    among = effects(list(ran), list(ran.values()))
    rows = [
        (
            name,
            f"{everywhere[name]:.1%}",
            f"{among[name]:.1%}",
            str(RECALLED.index(name) + 1) if name in RECALLED else "not recalled",
        )
        for name in sorted(everywhere, key=lambda name: -everywhere[name])
    ]
    yield (
        "share of the variance of TFLOP/s: of all points, failures as 0; of those that run; and Frontier's "
        "order, recalled"
    )
    yield from align_table([("parameter", "all", "that run", "place"), *rows], left=("parameter",))


def effects(points: Sequence[Point], values: Sequence[float]) -> dict[str, float]:
    """Shapley effects of the space's parameters, 0 or more; they add up to one where the values differ, else all are
    0."""
    names, value = tuple(SPACE), np.array(values, dtype=np.float64)
    codes = np.array(
        [[own.index(choice) for own, choice in zip(SPACE.values(), point, strict=True)] for point in points]
    )
    axes, variance = range(len(names)), value.var() or 1.0
    known = {
        subset: _explained(codes[:, list(subset)], value) / variance
        for size in range(len(names) + 1)
        for subset in combinations(axes, size)
    }
    found = dict.fromkeys(names, 0.0)
    for subset, share in known.items():
        for axis in set(axes) - set(subset):
            weight = len(names) * comb(len(names) - 1, len(subset))
            found[names[axis]] += (known[tuple(sorted((*subset, axis)))] - share) / weight
    return found


def _explained(codes: NDArray[np.int64], value: NDArray[np.float64]) -> float:
    """Variance of the means of points that are alike in some parameters; codes: [points, parameters]."""
    if not codes.shape[1]:
        return 0.0
    _, group, sizes = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    means = np.bincount(group.reshape(-1), weights=value) / sizes
    return float(sizes @ (means - value.mean()) ** 2 / len(value))


def _rate(result: float | str) -> float:
    return 0.0 if isinstance(result, str) else result
