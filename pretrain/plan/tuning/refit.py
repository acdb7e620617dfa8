"""What measured runs say about a cluster: its efficiencies again, from predictions beside measurements.

Few runs, and more scalars than they can tell apart. So each scalar moves from its present value only as far as the
runs ask for: the likeliest values under normal errors of the logarithms (runs: `Run.error`, scalars: as `_scalars`
says), by Gauss and Newton, the derivatives by differences. A scalar on which nothing depends stays.

Memory is one factor on what is predicted, fitted alike. A run that ended out of memory is a censored observation (Tobin
1958): it says that the truth lies above what the device has, and not where; its time says nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, Network
from pretrain.plan.prediction import RESERVED, Prediction
from pretrain.plan.tuning.measure import Measurement

RUN_ERROR = 0.05  # of a measured step, and of measured memory: what the model of them cannot say; of the logarithm
BESIDE = 100 << 20  # bytes that a process may hold beside what is predicted: buffers, code that is loaded late
HELD_ERROR = 0.3  # of the factor on memory, before anything is measured
SHORTEST_START = 1e-7  # seconds per operation where a cluster says 0: a logarithm needs more
STEPS = 6
HALVINGS = 4
DIFFERENCE = 0.02
RESOLUTION = 1e-5  # of the logarithm of the factor on memory

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """A layout as it was predicted, and what came of it here."""

    prediction: Prediction
    measurement: Measurement

    @property
    def is_done(self) -> bool:
        """It has a time."""
        return self.measurement.step_seconds is not None

    @property
    def error(self) -> float:
        """Of the logarithm of its time: more where its steps differ."""
        seconds = self.measurement.seconds
        spread = statistics.stdev(seconds) / statistics.mean(seconds) if len(seconds) > 1 else 0.0
        return math.hypot(RUN_ERROR, spread)

    @property
    def held_error(self) -> float:
        """Of the logarithm of its memory: more where it has little."""
        return math.hypot(RUN_ERROR, BESIDE / self.prediction.memory_bytes)


@dataclass(frozen=True)
class _Scalar:
    """One that is fitted: how to set it, its present value, the most it may be, and how far it may well be off
    (logarithm)."""

    put: Callable[[Cluster, float], Cluster]
    value: float
    most: float
    error: float


def refit(cluster: Cluster, runs: Sequence[Run]) -> Cluster:
    """The cluster with the efficiencies and the factor on memory that explain the runs best."""
    fitted = refit_speed(cluster, [run for run in runs if run.is_done])
    efficiency = fitted.efficiency.model_copy(update={"held": refit_held(cluster, runs)})
    return fitted.model_copy(update={"efficiency": efficiency})


def refit_speed(cluster: Cluster, runs: Sequence[Run]) -> Cluster:
    """Products, memory, seconds per operation, and the networks, from the times of runs that are done."""
    if not runs:
        return cluster
    scalars = _scalars(cluster)
    errors = np.array([scalar.error for scalar in scalars])
    measured = np.log([run.measurement.step_seconds or math.nan for run in runs])
    deviations = np.array([run.error for run in runs])

    def at(moved: Floats) -> Cluster:
        changed = cluster
        for scalar, logarithm in zip(scalars, moved.tolist(), strict=True):
            if logarithm:
                changed = scalar.put(changed, min(scalar.most, scalar.value * math.exp(logarithm)))
        return changed

    def misses(moved: Floats) -> Floats:
        now = at(moved)
        predicted = np.array([predicted_again(run.prediction, now).step_seconds for run in runs])
        missing: Floats = (measured - np.log(predicted)) / deviations
        return missing

    def badness(moved: Floats, missing: Floats) -> float:
        return float(missing @ missing + (moved / errors) @ (moved / errors))

    moved = np.zeros(len(scalars))
    missing = misses(moved)
    for _ in range(STEPS):
        columns = []
        for number in range(len(scalars)):
            nudged = moved.copy()
            nudged[number] -= DIFFERENCE  # down: a share may be at its most
            columns.append((missing - misses(nudged)) / DIFFERENCE)
        slopes = np.stack(columns, axis=1)
        curvature = slopes.T @ slopes + np.diag(errors**-2)
        step = np.linalg.solve(curvature, -(slopes.T @ missing) - moved / errors**2)
        for halving in range(HALVINGS):
            tried = moved + step / 2**halving
            missing_then = misses(tried)
            if badness(tried, missing_then) < badness(moved, missing) - 1e-6:
                moved, missing = tried, missing_then
                break
        else:
            break
    return at(moved)


def refit_held(cluster: Cluster, runs: Sequence[Run]) -> float:
    """The factor on predicted memory: the likeliest, with runs out of memory as lower bounds."""
    seen: list[tuple[float, float]] = []  # logarithms of the factor, and their errors
    bounds: list[tuple[float, float]] = []
    for run in runs:
        predicted = math.log(run.prediction.memory_bytes)
        if run.measurement.outcome == "out of memory":
            bounds.append((math.log(_room(run.prediction)) - predicted, run.held_error))
        elif run.is_done and run.measurement.peak_bytes:
            seen.append((math.log(run.measurement.peak_bytes) - predicted, run.held_error))
    if not seen and not bounds:
        return cluster.efficiency.held
    seen.append((math.log(cluster.efficiency.held), HELD_ERROR))
    values = [one for one, _ in (*seen, *bounds)]
    factors = torch.arange(min(values) - 1, max(values) + 1, RESOLUTION, dtype=torch.float64)
    likelihood = -sum(((factors - one) / error) ** 2 for one, error in seen) / 2
    likelihood += sum(torch.special.log_ndtr((factors - bound) / error) for bound, error in bounds)
    return math.exp(factors[likelihood.argmax()])


def _room(prediction: Prediction) -> float:
    """Bytes that there were for what `Prediction.memory_bytes` predicts: a device's; on CPUs a rank's part of the
    machine's."""
    cluster = prediction.cluster
    if cluster.cores is None:
        return cluster.device.memory_gib * 2**30 * RESERVED
    beside = prediction.host_bytes_per_node / prediction.devices - prediction.memory_bytes
    return max(1.0, cluster.host.memory_gib * 2**30 / prediction.devices - beside)


def predicted_again(prediction: Prediction, cluster: Cluster) -> Prediction:
    """The same layout, as the cluster is known now."""
    return predict(prediction.config, prediction.devices, cluster, prediction.software)


def _scalars(cluster: Cluster) -> list[_Scalar]:
    """Those of the cluster itself, and two of each network."""
    efficiency = cluster.efficiency
    start = efficiency.seconds_per_operation or SHORTEST_START
    scalars = [
        _Scalar(partial(_put_efficiency, "products"), efficiency.products, 1.0, 0.4),
        _Scalar(partial(_put_efficiency, "memory"), efficiency.memory, 1.0, 0.4),
        _Scalar(partial(_put_efficiency, "seconds_per_operation"), start, math.inf, 1.0),
    ]
    for number, network in enumerate(cluster.networks):
        scalars.append(_Scalar(partial(_put_network, number, "efficiency"), network.efficiency, 1.0, 0.7))
        if network.latency:
            scalars.append(_Scalar(partial(_put_network, number, "latency"), network.latency, math.inf, 1.0))
    return scalars


def _put_efficiency(name: str, cluster: Cluster, value: float) -> Cluster:
    return cluster.model_copy(update={"efficiency": cluster.efficiency.model_copy(update={name: value})})


def _put_network(number: int, name: str, cluster: Cluster, value: float) -> Cluster:
    networks: list[Network] = list(cluster.networks)
    networks[number] = networks[number].model_copy(update={name: value})
    return cluster.model_copy(update={"networks": tuple(networks)})
