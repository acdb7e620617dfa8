"""A question to the planner answered as one page: the layouts, where their time and memory go, and what was refused.

The page opens from disk without a single request and needs no script (`corpus.engine.page`); every string is escaped
where it is put in. Figures are predictions: the page says by which cluster, efficiencies and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from corpus.engine import durable
from corpus.engine.page import document
from pretrain.monitor.facts import Row
from pretrain.monitor.page import style, table
from pretrain.plan.machines.cluster import Cluster, Network
from pretrain.plan.pages import charts, text, timeline
from pretrain.plan.pages.changes import WORDS, changes, parts
from pretrain.plan.pages.charts import Bar, Dot, Dots
from pretrain.plan.pages.rules import Rule
from pretrain.plan.pages.scaling import KINDS, Curve, Scaling, advice, limit
from pretrain.plan.prediction import RESERVED, Prediction
from pretrain.plan.search.search import Plans
from pretrain.workload import parameters

GIB = 2**30
MOST_ROWS, MOST_BARS = 20, 6
COLUMNS = ("", "layout", "s a step", "tokens/s", "TFLOP/s", "MFU", "bubble", "GiB", "host GiB", "days")
LEGEND = (
    "TFLOP/s of a device as published tables count, what is recomputed counted again; MFU: the model's own arithmetic over the "
    "peak; bubble: waiting for other stages over a rank's own work; GiB: on the fullest device; host: of a node."
)
SHAPES = "A mark is the fastest layout of one tp x pp x micro-batch that fits."
FOOTER = "Predicted by `python -m pretrain plan`: no device was used. What was not searched or modelled is not here."


def write(
    path: Path,
    plans: Plans,
    tokens: int | None = None,
    *,
    name: str = "",
    marked: Mapping[str, Prediction] | None = None,
    scaling: Scaling | None = None,
    rules: Sequence[Rule] = (),
) -> None:
    """Write the page of a search, complete or not at all.

    Args:
        tokens: of the whole training; None leaves out how many days it takes.
        name: of the configuration.
        marked: layouts to show beside those found, by what they are called ("published").

    Raises:
        WenhaiError: the disk refuses.
    """
    page = render(plans, tokens, name=name, marked=marked, scaling=scaling, rules=rules)
    durable.write_bytes(path, page.encode())


def render(
    plans: Plans,
    tokens: int | None = None,
    *,
    name: str = "",
    marked: Mapping[str, Prediction] | None = None,
    scaling: Scaling | None = None,
    rules: Sequence[Rule] = (),
) -> str:
    """The whole page; arguments as for `write`."""
    own = resources.files("pretrain.plan.pages").joinpath("report.css").read_text("utf-8")
    title = f"{name or 'Layouts'} on {plans.layouts[0].devices:,} x {plans.layouts[0].cluster.device.name}"
    body = [
        f"<h1>{escape(title)} <small>plan · 文海 wenhai</small></h1>\n",
        *_question(plans, tokens),
        *_ranked(plans, marked or {}, tokens),
        *_time_and_memory(plans, marked or {}),
        *_space(plans, marked or {}),
        *_pipelines(plans, marked or {}),
        *(_scaling(scaling) if scaling else ()),
        *(_rules(rules) if rules else ()),
        *_rejected(plans),
        *_assumptions(plans.layouts[0]),
        f"<footer>{escape(FOOTER)}</footer>\n",
    ]
    return document(f"{title} · plan", style() + own, body)


def axes_name(prediction: Prediction) -> str:
    """The shape of a layout, which tells those of a search apart."""
    parallel = prediction.config.parallel
    axes = {"tp": parallel.tp, "pp": parallel.pp, "dp": prediction.data_parallel}
    return f"{' x '.join(f'{axis} {size}' for axis, size in axes.items())}, micro-batch {prediction.micro_batch_size}"


def short_name(prediction: Prediction) -> str:
    """A layout in words, what is usual left out.

    "tp 8 x pp 38 x dp 7, micro-batch 1, 1f1b, recompute full"
    """
    parallel = prediction.config.parallel
    words = [axes_name(prediction)]
    if parallel.pp > 1:
        words.append(text.schedule(parallel))
    if prediction.data_parallel > 1 and prediction.software.shards:
        words.append(f"ZeRO {parallel.zero}")
    if parallel.dp_replicate > 1:
        words.append(f"{parallel.dp_replicate} replicas")
    if parallel.recompute != "none":
        words.append(f"recompute {text.recompute(parallel)}")
    if parallel.tp > 1 and not parallel.sequence_parallel:
        words.append("no sequence parallelism")
    return ", ".join(words + ["offload"] * parallel.offload)


def _question(plans: Plans, tokens: int | None) -> Iterator[str]:
    best = plans.layouts[0]
    model, training = best.config.model, best.config.training
    nodes = -(-best.devices // best.cluster.devices_per_node)
    words = (
        f"{text.big(parameters.of_model(model))} parameters: {model.num_layers} layers of {model.hidden_size:,} channels and "
        f"{model.num_heads} heads. A step is {training.global_batch_size:,} windows of {model.sequence_length:,} tokens in "
        f"{training.precision}. {best.cluster.description}; {nodes:,} node{'s' * (nodes > 1)}. {plans.considered:,} legal layouts "
        f"considered in {text.number(plans.seconds)} s. {len(plans.layouts):,} shapes (tp x pp x micro-batch) are left, "
        "each in its fastest form that fits."
    )
    yield f"<p>{escape(words)}</p>\n"
    cards = [
        (f"{text.number(best.step_seconds)} s", "a step of the best layout"),
        (text.big(best.tokens_per_second), "tokens/s"),
        (f"{best.tflops_per_gpu:.0f}", "TFLOP/s a device"),
        (text.percent(best.mfu), "of the peak (MFU)"),
        (f"{best.memory_bytes / GIB:.1f} GiB", f"of {best.cluster.device.memory_gib:g} on the fullest device"),
    ]
    if tokens:
        cards.append((f"{text.number(best.days(tokens))} days", f"for {text.big(tokens)} tokens"))
    yield '<div class="cards">'
    for figure, label in cards:
        yield f'<div class="card"><b>{escape(figure)}</b><span class="soft">{escape(label)}</span></div>'
    yield "</div>\n"
    if found := changes(best):
        yield f"<p>{escape(advice(found))}</p>\n"


def _ranked(plans: Plans, marked: Mapping[str, Prediction], tokens: int | None) -> Iterator[str]:
    yield "<h2>Layouts, best first</h2>\n"
    rows = [_row(str(place), one, tokens) for place, one in enumerate(plans.layouts[:MOST_ROWS], 1)]
    for name, one in marked.items():
        place = plans.rank_of(one).place
        rows.append(_row(f"{name}: {place:,}" if one.fits else f"{name}: does not fit", one, tokens, is_marked=True))
    columns = COLUMNS if tokens else COLUMNS[:-1]
    yield table(columns, rows)
    left = len(plans.layouts) - MOST_ROWS
    more = f" {left:,} more shapes are not in the table." if left > 0 else ""
    yield f'<p class="soft">{escape(LEGEND + more)}</p>\n'
    for name, one in marked.items():
        rank = plans.rank_of(one)
        words = f"{name}: {rank.words}, {100 * (rank.slower - 1):.1f} % longer than the best."
        if not one.fits:
            words += f" By this model of memory it lacks {one.missing_bytes / GIB:.1f} GiB."
        yield f"<p>{escape(words)}</p>\n"


def _row(place: str, one: Prediction, tokens: int | None, is_marked: bool = False) -> Row:
    cells = (
        place,
        short_name(one),
        text.number(one.step_seconds),
        text.big(one.tokens_per_second),
        f"{one.tflops_per_gpu:.1f}",
        f"{one.mfu:.1%}",
        f"{one.bubble:.1%}",
        f"{one.memory_bytes / GIB:.1f}",
        f"{one.host_bytes_per_node / GIB:,.0f}",
    )
    return Row((*cells, text.number(one.days(tokens))) if tokens else cells, is_marked=is_marked)


def _time_and_memory(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    shown = {str(place): one for place, one in enumerate(plans.layouts[:MOST_BARS], 1)} | dict(marked)
    times, sizes, sent = [], [], []
    for place, one in shown.items():
        name = f"{place}: {axes_name(one)}"
        seconds = {WORDS.get(part, part): value for part, value in parts(one).items()}
        times.append(Bar(name, seconds, f"{text.number(one.step_seconds)} s"))
        sizes.append(Bar(name, device_parts(one), f"{one.memory_bytes / GIB:.1f} GiB"))
        axes = {
            f"{axis}, {how}": getattr(traffic, how)
            for axis, traffic in one.communication.items()
            for how in ("exposed", "hidden")
        }
        if sum(axes.values()):
            sent.append(Bar(name, axes, f"{text.number(sum(axes.values()))} s"))
    device = plans.layouts[0].cluster.device
    room = RESERVED * device.memory_gib
    yield '<h2>Where time and memory go</h2>\n<div class="charts">\n'
    yield charts.bars("Seconds of a step, on its busiest rank", times, lambda value: f"{text.number(value)} s")
    yield charts.bars(
        "Memory of the fullest device, GiB",
        sizes,
        lambda value: f"{value:.2f} GiB",
        (room, f"{room:.1f} of {device.memory_gib:g} GiB"),
        f"The line is {RESERVED:.0%} of the device's memory; the driver and the allocator keep the rest.",
    )
    if sent:
        note = "Hidden: while something is computed, which costs the step nothing."
        yield charts.bars(
            "Seconds of communication in a step", sent, lambda value: f"{text.number(value)} s", note=note
        )
    yield "</div>\n"


def device_parts(prediction: Prediction) -> dict[str, float]:
    """GiB of the fullest device by part, those that it has."""
    worst = prediction.worst
    on_host = {name for name, _ in worst.host_rows()} if worst.device == "cuda" else set()
    return {name: size / GIB for name, size in worst.rows() if size and name not in on_host}


def front(layouts: Sequence[Prediction]) -> list[Prediction]:
    """Layouts that no other one beats in both memory and throughput, by memory (Pareto)."""
    found: list[Prediction] = []
    for one in sorted(layouts, key=lambda one: (one.memory_bytes, -one.tokens_per_second)):
        if not found or one.tokens_per_second > found[-1].tokens_per_second:
            found.append(one)
    return found


def _space(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    """All that fit: memory against throughput, and the best of each tp x pp."""

    def dot(one: Prediction, name: str = "") -> Dot:
        words = f"{name}{short_name(one)}: {text.number(one.step_seconds)} s, {one.memory_bytes / GIB:.1f} GiB"
        return Dot(one.memory_bytes / GIB, one.tokens_per_second, words)

    best = front(plans.layouts)
    groups = [
        Dots(
            "layouts that fit",
            [Dot(one.memory_bytes / GIB, one.tokens_per_second) for one in plans.layouts],
            7,
            2,
            is_faint=True,
        ),
        Dots("best for their memory", [dot(one) for one in best], 0, 3.2, is_line=True),
        *(Dots(name, [dot(one, f"{name}: ")], 1, 5) for name, one in marked.items()),
    ]
    memory_gib = plans.layouts[0].cluster.device.memory_gib
    cells: dict[tuple[int, int], tuple[float, str]] = {}
    for one in plans.layouts:
        key = one.config.parallel.tp, one.config.parallel.pp
        if key not in cells or cells[key][0] < one.tokens_per_second:
            cells[key] = one.tokens_per_second, f"{short_name(one)}: {text.number(one.step_seconds)} s"
    yield '<h2>All layouts</h2>\n<div class="charts">\n'
    yield charts.scatter(
        "Throughput against memory", groups, "GiB of the fullest device", "tokens/s", RESERVED * memory_gib, SHAPES
    )
    yield charts.heat_map(
        "tokens/s of the best layout of each tp x pp", cells, "tp", "pp", "An empty field has no layout that fits."
    )
    yield "</div>\n"
    rows = [
        Row((f"{one.memory_bytes / GIB:.1f}", text.big(one.tokens_per_second), short_name(one)))
        for one in best[:MOST_ROWS]
    ]
    yield "<details><summary>The best for their memory, as a table</summary>"
    yield f"{table(('GiB', 'tokens/s', 'layout'), rows)}</details>\n"


def _pipelines(plans: Plans, marked: Mapping[str, Prediction]) -> Iterator[str]:
    """Of the best layout that has one, and of the marked ones."""
    best = next(((str(place), one) for place, one in enumerate(plans.layouts, 1) if one.config.parallel.pp > 1), None)
    shown = [best] if best else []
    shown += [(name, one) for name, one in marked.items() if one.config.parallel.pp > 1]
    if shown:
        yield "<h2>Pipelines</h2>\n"
    for name, one in shown:
        yield timeline.draw(timeline.of(one), f"{name}: {short_name(one)}")


def _scaling(scaling: Scaling) -> Iterator[str]:
    yield f'<h2>On more devices</h2>\n<p class="soft">The layout kept is {escape(scaling.kept)}.</p>\n<div class="charts">\n'
    for kind, about in KINDS.items():
        own = [curve for curve in scaling.curves if curve.kind == kind]
        groups = [_curve(curve, index) for index, curve in enumerate(own)]
        yield charts.curves(
            f"{kind.capitalize()} scaling: {about}", groups, "devices", "efficiency", lambda value: f"{value:.0%}"
        )
    yield "</div>\n"
    yield from (f"<p>{escape(limit(curve))}</p>\n" for curve in scaling.curves)


def _curve(curve: Curve, color: int) -> Dots:
    found = []
    for point in curve.points:
        if point.prediction is not None:
            about = f"{point.devices:,} devices, {short_name(point.prediction)}: {point.efficiency:.1%}"
            found.append(Dot(point.devices, point.efficiency, about))
    return Dots(curve.name, found, color, 3, is_line=True)


def _rules(rules: Sequence[Rule]) -> Iterator[str]:
    yield "<h2>Rules for the shape of the model</h2>\n"
    rows = [Row((f"{rule.symbol}, {rule.title}", rule.sentence, rule.change)) for rule in rules]
    yield table(("", "as it is", "what to change"), rows)


def _rejected(plans: Plans) -> Iterator[str]:
    if not plans.rejected:
        return
    yield "<h2>Not among them, and why</h2>\n"
    rows = [Row((f"{one.layouts:,}", one.family, one.reason)) for one in plans.rejected]
    columns = ("layouts", "which", "reason")
    yield table(columns, rows[:MOST_ROWS])
    if rest := rows[MOST_ROWS:]:
        yield f"<details><summary>{len(rest):,} more families</summary>{table(columns, rest)}</details>\n"


def _assumptions(best: Prediction) -> Iterator[str]:
    """What the figures follow from."""
    yield "<h2>What this assumes</h2>\n<dl>\n"
    for name, value in [
        *cluster_facts(best.cluster, best),
        ("software", f"{best.software.name}: {best.software.description}"),
    ]:
        yield f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n"
    yield "</dl>\n"


def cluster_facts(cluster: Cluster, best: Prediction) -> Iterator[tuple[str, str]]:
    """The figures of a cluster, by name."""
    device, host, efficiency = cluster.device, cluster.host, cluster.efficiency
    precision = best.config.training.precision
    peak = device.peak_flops(precision)
    yield "cluster", f"{cluster.name}: {cluster.description}"
    yield (
        "device",
        f"{device.name}, {device.memory_gib:g} GiB at {device.memory_bandwidth / 1e9:,.0f} GB/s"
        + (f", {peak / 1e12:,.4g} TFLOP/s in {precision}" if peak else ""),
    )
    yield (
        "node",
        f"{cluster.devices_per_node} devices, {host.memory_gib:,.0f} GiB at {host.memory_bandwidth / 1e9:,.0f} GB/s, "
        f"{host.link_bandwidth / 1e9:,.3g} GB/s from a device",
    )
    for network in cluster.networks:
        yield network.name, _network(network)
    yield (
        "reached",
        f"{efficiency.products:.1%} of the peak by large matrix products, {efficiency.memory:.1%} of the memory's bandwidth, "
        f"{efficiency.seconds_per_operation * 1e6:.3g} us to start an operation",
    )


def _network(network: Network) -> str:
    reach = f"{network.devices} devices" if network.devices else "all devices"
    return (
        f"joins {reach}; {network.bandwidth / 1e9:,.4g} GB/s leave a unit in one direction, of which {network.efficiency:.1%} is "
        f"reached, after {network.latency * 1e6:.3g} us"
    )
