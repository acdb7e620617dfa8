"""How much each parameter of a space matters to a value: Shapley effects, exact over a table of points.

The share of the variance that knowing a set S of parameters explains is v(S) = Var(E[value | parameters of S]). A parameter's effect is
what it adds to v, averaged over all orders in which parameters may become known (Owen 2014; of parameters that are not
independent, as where some points failed: Song, Nelson and Staum 2016). Effects are 0 or more and add up to one.

The total effect E[Var(value | all others)] / Var(value) (Homma and Saltelli 1996) stands beside it: what is left to a parameter when all
others are known. Both read every point of the table, so that there is no error of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from pretrain.plan.tuning.searchers import Point


@dataclass(frozen=True)
class Effect:
    """Of one parameter, as shares of the variance of the value."""

    name: str
    shapley: float
    total: float


def effects(names: Sequence[str], points: Sequence[Point], values: Sequence[float]) -> list[Effect]:
    """The parameters, the one that matters most first.

    Raises:
        ValueError: all values are alike: nothing matters.
    """
    codes = np.array(
        [np.unique([str(point[axis]) for point in points], return_inverse=True)[1] for axis in range(len(names))]
    )
    value = np.array(values, dtype=np.float64)
    variance = value.var()
    if not variance > 0:
        raise ValueError(f"{len(points)} points of one value: no parameter matters")
    axes = range(len(names))
    known = {
        subset: _explained(codes[list(subset)], value) / variance
        for size in range(len(names) + 1)
        for subset in combinations(axes, size)
    }
    found = []
    for axis in axes:
        others = [other for other in axes if other != axis]
        shapley = 0.0
        for size in range(len(names)):
            added = [known[tuple(sorted((*subset, axis)))] - known[subset] for subset in combinations(others, size)]
            shapley += sum(added) / (len(names) * comb(len(names) - 1, size))
        total = known[tuple(axes)] - known[tuple(others)]
        found.append(Effect(names[axis], float(shapley), float(total)))
    return sorted(found, key=lambda effect: -effect.shapley)


def _explained(codes: NDArray[np.int64], value: NDArray[np.float64]) -> float:
    """Variance of the means of points that are alike in some parameters; codes: [parameters, points]."""
    if not len(codes):
        return 0.0
    _, group, sizes = np.unique(codes, axis=1, return_inverse=True, return_counts=True)
    means = np.bincount(group.reshape(-1), weights=value) / sizes
    return float(sizes @ (means - value.mean()) ** 2 / len(value))
