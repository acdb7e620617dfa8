"""Measured tuning: the planner's best layouts are run for a few steps, and what they take corrects the planner.

    1. of the layouts that fit, order all by speed: measured ones as measured, the others as predicted
    2. run the first of the best k that was not run yet; none is left: done
    3. fit the cluster again to all runs (`plan.tuning.refit`), predict all layouts again, go to 1

A run that is out of memory is an observation, too: it raises what the planner expects others to hold, and is never a
candidate again. So is one that failed otherwise, of which nothing is learnt; when the first k runs all fail the search
is given up.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.engine.errors import WenhaiError
from pretrain.columns import align_table
from pretrain.config import RunConfig
from pretrain.console import log_message
from pretrain.plan import auto
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.naming import layout_name
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.search import Plans
from pretrain.plan.tuning import measure
from pretrain.plan.tuning.refit import Run, predicted_again, refit

CANDIDATES = 100  # of the layouts found, the best that stay in the running
MOST_RUNS = 3  # times k
GIB = 2**30
COLUMNS = ("layout", "predicted", "refitted", "measured", "GiB predicted", "refitted", "measured", "")


Measure = Callable[[RunConfig, int], measure.Measurement]  # runs a configuration on a number of ranks


@dataclass(frozen=True)
class Tuned:
    """What came of it."""

    k: int
    runs: Sequence[Run]  # in the order in which they were run, as predicted at first
    again: Sequence[Prediction]  # the same layouts on the cluster as it is known now
    cluster: Cluster  # with what was learnt
    best: Run | None  # the fastest that ran; None: none did
    is_settled: bool  # the best k are all measured; else runs were used up

    @property
    def out_of_memory(self) -> int:
        """How many runs were."""
        return sum(run.measurement.outcome == "out of memory" for run in self.runs)


def measure_best(plans: Plans, k: int, run: Measure | None = None) -> Tuned:
    """Run the best layouts of a search on this machine, as the module says; a line about each run goes to stderr.

    Args:
        k: layouts that must stay the best when they have been measured; at most `MOST_RUNS` times as many are run.
        run: what runs a layout; None: `measure.measure`.

    Raises:
        WenhaiError: not one of the first k could be run; with what the last of them said.
    """
    run = run or measure.measure
    cluster, layouts = plans.best.cluster, list(plans.layouts[:CANDIDATES])
    now, runs = layouts, dict[int, Run]()
    settled = False
    while len(runs) < MOST_RUNS * k:
        following = next((index for index in ranking(now, runs)[:k] if index not in runs), None)
        if following is None:
            settled = True
            break
        layout = layouts[following]
        runs[following] = Run(layout, run(layout.config, layout.devices))
        log_message(_told(runs[following], len(runs)))
        if len(runs) >= k and all(one.measurement.outcome == "failed" for one in runs.values()):
            raise WenhaiError(
                f"none of {len(runs)} layouts could be run here. The last: {runs[following].measurement.message}"
            )
        cluster = refit(plans.best.cluster, list(runs.values()))
        now = [predicted_again(each, cluster) for each in layouts]
    done = [one for one in runs.values() if one.is_done]
    return Tuned(
        k=k,
        runs=list(runs.values()),
        again=[now[index] for index in runs],
        cluster=cluster,
        best=max(done, key=speed, default=None),
        is_settled=settled,
    )


def ranking(layouts: Sequence[Prediction], runs: dict[int, Run]) -> list[int]:
    """The layouts that fit and can run, fastest first: as measured, or as predicted."""
    speeds = {
        index: speed(runs[index]) if index in runs else layout.tokens_per_second
        for index, layout in enumerate(layouts)
        if (runs[index].is_done if index in runs else layout.fits)
    }
    return sorted(speeds, key=lambda index: -speeds[index])


def speed(run: Run) -> float:
    """Measured tokens per second, of all devices; 0 for a run that did not end."""
    seconds = run.measurement.step_seconds
    return run.prediction.tokens_per_step / seconds if seconds else 0.0


def lines(tuned: Tuned) -> Iterator[str]:
    """Predicted and measured, before and after the fit; the best layout; what was learnt of the cluster."""
    rows = []
    for one in _rows(tuned):
        seconds = (one["predicted_step_seconds"], one["refitted_step_seconds"], one["measured_step_seconds"])
        held = (one["predicted_memory_bytes"], one["refitted_memory_bytes"], one["measured_memory_bytes"])
        failed = one["message"] if one["outcome"] == "failed" else ""
        times = [_seconds(value) if value else one["outcome"] for value in seconds]
        rows.append((one["layout"], *times, *(f"{size / GIB:.3f}" if size else "-" for size in held), failed))
    yield from align_table([COLUMNS, *rows], left=("layout", ""))
    errors = [
        [abs(one[f"{kind}_step_seconds"] / one["measured_step_seconds"] - 1) for kind in ("predicted", "refitted")]
        for one in _rows(tuned)
        if one["measured_step_seconds"]
    ]
    if errors:
        before, after = (statistics.mean(each) for each in zip(*errors, strict=True))
        yield ""
        yield f"mean error of step time: {before:.1%} as planned, {after:.1%} after the fit, {len(errors)} runs"
    if tuned.out_of_memory:
        times_more = f"{tuned.cluster.efficiency.held:.2f} times the prediction"
        yield f"out of memory: {tuned.out_of_memory}; memory is now expected to be {times_more}"
    yield ("the best" if tuned.is_settled else "not yet settled; so far the best") + f" {tuned.k} were all measured"
    yield from _learnt(tuned)
    if tuned.best is not None:
        config = tuned.best.prediction.config
        yield from ("", f"fastest: {_name(tuned.best)}", "", auto.toml_lines(config))


def as_json(tuned: Tuned) -> dict[str, Any]:
    """The same as a JSON object."""
    return {
        "runs": list(_rows(tuned)),
        "best": None if tuned.best is None else _name(tuned.best),
        "settled": tuned.is_settled,
        "cluster": json.loads(tuned.cluster.model_dump_json(exclude_none=True)),
    }


def _rows(tuned: Tuned) -> Iterator[dict[str, Any]]:
    for run, again in zip(tuned.runs, tuned.again, strict=True):
        yield {
            "layout": _name(run),
            "predicted_step_seconds": run.prediction.step_seconds,
            "refitted_step_seconds": again.step_seconds,
            "measured_step_seconds": run.measurement.step_seconds,
            "predicted_memory_bytes": run.prediction.memory_bytes,
            "refitted_memory_bytes": again.memory_bytes * tuned.cluster.efficiency.held,
            "measured_memory_bytes": run.measurement.peak_bytes,
            "outcome": run.measurement.outcome,
            "message": run.measurement.message,
        }


def _name(run: Run) -> str:
    return layout_name(run.prediction.config, run.prediction.devices)


def _learnt(tuned: Tuned) -> Iterator[str]:
    """Each scalar of the cluster that moved."""
    first = tuned.runs[0].prediction.cluster
    pairs = [(name, value, getattr(tuned.cluster.efficiency, name)) for name, value in first.efficiency]
    for before, after in zip(first.networks, tuned.cluster.networks, strict=True):
        pairs.append((f"{before.name} efficiency", before.efficiency, after.efficiency))
        pairs.append((f"{before.name} latency", before.latency, after.latency))
    moved = [
        f"{name} {before:.3g} -> {after:.3g}" for name, before, after in pairs if abs(after - before) > 0.005 * before
    ]
    yield f"learnt of {first.name}: {', '.join(moved) or 'nothing that it did not say'}"


def _told(run: Run, number: int) -> str:
    name, measurement = _name(run), run.measurement
    if measurement.step_seconds is None:
        return f"run {number}: {name}: {measurement.outcome} ({measurement.message})"
    predicted, measured = _seconds(run.prediction.step_seconds), _seconds(measurement.step_seconds)
    return f"run {number}: {name}: predicted {predicted}, measured {measured}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
