"""Results as one page: bars with intervals beside chance and published figures, and what the answers lean to.

It opens from disk without a request and without a script, as all pages of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from corpus.engine.page import document
from pretrain.monitor.facts import Row
from pretrain.monitor.page import style, table
from pretrain.tasks.results import Results, TaskResult, mean_of
from pretrain.tasks.statistics import Difference
from pretrain.tasks.table import Baselines, about, comparable, notes, percent, spelled

WIDTH, NAME, PITCH, BAR = 720, 90, 34, 14  # pixels: of the drawing, its names, from task to task, of a bar
MOST_CLASSES = 15  # that are drawn of a task: the most answered ones
CELL, CLASS_NAME = 30, 96
LEAST_WIDTH = 420  # of a drawing of few classes, whose letters would grow with it
STYLE = (
    "td { overflow-wrap: break-word; } td:first-child { white-space: nowrap; } "
    "@media (max-width: 560px) { svg.wide text { font-size: 20px; } }"  # drawn at half its size there
)
GRID = (0, 25, 50, 75, 100)  # percent


def render(results: Results, baselines: Baselines, differences: Mapping[str, Difference] | None = None) -> str:
    """The whole page."""
    return document("Tasks · evaluation", style() + STYLE, _body(results, baselines, differences))


def _body(results: Results, baselines: Baselines, differences: Mapping[str, Difference] | None) -> Iterator[str]:
    tasks = list(results.tasks.values())
    mean, interval = results.mean
    yield f"<h1>Tasks <small>evaluation · 文海 wenhai</small></h1>\n<p>{escape(about(results))}</p>\n"
    above = sum(task.verdict == "above chance" for task in tasks)
    yield '<div class="cards">'
    for figure, label in (
        (f"{percent(mean)} %", f"mean of {len(tasks)} tasks, 95 %: {spelled(interval)}"),
        (f"{above} of {len(tasks)}", "tasks above chance and above the largest class"),
        (f"{sum(task.num_items for task in tasks):,}", "items"),
    ):
        yield f'<div class="card"><b>{escape(figure)}</b><span class="soft">{escape(label)}</span></div>'
    yield "</div>\n"
    yield _accuracies(tasks, baselines)
    yield f"<h2>Table</h2>\n{_table(tasks)}"
    if whole := [task for task in tasks if comparable(task, baselines)]:
        yield f"<h2>Beside published figures</h2>\n{_published(whole, baselines)}"
    if differences:
        yield f"<h2>Compared, item by item</h2>\n{_differences(differences)}"
    if any(len(task.calibrations) > 1 for task in tasks):
        yield f"<h2>Calibration</h2>\n{_calibrations(tasks)}"
    yield "<h2>What the answers lean to</h2>\n"
    yield "<p>Rows are right answers, columns what was answered; the darker, the larger"
    yield " the share of the row. A dark column is a class that is answered whatever the item is.</p>\n"
    yield f'<div class="charts">\n{"".join(map(_confusion, tasks))}</div>\n'
    yield "".join(f"<p>{escape(note)}</p>\n" for note in notes(results, baselines, baselines.row))


def _accuracies(tasks: Sequence[TaskResult], baselines: Baselines) -> str:
    rows = "".join(_accuracy(number, task, baselines) for number, task in enumerate(tasks))
    height = len(tasks) * PITCH + 24
    grid = "".join(
        f'<line class="grid" x1="{_x(value)}" y1="0" x2="{_x(value)}" y2="{height - 20}"/>'
        f'<text x="{_x(value)}" y="{height - 5}" text-anchor="middle">{value}</text>'
        for value in GRID
    )
    told = "; ".join(f"{task.name} {percent(task.accuracy())} %, {task.verdict}" for task in tasks)
    names = [row.name for row in baselines.row] if any(comparable(task, baselines) for task in tasks) else []
    spans = [("this model", 0), *((name, _color(at)) for at, name in enumerate(names))]
    legend = "".join(f'<span><i class="c{color}"></i>{escape(name)}</span>' for name, color in spans)
    return (
        f'<figure><h3>Accuracy <span class="soft">%</span></h3><p class="legend">{legend}</p>'
        f'<svg class="wide" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}">{grid}{rows}</svg>'
        "<figcaption>Lines through bars: 95 % intervals. Thin bars: without calibration. Red lines: a guess; dashed: "
        "always "
        "the largest class. Points: published figures, where the items are the same.</figcaption></figure>\n"
    )


def _accuracy(number: int, task: TaskResult, baselines: Baselines) -> str:
    top = number * PITCH + 8
    middle = top + BAR / 2
    low, high = (_x(100 * end) for end in task.interval())
    parts = [f'<text x="0" y="{middle + 4:.1f}">{escape(task.name)}</text>']
    parts.append(_bar(top, BAR, task.accuracy(), f"{task.name}: {percent(task.accuracy())} %, {task.verdict}"))
    if task.calibration != "none":
        parts.append(
            _bar(top + BAR + 2, 4, task.accuracy("none"), f"uncalibrated: {percent(task.accuracy('none'))} %", "c7")
        )
    parts.append(f'<line class="line" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>')
    for kind, share, name in (
        ("event", task.chance, "a guess"),
        ("restart", task.majority, "always the largest class"),
    ):
        x = _x(100 * share)
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{top + BAR + 8}">'
            f"<title>{name}: {percent(share)} %</title></line>"
        )
    if comparable(task, baselines):
        for at, row in enumerate(baselines.row):
            value = row.accuracy[task.name]
            parts.append(
                f'<circle class="c{_color(at)}" cx="{_x(value):.1f}" cy="{middle}" r="3.4">'
                f"<title>{escape(row.name)}: {value} %</title></circle>"
            )
    return "".join(parts)


def _bar(top: float, height: float, share: float, words: str, kind: str = "c0") -> str:
    width = max(0.5, _x(100 * share) - _x(0))
    return (
        f'<rect class="area {kind}" x="{_x(0)}" y="{top}" width="{width:.1f}" height="{height}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _x(percentage: float) -> float:
    return NAME + (WIDTH - NAME - 14) * percentage / 100


def _color(number: int) -> int:
    """Of a published row; 0 and 7 are ours."""
    return 1 + number % 6


def _table(tasks: Sequence[TaskResult]) -> str:
    rows = []
    for task in tasks:
        figures = (percent(task.accuracy()), spelled(task.interval()), percent(task.chance), percent(task.majority))
        rows.append(Row((task.name, f"{task.num_items:,}", *figures, f"{task.p_value:.2g}", task.verdict)))
    return table(("task", "items", "accuracy", "95 %", "chance", "majority", "p", "verdict"), rows)


def _published(tasks: Sequence[TaskResult], baselines: Baselines) -> str:
    """A row for each model, over the tasks that are asked whole."""
    names = [task.name for task in tasks]
    rows = [
        Row(
            ("this model", percent(mean_of(tasks).value), *(percent(task.accuracy()) for task in tasks)), is_marked=True
        )
    ]
    for row in baselines.row:
        mean = row.mean_over(names)
        rows.append(
            Row((row.name, "" if mean is None else f"{mean:.1f}", *(f"{row.accuracy[name]:.1f}" for name in names)))
        )
    return table(("", "mean of these", *names), rows)


def _differences(differences: Mapping[str, Difference]) -> str:
    heads = ("task", "difference", "95 %", "only this is right", "only the other is right", "p (McNemar)")
    rows = [
        Row(
            (
                name,
                f"{100 * each.value:+.1f}",
                f"{100 * each.interval.low:+.1f} to {100 * each.interval.high:+.1f}",
                f"{each.only_first:,}",
                f"{each.only_second:,}",
                f"{each.p_value:.2g}",
            )
        )
        for name, each in differences.items()
    ]
    return table(heads, rows)


def _calibrations(tasks: Sequence[TaskResult]) -> str:
    rows = [
        Row(
            (
                task.name,
                *(
                    f"{percent(task.accuracy(each))} ({spelled(task.interval(each))})" if each in task.predicted else ""
                    for each in ("none", "diagonal", "identity")
                ),
            )
        )
        for task in tasks
    ]
    means = [percent(mean_of(tasks, each).value) for each in ("none", "diagonal", "identity")]
    return table(("task", "none", "diagonal", "identity"), [*rows, Row(("mean", *means))])


def _confusion(task: TaskResult) -> str:
    counts = task.confusion()
    answered = [sum(row[at] for row in counts) for at in range(len(counts))]
    by_answers = sorted(range(len(counts)), key=lambda at: (-answered[at], at))
    classes = sorted(by_answers[:MOST_CLASSES])
    width, height = max(LEAST_WIDTH, CLASS_NAME + CELL * len(classes)), CELL * len(classes) + CLASS_NAME
    parts = []
    for place, gold in enumerate(classes):
        whole = sum(counts[gold]) or 1
        parts.append(_label(CLASS_NAME - 6, place * CELL + CELL / 2 + 4, task.names[gold]))
        for across, answer in enumerate(classes):
            share = counts[gold][answer] / whole
            words = f"{task.names[gold]} answered with {task.names[answer]}: {counts[gold][answer]:,} of {whole:,}"
            parts.append(
                f'<rect class="area c0" x="{CLASS_NAME + across * CELL}" y="{place * CELL}" '
                f'width="{CELL - 2}" height="{CELL - 2}" '
                f'fill-opacity="{0.06 + 0.9 * share:.2f}"><title>{escape(words)}</title></rect>'
            )
    for across, answer in enumerate(classes):
        x, y = CLASS_NAME + across * CELL + CELL / 2 + 4, CELL * len(classes) + 8
        parts.append(_label(x, y, task.names[answer], f' transform="rotate(-60 {x:.0f} {y:.0f})"'))
    most = by_answers[0]
    note = f"{task.names[most]} is {percent(answered[most] / task.num_items)} % of the answers"
    if len(counts) > len(classes):
        note += f"; the {len(classes)} most answered of {len(counts)} classes"
    return (
        f'<figure><h3>{escape(task.name)}</h3><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(note)}">{"".join(parts)}</svg><figcaption>{escape(note)}</figcaption></figure>\n'
    )


def _label(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="end"{more}>{escape(words)}</text>'
