"""OUT/report.html: every metric with its error bars and the point of each seed, learning curves, and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from corpus.engine.chart import BESIDE, NUM_COLORS, Drawing, Mark, Point, Row, Series, figures, plot, strips
from corpus.engine.page import Html, document, table, tag
from pretrain.ablation.results import (
    CAUTION,
    TITLES,
    Metric,
    Results,
    exclusion_lines,
    format_difference,
    format_mean,
    summarize,
)

NAME = "report.html"
STYLE = ".scroll td { white-space: nowrap; }"  # a narrow screen scrolls a table sideways and breaks no figure
CURVES = (
    "Bits per character over steps, on the beginning of each arm's held-out text: the mean over seeds, and the range "
    "from the lowest to the highest."
)


def render(results: Results) -> str:
    """The whole page."""
    return document("Data ablation", "", _body(results), CAUTION, style=STYLE)


def _body(results: Results) -> Iterator[Html]:
    plan = results.plan
    first, others = plan.arms[0].name, results.others
    yield tag(
        "p",
        f"One model, {plan.config_name}, trained on {len(plan.arms)} builds of a corpus: {plan.num_steps:,} steps, "
        f"{plan.num_tokens:,} tokens in each run, {_seeds(len(results.seeds))}. Others are compared to {first}.",
    )
    warnings = list(plan.warnings())
    if len(results.seeds) < len(plan.seeds):
        warnings.append(f"Not finished: {len(results.seeds)} of {len(plan.seeds)} seeds.")
    yield from (tag("p", warning, class_="warning") for warning in warnings)
    rows = [(arm.name, str(arm.folder), f"{arm.num_tokens:,}", f"{plan.epochs(arm):.2f}") for arm in plan.arms]
    yield table(("arm", "build", "training tokens", "times read"), rows)
    yield from (tag("p", line, class_="soft") for line in exclusion_lines(results.held))
    for kind, title in TITLES.items():
        metrics = [metric for metric in results.metrics if metric.kind == kind]
        if metrics:
            yield from (tag("h2", title[:1].upper() + title[1:]), figures(map(bars, metrics)))
            differences = [f"{arm} - {first}, 95 %" for arm in others]
            columns = ("", *metrics[0].values, *differences, *(["verdict"] * len(others)))
            yield table(columns, [_row(metric, others) for metric in metrics])
    if curves := [curve(f"held out of {key.partition('/')[2]}", arms) for key, arms in results.curves.items()]:
        yield from (tag("h2", "Learning curves"), figures(curves), tag("p", CURVES, class_="soft"))


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number > 1)}"


def _row(metric: Metric, others: Sequence[str]) -> list[str]:
    differences = [metric.difference(arm) for arm in others]
    means = (format_mean(metric.summary(arm)) for arm in metric.values)
    return [metric.name, *means, *map(format_difference, differences), *(one.verdict for one in differences)]


def bars(metric: Metric) -> Drawing:
    """A row for each arm: the point of every seed, the mean, and one standard deviation to both sides."""
    rows, ends = [], []
    for place, (arm, values) in enumerate(metric.values.items()):
        (mean, deviation), color = metric.summary(arm), place % NUM_COLORS
        marks = [Mark("dot", value, color=color, about=f"{arm}: {value:.4f}") for value in values]
        if deviation is not None:
            marks = [
                Mark("interval", mean - deviation, mean + deviation, color),
                Mark("tick", mean, color=color),
                *marks,
            ]
        rows.append(Row(_cut(arm), marks))
        ends += [*values, mean - (deviation or 0), mean + (deviation or 0)]
    low, high = min(ends), max(ends)
    margin = (high - low or abs(high) or 1.0) * 0.06
    told = f"{metric.name}: {'; '.join(f'{arm} {format_mean(metric.summary(arm))}' for arm in metric.values)}"
    return strips(metric.name, rows, (low - margin, high + margin), told, note=metric.about)


def curve(title: str, arms: Mapping[str, Mapping[int, Sequence[float]]]) -> Drawing:
    """Learning curves: a line for each arm, within its range over seeds."""
    series = [
        Series(
            arm,
            [Point(step, summarize(of).mean, "", min(of), max(of)) for step, of in sorted(steps.items())],
            place % NUM_COLORS,
            radius=2.6,
            between="range",
        )
        for place, (arm, steps) in enumerate(arms.items())
    ]
    steps = sorted({step for of_arm in arms.values() for step in of_arm})
    return plot(title, series, x_ends=(0, max(steps)), x_ticks=steps, from_zero=False)


def _cut(name: str) -> str:
    return name if len(name) <= BESIDE else f"{name[: BESIDE - 1]}…"
