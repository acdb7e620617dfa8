"""Sizes of errors, and what the best constant would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """Of one table: predicted over measured speed, less one."""

    values: Vector

    @property
    def mean(self) -> float:
        """Of their sizes."""
        return float(np.abs(self.values).mean())

    @property
    def worst(self) -> float:
        """The largest size."""
        return float(np.abs(self.values).max())

    @property
    def bias(self) -> float:
        """Of the errors with their signs."""
        return float(self.values.mean())

    def __str__(self) -> str:
        return f"mean {self.mean:.1%}, worst {self.worst:.1%}, bias {self.bias:+.1%}"


def constants(measured: Vector) -> Iterator[tuple[str, float, Errors]]:
    """What one constant for all rows would give, chosen with all of them in sight.

    By the least mean error, by the least worst one, and 46 % of an A100's peak, which is their rounded mean, with its
    errors as of step times (measured over predicted speed).
    """
    candidates = np.arange(measured.min(), measured.max() + 0.25, 0.25)
    errors = [Errors(candidate / measured - 1) for candidate in candidates]
    best_mean = min(range(len(errors)), key=lambda place: errors[place].mean)
    best_worst = min(range(len(errors)), key=lambda place: errors[place].worst)
    yield "least mean error", float(candidates[best_mean]), errors[best_mean]
    yield "least worst error", float(candidates[best_worst]), errors[best_worst]
    whole = 144.0
    yield "144, errors as of step times", whole, Errors(measured / whole - 1)
