"""Predicted scaling: the same model on more devices of a cluster, and what to change when it stops being worth it.

Weak scaling lets the batch grow with the devices, strong scaling keeps it (Gustafson 1988, Amdahl 1967). Each is
predicted twice: with the layout kept, so that only data-parallel ranks are added, and with the best layout searched
again. Efficiency is the speed of a device over that of the fewest devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.naming import layout_name
from pretrain.plan.pages.neighbours import LITTLE, advice, changes
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Constraints, search
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

Kind = Literal["weak", "strong"]
Found = tuple[Prediction | None, str]  # the layout of a number of devices, or why there is none
EXACT = 8  # layouts of each search whose pipeline is simulated
COLUMNS = ("scaling", "devices", "batch", "s a step", "tokens/s", "bubble", "efficiency", "layout")


@dataclass(frozen=True)
class Point:
    """One number of devices."""

    devices: int
    batch: int
    prediction: Prediction | None  # None: there is no such layout
    problem: str = ""  # then why
    efficiency: float = 0.0  # speed of a device over that of the first point


@dataclass(frozen=True)
class Curve:
    """One way of adding devices."""

    kind: Kind
    is_searched: bool  # the best layout of each number of devices; or the first one's, with more data-parallel ranks
    points: Sequence[Point]

    @property
    def layout(self) -> str:
        """Which one the devices have."""
        return "best layout" if self.is_searched else "layout kept"

    @property
    def name(self) -> str:
        """As legends have it."""
        return f"{self.kind}, {self.layout}"

    @property
    def last(self) -> Point:
        """The most devices that there is a prediction for; the first has one."""
        return [point for point in self.points if point.prediction is not None][-1]


@dataclass(frozen=True)
class Scaling:
    """All curves of a model on a cluster."""

    curves: Sequence[Curve]
    kept: str  # which layout is kept, and why it


def curves(config: RunConfig, numbers: Sequence[int], cluster: Cluster, software: FrameworkProfile = OURS) -> Scaling:
    """Predict every number of devices. What is kept is the configured layout where the fewest devices hold it, else the
    best.

    The batch of the configuration is that of the fewest devices.

    Raises:
        UsageError: no layout fits the fewest devices, or there is only one number of them.
    """
    first, *more = sorted(set(numbers))
    if not more:
        raise UsageError(f"scaling over {first} devices has no curve. Give two numbers or more")
    best = search(config, first, cluster, software, keep=EXACT).layouts[0]
    start, kept = best, "the best one of the fewest devices"
    try:
        own = predict(config, first, cluster, software)
        if own.fits:
            start, kept = own, "the configured one"
    except UsageError:
        pass  # the configured layout does not divide so few devices: the best one is kept
    found = []
    for kind in get_args(Kind):
        batch = config.training.global_batch_size
        batches = {devices: round(batch * devices / first) if kind == "weak" else batch for devices in more}
        for origin, is_searched in ((start, False), (best, True)):
            points = [Point(first, origin.config.training.global_batch_size, origin, "", 1.0)]
            for devices, size in batches.items():
                there, problem = (_searched if is_searched else _kept)(origin, size, devices)
                speed = 0.0 if there is None else there.tokens_per_second / devices
                points.append(Point(devices, size, there, problem, speed / (origin.tokens_per_second / first)))
            found.append(Curve(kind, is_searched, points))
    return Scaling(found, f"{layout_name(start.config, first)}, {kept}")


def limit(curve: Curve) -> str:
    """What costs the most devices of a curve their efficiency, and which parameter to change next."""
    first, last = curve.points[0].prediction, curve.last
    assert first is not None and last.prediction is not None
    speed = f"{last.devices:,} devices: {last.efficiency:.0%} of the speed of {first.devices:,}"
    grown = growth(first, last.prediction)
    name = max(grown, key=lambda part: grown[part])
    what = "No part of a step takes longer"
    if grown[name] >= LITTLE:
        after, before = (one.seconds.named[name] / one.step_seconds for one in (last.prediction, first))
        what = f"What grows is {name}: {after:.1%} of a step there, {before:.1%} with {first.devices:,}"
    return f"{curve.name.capitalize()}, {speed}. {what}. {advice(changes(last.prediction))}"


def table(scaling: Scaling) -> Iterator[tuple[str, ...]]:
    """Rows under `COLUMNS`."""
    for curve in scaling.curves:
        for point in curve.points:
            one, place = point.prediction, (curve.name, f"{point.devices:,}", f"{point.batch:,}")
            if one is None:
                yield (*place, "", "", "", "", point.problem)
                continue
            bubble, speed = one.seconds.bubble / one.step_seconds, f"{one.tokens_per_second:,.0f}"
            figures = f"{one.step_seconds:.3g}", speed, f"{bubble:.1%}", f"{point.efficiency:.0%}"
            yield (*place, *figures, layout_name(one.config, point.devices))


def as_json(scaling: Scaling) -> dict[str, Any]:
    """As a JSON object."""

    def of(point: Point) -> dict[str, Any]:
        found: dict[str, Any] = {"devices": point.devices, "global_batch_size": point.batch}
        if (one := point.prediction) is None:
            return {**found, "problem": point.problem}
        speeds = {"step_seconds": one.step_seconds, "tokens_per_second": one.tokens_per_second}
        return {**found, "layout": layout_name(one.config, point.devices), **speeds, "efficiency": point.efficiency}

    lines = [
        {"kind": one.kind, "layout": one.layout, "limit": limit(one), "points": [*map(of, one.points)]}
        for one in scaling.curves
    ]
    return {"kept": scaling.kept, "curves": lines}


def growth(first: Prediction, last: Prediction) -> dict[str, float]:
    """By part the device-seconds of a token that were added, in shares of those of the last step."""
    costs = [
        {name: seconds * one.devices / one.tokens_per_step for name, seconds in one.seconds.named.items()}
        for one in (first, last)
    ]
    return {name: (value - costs[0][name]) / sum(costs[1].values()) for name, value in costs[1].items()}


def _searched(best: Prediction, batch: int, devices: int) -> Found:
    parallel = best.config.parallel
    sequence = (parallel.sequence_parallel,) if parallel.tp > 1 else None
    like = Constraints(zero=(parallel.zero,), offload=(parallel.offload,), sequence_parallel=sequence)
    config = _of_batch(best.config, batch)
    try:
        found = search(config, devices, best.cluster, best.software, keep=EXACT, constraints=like)
        return found.layouts[0], ""
    except UsageError as error:
        return None, str(error)


def _kept(start: Prediction, batch: int, devices: int) -> Found:
    """The layout with more data-parallel ranks: replicas of the shards where it has them, else shards."""
    layout = Layout.of(start.config, start.devices)
    times, rest = divmod(devices, layout.tp * layout.pp)
    inside = layout.dp_shard if layout.dp_replicate > 1 else 1
    if rest or times % inside:
        return None, f"{devices:,} devices are no multiple of {layout.tp} x {layout.pp} x {inside}"
    has_replicas = layout.dp_replicate > 1
    more = layout._replace(dp_replicate=times // inside) if has_replicas else layout._replace(dp_shard=times)
    config = more.configure(_of_batch(start.config, batch))
    try:
        found = predict(config, devices, start.cluster, start.software)
    except UsageError as error:
        return None, str(error)
    return (found, "") if found.fits else (None, "does not fit the devices' memory")


def _of_batch(config: RunConfig, batch: int) -> RunConfig:
    training = config.training.model_copy(update={"global_batch_size": batch, "rampup": None})
    return config.model_copy(update={"training": training})
