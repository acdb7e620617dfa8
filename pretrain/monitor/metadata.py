"""What a report says of a run: headline figures, charts, events in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from corpus.engine.chart import Drawing, Format, Point, Series, plot, short
from pretrain.monitor.log import Curve, RunLog

PHASES = ("data", "forward", "backward", "communication", "optimizer", "save", "evaluate", "other")
GROUPS = ("embedding", "attention", "mlp", "norm", "head")
BAD = {"save failed", "not finite", "memory warning"}  # events
HELD_OUT = "validation/bits_per_character/"  # of a corpus by its name, of a source by SOURCE and its name
SOURCE = "source:"
MOST_PARTS = 12  # corpora or sources with a line of their own
WITH_EVENTS = ("Loss", "Bits per character", "Gradient norm")  # charts
HEADLINES = ("loss", "tokens_per_second", "flops_per_second", "mfu", "hfu", "host_bytes", "device_peak_bytes")
EVENT_COLUMNS = ("step", "time (UTC)", "event", "what")
COURSE_ROWS = 20
LEGEND = (
    "Lines are means of neighbouring records, pale bands the range of their values; axes are logarithmic where values "
    "span a factor of 50. A dashed line is a restart, a red one a step whose loss or gradient was not finite, or a "
    "spike of the loss."
)
FOOTER = "Drawn from metrics.jsonl, summary.json and the checkpoints of the run by `python -m pretrain report`."
GIB = 2.0**30
MOST_DOTS = 40  # of a line; more hide it
MOST_RANGES = 2  # lines of a chart with a range each; more are mud

Row = tuple[str, ...]  # of a table


def state(log: RunLog) -> str:
    """How the run stands, in a sentence."""
    ends = [event for event in log.timeline() if event["kind"] in ("start", "stop", "end")]
    if not (ends or log.step or log.summary):
        return "Nothing is recorded yet."
    kind = ends[-1]["kind"] if ends else "end" if log.summary else ""
    reason = ends[-1].get("reason") if ends else None
    words = {
        "end": f"Finished after step {log.step:,}.",
        "stop": f"Stopped after step {log.step:,} ({_word(reason)}); the same command goes on.",
    }
    start = log.latest("start")
    parts = [words.get(kind, f"Running at step {log.step:,}, or ended without a word there.")]
    named = {"ranks": "ranks", "layout": "", "precision": "", "device": ""}
    shown = [f"{_word(start[key])} {unit}".strip() for key, unit in named.items() if start.get(key)]
    return " ".join(parts + ([f"{', '.join(shown)}."] if shown else []))


def warnings(log: RunLog) -> list[str]:
    """What someone should look at."""
    names = {
        "not_finite": "loss or gradient not finite",
        "loss_spike": "spikes of the loss",
        "save_failed": "checkpoints not written",
        "memory_warning": "warnings of memory",
    }
    found = [f"{text}: {log.counts[kind]:,}" for kind, text in names.items() if log.counts[kind]]
    return [f"{'; '.join(found)}. See the events."] if found else []


def headline(log: RunLog) -> list[tuple[str, str]]:
    """Figures and what they are."""
    summary, train = log.summary, {name: log.curve(f"train/{name}") for name in HEADLINES}
    bits = summary.get("held_out_bits_per_character", log.curve("validation/bits_per_character").last)
    flops = train["flops_per_second"].mean
    size, unit = (1e12, "TFLOP/s") if flops and flops >= 1e12 else (1e9, "GFLOP/s")
    took = None if log.first_at is None or log.last_at is None else log.last_at - log.first_at
    found: list[tuple[Any, Callable[[Any], str], str]] = [
        (bits, "{:.3f}".format, "held-out bits per character"),
        (train["loss"].last, "{:.4f}".format, "training loss at the end"),
        (summary.get("tokens"), short, f"tokens in {log.step:,} steps"),
        (summary.get("parameters", log.latest("start").get("parameters")), short, "parameters"),
        (train["tokens_per_second"].mean, short, "tokens/s, mean of the reports"),
        (flops, lambda value: f"{value / size:,.4g}", f"{unit}, mean"),
        (train["mfu"].mean, "{:.1%}".format, "MFU, mean"),
        (train["hfu"].mean, "{:.1%}".format, "HFU, mean"),
        (took, _duration, "from the first record to the last"),
        (train["host_bytes"].high, _gib, "host memory of rank 0, most"),
        (train["device_peak_bytes"].high, _gib, "device memory, most"),
        (len(log.restarts), str, "restart" if len(log.restarts) == 1 else "restarts"),
    ]
    return [(text(value), what) for value, text, what in found if _is_number(value)]


def charts(log: RunLog) -> list[Drawing]:
    """Those that have something to show."""

    def train(name: str, label: str, color: int = 0, factor: float = 1.0) -> Series:
        return _line(log.curve(f"train/{name}"), label, color, factor)

    def held_out(name: str, label: str = "held out", color: int = 1) -> Series:
        return _line(log.curve(f"validation/{name}"), label, color, is_dotted=True)

    parts = [name.removeprefix(HELD_OUT) for name in log.curves if name.startswith(HELD_OUT)]  # largest source first
    corpora = sorted(name for name in parts if not name.startswith(SOURCE))
    sources = [name for name in parts if name.startswith(SOURCE)]
    of_corpora, of_sources = (
        [
            held_out(f"bits_per_character/{name}", name.removeprefix(SOURCE), 2 + index % 6)
            for index, name in enumerate(names[:MOST_PARTS])
        ]
        for names in (corpora, sources)
    )
    bits = [train("bits_per_character", "training"), held_out("bits_per_character"), *of_corpora]
    memory = [
        train(name, label, color, 1 / GIB)
        for color, (name, label) in enumerate(
            (("host_bytes", "host"), ("device_bytes", "device"), ("device_peak_bytes", "device, peak"))
        )
    ]
    groups = [train(f"grad_norms/{group}", group, color) for color, group in enumerate(GROUPS)]
    batch = train("batch_size", "samples", 4)
    varies = len({point.y for point in batch.points}) > 1
    found: list[tuple[str, list[Series], str, Format, bool]] = [
        ("Loss", [train("loss", "training"), held_out("loss")], "nats per token", decimal, False),
        ("Bits per character", bits, "", decimal, False),
        ("Bits per character by source", of_sources, "held out", decimal, False),
        ("Learning rate", [train("learning_rate", "learning rate")], "", short, True),
        ("Gradient norm", [train("grad_norm", "all, before clipping")], "", short, False),
        ("Gradient norm by group", groups, "", short, False),
        ("Speed", [train("tokens_per_second", "tokens/s")], "tokens/s", short, True),
        ("Utilisation", [train("mfu", "MFU"), train("hfu", "HFU", 1)], "of the device's peak", percent, True),
        ("Pipeline bubble", [train("bubble", "bubble", 2)], "of the time", percent, True),
        ("Where the time goes", _shares(log), "share", percent, True),
        ("Memory", memory, "GiB, rank 0", short, True),
        ("Loss scale", [train("loss_scale", "loss scale", 3)], "", short, False),
        ("Batch size", [batch] if varies else [], "samples", short, True),
    ]
    return [drawing for one in found if (drawing := _chart(log, *one)) is not None]


def _line(curve: Curve, label: str, color: int, factor: float = 1.0, *, is_dotted: bool = False) -> Series:
    """Means of neighbouring records within their range; few records are dots too, where they may be."""
    cells = curve.cells
    points = [
        Point((one.step + one.last) / 2, one.mean * factor, "", one.low * factor, one.high * factor) for one in cells
    ]
    radius = 2.6 if len(cells) == 1 or (is_dotted and len(cells) <= MOST_DOTS) else 0.0
    return Series(label, points, color, radius=radius, between="range" if curve.width > 1 else "")


def _shares(log: RunLog) -> list[Series]:
    """Each phase's area on top of those before it, by the cells of the longest; shares of what they are together."""
    curves = {(name, color): log.curve(f"train/phases/{name}") for color, name in enumerate(PHASES)}
    curves = {name: curve for name, curve in curves.items() if curve.high}
    steps = [cell.last for cell in max((curve.cells for curve in curves.values()), key=len, default=[])]
    values = [curve.at(steps) for curve in curves.values()]
    whole = [sum(column) or 1.0 for column in zip(*values, strict=True)]
    below, found = [0.0] * len(steps), []
    for (name, color), own in zip(curves, values, strict=True):
        above = [low + value / total for low, value, total in zip(below, own, whole, strict=True)]
        points = [Point(step, high - low, "", low, high) for step, low, high in zip(steps, below, above, strict=True)]
        points = [points[0]._replace(x=0), *points] if len(points) == 1 else points  # one record fills the width
        found.append(Series(name, points, color, is_line=False, between="area"))
        below = above
    return found


def _chart(
    log: RunLog, title: str, series: Sequence[Series], unit: str, text: Format, from_zero: bool
) -> Drawing | None:
    """Lines over the steps of the run, with its restarts; nothing where no line has values."""
    lines = [one for one in series if one.points]
    if not lines:
        return None
    if lines[0].is_line and len(lines) > MOST_RANGES:
        lines = [replace(one, between="") for one in lines]
    kinds = ("not_finite", "loss_spike") if title in WITH_EVENTS else ()
    events = [("event", _step(event), "") for kind in kinds for event in log.events.get(kind, ())]
    marks = [("restart", step, "") for step in log.restarts] + events
    x_ends = (min(0.0, *(one.points[0].x for one in lines)), max(1, log.step))
    y_ends = None if lines[0].is_line else (0.0, 1.0)
    return plot(title, lines, text=text, x_ends=x_ends, y_ends=y_ends, from_zero=from_zero, marks=marks, unit=unit)


def baselines(log: RunLog) -> list[Row]:
    """The model beside character models of the same text, and its corpora and sources."""
    names = {
        "held_out_bits_per_character": "this model",
        "unigram_bits_per_character": "characters, unigram",
        "bigram_bits_per_character": "characters, bigram",
        "5gram_bits_per_character": "characters, 5-gram",
    }
    rows: list[Row] = [
        (label, f"{log.summary[key]:.3f}") for key, label in names.items() if _is_number(log.summary.get(key))
    ]
    for key, what in (("corpora", "corpus"), ("sources", "source")):
        parts = log.summary.get(key)
        if isinstance(parts, dict):
            rows += [(f"of {what} {name}", f"{bits:.3f}") for name, bits in parts.items() if _is_number(bits)]
    return rows


def events(log: RunLog) -> list[Row]:
    """Each kept event in words, in the order of the file."""
    return [
        (f"{_step(event):,}", _time(event.get("at")), event["kind"].replace("_", " "), _words(event))
        for event in log.timeline()
    ]


def event_counts(log: RunLog) -> str:
    """How many of each kind, those that are not listed too."""
    return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in log.counts.most_common())


def checkpoints(log: RunLog) -> list[Row]:
    """Those in the folder."""
    return [(name, f"{size / 1e6:,.1f} MB") for name, size in log.checkpoints]


def course(log: RunLog) -> tuple[tuple[str, ...], list[Row]]:
    """The curves at some steps, as a table."""
    names = ("loss", "bits_per_character", "grad_norm", "learning_rate", "tokens_per_second", "mfu")
    curves = [log.curve(f"train/{name}") for name in names]
    held_out = log.curve("validation/bits_per_character").cells
    cells = curves[0].cells
    chosen = sorted({round(i * (len(cells) - 1) / (COURSE_ROWS - 1)) for i in range(COURSE_ROWS)}) if cells else []
    rows = []
    for index in chosen:
        last, first = cells[index].last, cells[index].step
        values = [next((c.mean for c in curve.cells if c.step <= last <= c.last), None) for curve in curves]
        beside = next((cell.mean for cell in reversed(held_out) if cell.step <= last), None)
        shown = [*values[:2], beside, *values[2:]]
        steps = f"{last:,}" if first == last else f"{first:,} to {last:,}"
        rows.append((steps, *("" if value is None else f"{value:.4g}" for value in shown)))
    columns = ("steps", "loss", "bits/char", "held-out bits/char", "gradient norm", "learning rate", "tokens/s", "MFU")
    return columns, rows


def percent(value: float) -> str:
    """As in 45 %."""
    return f"{100 * value:.3g}%"


def decimal(value: float) -> str:
    """As in 3.48."""
    return f"{value:.4g}"


def _words(event: Mapping[str, Any]) -> str:
    """An event's fields; known units are spelled out."""
    parts = []
    for key, value in event.items():
        if key in ("kind", "step", "at", "line", "config_digest") or value is None:
            continue
        name = "took" if key == "seconds" else key.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")
        if key in ("folder", "file"):
            value = str(value).rstrip("/").rpartition("/")[2]  # others may see the page: not where it lies
        if key.endswith("seconds") and _is_number(value):
            text = f"{value:.3g} s"
        elif key.endswith("bytes") and _is_number(value):
            text = f"{value / 1e6:,.1f} MB"
        else:
            text = f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if _is_number(value) else _word(value)
        parts.append(f"{name} {text}")
    return ", ".join(parts)


def _word(value: Any) -> str:
    return str(value)[:500]


def _step(event: Mapping[str, Any]) -> int:
    return int(event["step"])


def _time(at: Any) -> str:
    if not _is_number(at):
        return ""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return ""


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _gib(value: float) -> str:
    return f"{value / GIB:.2f} GiB"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
