"""Predictions of what was published, and how far they are from it: by table, and of single runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from pretrain.config import load_config
from pretrain.parallel.base.simulate import simulate
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.prediction import Prediction
from pretrain.schedules import actions, stage_ranks
from pretrain.workload import megatron_memory, parameters
from pretrain.workload.framework_profiles import MEGATRON_2020, FrameworkProfile, find_software
from tests.fidelity.errors import Errors
from tests.fidelity.rows import Published, Row, load_published

YUAN_GPUS = 2128
YUAN_TOKENS = 180e9
COLUMNS = (  # recompute, sequence parallelism, column
    ("none", False, "activations_gib"),
    ("none", True, "sequence_parallel_percent"),
    ("selective", False, "selective_percent"),
    ("selective", True, "both_percent"),
    ("full", False, "full_percent"),
)


class Memory(NamedTuple):
    """Errors of activations in all columns, of weights and optimizer (blocks alone; the whole first stage), and
    cells."""

    activations: Errors
    blocks: Errors
    first_stage: Errors
    lines: list[tuple[str, ...]]


@dataclass(frozen=True)
class Scored:
    """A table with its predictions."""

    table: Published
    predictions: list[Prediction]

    @property
    def timed(self) -> list[tuple[Row, Prediction, float]]:
        """Rows with a published time, and their errors."""
        pairs = zip(self.table.rows, self.predictions, strict=True)
        found = ((row, prediction, row.error(prediction)) for row, prediction in pairs)
        return [(row, prediction, error) for row, prediction, error in found if error is not None]

    @property
    def errors(self) -> Errors:
        """Of all rows that have a time."""
        return Errors(np.array([error for _, _, error in self.timed]))


@cache
def score(name: str) -> Scored:
    """Predict a published table, once."""
    table = load_published(name)
    return Scored(table, [row.predict(table.cluster) for row in table.rows])


def memory_errors() -> Memory:
    """Of all rows and columns of Korthikanti et al. 2022, figures 1 and 7."""
    activations, blocks, stages, lines = [], [], [], []
    for row in load_published("korthikanti-2022-memory").rows:
        software = find_software(row.software)
        cells = []
        whole = 0.0
        for recompute, sequence_parallel, column in COLUMNS:
            changed = row.model_copy(update={"recompute": recompute, "sequence_parallel": sequence_parallel})
            first = megatron_memory.estimate(changed.config, row.gpus, software)[0]
            gib = first.activations / 2**30
            whole = whole or gib
            found = gib if column == "activations_gib" else 100 * gib / whole
            measured = getattr(row, column)
            activations.append(found / measured - 1)
            cells.append(f"{measured} / {found:.2f}")
        numbers = parameters.by_room(row.config.model)["layer"] * row.layers / (row.tp * row.pp)
        of_blocks, of_stage = software.state_bytes * numbers / 2**30, first.resting / 2**30
        blocks.append(of_blocks / row.state_gib - 1)
        stages.append(of_stage / row.state_gib - 1)
        lines.append((row.name, *cells, f"{row.state_gib} / {of_blocks:.2f} / {of_stage:.2f}"))
    return Memory(Errors(np.array(activations)), Errors(np.array(blocks)), Errors(np.array(stages)), lines)


@cache
def yuan(software: FrameworkProfile = MEGATRON_2020) -> Prediction:
    """Yuan 1.0 as it was trained: 8 x 38 x 7 on 2,128 A100. Its nodes are not described: here they are Selene's.

    Nor is it said whether its kernels were fused. Without them is the default, because that is nearer to what was
    published.
    """
    return predict(load_config("yuan-245b"), YUAN_GPUS, load_cluster("selene-a100-80"), software)


def bubble(stages: int, micro_batches: int) -> float:
    """Of 1F1B with equal stages, simulated: time lost over time worked."""
    lists = actions("1f1b", stages, 1, micro_batches)
    seconds = {"F": 1.0, "B": 2.0}
    return simulate(lists, stage_ranks("1f1b", stages, 1), lambda action: seconds[action.kind]).bubble


def frontier() -> tuple[float, Scored]:
    """The cluster's share of peak that fits Frontier's three percentages best, and the table with it."""
    table = load_published("frontier-2023")

    def at(share: float) -> Scored:
        efficiency = table.cluster.efficiency.model_copy(update={"products": share})
        cluster = table.cluster.model_copy(update={"efficiency": efficiency})
        return Scored(table, [row.predict(cluster) for row in table.rows])

    low, high = 0.1, 1.0
    for _ in range(12):  # more efficiency is more speed: the bias crosses zero once
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).errors.bias < 0 else (low, middle)
    return round(low, 3), at(round(low, 3))
