"""Predicted scaling: the same model on more devices of a cluster, and what to change when it stops being worth it.

Weak scaling lets the batch grow with the devices, strong scaling keeps it (Gustafson 1988, Amdahl 1967). Each is
predicted twice: with the layout kept, so that only data-parallel ranks are added, and with the best layout searched
again. Efficiency is the speed of a device over that of the fewest devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.naming import layout_name
from pretrain.plan.pages.changes import WORDS, Change, changes, parts
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Constraints, search
from pretrain.workload.software import OURS, Software

Kind = Literal["weak", "strong"]
KINDS: dict[Kind, str] = {"weak": "the batch grows with the devices", "strong": "the batch stays"}
Found = tuple[int, int, Prediction | None, str]  # devices, batch, and the layout there, or why there is none
EXACT = 8  # layouts of each search whose pipeline is simulated
MOST_CHANGES = 3  # that are named
LITTLE = 0.01  # of a step: a part that grew by less is not what limits
FRONTIER = (  # Dash et al. 2023: configuration, replica's devices, most devices, batch of strong scaling, its efficiency
    ("frontier-175b", 64, 1024, 8000, 0.89),
    ("frontier-1t", 512, 3072, 8016, 0.87),
)


@dataclass(frozen=True)
class Point:
    """One number of devices."""

    devices: int
    batch: int
    prediction: Prediction | None  # None: there is no such layout
    problem: str  # then why
    efficiency: float  # speed of a device over that of the first point; 0 where there is none


@dataclass(frozen=True)
class Curve:
    """One way of adding devices."""

    kind: Kind
    is_searched: bool  # the best layout of each number of devices; or the first one's, with more data-parallel ranks
    points: Sequence[Point]

    @property
    def name(self) -> str:
        """As legends have it."""
        return "best layout" if self.is_searched else "layout kept"

    @property
    def last(self) -> Point:
        """The most devices that there is a prediction for; the first has one."""
        return [point for point in self.points if point.prediction is not None][-1]


@dataclass(frozen=True)
class Scaling:
    """All curves of a model on a cluster."""

    config: RunConfig
    cluster: Cluster
    software: Software
    curves: Sequence[Curve]
    kept: str  # which layout is kept, and why it


def curves(config: RunConfig, numbers: Sequence[int], cluster: Cluster, software: Software = OURS) -> Scaling:
    """Predict every number of devices. What is kept is the configured layout where the fewest devices hold it, else the best.

    The batch of the configuration is that of the fewest devices.

    Raises:
        UsageError: no layout fits the fewest devices, or there is only one number of them.
    """
    numbers = sorted(set(numbers))
    if len(numbers) < 2:
        raise UsageError(
            f"scaling over {numbers[0] if numbers else 'no'} devices has no curve. Give two numbers or more"
        )
    first = numbers[0]
    best = search(config, first, cluster, software, keep=EXACT).layouts[0]
    start, kept = best, "the best one of the fewest devices"
    try:
        own = predict(config, first, cluster, software)
        if own.fits:
            start, kept = own, "the configured one"
    except UsageError:
        pass  # the configured layout does not divide so few devices: the best one is kept
    found = []
    for kind in KINDS:
        searched: list[Found] = [(first, best.config.training.global_batch_size, best, "")]
        same: list[Found] = [(first, start.config.training.global_batch_size, start, "")]
        for number in numbers[1:]:
            batch = config.training.global_batch_size
            batch = round(batch * number / first) if kind == "weak" else batch
            searched.append((number, batch, *_searched(best, batch, number)))
            same.append((number, batch, *_kept(start, batch, number)))
        found += [_curve(kind, False, same), _curve(kind, True, searched)]
    return Scaling(config, cluster, software, found, f"{layout_name(start.config, first)}, {kept}")


def limit(curve: Curve) -> str:
    """What costs the most devices of a curve their efficiency, and which parameter to change next."""
    first, last = curve.points[0].prediction, curve.last
    assert first is not None and last.prediction is not None
    where = f"{curve.kind.capitalize()} scaling, {curve.name}, {last.devices:,} devices: {last.efficiency:.0%} of the speed of {first.devices:,}."
    grown = _growth(first, last.prediction)
    if grown and max(grown.values()) >= LITTLE:
        name = max(grown, key=lambda part: grown[part])
        before, after = (parts(one).get(name, 0.0) / one.step_seconds for one in (first, last.prediction))
        where += (
            f" What grows is {WORDS.get(name, name)}: {after:.1%} of a step there, {before:.1%} with {first.devices:,}."
        )
    else:
        where += " No part of a step takes longer."
    return f"{where} {advice(changes(last.prediction))}"


def advice(found: Sequence[Change]) -> str:
    """The changes worth trying, in a sentence."""
    each = {change.name: change for change in reversed(found) if change.gain >= LITTLE}  # the best of each parameter
    better = sorted(each.values(), key=lambda change: -change.gain)[:MOST_CHANGES]
    if not better:
        return "No single parameter that could be changed gains 1 %."
    return f"To change next: {'; or '.join(change.words for change in better)}."


def lines(scaling: Scaling) -> Iterator[str]:
    """Markdown: a table and a sentence for each curve."""
    kept, cluster = scaling.kept, scaling.cluster
    yield f"Predicted on {cluster.name}, software {scaling.software.name}. The layout kept is {kept}."
    for kind, about in KINDS.items():
        yield ""
        yield f"{kind.capitalize()} scaling ({about}):"
        yield ""
        yield "| devices | batch | layout | s a step | tokens/s | bubble | efficiency |"
        yield "|---|---|---|---|---|---|---|"
        for curve in scaling.curves:
            if curve.kind == kind:
                yield from _rows(curve)
        yield ""
        for curve in scaling.curves:
            if curve.kind == kind:
                yield limit(curve)
                yield ""


def frontier(cluster: Cluster, software: Software = OURS) -> Iterator[str]:
    """Markdown: Frontier's published efficiencies beside what is predicted for its recipes.

    Efficiencies and most devices are of the abstract of Dash et al. 2023; layouts and batches are recalled from the
    paper, and that its curves begin with one replica is assumed: directions to compare, not figures to be judged by.
    """
    yield "| recipe (recalled) | scaling | devices | published | predicted |"
    yield "|---|---|---|---|---|"
    for name, few, most, batch, strong in FRONTIER:
        config = load_config(name)
        for kind, published, at_first in (("weak", 1.0, config.training.global_batch_size), ("strong", strong, batch)):
            first = predict(_of_batch(config, at_first), few, cluster, software)
            at_last = at_first * most // few if kind == "weak" else at_first
            last, problem = _kept(first, at_last, most, checks_memory=False)
            said = problem if last is None else f"{last.tokens_per_second / most / (first.tokens_per_second / few):.0%}"
            yield f"| {name} | {kind} | {few:,} to {most:,} | {published:.0%} | {said} |"


def as_json(scaling: Scaling) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "cluster": scaling.cluster.name,
        "kept": scaling.kept,
        "curves": [
            {"kind": curve.kind, "layout": curve.name, "limit": limit(curve), "points": [*map(_point, curve.points)]}
            for curve in scaling.curves
        ],
    }


def _point(point: Point) -> dict[str, Any]:
    found: dict[str, Any] = {"devices": point.devices, "global_batch_size": point.batch}
    if point.prediction is None:
        return {**found, "problem": point.problem}
    return {
        **found,
        "layout": layout_name(point.prediction.config, point.devices),
        "step_seconds": point.prediction.step_seconds,
        "tokens_per_second": point.prediction.tokens_per_second,
        "efficiency": point.efficiency,
    }


def _rows(curve: Curve) -> Iterator[str]:
    for point in curve.points:
        one = point.prediction
        if one is None:
            yield f"| {point.devices:,} | {point.batch:,} | {curve.name}: {point.problem} | | | | |"
            continue
        waiting = parts(one).get("bubble", 0.0) / one.step_seconds
        yield (
            f"| {point.devices:,} | {point.batch:,} | {curve.name}: {layout_name(one.config, point.devices)} | "
            f"{one.step_seconds:.3g} | {one.tokens_per_second:,.0f} | {waiting:.1%} | {point.efficiency:.0%} |"
        )


def _growth(first: Prediction, last: Prediction) -> dict[str, float]:
    """By part the device-seconds of a token that were added, in shares of those of the last step."""

    def costs(one: Prediction) -> dict[str, float]:
        return {name: seconds * one.devices / one.tokens_per_step for name, seconds in parts(one).items()}

    before, after = costs(first), costs(last)
    return {name: (value - before.get(name, 0.0)) / sum(after.values()) for name, value in after.items()}


def _searched(best: Prediction, batch: int, devices: int) -> tuple[Prediction | None, str]:
    parallel = best.config.parallel
    like = Constraints(
        zero=(parallel.zero,),
        offload=(parallel.offload,),
        sequence_parallel=(parallel.sequence_parallel,) if parallel.tp > 1 else None,
    )
    config = _of_batch(best.config, batch)
    try:
        found = search(config, devices, best.cluster, best.software, keep=EXACT, constraints=like)
        return found.layouts[0], ""
    except UsageError as error:
        return None, str(error)


def _kept(start: Prediction, batch: int, devices: int, checks_memory: bool = True) -> tuple[Prediction | None, str]:
    """The layout with more data-parallel ranks: replicas of the shards where it has them, else shards."""
    layout = Layout.of(start.config, start.devices)
    times, rest = divmod(devices, start.devices // layout.data_parallel)
    inside = layout.dp_shard if layout.dp_replicate > 1 else 1
    if rest or times % inside:
        return None, f"{devices:,} devices are no multiple of {layout.tp} x {layout.pp} x {inside}"
    changed = {"dp_replicate": times // inside} if layout.dp_replicate > 1 else {"dp_shard": times}
    try:
        found = predict(
            layout.but(**changed).configure(_of_batch(start.config, batch)), devices, start.cluster, start.software
        )
    except UsageError as error:
        return None, str(error)
    return (found, "") if found.fits or not checks_memory else (None, "does not fit the devices' memory")


def _of_batch(config: RunConfig, batch: int) -> RunConfig:
    training = config.training.model_copy(update={"global_batch_size": batch, "rampup": None})
    return config.model_copy(update={"training": training})


def _curve(kind: Kind, is_searched: bool, found: Sequence[Found]) -> Curve:
    first = found[0][2]
    assert first is not None
    speed = first.tokens_per_second / first.devices
    return Curve(
        kind,
        is_searched,
        [
            Point(devices, batch, one, problem, 0.0 if one is None else one.tokens_per_second / devices / speed)
            for devices, batch, one, problem in found
        ],
    )
