"""How good a classifier's probabilities are: confusion, precision and recall by class, AUC, calibration. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CALIBRATION_BINS = 10


@dataclass(frozen=True)
class ClassQuality:
    """Of one class against all others; a ratio without a denominator is NaN."""

    name: str
    documents: int
    precision: float
    recall: float
    f1: float
    auc: float


@dataclass(frozen=True)
class Assessment:
    """`confusion[i][j]` documents of class i were taken for class j; the likelier class is the guess."""

    classes: tuple[ClassQuality, ...]
    confusion: tuple[tuple[int, ...], ...]
    accuracy: float
    log_loss: float  # nats
    calibration_error: float  # mean |confidence - accuracy| over bins of equal width, weighted (ECE)

    def as_json(self) -> dict[str, Any]:
        """For `--json` and for the model's header."""
        return {
            "classes": {entry.name: {**vars(entry), "name": entry.name} for entry in self.classes},
            "confusion": [list(row) for row in self.confusion],
            "accuracy": self.accuracy,
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
        }


def assess(probabilities: Floats, labels: Ints, names: Sequence[str]) -> Assessment:
    """Probabilities (float64[documents, classes]) against the right classes (int64[documents]).

    >>> assess(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1]), ["high", "low"]).confusion
    ((1, 0), (1, 1))
    """
    count = len(names)
    guesses = probabilities.argmax(axis=1)
    confusion = np.bincount(labels * count + guesses, minlength=count * count).reshape(count, count)
    classes = []
    for index, name in enumerate(names):
        right = int(confusion[index, index])
        precision, recall = _ratio(right, confusion[:, index].sum()), _ratio(right, confusion[index].sum())
        f1 = _ratio(2 * right, confusion[:, index].sum() + confusion[index].sum())
        auc = area_under_curve(probabilities[:, index], labels == index)
        classes.append(ClassQuality(name, int(confusion[index].sum()), precision, recall, f1, auc))
    confidence = probabilities.max(axis=1)
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, confidence - (guesses == labels), CALIBRATION_BINS)
    return Assessment(
        classes=tuple(classes),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        accuracy=_ratio(np.trace(confusion), len(labels)),
        log_loss=log_loss(probabilities, labels),
        calibration_error=_ratio(np.abs(gaps).sum(), len(labels)),
    )


def area_under_curve(scores: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The probability that a positive scores above a negative, ties half (Mann-Whitney); NaN without both.

    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse] if len(values) else np.zeros(0)
    positives = int(positive.sum())
    negatives = len(scores) - positives
    return _ratio(ranks[positive].sum() - positives * (positives + 1) / 2, positives * negatives)


def log_loss(probabilities: Floats, labels: Ints) -> float:
    """Mean -log p of the right class, nats."""
    if not len(labels):
        return float("nan")
    chosen = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(chosen, 1e-15)).mean())


def render(assessment: Assessment) -> str:
    """The tables for a terminal."""
    names = [entry.name for entry in assessment.classes]
    width = max(10, *(len(name) for name in names))
    lines = [f"{'class':<{width}}  documents  precision  recall      F1     AUC"]
    lines += [
        f"{entry.name:<{width}}  {entry.documents:>9,}  {entry.precision:>9.3f}  {entry.recall:>6.3f}  {entry.f1:>6.3f}"
        f"  {entry.auc:>6.3f}"
        for entry in assessment.classes
    ]
    lines += ["", f"{'is, taken for':<{max(width, 14)}}  " + "  ".join(f"{name:>{width}}" for name in names)]
    lines += [
        f"{name:<{max(width, 14)}}  " + "  ".join(f"{count:>{width},}" for count in row)
        for name, row in zip(names, assessment.confusion, strict=True)
    ]
    lines += [
        "",
        f"accuracy {assessment.accuracy:.3f}, log loss {assessment.log_loss:.3f} nats, "
        f"calibration error {assessment.calibration_error:.3f}",
    ]
    return "\n".join(lines)


def _ratio(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if whole else float("nan")
