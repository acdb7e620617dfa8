"""A question to the planner answered as one page: the layouts, where their time and memory go, and what was refused.

Figures are predictions: the page says by which cluster, efficiencies and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from corpus.engine.chart import Bar, Point, Series, bars, figures, plot
from corpus.engine.page import Html, document, table, tag
from pretrain.plan.naming import layout_name
from pretrain.plan.pages import rules, scaling, text, timeline
from pretrain.plan.pages.neighbours import advice, changes
from pretrain.plan.pages.rules import Rule
from pretrain.plan.pages.scaling import Scaling
from pretrain.plan.prediction import RESERVED, Prediction
from pretrain.plan.search.search import Plans

GIB = 2**30
MOST_ROWS, MOST_BARS = 20, 6
SHAPES = "A mark is the fastest layout of one tp x pp x micro-batch that fits."
STYLE = (  # layouts are not broken, reasons have room
    ".scroll:not(.narrow) td:first-child { white-space: nowrap; } .scroll:not(.narrow) td:nth-child(2) "
    "{ min-width: 11rem; }@media (max-width: 560px) { .scroll:not(.narrow) td:nth-child(3) { min-width: 4rem; } }"
)
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
    best, refused = plans.best, [(f"{one.layouts:,}", one.family, one.reason) for one in plans.rejected]
    software = ("software", f"{best.software.name}: {best.software.description}")
    title = f"{name or 'Layouts'} on {best.devices:,} x {best.cluster.device.name}"
    beside = marked or {}
    body = [
        *_question(plans, tokens, name),
        *_ranked(plans, beside, tokens),
        *_time_and_memory(plans, beside),
        *_space(plans, beside),
        *_pipelines(plans, beside),
        *(_scaling(scaled) if scaled else ()),
        *(_section("Rules for the shape of the model", rules.COLUMNS, [rule.cells for rule in ruled]) if ruled else ()),
        *(_section("Not among them, and why", ("layouts", "which", "reason"), refused) if refused else ()),
        *_section("What this assumes", ("", ""), [software]),
        tag("pre", best.cluster.as_toml()),
    ]
    return document(title, "plan", body, FOOTER, style=STYLE)


def _section(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Html]:
    """A table under a heading; of a long one the rest is folded away."""
    yield from (tag("h2", heading), table(columns, rows[:MOST_ROWS]))
    if rest := rows[MOST_ROWS:]:
        yield tag("details", tag("summary", f"{len(rest):,} more"), table(columns, rest))


def _question(plans: Plans, tokens: int, name: str) -> Iterator[Html]:
    best = plans.best
    considered = f"{plans.considered:,} legal layouts considered in {text.number(plans.seconds)} s"
    left = f"{len(plans.layouts):,} shapes (tp x pp x micro-batch) are left, each in its fastest form that fits."
    yield from (tag("p", line) for line in text.header(best.config, best, tokens, name))
    yield tag("p", f"{best.cluster.description}. {considered}. {left}")
    yield tag("p", advice(changes(best)))


def _ranked(plans: Plans, marked: Mapping[str, Prediction], tokens: int) -> Iterator[Html]:
    shown = [(str(place), one) for place, one in enumerate(plans.layouts[:MOST_ROWS], 1)]
    rows = text.cells([*shown, *marked.items()], tokens)
    yield tag("h2", "Layouts, best first")
    kinds = ["mark" if row[""] in marked else None for row in rows]
    yield table(list(rows[0]), [list(row.values()) for row in rows], kinds)
    left = len(plans.layouts) - MOST_ROWS
    more = f" {left:,} more shapes are not in the table." if left > 0 else ""
    yield tag("p", text.LEGEND + more, class_="soft")
    for name, one in marked.items():
        rank = plans.rank_of(one)
        words = f"{name}: {rank.words}, {100 * (rank.slower - 1):.1f} % longer than the best."
        lack = f" By this model of memory it lacks {one.missing_bytes / GIB:.1f} GiB." if not one.fits else ""
        yield tag("p", words + lack)


def _time_and_memory(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[Html]:
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
        bars("Seconds of a step, on its busiest rank", times, _seconds),
        bars("Memory of the fullest device, GiB", sizes, lambda value: f"{value:.2f} GiB", limit, kept),
    ]
    drawings += [bars("Seconds of communication in a step", sent, _seconds, note=hidden)] if sent else []
    yield from (tag("h2", "Where time and memory go"), figures(drawings))


def front(layouts: Sequence[Prediction]) -> list[Prediction]:
    """Layouts that no other one beats in both memory and throughput, by memory (Pareto)."""
    found: list[Prediction] = []
    for one in sorted(layouts, key=lambda one: (one.memory_bytes, -one.tokens_per_second)):
        if not found or one.tokens_per_second > found[-1].tokens_per_second:
            found.append(one)
    return found


def _space(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[Html]:
    """All that fit: memory against throughput."""

    def points(layouts: Sequence[Prediction], is_told: bool = True) -> list[Point]:
        return [Point(one.memory_bytes / GIB, one.tokens_per_second, _told(one) if is_told else "") for one in layouts]

    series = [
        Series("layouts that fit", points(plans.layouts, False), 7, is_line=False, radius=2.0, style="faint"),
        Series("best for their memory", points(front(plans.layouts)), 0, radius=3.2),
        *(Series(name, points([one]), 1, is_line=False, radius=5.0) for name, one in marked.items()),
    ]
    room = RESERVED * plans.best.cluster.device.memory_gib
    gib, limit = "GiB of the fullest device", ("event", room, "")
    drawing = plot("Throughput against memory", series, gib, "tokens/s", marks=[limit], note=SHAPES)
    yield from (tag("h2", "All layouts"), figures([drawing]))


def _pipelines(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[Html]:
    """Of the best layout that has one, and of the marked ones."""
    best = [(str(place), one) for place, one in enumerate(plans.layouts, 1) if one.config.parallel.pp > 1][:1]
    shown = [*best, *((name, one) for name, one in marked.items() if one.config.parallel.pp > 1)]
    if shown:
        yield tag("h2", "Pipelines")
    for name, one in shown:
        yield timeline.draw(timeline.of(one), f"{name}: {layout_name(one.config, one.devices)}").figure


def _scaling(found: Scaling) -> Iterator[Html]:
    yield from _section("On more devices", scaling.COLUMNS, list(scaling.table(found)))
    yield tag("p", f"The layout kept is {found.kept}.")
    drawings = []
    for kind in get_args(scaling.Kind):
        series = [
            Series(
                curve.name,
                [Point(one.devices, one.efficiency, _told(one.prediction)) for one in curve.points if one.prediction],
                color,
                radius=3.0,
            )
            for color, curve in enumerate(found.curves)
            if curve.kind == kind
        ]
        devices = sorted({point.x for one in series for point in one.points})
        title = f"{kind.capitalize()} scaling"
        drawings.append(
            plot(title, series, "devices", "efficiency", text=lambda value: f"{value:.0%}", x_log=True, x_ticks=devices)
        )
    yield figures(drawings)
    yield from (tag("p", scaling.limit(curve)) for curve in found.curves)


def _told(one: Prediction) -> str:
    name = layout_name(one.config, one.devices)
    return f"{name}: {text.number(one.step_seconds)} s, {one.memory_bytes / GIB:.1f} GiB"


def _seconds(value: float) -> str:
    return f"{text.number(value)} s"
