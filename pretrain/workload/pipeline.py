"""What a planner asks of thousands of pipelines: their stages, once for each cut, and what a rank holds, without its
list.

`most_held` counts what `parallel.base.simulate.most_held` finds in the lists of `parallel.base.schedule`, from how
these are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pretrain.config import ModelConfig, ScheduleKind
from pretrain.parallel.base.schedule import micro_batch_groups, stage_ranks
from pretrain.parallel.base.stages import Stage, cut


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


def most_held(
    schedule: ScheduleKind, pp: int, chunks: int, num_micro_batches: int, rank: int, sizes: Sequence[float]
) -> float:
    """The most that a rank of a pipeline holds at once, if a micro-batch of its i-th stage takes `sizes[i]`.

    >>> most_held("1f1b", pp=4, chunks=1, num_micro_batches=8, rank=0, sizes=[10])
    40
    """
    if pp * chunks == 1 or schedule == "1f1b":
        return min(pp - rank, num_micro_batches) * sizes[0]
    if schedule == "gpipe":
        return num_micro_batches * sizes[0]
    if schedule == "zbv":
        return _held_by_v(pp, num_micro_batches, rank, *sizes)
    groups = micro_batch_groups(pp, num_micro_batches)
    ahead = (chunks - 1) * groups[0] + pp - 1  # forwards before the first activations are freed
    ahead += pp - 1 - 2 * rank if schedule == "interleaved" else 0
    if min(sizes) == max(sizes):
        return min(ahead + 1, chunks * num_micro_batches) * sizes[0]
    order, until = _chunk_order(pp, chunks, num_micro_batches), None
    if groups[0] == groups[-1]:  # then it repeats itself after one group
        until = ahead + groups[0] * chunks
    own = np.asarray(sizes)
    taken = np.cumsum(own[order[:until]])
    freed = np.cumsum(own[chunks - 1 - order[:until]])
    held = taken.copy()
    held[ahead + 1 :] -= freed[: max(0, len(freed) - ahead - 1)]
    return held.max().item()  # type: ignore[no-any-return]


def _held_by_v(pp: int, num_micro_batches: int, rank: int, down: float, up: float) -> float:
    """ZB-V: full when the first gradient is here, or one forward of the way down later (`schedule._zero_bubble_v`)."""
    after = pp - 1 - rank
    most = num_micro_batches
    held_down, held_up = 2 * after + 1 + rank, rank + 1
    at_first = min(held_down, most) * down + min(held_up, most) * up
    if max(most, 2 * pp - 1) == held_down:  # there is no later one
        return at_first
    later_up = min(rank + after + 1, most) - min(after + 1, most)
    return max(at_first, min(held_down + 1, most) * down + later_up * up)


@lru_cache(maxsize=1024)
def _chunk_order(pp: int, chunks: int, num_micro_batches: int) -> NDArray[np.intp]:
    """The chunk of each forward of a rank: each group of micro-batches goes through all of them."""
    groups = micro_batch_groups(pp, num_micro_batches)
    return np.concatenate([np.repeat(np.arange(chunks), group) for group in groups])
