"""What a report says of a run: headline figures, charts, events in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pretrain.monitor.charts import Chart, Line, short
from pretrain.monitor.log import RunLog

PHASES = ("data", "forward", "backward", "communication", "optimizer", "save", "evaluate", "other")
GROUPS = ("embedding", "attention", "mlp", "norm", "head")
BAD = {"save_failed", "not_finite", "memory_warning"}
HELD_OUT = "validation/bits_per_character/"  # of a corpus by its name, of a source by SOURCE and its name
SOURCE = "source:"
EVENT_COLUMNS = ("step", "time (UTC)", "event", "what")
COURSE_ROWS = 20
LEGEND = (
    "Lines are means of neighbouring records, pale bands the range of their values; axes are logarithmic where values span "
    "a factor of 50. A dashed line is a restart, a red one a step whose loss or gradient was not finite, or a spike of the loss."
)
FOOTER = "Drawn from metrics.jsonl, summary.json and the checkpoints of the run by `python -m pretrain report`."
GIB = 2.0**30


@dataclass(frozen=True)
class Row:
    """Of a table."""

    cells: tuple[str, ...]
    is_bad: bool = False
    is_marked: bool = False


def state(log: RunLog) -> str:
    """How the run stands, in a sentence."""
    ends = [event for event in log.timeline() if event["kind"] in ("start", "stop", "end")]
    if not (ends or log.step or log.summary):
        return "Nothing is recorded yet."
    kind = ends[-1]["kind"] if ends else "end" if log.summary else ""
    words = {
        "end": f"Finished after step {log.step:,}.",
        "stop": f"Stopped after step {log.step:,} ({_word(ends[-1].get('reason') if ends else None)}); the same command goes on.",
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
    summary, found = log.summary, []
    held_out = summary.get("held_out_bits_per_character", log.curve("validation/bits_per_character").last)
    if isinstance(held_out, int | float):
        found.append((f"{held_out:.3f}", "held-out bits per character"))
    if (loss := log.curve("train/loss").last) is not None:
        found.append((f"{loss:.4f}", "training loss at the end"))
    if isinstance(tokens := summary.get("tokens"), int):
        found.append((short(tokens), f"tokens in {log.step:,} steps"))
    parameters = summary.get("parameters", log.latest("start").get("parameters"))
    if isinstance(parameters, int):
        found.append((short(parameters), "parameters"))
    if (speed := log.curve("train/tokens_per_second").mean) is not None:
        found.append((short(speed), "tokens/s, mean of the reports"))
    if (flops := log.curve("train/flops_per_second").mean) is not None:
        size, unit = (1e12, "TFLOP/s") if flops >= 1e12 else (1e9, "GFLOP/s")
        found.append((f"{flops / size:,.4g}", f"{unit}, mean"))
    for name in ("mfu", "hfu"):
        if (mean := log.curve(f"train/{name}").mean) is not None:
            found.append((f"{mean:.1%}", f"{name.upper()}, mean"))
    if log.first_at is not None and log.last_at is not None:
        found.append((_duration(log.last_at - log.first_at), "from the first record to the last"))
    for name, label in (("host_bytes", "host memory of rank 0, most"), ("device_peak_bytes", "device memory, most")):
        if (most := log.curve(f"train/{name}").high) is not None:
            found.append((f"{most / GIB:.2f} GiB", label))
    found.append((str(len(log.restarts)), "restart" if len(log.restarts) == 1 else "restarts"))
    return found


def charts(log: RunLog) -> list[Chart]:
    """Those that have something to show."""

    def train(name: str, label: str, color: int = 0, factor: float = 1.0) -> Line:
        return Line(label, log.curve(f"train/{name}"), color, factor=factor)

    def held_out(name: str) -> Line:
        return Line("held out", log.curve(f"validation/{name}"), 1, dots=True)

    odd = [_step(event) for kind in ("not_finite", "loss_spike") for event in log.events.get(kind, ())]
    marks = {"event": odd}
    parts = [
        name.removeprefix(HELD_OUT) for name in log.curves if name.startswith(HELD_OUT)
    ]  # the largest source first

    def of_parts(are_sources: bool) -> list[Line]:
        names = [name for name in parts if name.startswith(SOURCE) == are_sources]
        return [
            Line(name.removeprefix(SOURCE), log.curve(HELD_OUT + name), 2 + index % 6, dots=True)
            for index, name in enumerate((names if are_sources else sorted(names))[:12])
        ]

    batch = log.curve("train/batch_size")
    varies = len({cell.mean for cell in batch.cells}) > 1
    scale = log.curve("train/loss_scale")
    return [
        Chart("Loss", [train("loss", "training"), held_out("loss")], "nats per token", decimal, marks=marks),
        Chart(
            "Bits per character",
            [train("bits_per_character", "training"), held_out("bits_per_character"), *of_parts(are_sources=False)],
            "",
            decimal,
            marks=marks,
        ),
        Chart("Bits per character by source", of_parts(are_sources=True), "held out", decimal),
        Chart("Learning rate", [train("learning_rate", "learning rate")], "", short, from_zero=True),
        Chart("Gradient norm", [train("grad_norm", "all, before clipping")], "", short, marks=marks),
        Chart("Gradient norm by group", [train(f"grad_norms/{g}", g, i) for i, g in enumerate(GROUPS)], "", short),
        Chart("Speed", [train("tokens_per_second", "tokens/s")], "tokens/s", short, from_zero=True),
        Chart(
            "Utilisation",
            [train("mfu", "MFU"), train("hfu", "HFU", 1)],
            "of the device's peak",
            percent,
            from_zero=True,
        ),
        Chart("Pipeline bubble", [train("bubble", "bubble", 2)], "of the time", percent, from_zero=True),
        Chart(
            "Where the time goes",
            [line for i, p in enumerate(PHASES) if (line := train(f"phases/{p}", p, i)).curve.high],
            "share",
            percent,
            stacked=True,
        ),
        Chart(
            "Memory",
            [
                train("host_bytes", "host", factor=1 / GIB),
                train("device_bytes", "device", 1, 1 / GIB),
                train("device_peak_bytes", "device, peak", 2, 1 / GIB),
            ],
            "GiB, rank 0",
            short,
            from_zero=True,
        ),
        Chart("Loss scale", [Line("loss scale", scale, 3)], "", short),
        Chart("Batch size", [Line("samples", batch if varies else log.curve(""), 4)], "samples", short, from_zero=True),
    ]


def baselines(log: RunLog) -> list[Row]:
    """The model beside character models of the same text, and its corpora and sources."""
    names = {
        "held_out_bits_per_character": "this model",
        "unigram_bits_per_character": "characters, unigram",
        "bigram_bits_per_character": "characters, bigram",
        "5gram_bits_per_character": "characters, 5-gram",
    }
    rows = [Row((label, f"{log.summary[key]:.3f}")) for key, label in names.items() if _is_number(log.summary.get(key))]
    for key, what in (("corpora", "corpus"), ("sources", "source")):
        parts = log.summary.get(key)
        if isinstance(parts, dict):
            rows += [Row((f"of {what} {name}", f"{bits:.3f}")) for name, bits in parts.items() if _is_number(bits)]
    return rows


def events(log: RunLog) -> list[Row]:
    """Each kept event in words, in the order of the file."""
    return [
        Row(
            (f"{_step(event):,}", _time(event.get("at")), event["kind"].replace("_", " "), _words(event)),
            event["kind"] in BAD,
        )
        for event in log.timeline()
    ]


def event_counts(log: RunLog) -> str:
    """How many of each kind, those that are not listed too."""
    return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in log.counts.most_common())


def checkpoints(log: RunLog) -> list[Row]:
    """Those in the folder."""
    return [Row((name, f"{size / 1e6:,.1f} MB")) for name, size in log.checkpoints]


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
        rows.append(Row((steps, *("" if value is None else f"{value:.4g}" for value in shown))))
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
