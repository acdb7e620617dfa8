"""What an evaluation found: a record for each task, `OUT/results.json`, and the comparison of two of them.

A record holds the answer to every item, so that two evaluations of the same items can be compared pair by pair, and
every figure that is printed follows from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from corpus.engine import durable
from corpus.engine.config import Strict, parse
from corpus.engine.errors import UsageError
from pretrain.tasks import statistics
from pretrain.tasks.calibration import CALIBRATIONS, Calibration
from pretrain.tasks.statistics import Difference, Interval, Mean

FORMAT = 1
FILE_NAME = "results.json"

Numbers = Annotated[tuple[int, ...], Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class TaskResult(Strict):
    """The answers of a model to the items of one task."""

    name: str
    prompt: str  # how it was asked
    split: str
    task: str  # digest of the definition
    data: str  # sha256 of the file of items
    labels: Names  # the classes
    words: Names = ()  # the first of each class, where classes have words
    calibration: Calibration  # that `accuracy` is of
    calibratable: bool  # whether the prompt has anything to calibrate
    num_in_split: int  # items, of which `index` may be a sample
    num_unlabelled: int = 0  # lines of the file without an agreed answer, which are no items
    num_cut: int = 0  # items that lost a part of their text
    num_short_of_shots: int = 0  # items before which not all examples fit
    index: Numbers  # lines of the file
    gold: Numbers  # the right class of each
    predicted: dict[Calibration, Numbers]

    @model_validator(mode="after")
    def _check(self) -> TaskResult:
        for answers in (self.gold, *self.predicted.values()):
            if len(answers) != len(self.index):
                raise ValueError("not an answer for each item")
            if not all(0 <= answer < len(self.labels) for answer in answers):
                raise ValueError("an answer is none of the classes")
        if self.calibration not in self.predicted:
            raise ValueError(f"no answers with calibration {self.calibration}")
        return self

    @property
    def names(self) -> list[str]:
        """The classes, as people tell them apart."""
        if not self.words:
            return list(self.labels)
        return [a if a == b else f"{a} {b}" for a, b in zip(self.labels, self.words, strict=True)]

    @property
    def num_items(self) -> int:
        """How many were asked."""
        return len(self.index)

    @property
    def is_whole(self) -> bool:
        """Whether that is the whole split."""
        return self.num_items == self.num_in_split

    @property
    def calibrations(self) -> list[Calibration]:
        """Those it has answers of, plain first."""
        return [each for each in CALIBRATIONS if each in self.predicted]

    def right(self, calibration: Calibration | None = None) -> list[bool]:
        """Which items are answered rightly."""
        answers = self.predicted[calibration or self.calibration]
        return [a == b for a, b in zip(self.gold, answers, strict=True)]

    def num_right(self, calibration: Calibration | None = None) -> int:
        """How many."""
        return sum(self.right(calibration))

    def accuracy(self, calibration: Calibration | None = None) -> float:
        """Their share."""
        return self.num_right(calibration) / self.num_items

    def interval(self, calibration: Calibration | None = None) -> Interval:
        """Of the accuracy, 95 %."""
        return statistics.wilson(self.num_right(calibration), self.num_items)

    @property
    def chance(self) -> float:
        """What a guess reaches."""
        return 1 / len(self.labels)

    @property
    def majority(self) -> float:
        """What the best constant answer reaches."""
        return max(Counter(self.gold).values(), default=0) / max(1, self.num_items)

    @property
    def p_value(self) -> float:
        """Of "no better or worse than guesses"."""
        return statistics.binomial_test(self.num_right(), self.num_items, self.chance)

    @property
    def verdict(self) -> str:
        """Against chance, in words."""
        return statistics.verdict(self.num_right(), self.num_items, self.chance, self.majority)

    def confusion(self, calibration: Calibration | None = None) -> list[list[int]]:
        """[C, C] how often class i was answered with class j."""
        counts = [[0] * len(self.labels) for _ in self.labels]
        for gold, answer in zip(self.gold, self.predicted[calibration or self.calibration], strict=True):
            counts[gold][answer] += 1
        return counts

    def summary(self) -> dict[str, Any]:
        """What is printed, as JSON."""
        low, high = self.interval()
        answers = Counter(self.predicted[self.calibration])
        return {
            "prompt": self.prompt,
            "split": self.split,
            "num_items": self.num_items,
            "num_in_split": self.num_in_split,
            "num_cut": self.num_cut,
            "num_short_of_shots": self.num_short_of_shots,
            "calibration": self.calibration,
            "accuracy": self.accuracy(),
            "low": low,
            "high": high,
            "chance": self.chance,
            "majority": self.majority,
            "p_value": self.p_value,
            "verdict": self.verdict,
            "accuracy_by_calibration": {each: self.accuracy(each) for each in self.calibrations},
            "answers": {label: answers[at] for at, label in enumerate(self.labels)},
        }


class Results(Strict):
    """An evaluation: of what, asked how, with which answers."""

    of: dict[str, str]  # the model: checkpoint's digest, tokenizer's sha256
    options: dict[str, str | int | bool | None]
    tasks: dict[str, TaskResult]

    @property
    def mean(self) -> Mean:
        """Over the tasks."""
        return mean_of(self.tasks.values())

    def summary(self) -> dict[str, Any]:
        """What is printed, as JSON."""
        value, (low, high) = self.mean
        mean = {"accuracy": value, "low": low, "high": high, "num_tasks": len(self.tasks)}
        tasks = {name: task.summary() for name, task in self.tasks.items()}
        return {"of": self.of, "options": self.options, "mean": mean, "tasks": tasks}


def mean_of(tasks: Iterable[TaskResult], calibration: Calibration | None = None) -> Mean:
    """The mean accuracy of tasks; of those that have nothing to calibrate the plain one counts."""
    shown = [(task, calibration if calibration in task.predicted else task.calibration) for task in tasks]
    return statistics.mean_of([(task.num_right(each), task.num_items) for task, each in shown])


def write_results(out: Path, results: Results) -> None:
    """`OUT/results.json`: the summary, and below `answers` what `read_results` reads."""
    values = {"format": FORMAT, **results.summary(), "answers": results.model_dump(mode="json")}
    durable.write_json(out / FILE_NAME, values)


def read_results(folder: Path) -> Results:
    """What `write_results` wrote.

    Raises:
        UsageError: the folder holds no finished evaluation.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise UsageError(f"{folder}: holds no {FILE_NAME}. Name the --out of an evaluation that ended.")
    values = durable.read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT or not isinstance(values.get("answers"), dict):
        raise UsageError(f"{path}: is not of this version. Evaluate again into another --out.")
    return parse(Results, values["answers"], str(path))


def compare_tasks(ours: Mapping[str, TaskResult], theirs: Mapping[str, TaskResult]) -> dict[str, Difference]:
    """For each task that both have: the difference of the accuracies on the items that both were asked.

    Raises:
        UsageError: the items of a task are not the same, or nothing is common.
    """
    differences = {}
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        if a.data != b.data:
            raise UsageError(
                f"task {name}: the two evaluations are of other files of items ({a.data[:12]}, {b.data[:12]})."
            )
        first, second = dict(zip(a.index, a.right(), strict=True)), dict(zip(b.index, b.right(), strict=True))
        common = sorted(first.keys() & second.keys())
        if common:
            differences[name] = statistics.difference([first[i] for i in common], [second[i] for i in common])
    if not differences:
        raise UsageError("the two evaluations have no item in common. Evaluate the same tasks, split and --limit.")
    return {name: differences[name] for name in ours if name in differences}
