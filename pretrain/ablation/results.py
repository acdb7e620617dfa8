"""All figures of an ablation: one JSON object (OUT/results.json), and tables for a terminal.

Compared are the seeds that every arm has finished. A value is listed by seed, so that everything else can be computed
again.

Seed k gives both arms the same initial weights, so that their difference is taken seed by seed: of n differences d_k
with mean m and standard deviation s (n - 1 in the denominator) the interval is m ± t s / sqrt(n), with t the 0.975
quantile of Student's distribution of n - 1 degrees of freedom: 12.71 for two seeds, 4.30 for three, 2.78 for five.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pretrain.ablation.measuring import Measured
from pretrain.ablation.plan import Plan
from pretrain.ablation.unseen import Held
from pretrain.columns import align_table, printable, wrap_paragraph

CONFIDENCE = 0.95
HALVINGS = 200
FORMAT = 1
RESULTS = "results.json"
CAUTION = (
    "± is the standard deviation over seeds, brackets are the 95 % interval of the paired difference to the first arm. "
    "Not told apart (< x): the seeds alone may make a difference below x. Other held-out text would move the figures "
    "of all arms. Each interval is for one comparison: of 20 without any effect one is expected to be told apart."
)
Kind = Literal["held out", "text", "task"]
TITLES: dict[Kind, str] = {
    "held out": "bits per character on each arm's held-out text, lower is better",
    "text": "bits per character on other texts, lower is better",
    "task": "accuracy on tasks, higher is better",
}


class Summary(NamedTuple):
    """One arm's values of a metric."""

    mean: float
    deviation: float | None  # None of a single value


class Difference(NamedTuple):
    """An arm minus the first one, over the same seeds."""

    mean: float
    half_width: float | None  # of the interval; None of a single seed
    verdict: str

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its ends."""
        return None if self.half_width is None else (self.mean - self.half_width, self.mean + self.half_width)


def summarize(values: Sequence[float]) -> Summary:
    """Mean and standard deviation.

    >>> summarize([1.0, 2.0, 3.0])
    Summary(mean=2.0, deviation=1.0)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Summary(mean, None)
    return Summary(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))


def compare(values: Sequence[float], first: Sequence[float], *, lower_is_better: bool) -> Difference:
    """An arm's values against the first arm's, seed by seed; better or worse only where the interval leaves out zero.

    Raises:
        ValueError: they are not of the same seeds.
    """
    differences = [one - other for one, other in zip(values, first, strict=True)]
    mean, deviation = summarize(differences)
    if deviation is None:
        return Difference(mean, None, "not told apart with 1 seed: --seeds 3")
    half_width = t_quantile(len(differences) - 1) * deviation / math.sqrt(len(differences))
    if abs(mean) > half_width:
        return Difference(mean, half_width, "better" if (mean < 0) == lower_is_better else "worse")
    return Difference(mean, half_width, f"not told apart (< {half_width:.2g})")


def t_quantile(degrees: int) -> float:
    """t with P(-t < T < t) = 0.95 of Student's distribution, by bisection.

    >>> [round(t_quantile(degrees), 3) for degrees in (1, 2, 3, 4, 10, 30, 1000)]
    [12.706, 4.303, 3.182, 2.776, 2.228, 2.042, 1.962]
    """
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < CONFIDENCE:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, degrees) < CONFIDENCE else (low, middle)
    return high


def t_probability(t: float, degrees: int) -> float:
    """P(-t < T < t) of Student's distribution (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4: finite sums of
    cosines)."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom: there must be 1 or more")
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term, total = (cosine if is_odd else 1.0), 0.0
    for number in range(degrees // 2):
        total += term
        place = 2 * number + 1 + is_odd  # of the next factor: 2/3, 4/5, ... of odd degrees, 1/2, 3/4, ... of even ones
        term *= cosine**2 * place / (place + 1)
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


class Metric(NamedTuple):
    """One row of a table: the values of every arm, by seed."""

    kind: Kind
    name: str
    values: dict[str, list[float]]  # by arm
    about: str  # on what

    @property
    def lower_is_better(self) -> bool:
        return self.kind != "task"

    def summary(self, arm: str) -> Summary:
        """Of one arm."""
        return summarize(self.values[arm])

    def difference(self, arm: str) -> Difference:
        """Of an arm to the first one."""
        first = next(iter(self.values))
        return compare(self.values[arm], self.values[first], lower_is_better=self.lower_is_better)


class Results(NamedTuple):
    """What was found so far."""

    plan: Plan
    seeds: tuple[int, ...]  # finished in every arm
    metrics: list[Metric]
    curves: dict[str, dict[str, dict[int, list[float]]]]  # by held-out text and arm: steps to values by seed
    held: tuple[Held, ...]

    @property
    def others(self) -> list[str]:
        """The arms that are compared to the first."""
        return [arm.name for arm in self.plan.arms[1:]]


def collect(plan: Plan, held: Sequence[Held], found: Mapping[str, Measured]) -> Results:
    """The figures of all runs that are measured, by name.

    Raises:
        ValueError: no seed is finished in every arm.
    """
    arms = [arm.name for arm in plan.arms]
    seeds = tuple(seed for seed in plan.seeds if all(f"{arm}-seed{seed}" in found for arm in arms))
    if not seeds:
        raise ValueError("no seed is finished in every arm")
    runs = {arm: [found[f"{arm}-seed{seed}"] for seed in seeds] for arm in arms}
    metrics = [
        Metric(
            each.kind,
            each.name,
            {arm: [run.bits_per_character[each.key] for run in runs[arm]] for arm in arms},
            f"{len(each.documents):,} documents, {sum(len(document.text) for document in each.documents):,} characters",
        )
        for each in held
        if each.documents
    ]
    for name, first in runs[arms[0]][0].accuracy.items():
        values = {arm: [run.accuracy[name].share for run in runs[arm]] for arm in arms}
        metrics.append(Metric("task", name, values, f"{first.num_items:,} items, chance {first.chance:.3f}"))
    curves = {
        key: {
            arm: {step: [run.curves[key][str(step)] for run in runs[arm]] for step in _common_steps(key, runs[arm])}
            for arm in arms
        }
        for key in runs[arms[0]][0].curves
    }
    return Results(plan, seeds, metrics, curves, tuple(held))


def _common_steps(key: str, runs: Sequence[Measured]) -> list[int]:
    """Of which every run has a checkpoint."""
    return sorted(map(int, set.intersection(*(set(run.curves[key]) for run in runs))))


def to_json(results: Results) -> dict[str, Any]:
    """OUT/results.json."""
    plan = results.plan
    return {
        "format": FORMAT,
        "config": plan.config_name,
        "overrides": list(plan.overrides),
        "seeds": list(results.seeds),
        "steps": plan.num_steps,
        "tokens": plan.num_tokens,
        "arms": [
            {"name": arm.name, "folder": str(arm.folder), "tokens": arm.num_tokens, "epochs": plan.epochs(arm)}
            for arm in plan.arms
        ],
        "warnings": plan.warnings(),
        "held_out": [
            {
                "kind": each.kind,
                "name": each.name,
                "documents": len(each.documents),
                "left_out_same_id": each.num_same_id,
                "left_out_same_text": each.num_same_text,
            }
            for each in results.held
        ],
        "metrics": [_metric_json(metric, results.others) for metric in results.metrics],
        "curves": results.curves,
    }


def _metric_json(metric: Metric, others: Sequence[str]) -> dict[str, Any]:
    arms: dict[str, Any] = {}
    for arm, values in metric.values.items():
        mean, deviation = metric.summary(arm)
        arms[arm] = {"values": values, "mean": mean, "standard_deviation": deviation}
        if arm in others:
            found = metric.difference(arm)
            difference = {"mean": found.mean, "interval": found.interval, "verdict": found.verdict}
            arms[arm]["difference"] = difference
    return {
        "kind": metric.kind,
        "name": metric.name,
        "about": metric.about,
        "better": "lower" if metric.lower_is_better else "higher",
        "arms": arms,
    }


def tables(results: Results) -> str:
    """For a terminal: means, then differences with their verdicts."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    plan = results.plan
    seeds = f"{len(results.seeds)} seed{'s' * (len(results.seeds) > 1)}"
    yield f"each run: {plan.num_steps:,} steps, {plan.num_tokens:,} tokens; {seeds}"
    for line in arm_lines(plan):
        yield from wrap_paragraph(f"  {line}", "    ")
    for line in exclusion_lines(results.held):
        yield from wrap_paragraph(line)
    for kind, title in TITLES.items():
        metrics = [metric for metric in results.metrics if metric.kind == kind]
        if not metrics:
            continue
        arms = list(metrics[0].values)
        yield ""
        yield title
        rows = [["", *arms]]
        rows += [[metric.name, *(format_mean(metric.summary(arm)) for arm in arms)] for metric in metrics]
        yield from align_table(rows, "  ")
        for arm in arms[1:]:
            yield f"  {arm} - {arms[0]}:"
            found = [(metric.name, metric.difference(arm)) for metric in metrics]
            yield from align_table([[name, format_difference(each), each.verdict] for name, each in found], "  ")
    yield ""
    yield from wrap_paragraph(CAUTION, "")


def arm_lines(plan: Plan) -> list[str]:
    """A line for each arm, and the warnings."""
    arms = [
        f"{arm.name}: {arm.folder}, {arm.num_tokens:,} training tokens, read {plan.epochs(arm):.2f} times"
        for arm in plan.arms
    ]
    return arms + [f"WARNING: {warning}" for warning in plan.warnings()]


def exclusion_lines(held: Sequence[Held]) -> list[str]:
    """What was left out of which text, and why; and which texts are the same, so that their figures count once."""
    lines = [
        f"{each.kind} {printable(each.name)}: {each.num_same_id + each.num_same_text} of "
        f"{len(each.documents) + each.num_same_id + each.num_same_text} documents left out, since an arm was trained "
        f"on them ({each.num_same_id} by their id, {each.num_same_text} by their text)"
        for each in held
        if each.num_same_id + each.num_same_text
    ]
    names: dict[str, list[str]] = {}
    for each in held:
        if each.documents:
            names.setdefault(each.identity, []).append(f"{each.kind} {printable(each.name)}")
    return lines + [f"the same documents: {', '.join(same)}" for same in names.values() if len(same) > 1]


def format_mean(summary: Summary) -> str:
    """As in `3.412 ±0.010`."""
    return f"{summary.mean:.3f}" + ("" if summary.deviation is None else f" ±{summary.deviation:.3f}")


def format_difference(difference: Difference) -> str:
    """As in `+0.034 [+0.010, +0.058]`."""
    ends = difference.interval
    return f"{difference.mean:+.3f}" + (f" [{ends[0]:+.3f}, {ends[1]:+.3f}]" if ends else "")
