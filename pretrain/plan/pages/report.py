"""A question to the planner answered as one page: the layouts, where their time and memory go, and what was refused.

The page opens from disk without a single request and needs no script (`corpus.engine.page`); every string is escaped
where it is put in. Figures are predictions: the page says by which cluster, efficiencies and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import get_args

from corpus.engine.page import document
from pretrain.monitor.facts import Row
from pretrain.monitor.page import style, table
from pretrain.plan.naming import layout_name
from pretrain.plan.pages import charts, rules, scaling, text, timeline
from pretrain.plan.pages.changes import advice, changes
from pretrain.plan.pages.charts import Bar, Dot, Dots
from pretrain.plan.pages.rules import Rule
from pretrain.plan.pages.scaling import Scaling
from pretrain.plan.prediction import RESERVED, Prediction
from pretrain.plan.search.search import Plans

GIB = 2**30
MOST_ROWS, MOST_BARS = 20, 6
SHAPES = "A mark is the fastest layout of one tp x pp x micro-batch that fits."
FOOTER = "Predicted by `python -m pretrain plan`: no device was used. What was not searched or modelled is not here."


def render(
    plans: Plans,
    tokens: int,
    *,
    name: str = "",
    marked: Mapping[str, Prediction] | None = None,
    scaled: Scaling | None = None,
    ruled: Sequence[Rule] = (),
) -> str:
    """The whole page of a search.

    Args:
        tokens: of the whole training.
        name: of the configuration.
        marked: layouts to show beside those found, by what they are called ("configured").
    """
    own = resources.files("pretrain.plan.pages").joinpath("report.css").read_text("utf-8")
    title = f"{name or 'Layouts'} on {plans.best.devices:,} x {plans.best.cluster.device.name}"
    beside = marked or {}
    body = [
        f"<h1>{escape(title)} <small>plan · 文海 wenhai</small></h1>\n",
        *_question(plans, tokens, name),
        *_ranked(plans, beside, tokens),
        *_time_and_memory(plans, beside),
        *_space(plans, beside),
        *_pipelines(plans, beside),
        *(_scaling(scaled) if scaled else ()),
        *(_section("Rules for the shape of the model", rules.COLUMNS, [rule.cells for rule in ruled]) if ruled else ()),
        *_rejected(plans),
        *_assumptions(plans.best),
        f"<footer>{escape(FOOTER)}</footer>\n",
    ]
    return document(f"{title} · plan", style() + own, body)


def _section(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table under a heading; of a long one the rest is folded away."""
    yield f"<h2>{escape(heading)}</h2>\n"
    yield table(columns, [Row(tuple(row)) for row in rows[:MOST_ROWS]])
    if rest := [Row(tuple(row)) for row in rows[MOST_ROWS:]]:
        yield f"<details><summary>{len(rest):,} more</summary>{table(columns, rest)}</details>\n"


def _question(plans: Plans, tokens: int, name: str) -> Iterator[str]:
    best = plans.best
    considered = f"{plans.considered:,} legal layouts considered in {text.number(plans.seconds)} s"
    left = f"{len(plans.layouts):,} shapes (tp x pp x micro-batch) are left, each in its fastest form that fits."
    yield from (_paragraph(line) for line in text.header(best.config, best, tokens, name))
    yield _paragraph(f"{best.cluster.description}. {considered}. {left}")
    yield _paragraph(advice(changes(best)))


def _ranked(plans: Plans, marked: Mapping[str, Prediction], tokens: int) -> Iterator[str]:
    shown = [(str(place), one) for place, one in enumerate(plans.layouts[:MOST_ROWS], 1)]
    rows = text.cells([*shown, *marked.items()], tokens)
    yield "<h2>Layouts, best first</h2>\n"
    yield table(list(rows[0]), [Row(tuple(row.values()), is_marked=row[""] in marked) for row in rows])
    left = len(plans.layouts) - MOST_ROWS
    more = f" {left:,} more shapes are not in the table." if left > 0 else ""
    yield f'<p class="soft">{escape(text.LEGEND + more)}</p>\n'
    for name, one in marked.items():
        rank = plans.rank_of(one)
        words = f"{name}: {rank.words}, {100 * (rank.slower - 1):.1f} % longer than the best."
        lack = f" By this model of memory it lacks {one.missing_bytes / GIB:.1f} GiB." if not one.fits else ""
        yield _paragraph(words + lack)


def _time_and_memory(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    times, sizes, sent = [], [], []
    for place, one in (
        {str(place): one for place, one in enumerate(plans.layouts[:MOST_BARS], 1)} | dict(marked)
    ).items():
        name = f"{place}: {layout_name(one.config, one.devices)}"
        memory = {part: size / GIB for part, size in one.worst.device_parts.items()}
        times.append(Bar(name, one.seconds.named, f"{text.number(one.step_seconds)} s"))
        sizes.append(Bar(name, memory, f"{one.memory_bytes / GIB:.1f} GiB"))
        axes = {f"{axis}, exposed": traffic.exposed for axis, traffic in one.communication.items()}
        axes |= {f"{axis}, hidden": traffic.hidden for axis, traffic in one.communication.items()}
        if total := sum(axes.values()):
            sent.append(Bar(name, axes, f"{text.number(total)} s"))
    device = plans.best.cluster.device
    limit = RESERVED * device.memory_gib, f"{RESERVED * device.memory_gib:.1f} of {device.memory_gib:g} GiB"
    kept = f"The line is {RESERVED:.0%} of the device's memory; the driver and the allocator keep the rest."
    hidden = "Hidden: while something is computed, which costs the step nothing."
    drawings = [
        charts.bars("Seconds of a step, on its busiest rank", times, _seconds),
        charts.bars("Memory of the fullest device, GiB", sizes, lambda value: f"{value:.2f} GiB", limit, kept),
    ]
    drawings += [charts.bars("Seconds of communication in a step", sent, _seconds, note=hidden)] if sent else []
    yield _drawn("Where time and memory go", drawings)


def front(layouts: Sequence[Prediction]) -> list[Prediction]:
    """Layouts that no other one beats in both memory and throughput, by memory (Pareto)."""
    found: list[Prediction] = []
    for one in sorted(layouts, key=lambda one: (one.memory_bytes, -one.tokens_per_second)):
        if not found or one.tokens_per_second > found[-1].tokens_per_second:
            found.append(one)
    return found


def _space(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    """All that fit: memory against throughput."""

    def dots(layouts: Sequence[Prediction], is_told: bool = True) -> list[Dot]:
        return [Dot(one.memory_bytes / GIB, one.tokens_per_second, _told(one) if is_told else "") for one in layouts]

    groups = [
        Dots("layouts that fit", dots(plans.layouts, False), 7, 2, is_faint=True),
        Dots("best for their memory", dots(front(plans.layouts)), 0, 3.2, is_line=True),
        *(Dots(name, dots([one]), 1, 5) for name, one in marked.items()),
    ]
    room = RESERVED * plans.best.cluster.device.memory_gib
    gib = "GiB of the fullest device"
    drawing = charts.plot("Throughput against memory", groups, gib, "tokens/s", x_limit=room, note=SHAPES)
    yield _drawn("All layouts", [drawing])


def _pipelines(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    """Of the best layout that has one, and of the marked ones."""
    best = [(str(place), one) for place, one in enumerate(plans.layouts, 1) if one.config.parallel.pp > 1][:1]
    shown = [*best, *((name, one) for name, one in marked.items() if one.config.parallel.pp > 1)]
    if shown:
        yield "<h2>Pipelines</h2>\n"
    for name, one in shown:
        yield timeline.draw(timeline.of(one), f"{name}: {layout_name(one.config, one.devices)}").figure


def _scaling(found: Scaling) -> Iterator[str]:
    yield from _section("On more devices", scaling.COLUMNS, list(scaling.table(found)))
    yield _paragraph(f"The layout kept is {found.kept}.")
    drawings = []
    for kind in get_args(scaling.Kind):
        groups = [
            Dots(
                curve.name,
                [
                    Dot(point.devices, point.efficiency, _told(one))
                    for point in curve.points
                    if (one := point.prediction)
                ],
                color,
                3,
                is_line=True,
            )
            for color, curve in enumerate(found.curves)
            if curve.kind == kind
        ]
        title = f"{kind.capitalize()} scaling"
        drawings.append(charts.plot(title, groups, "devices", "efficiency", lambda value: f"{value:.0%}", doubles=True))
    yield "".join(['<div class="charts">\n', *(drawing.figure for drawing in drawings), "</div>\n"])
    yield from (_paragraph(scaling.limit(curve)) for curve in found.curves)


def _rejected(plans: Plans) -> Iterator[str]:
    rows = [(f"{one.layouts:,}", one.family, one.reason) for one in plans.rejected]
    yield from _section("Not among them, and why", ("layouts", "which", "reason"), rows) if rows else ()


def _assumptions(best: Prediction) -> Iterator[str]:
    """What the figures follow from: the cluster's file, and the program."""
    yield from _section(
        "What this assumes", ("", ""), [("software", f"{best.software.name}: {best.software.description}")]
    )
    yield f"<pre>{escape(best.cluster.as_toml())}</pre>\n"


def _drawn(heading: str, drawings: Sequence[charts.Drawing]) -> str:
    figures = "".join(drawing.figure for drawing in drawings)
    return f'<h2>{escape(heading)}</h2>\n<div class="charts">\n{figures}</div>\n'


def _told(one: Prediction) -> str:
    name = layout_name(one.config, one.devices)
    return f"{name}: {text.number(one.step_seconds)} s, {one.memory_bytes / GIB:.1f} GiB"


def _seconds(value: float) -> str:
    return f"{text.number(value)} s"


def _paragraph(words: str) -> str:
    return f"<p>{escape(words)}</p>\n"
