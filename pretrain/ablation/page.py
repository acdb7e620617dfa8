"""OUT/report.html: every metric with its error bars and the point of each seed, learning curves, and the tables.

The page opens from disk without a single request and needs no script; every string is escaped where it is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from corpus.engine.page import document
from pretrain.ablation.results import (
    CAUTION,
    TITLES,
    Metric,
    Results,
    described_exclusions,
    shown_difference,
    shown_mean,
    summarize,
)
from pretrain.monitor.charts import Axis, short
from pretrain.monitor.facts import Row
from pretrain.monitor.page import style, table

NAME = "report.html"
STYLE = ".scroll td { white-space: nowrap; }"  # a narrow screen scrolls a table sideways and breaks no figure
NUM_COLORS = 8  # of the style sheet
WIDTH, PITCH = 460, 30  # pixels; PITCH from arm to arm
LEFT, RIGHT, TOP, BOTTOM = 110, 16, 8, 24
CURVE_LEFT, CURVE_HEIGHT = 46, 220
LONGEST_NAME = 16  # characters beside a drawing


def render(results: Results) -> str:
    """The whole page."""
    return document("Data ablation", style() + STYLE, _body(results))


def _body(results: Results) -> Iterator[str]:
    plan = results.plan
    first, others = plan.arms[0].name, results.others
    yield "<h1>Data ablation <small>文海 wenhai</small></h1>\n"
    yield (
        f"<p>One model, {escape(plan.config_name)}, trained on {len(plan.arms)} builds of a corpus: "
        f"{plan.num_steps:,} steps, {plan.num_tokens:,} tokens in each run, {_seeds(len(results.seeds))}. "
        f"Others are compared to {escape(first)}.</p>\n"
    )
    for warning in plan.warnings():
        yield f'<p class="warning">{escape(warning)}</p>\n'
    if len(results.seeds) < len(plan.seeds):
        yield f'<p class="warning">Not finished: {len(results.seeds)} of {len(plan.seeds)} seeds.</p>\n'
    rows = [Row((arm.name, str(arm.folder), f"{arm.num_tokens:,}", f"{plan.epochs(arm):.2f}")) for arm in plan.arms]
    yield table(("arm", "build", "training tokens", "times read"), rows)
    for line in described_exclusions(results.held):
        yield f'<p class="soft">{escape(line)}</p>\n'
    for kind, title in TITLES.items():
        metrics = [metric for metric in results.metrics if metric.kind == kind]
        if not metrics:
            continue
        yield f"<h2>{escape(title[:1].upper() + title[1:])}</h2>\n"
        yield f'<div class="charts">\n{"".join(map(bars, metrics))}</div>\n'
        columns = ("", *metrics[0].values, *(f"{arm} - {first}, 95 %" for arm in others), *(["verdict"] * len(others)))
        yield table(columns, [_row(metric, others) for metric in metrics])
    if charts := [curve(f"held out of {key.partition('/')[2]}", arms) for key, arms in results.curves.items()]:
        yield f'<h2>Learning curves</h2>\n<div class="charts">\n{"".join(charts)}</div>\n'
        yield (
            '<p class="soft">Bits per character over steps, on the beginning of each arm\'s held-out text: the mean over '
            "seeds, and the range from the lowest to the highest.</p>\n"
        )
    yield f"<footer>{escape(CAUTION)}</footer>\n"


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number > 1)}"


def _row(metric: Metric, others: Sequence[str]) -> Row:
    differences = [metric.difference(arm) for arm in others]
    return Row(
        (
            metric.name,
            *(shown_mean(metric.summary(arm)) for arm in metric.values),
            *map(shown_difference, differences),
            *(difference.verdict for difference in differences),
        )
    )


def bars(metric: Metric) -> str:
    """A line for each arm: the point of every seed, the mean, and one standard deviation to both sides."""
    values = [value for arm in metric.values.values() for value in arm]
    summaries = {arm: metric.summary(arm) for arm in metric.values}
    ends = [mean + sign * (deviation or 0) for mean, deviation in summaries.values() for sign in (-1, 1)]
    low, high = min(*values, *ends), max(*values, *ends)
    margin = (high - low or abs(high) or 1.0) * 0.06
    x = Axis(low - margin, high + margin, LEFT, WIDTH - RIGHT)
    height = TOP + PITCH * len(metric.values) + BOTTOM
    parts = [
        f'<line class="grid" x1="{x(tick):.1f}" y1="{TOP}" x2="{x(tick):.1f}" y2="{height - BOTTOM}"/>'
        f'<text x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle">{short(tick)}</text>'
        for tick in x.ticks()
    ]
    for place, (arm, seeds) in enumerate(metric.values.items()):
        y, color = TOP + PITCH * (place + 0.5), f"c{place % NUM_COLORS}"
        mean, deviation = summaries[arm]
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(_cut(arm))}</text>')
        if deviation is not None:
            start, end = x(mean - deviation), x(mean + deviation)
            parts.append(
                f'<path class="line {color}" d="M{start:.1f} {y:.1f}H{end:.1f}'
                f'M{start:.1f} {y - 6:.1f}v12M{end:.1f} {y - 6:.1f}v12M{x(mean):.1f} {y - 9:.1f}v18"/>'
            )
        parts += [
            f'<circle class="{color}" cx="{x(value):.1f}" cy="{y:.1f}" r="3"><title>{escape(arm)}: {value:.4f}</title></circle>'
            for value in seeds
        ]
    told = f"{metric.name}: {'; '.join(f'{arm} {shown_mean(summary)}' for arm, summary in summaries.items())}"
    return (
        f'<figure><h3>{escape(metric.name)}</h3><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(told)}">{"".join(parts)}</svg>'
        f"<figcaption>{escape(metric.about)}</figcaption></figure>\n"
    )


def curve(title: str, arms: Mapping[str, Mapping[int, Sequence[float]]]) -> str:
    """Learning curves: a line for each arm, within its range over seeds."""
    values = [value for steps in arms.values() for seeds in steps.values() for value in seeds]
    steps = sorted({step for of_arm in arms.values() for step in of_arm})
    margin = (max(values) - min(values) or abs(max(values)) or 1.0) * 0.05
    x = Axis(0, max(steps), CURVE_LEFT, WIDTH - RIGHT)
    y = Axis(min(values) - margin, max(values) + margin, CURVE_HEIGHT - BOTTOM, TOP)
    parts = [
        f'<line class="grid" x1="{CURVE_LEFT}" y1="{y(tick):.1f}" x2="{WIDTH - RIGHT}" y2="{y(tick):.1f}"/>'
        f'<text x="{CURVE_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{short(tick)}</text>'
        for tick in y.ticks()
    ]
    parts += [
        f'<text x="{x(step):.1f}" y="{CURVE_HEIGHT - 6}" text-anchor="middle">{short(step)}</text>' for step in steps
    ]
    ends = []
    for place, (arm, of_arm) in enumerate(arms.items()):
        color = f"c{place % NUM_COLORS}"
        means = [(step, summarize(seeds).mean) for step, seeds in sorted(of_arm.items())]
        upper = [(x(step), y(max(seeds))) for step, seeds in sorted(of_arm.items())]
        lower = [(x(step), y(min(seeds))) for step, seeds in sorted(of_arm.items(), reverse=True)]
        parts.append(f'<path class="range {color}" d="{_path([*upper, *lower])}z"/>')
        parts.append(f'<path class="line {color}" d="{_path([(x(step), y(mean)) for step, mean in means])}"/>')
        parts += [f'<circle class="{color}" cx="{x(step):.1f}" cy="{y(mean):.1f}" r="2.6"/>' for step, mean in means]
        ends.append(f"{arm} ends at {means[-1][1]:.3f}")
    legend = "".join(
        f'<span><i class="c{place % NUM_COLORS}"></i>{escape(arm)}</span>' for place, arm in enumerate(arms)
    )
    told = f"{title}: {'; '.join(ends)}"
    return (
        f'<figure><h3>{escape(title)}</h3><p class="legend">{legend}</p><svg viewBox="0 0 {WIDTH} {CURVE_HEIGHT}" '
        f'role="img" aria-label="{escape(told)}">{"".join(parts)}</svg></figure>\n'
    )


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in places)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
