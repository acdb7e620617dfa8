"""Results as tables of the terminal, 80 columns wide, beside chance and what others have published
(`baselines.toml`, with its source)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from corpus.engine.config import Strict, load_toml, parse
from pretrain.columns import align_table, wrap_paragraph
from pretrain.tasks.results import Results, TaskResult, mean_of
from pretrain.tasks.statistics import LEVEL, Difference, Interval, holm

PATH = Path(__file__).with_name("baselines.toml")
HOW = {"none": "uncalibrated", "diagonal": "calibrated (diagonal)", "identity": "calibrated (identity)"}


class Row(Strict):
    """One model's line of a published table; in percent."""

    name: str
    about: str
    zero_shot: bool = False
    score: float  # as the table has it
    accuracy: dict[str, Annotated[float, Field(ge=0, le=100)]]

    def mean_over(self, tasks: Sequence[str]) -> float:
        """In percent, over some of its tasks."""
        return sum(self.accuracy[task] for task in tasks) / len(tasks)


class Baselines(Strict):
    """A published table."""

    title: str
    source: str
    split: str  # that its figures are of
    row: list[Row]


@cache
def published_baselines() -> Baselines:
    """The table."""
    return parse(Baselines, load_toml(PATH), str(PATH))


def lines(results: Results, baselines: Baselines, differences: Mapping[str, Difference] | None = None) -> Iterator[str]:
    """The tables, and below them what one must know to read them."""
    tasks = list(results.tasks.values())
    any_comparable = any(comparable(task, baselines) for task in tasks)
    shown = [row for row in baselines.row if any_comparable and (row.zero_shot or row.about == "people")]
    calibrated = any(len(task.calibrations) > 1 for task in tasks)
    yield from wrap_paragraph(about(results))
    yield from align_table(list(_verdicts(results, tasks)))
    if calibrated or shown:
        yield ""
        yield from align_table(list(_beside(tasks, calibrated, shown, baselines)))
    if differences is not None:
        yield ""
        heads = ["task", "difference", "95 %", "only this right", "only other right", "p"]
        yield from align_table([heads, *difference_rows(differences)])
    yield ""
    for note in notes(results, baselines, shown):
        yield from wrap_paragraph(note)


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
    """What verdicts say of several tasks, samples, lost text, what could not be calibrated, and what was published."""
    yield from _together(list(results.tasks.values()))
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


def format_interval(interval: Interval) -> str:
    """Both ends, in percent."""
    return f"{percent(interval.low)} to {percent(interval.high)}"


def figure_cells(task: TaskResult) -> list[str]:
    """Of a table's row: task, items, accuracy with its interval, chance, majority."""
    shares = (percent(share) for share in (task.chance, task.majority))
    return [task.name, f"{task.num_items:,}", percent(task.accuracy()), format_interval(task.interval()), *shares]


def _together(tasks: Sequence[TaskResult]) -> Iterator[str]:
    """Many tests: some tell a guesser from chance by chance."""
    yield "at chance: not told apart from guesses by an exact test at 5 %, which is not to say that it guesses"
    if len(tasks) < 2:
        return
    told = [task.name for task, is_told in zip(tasks, holm([task.p_value for task in tasks]), strict=True) if is_told]
    yield (
        f"each verdict is of one task alone: of {len(tasks)} that are all guessed one or more are told apart in "
        f"{1 - (1 - LEVEL) ** len(tasks):.0%} of evaluations. Told apart from guesses by all tests together (Holm): "
        f"{', '.join(told) or 'none'}"
    )


def _verdicts(results: Results, tasks: Sequence[TaskResult]) -> Iterator[list[str]]:
    """Accuracies against chance."""
    yield ["task", "items", "accuracy", "95 %", "chance", "majority", ""]
    for task in tasks:
        yield [*figure_cells(task), task.verdict]
    value, interval = results.mean
    yield ["mean", "", percent(value), format_interval(interval), "", "", ""]


def _beside(
    tasks: Sequence[TaskResult], calibrated: bool, shown: Sequence[Row], baselines: Baselines
) -> Iterator[list[str]]:
    """Accuracies beside those without calibration, and published ones."""
    plain = ["uncalibrated"] if calibrated else []
    yield ["task", "accuracy", *plain, *(row.name for row in shown)]
    for task in tasks:
        own = [percent(task.accuracy()), *(percent(task.accuracy("none")) for _ in plain)]
        is_same = comparable(task, baselines)
        yield [task.name, *own, *(f"{row.accuracy[task.name]:.1f}" if is_same else "" for row in shown)]
    means = [percent(mean_of(tasks).value), *(percent(mean_of(tasks, "none").value) for _ in plain)]
    names = [task.name for task in tasks]
    is_same = all(comparable(task, baselines) for task in tasks)
    yield ["mean", *means, *(f"{row.mean_over(names):.1f}" if is_same else "" for row in shown)]


def difference_rows(differences: Mapping[str, Difference]) -> Iterator[list[str]]:
    """To another evaluation: task, difference, interval, items that only this or the other has right, p."""
    for name, each in differences.items():
        signed = f"{100 * each.interval.low:+.1f} to {100 * each.interval.high:+.1f}"
        only = (f"{each.only_first:,}", f"{each.only_second:,}")
        yield [name, f"{100 * each.value:+.1f}", signed, *only, f"{each.p_value:.2g}"]
