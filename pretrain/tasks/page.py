"""Results as one page: bars with intervals beside chance and published figures, and what the answers lean to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from corpus.engine.chart import Drawing, Mark, Row, figures, strips, words
from corpus.engine.page import Html, cards, document, table, tag
from pretrain.tasks.calibration import Calibration
from pretrain.tasks.results import Results, TaskResult, mean_of
from pretrain.tasks.statistics import Difference
from pretrain.tasks.table import (
    Baselines,
    about,
    comparable,
    difference_rows,
    figure_cells,
    format_interval,
    notes,
    percent,
)

WIDTH = 720  # of the drawing of all tasks
MOST_CLASSES = 15  # that are drawn of a task: the most answered ones
CELL, CLASS_NAME = 30, 96
LEAST_WIDTH = 420  # of a drawing of few classes, whose letters would grow with it
ACCURACIES = (
    "Lines through bars: 95 % intervals. Thin bars: without calibration. Red lines: a guess; dashed: always the "
    "largest class. Points: published figures, where the items are the same."
)
LEANING = (
    "Rows are right answers, columns what was answered; the darker, the larger the share of the row. A dark column "
    "is a class that is answered whatever the item is."
)


def render(results: Results, baselines: Baselines, differences: Mapping[str, Difference] | None = None) -> str:
    """The whole page."""
    style = "td:first-child { white-space: nowrap; }"
    return document("Tasks", "evaluation", _body(results, baselines, differences or {}), style=style)


def _body(results: Results, baselines: Baselines, differences: Mapping[str, Difference]) -> Iterator[Html]:
    tasks = list(results.tasks.values())
    mean, interval = results.mean
    above = sum(task.verdict == "above chance" for task in tasks)
    yield tag("p", about(results))
    yield cards(
        [
            (f"{percent(mean)} %", f"mean of {len(tasks)} tasks, 95 %: {format_interval(interval)}"),
            (f"{above} of {len(tasks)}", "tasks above chance and above the largest class"),
            (f"{sum(task.num_items for task in tasks):,}", "items"),
        ]
    )
    yield figures([_accuracies(tasks, baselines)])
    yield from (tag("h2", "Table"), _table(tasks))
    if whole := [task for task in tasks if comparable(task, baselines)]:
        yield from (tag("h2", "Beside published figures"), _published(whole, baselines))
    if differences:
        heads = ("task", "difference", "95 %", "only this is right", "only the other is right", "p (McNemar)")
        yield from (tag("h2", "Compared, item by item"), table(heads, list(difference_rows(differences))))
    if any(len(task.calibrations) > 1 for task in tasks):
        yield from (tag("h2", "Calibration"), _calibrations(tasks))
    yield from (tag("h2", "What the answers lean to"), tag("p", LEANING), figures(map(_confusion, tasks)))
    yield from (tag("p", note) for note in notes(results, baselines, baselines.row))


def _accuracies(tasks: Sequence[TaskResult], baselines: Baselines) -> Drawing:
    told = "; ".join(f"{task.name} {percent(task.accuracy())} %, {task.verdict}" for task in tasks)
    names = [row.name for row in baselines.row] if any(comparable(task, baselines) for task in tasks) else []
    legend = [("this model", 0), *((name, _color(at)) for at, name in enumerate(names))]
    rows = [Row(task.name, list(_marks(task, baselines))) for task in tasks]
    return strips("Accuracy", rows, (0, 100), told, legend, note=ACCURACIES, unit="%", width=WIDTH)


def _marks(task: TaskResult, baselines: Baselines) -> Iterator[Mark]:
    accuracy, plain = task.accuracy(), task.accuracy("none")
    yield Mark("bar", 0, 100 * accuracy, about=f"{task.name}: {percent(accuracy)} %, {task.verdict}")
    if task.calibration != "none":
        yield Mark("thin", 0, 100 * plain, 7, f"uncalibrated: {percent(plain)} %")
    low, high = task.interval()
    yield Mark("interval", 100 * low, 100 * high, color=None)
    yield Mark("event", 100 * task.chance, about=f"a guess: {percent(task.chance)} %")
    yield Mark("restart", 100 * task.majority, about=f"always the largest class: {percent(task.majority)} %")
    for at, row in enumerate(baselines.row if comparable(task, baselines) else ()):
        value = row.accuracy[task.name]
        yield Mark("dot", value, color=_color(at), about=f"{row.name}: {value} %")


def _color(number: int) -> int:
    """Of a published row; 0 and 7 are ours."""
    return 1 + number % 6


def _table(tasks: Sequence[TaskResult]) -> Html:
    rows = [(*figure_cells(task), f"{task.p_value:.2g}", task.verdict) for task in tasks]
    return table(("task", "items", "accuracy", "95 %", "chance", "majority", "p", "verdict"), rows)


def _published(tasks: Sequence[TaskResult], baselines: Baselines) -> Html:
    """A row for each model, over the tasks that are asked whole."""
    names = [task.name for task in tasks]
    rows = [("this model", percent(mean_of(tasks).value), *(percent(task.accuracy()) for task in tasks))]
    for row in baselines.row:
        rows.append((row.name, f"{row.mean_over(names):.1f}", *(f"{row.accuracy[name]:.1f}" for name in names)))
    return table(("", "mean of these", *names), rows, ["mark", *[None] * len(baselines.row)])


def _calibrations(tasks: Sequence[TaskResult]) -> Html:
    kinds: tuple[Calibration, ...] = ("none", "diagonal", "identity")

    def cell(task: TaskResult, kind: Calibration) -> str:
        return (
            f"{percent(task.accuracy(kind))} ({format_interval(task.interval(kind))})" if kind in task.predicted else ""
        )

    rows = [(task.name, *(cell(task, kind) for kind in kinds)) for task in tasks]
    means = ("mean", *(percent(mean_of(tasks, kind).value) for kind in kinds))
    return table(("task", *kinds), [*rows, means])


def _confusion(task: TaskResult) -> Drawing:
    counts = task.confusion()
    answered = [sum(row[at] for row in counts) for at in range(len(counts))]
    by_answers = sorted(range(len(counts)), key=lambda at: (-answered[at], at))
    classes = sorted(by_answers[:MOST_CLASSES])
    width, bottom = max(LEAST_WIDTH, CLASS_NAME + CELL * len(classes)), CELL * len(classes)
    parts = []
    for place, gold in enumerate(classes):
        whole = sum(counts[gold]) or 1
        parts.append(words(CLASS_NAME - 6, place * CELL + CELL / 2 + 4, task.names[gold], "end"))
        for across, answer in enumerate(classes):
            about = f"{task.names[gold]} answered with {task.names[answer]}: {counts[gold][answer]:,} of {whole:,}"
            opacity = f"{0.06 + 0.9 * counts[gold][answer] / whole:.2f}"
            box = {"x": CLASS_NAME + across * CELL, "y": place * CELL, "width": CELL - 2, "height": CELL - 2}
            parts.append(tag("rect", tag("title", about), class_="c0", fill_opacity=opacity, **box))
    for across, answer in enumerate(classes):
        turned = f"translate({CLASS_NAME + across * CELL + CELL / 2 + 4:.0f} {bottom + 8}) rotate(-60)"
        parts.append(tag("g", words(0, 0, task.names[answer], "end"), transform=turned))
    most = by_answers[0]
    note = f"{task.names[most]} is {percent(answered[most] / task.num_items)} % of the answers"
    if len(counts) > len(classes):
        note += f"; the {len(classes)} most answered of {len(counts)} classes"
    return Drawing(task.name, parts, bottom + CLASS_NAME, note, note=note, width=width)
