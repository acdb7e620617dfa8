"""What a planner asks of thousands of pipelines: their stages, once for each cut, and what a rank holds.

`most_held` counts what `parallel.base.simulate.most_held` finds in the lists of `pretrain.schedules`, where it can from
how these are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pretrain.config import ModelConfig, ScheduleKind
from pretrain.parallel.base import simulate
from pretrain.parallel.base.stages import Stage, cut
from pretrain.schedules import DEFAULT, SCHEDULES, Place, actions, micro_batch_groups, stage_ranks


@lru_cache(maxsize=4096)
def stages_of(
    model: ModelConfig, num_stages: int, layers_per_stage: tuple[int, ...] | None = None
) -> tuple[Stage, ...]:
    """The stages of `parallel.base.stages.cut`."""
    return tuple(cut(model, num_stages, layers_per_stage))


@lru_cache(maxsize=4096)
def own_stages(schedule: ScheduleKind, pp: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """By rank of a pipeline the stages on it, in the order of the model."""
    own: list[list[int]] = [[] for _ in range(pp)]
    for stage, rank in enumerate(stage_ranks(schedule, pp, chunks)):
        own[rank].append(stage)
    return tuple(tuple(stages) for stages in own)


def num_recomputed(stage: Stage, every: int) -> int:
    """Layers of a stage that are computed again, of every `every` layers of the model one."""
    return -(-stage.layers.stop // every) - -(-stage.layers.start // every)


def most_held(
    schedule: ScheduleKind, pp: int, chunks: int, num_micro_batches: int, rank: int, sizes: Sequence[float]
) -> float:
    """The most that a rank of a pipeline holds at once, if a micro-batch of its i-th stage takes `sizes[i]`.

    >>> most_held("1f1b", pp=4, chunks=1, num_micro_batches=8, rank=0, sizes=[10])
    40
    """
    at = Place(rank, pp, chunks, num_micro_batches)
    spec = SCHEDULES[schedule if pp > 1 else DEFAULT]
    if spec.held is not None:
        return spec.held(at, sizes)
    if spec.turns is None:
        of_stage = dict(zip(own_stages(schedule, pp, chunks)[rank], sizes, strict=True))
        return simulate.most_held(
            actions(schedule, pp, chunks, num_micro_batches)[rank],
            [of_stage.get(stage, 0) for stage in range(pp * chunks)],
        )
    ahead = max(spec.turns(at).values())  # forwards before the first activations are freed
    if min(sizes) == max(sizes):
        return min(ahead + 1, chunks * num_micro_batches) * sizes[0]
    order, until = _chunk_order(pp, chunks, num_micro_batches), None
    groups = micro_batch_groups(pp, num_micro_batches)
    if groups[0] == groups[-1]:  # then it repeats itself after one group
        until = ahead + groups[0] * chunks
    own = np.asarray(sizes)
    taken = np.cumsum(own[order[:until]])
    freed = np.cumsum(own[chunks - 1 - order[:until]])
    held = taken.copy()
    held[ahead + 1 :] -= freed[: max(0, len(freed) - ahead - 1)]
    return held.max().item()  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _chunk_order(pp: int, chunks: int, num_micro_batches: int) -> NDArray[np.intp]:
    """The chunk of each forward of a rank: each group of micro-batches goes through all of them."""
    groups = micro_batch_groups(pp, num_micro_batches)
    return np.concatenate([np.repeat(np.arange(chunks), group) for group in groups])
