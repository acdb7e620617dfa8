"""Frontier's tuning experiment again, with the planner's model in place of the machine: which searcher finds the best layout soonest.

Dash et al. 2023 (arXiv 2312.12705) let DeepHyper's Bayesian search choose how to train 175 B parameters on 96 or 128 dies of MI250X. The space, that
a trial out of memory counts as a failure, and the order in which parameters mattered are quoted from memory, not read again:

| | |
|---|---|
| pipeline stages | 1, 2, 4, 8, 12, 16 |
| tensor-parallel ranks | 4, 8 |
| samples of a micro-batch | 4 to 20 |
| micro-batches of a step (gradient accumulation) | 5, 10 |
| optimizer state in shards (ZeRO-1) | yes, no |
| nodes of 8 dies | 12, 16 |
| mattered, most first | micro-batch, tensor parallelism, stages, nodes; ZeRO-1 least |

Every point is predicted, so that the best is known. What the planner's own order is worth can't be seen from a machine that is the planner: it
is shown beside the order by data sheets alone (all efficiencies 1), which is what somebody has who measured nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corpus.engine.errors import UsageError
from pretrain.config import ParallelConfig, RunConfig, load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, Efficiency, load_cluster
from pretrain.plan.tuning.searchers import (
    FAILED,
    OUT_OF_MEMORY,
    Failure,
    Ordered,
    Point,
    Random,
    Result,
    Search,
    Searcher,
    Space,
    Tpe,
    search_by,
)
from pretrain.plan.tuning.sensitivity import effects
from pretrain.workload.software import ALL, Software, find_software

SPACE = Space(
    {
        "pp": (1, 2, 4, 8, 12, 16),
        "tp": (4, 8),
        "micro_batch": tuple(range(4, 21)),
        "micro_batches": (5, 10),
        "zero1": (False, True),
        "nodes": (12, 16),
    }
)
RECALLED = ("micro_batch", "tp", "pp", "nodes", "zero1")  # most first; gradient accumulation's place is not recalled
SHOWN_TRIALS = (1, 2, 5, 10, 20, 50, 100, 200, 400)
NEAR = 0.99  # of the best


@dataclass(frozen=True)
class Machine:
    """What every point of the space would come to: TFLOP/s of a device, or a failure."""

    results: Mapping[Point, Result]

    @property
    def ran(self) -> dict[Point, float]:
        """The points with a value."""
        return {point: result for point, result in self.results.items() if not isinstance(result, Failure)}

    @property
    def best(self) -> tuple[Point, float]:
        """The fastest point."""
        return max(self.ran.items(), key=lambda item: item[1])

    def count(self, failure: Failure) -> int:
        """How many points end like that."""
        return sum(result is failure for result in self.results.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain plan tune`."""
    parser.add_argument("--config", default="frontier-175b", help="the model (default: frontier-175b)")
    parser.add_argument("--cluster", default="frontier-mi250x", help="the machine (default: frontier-mi250x)")
    parser.add_argument("--software", default="ours", help=f"the program that trains: {', '.join(ALL)} (default: ours)")
    parser.add_argument("--trials", type=int, default=200, metavar="N", help="of each searcher (default 200)")
    parser.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="of those that draw; medians are told (default 5)"
    )


def main(args: argparse.Namespace) -> None:
    """Print the experiment.

    Raises:
        UsageError: there is no such model, machine or program; Optuna is not installed; or no point of the space fits.
    """
    if args.trials < 1 or args.seeds < 1:
        raise UsageError("--trials and --seeds must be 1 or more")
    config, cluster = load_config(args.config), load_cluster(args.cluster)
    software = find_software(args.software)
    for line in lines(config, cluster, software, args.trials, args.seeds):
        print(line, flush=True)


def machine(config: RunConfig, cluster: Cluster, software: Software) -> Machine:
    """Every point, predicted."""
    return Machine({point: outcome(config, cluster, software, point) for point in SPACE})


def outcome(config: RunConfig, cluster: Cluster, software: Software, point: Point) -> Result:
    """TFLOP/s of a device as published tables count them, or why there are none."""
    chosen = SPACE.named(point)
    devices = chosen["nodes"] * cluster.devices_per_node
    copies, rest = divmod(devices, chosen["tp"] * chosen["pp"])
    if rest or not copies:
        return FAILED  # no whole number of copies of the model
    shards = {"dp_shard": copies} if chosen["zero1"] else {"dp_shard": 1, "dp_replicate": copies}
    sizes = {
        "micro_batch_size": chosen["micro_batch"],
        "global_batch_size": chosen["micro_batch"] * chosen["micro_batches"] * copies,
    }
    parallel = ParallelConfig(tp=chosen["tp"], pp=chosen["pp"], zero=1, recompute="full", **shards)
    training = config.training.model_copy(update=sizes)
    layout = config.model_copy(update={"parallel": parallel, "training": training})
    prediction = predict(layout, devices, cluster, software, exact=False)
    return prediction.tflops_per_gpu if prediction.fits else OUT_OF_MEMORY


def by_data_sheet(cluster: Cluster) -> Cluster:
    """The cluster as if all of its figures were reached."""
    networks = tuple(network.model_copy(update={"efficiency": 1.0}) for network in cluster.networks)
    return cluster.model_copy(update={"efficiency": Efficiency(), "networks": networks})


def lines(config: RunConfig, cluster: Cluster, software: Software, trials: int, seeds: int) -> Iterator[str]:
    """The experiment as text."""
    there = machine(config, cluster, software)
    if not there.ran:
        raise UsageError(f"no point of the space fits {cluster.name} (--software {software.name})")
    point, best = there.best
    yield f"{len(SPACE):,} points (space recalled from Dash et al. 2023): {len(there.ran):,} run,"
    yield f"{there.count(OUT_OF_MEMORY):,} are out of memory, {there.count(FAILED):,} do not divide the devices"
    yield f"best predicted: {best:.1f} TFLOP/s a device with {_words(point)}"
    yield "nothing is run: the machine is the planner itself, so its own order is right by construction; what an order is worth"
    yield "before anything is measured shows under data sheet (all figures of the cluster as if they were reached)"
    yield ""
    sheet = machine(config, by_data_sheet(cluster), software)
    searches = {
        "planner": [_search(Ordered(SPACE, _score(there)), there, trials)],
        "data sheet": [_search(Ordered(SPACE, _score(sheet)), there, trials)],
        "random": [_search(Random(SPACE, seed), there, trials) for seed in range(seeds)],
        "Optuna TPE": [_search(Tpe(SPACE, seed), there, trials) for seed in range(seeds)],
    }
    yield from _progress(searches, best, trials)
    yield ""
    yield from sensitivity_lines(there)


def sensitivity_lines(there: Machine) -> Iterator[str]:
    """What matters, of all points (a failure is 0 TFLOP/s, as a searcher sees it) and among those that run."""
    names = tuple(SPACE.choices)
    values = [0.0 if isinstance(result, Failure) else result for result in there.results.values()]
    everywhere = effects(names, list(there.results), values)
    among = {effect.name: effect for effect in effects(names, list(there.ran), list(there.ran.values()))}
    yield "share of the variance of TFLOP/s (Shapley effects, exact), failures as 0, and among the points that run"
    yield f"{'parameter':<14}{'all':>7}{'total':>8}{'that run':>10}  place recalled of Frontier's"
    for effect in everywhere:
        place = f"{RECALLED.index(effect.name) + 1}" if effect.name in RECALLED else "not recalled"
        yield f"{effect.name:<14}{effect.shapley:>7.1%}{effect.total:>8.1%}{among[effect.name].shapley:>10.1%}  {place}"


def _progress(searches: Mapping[str, Sequence[Search]], best: float, trials: int) -> Iterator[str]:
    yield "best TFLOP/s found after so many trials (medians over seeds)"
    yield f"{'trials':>9}" + "".join(f"{name:>12}" for name in searches)
    for number in (number for number in SHOWN_TRIALS if number <= trials):
        cells = [statistics.median(search.best_after(number) for search in each) for each in searches.values()]
        yield f"{number:>9}" + "".join(f"{cell:>12.1f}" for cell in cells)
    rows: dict[str, Callable[[Search], float | None]] = {
        "in 1 %": lambda search: search.trials_to(NEAR * best),
        "no memory": lambda search: search.count(OUT_OF_MEMORY),
        "failed": lambda search: search.count(FAILED),
    }
    for name, number_of in rows.items():
        words = [_median([number_of(search) for search in each]) for each in searches.values()]
        yield f"{name:>9}" + "".join(f"{word:>12}" for word in words)


def _median(numbers: Sequence[float | None]) -> str:
    """Of numbers of trials; None, not within them, is more than any."""
    middle = sorted(numbers, key=lambda number: sys.maxsize if number is None else number)[len(numbers) // 2]
    return "not found" if middle is None else f"{middle:g}"


def _search(searcher: Searcher, there: Machine, trials: int) -> Search:
    return search_by(searcher, there.results.__getitem__, trials)


def _score(there: Machine) -> Callable[[Point], float | None]:
    return there.ran.get


def _words(point: Point) -> str:
    return ", ".join(f"{name} {value}" for name, value in SPACE.named(point).items())
