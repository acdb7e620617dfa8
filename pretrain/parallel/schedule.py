"""Pipeline schedules as data: for each rank the list of what it computes, in order."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pretrain.config import ScheduleKind

Kind = Literal["F", "B", "I", "W"]  # forward; backward; backward of the inputs alone; of the weights alone


class Action(NamedTuple):
    """One computation of one stage on one micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int


def stage_ranks(schedule: ScheduleKind, num_ranks: int, chunks: int) -> list[int]:
    """The pipeline rank of each stage: in loops 0, 1, ..., 0, 1, ...; for zbv there and back 0, 1, 1, 0."""
    if schedule == "zbv":
        return [*range(num_ranks), *reversed(range(num_ranks))]
    return list(range(num_ranks)) * chunks


def actions(schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int) -> list[list[Action]]:
    """For each rank of a pipeline what it computes in a step, in order."""
    raise NotImplementedError
