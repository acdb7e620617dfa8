"""Results as a table of the terminal, beside chance and what others have published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pretrain.tasks.baselines import Baselines, Row
from pretrain.tasks.results import Results, TaskResult, mean_of
from pretrain.tasks.statistics import Difference, Interval

GAP = "  "
HOW = {"none": "uncalibrated", "diagonal": "calibrated (diagonal)", "identity": "calibrated (identity)"}


def lines(results: Results, baselines: Baselines, differences: Mapping[str, Difference] | None = None) -> Iterator[str]:
    """The table, and below it what one must know to read it."""
    tasks = list(results.tasks.values())
    shown = (
        [row for row in baselines.row if row.zero_shot or row.about == "people"]
        if _any_comparable(tasks, baselines)
        else []
    )
    calibrated = any(len(task.calibrations) > 1 for task in tasks)
    plain = ["plain"] if calibrated else []
    versus = ["difference", "p"] if differences is not None else []
    heads = [
        "task",
        "items",
        "accuracy",
        "95 %",
        *plain,
        "chance",
        "majority",
        "",
        *versus,
        *(row.name for row in shown),
    ]
    cells = [_cells(task, calibrated, shown, baselines, differences) for task in tasks]
    mean, interval = results.mean
    middle = [percent(mean_of(tasks, "none").value)] if calibrated else []
    ends = ["", "", "", *([""] * len(versus)), *(_mean_cell(row, tasks, baselines) for row in shown)]
    cells.append(["mean", "", percent(mean), spelled(interval), *middle, *ends])
    yield about(results)
    yield from _aligned([heads, *cells])
    yield from notes(results, baselines, shown)


def about(results: Results) -> str:
    """How the tasks were asked."""
    shots = results.options.get("shots") or 0
    calibration = str(results.options.get("calibration"))
    asked = "zero-shot" if not shots else f"{shots} examples before each item (seed {results.options.get('seed')})"
    words = ", all words of a class" if results.options.get("expand") else ""
    length = results.options.get("normalisation")
    normalised = "" if length == "sum" else f", log-likelihood per {length}"
    return f"{asked}, {HOW[calibration]}{words}{normalised}; accuracy in %"


def notes(results: Results, baselines: Baselines, shown: Sequence[Row]) -> Iterator[str]:
    """Samples, lost text, what could not be calibrated, and of what the published figures are."""
    for task in results.tasks.values():
        said = []
        if not task.is_whole:
            said.append(f"a sample of {task.num_items:,} of {task.num_in_split:,} items")
        if task.num_unlabelled:
            said.append(f"{task.num_unlabelled:,} lines without an agreed answer are left out")
        if task.num_cut:
            said.append(f"{task.num_cut:,} items lost a part of their text for lack of room")
        if task.num_short_of_shots:
            said.append(f"not all examples fit before {task.num_short_of_shots:,} items")
        if results.options.get("calibration") != "none" and not task.calibratable:
            said.append(f"its prompt {task.prompt} has no context to calibrate by")
        if said:
            yield f"{task.name}: {'; '.join(said)}"
    others = [task.name for task in results.tasks.values() if not comparable(task, baselines)]
    if others:
        yield f"not comparable with published figures, which are of the whole {baselines.split}: {', '.join(others)}"
    if shown:
        yield f"published: {', '.join(f'{row.name} = {row.about}' for row in shown)}; {baselines.source}"


def comparable(task: TaskResult, baselines: Baselines) -> bool:
    """Whether the published figures are of the same items."""
    return task.split == baselines.split and task.is_whole and task.name in baselines.row[0].accuracy


def percent(share: float) -> str:
    """With a decimal.

    >>> percent(0.3333)
    '33.3'
    """
    return f"{100 * share:.1f}"


def spelled(interval: Interval) -> str:
    """Both ends, in percent."""
    return f"{percent(interval.low)} to {percent(interval.high)}"


def _any_comparable(tasks: Sequence[TaskResult], baselines: Baselines) -> bool:
    return any(comparable(task, baselines) for task in tasks)


def _cells(
    task: TaskResult,
    calibrated: bool,
    shown: Sequence[Row],
    baselines: Baselines,
    differences: Mapping[str, Difference] | None,
) -> list[str]:
    cells = [task.name, f"{task.num_items:,}", percent(task.accuracy()), spelled(task.interval())]
    cells += [percent(task.accuracy("none"))] if calibrated else []
    cells += [percent(task.chance), percent(task.majority), task.verdict]
    if differences is not None:
        found = differences.get(task.name)
        cells += (
            ["", ""]
            if found is None
            else [f"{100 * found.value:+.1f} ({_signed(found.interval)})", f"{found.p_value:.2g}"]
        )
    is_same = comparable(task, baselines)
    return cells + [f"{row.accuracy[task.name]:.1f}" if is_same else "" for row in shown]


def _mean_cell(row: Row, tasks: Sequence[TaskResult], baselines: Baselines) -> str:
    if not all(comparable(task, baselines) for task in tasks):
        return ""
    mean = row.mean_over([task.name for task in tasks])
    return "" if mean is None else f"{mean:.1f}"


def _signed(interval: Interval) -> str:
    return f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numeric = [all(not cell or cell[0] in "+-0123456789" for cell in column[1:]) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        yield GAP.join(cells).rstrip()
