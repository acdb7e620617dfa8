"""Fits the few efficiencies of a cluster to measured steps: `python -m tests.fidelity.fit` prints Selene's.

Two scalars, the shares of the peak and of the memory bandwidth that are reached, are fitted to eight step times (table
5 of Korthikanti et al. 2022), and to nothing else. How much of a network's bandwidth is reached is not fitted: it is
data of the cluster, from nccl-tests, and says so beside its figures. Least squares of the logarithms, by Gauss and
Newton: an error of 1 % counts the same in a step of a second and in one of a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpus.engine.cli import add_examples
from pretrain.plan.cost import step_seconds
from pretrain.plan.machines.cluster import Cluster
from pretrain.workload.framework_profiles import find_software
from tests.fidelity.rows import Row, load_published

TABLE = "korthikanti-2022"
SCALARS = ("products", "memory")
ITERATIONS = 12
DIFFERENCE = 1e-3  # of a logarithm, downwards: a share may be 1
LONGEST_STEP = 0.3  # of a logarithm

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A cluster with its scalars fitted."""

    cluster: Cluster
    errors: Vector  # predicted over measured seconds of each row, less 1

    @property
    def scalars(self) -> dict[str, float]:
        """By name, as many digits as the file of a cluster has."""
        return {name: round(float(getattr(self.cluster.efficiency, name)), 3) for name in SCALARS}


def fit(cluster: Cluster, rows: Sequence[Row], scalars: Sequence[str] = SCALARS) -> Fit:
    """The scalars with which the steps of the rows are nearest to what was measured, from those that the cluster
    has."""
    configs = [row.config for row in rows]
    measured = np.log([row.seconds for row in rows])

    def residuals(logarithms: Vector, exact: bool = True) -> Vector:
        changed = _with(cluster, scalars, logarithms)
        steps = [
            step_seconds(config, row.gpus, changed, find_software(row.software), exact).total
            for config, row in zip(configs, rows, strict=True)
        ]
        return np.log(steps) - measured

    at = np.log([getattr(cluster.efficiency, name) for name in scalars])
    for _ in range(ITERATIONS):
        near = residuals(at, exact=False)  # slopes of closed forms are as good, and quicker
        slopes = [(near - residuals(at - DIFFERENCE * unit, exact=False)) / DIFFERENCE for unit in np.eye(len(scalars))]
        step = np.clip(
            np.linalg.lstsq(np.stack(slopes, axis=1), -residuals(at), rcond=None)[0], -LONGEST_STEP, LONGEST_STEP
        )
        at = np.minimum(at + step, 0.0)
        if np.abs(step).max() < 1e-4:
            break
    return Fit(_with(cluster, scalars, at), np.expm1(residuals(at)))


def _with(cluster: Cluster, scalars: Sequence[str], logarithms: Vector) -> Cluster:
    values = dict(zip(scalars, np.exp(logarithms).tolist(), strict=True))
    return cluster.model_copy(update={"efficiency": cluster.efficiency.model_copy(update=values)})


def main(argv: Sequence[str] | None = None) -> int:
    """Print what the fit gives for Selene."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity.fit", description=__doc__.partition("\n")[0])
    add_examples(parser, "python -m tests.fidelity.fit")
    parser.parse_args(argv)
    table = load_published(TABLE)
    found = fit(table.cluster, table.rows)
    for name, value in found.scalars.items():
        print(f"{name} = {value}")
    for row, error in zip(table.rows, found.errors, strict=True):
        print(f"# {row.name:5} {row.recompute:10} {row.seconds:7.2f} s  {error:+.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
