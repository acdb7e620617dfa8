"""Pipeline schedules as data: for each rank the list of what it computes, in order.

A micro-batch goes through all stages forward (F), then through all of them backward (B). The zero-bubble schedules cut
a backward in two: the gradient of the inputs (I), for which the stage before waits, and that of the weights (W), which
can wait until there is nothing better to do. Who sends what to whom follows from the lists: F needs the F of the stage
before, B and I that of the stage after. Executor, simulator and planner read the same lists.

Of p ranks with v stages on each, for m >= p micro-batches (zbv: 2 p - 1), where F, I, W and B = I + W are a rank's
times for all of its stages, and W <= F <= I <= 2 W: attention, which has no weights, takes up to half as long as the
matrix products that have.

| schedule | time a step loses | times that a rank holds a stage's activations | |
|---|---|---|---|
| gpipe | (p - 1)(F + B) | m | Huang et al., 2019 |
| 1f1b | (p - 1)(F + B) | p - rank | Narayanan et al., 2019 |
| interleaved | (p - 1)(F + B) / v | (v - 1) p + 2 (p - rank) - 1 | Narayanan et al., 2021 |
| zero-bubble | (p - 1)(F + I - W) / v | v p | ZB-H1 of Qi et al., 2024 |
| zbv | (p - 1) I / 2 | 2 p | ZB-V of Qi et al., 2024 |

Interleaved and zero-bubble hold a few more where v > 1 and p does not divide m.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Literal, NamedTuple

from pretrain.config import ScheduleKind

Kind = Literal["F", "B", "I", "W"]  # forward; backward; backward of the inputs alone; of the weights alone
Step = tuple[Kind, int]  # an action but for its micro-batch: kind and stage


class Action(NamedTuple):
    """One computation of one stage on one micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int


def stage_ranks(schedule: ScheduleKind, num_ranks: int, chunks: int) -> list[int]:
    """The pipeline rank of each stage: in loops 0, 1, ..., 0, 1, ...; for zbv there and back 0, 1, 1, 0."""
    if schedule == "zbv" and chunks == 2:
        return [*range(num_ranks), *reversed(range(num_ranks))]
    return list(range(num_ranks)) * chunks


def actions(schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int) -> list[list[Action]]:
    """For each rank of a pipeline what it computes in a step, in order; any number of micro-batches will do.

    >>> for own in actions("1f1b", num_ranks=3, chunks=1, num_micro_batches=4):
    ...     print(*(f"{action.kind}{action.micro_batch}" for action in own))
    F0 F1 F2 B0 F3 B1 B2 B3
    F0 F1 B0 F2 B1 F3 B2 B3
    F0 B0 F1 B1 F2 B2 F3 B3

    Raises:
        ValueError: the schedule does not run that many chunks (stages on each rank).
    """
    if num_ranks * chunks == 1:
        schedule = "1f1b"
    if chunks != {"gpipe": 1, "1f1b": 1, "zbv": 2}.get(schedule, chunks):
        raise ValueError(f"schedule {schedule} does not run {chunks} stages on each rank")
    ranks = range(num_ranks)
    if schedule == "gpipe":
        return [_gpipe(rank, num_micro_batches) for rank in ranks]
    if schedule == "1f1b":
        return [_one_forward_one_backward(rank, num_ranks, num_micro_batches) for rank in ranks]
    if schedule == "interleaved":
        return [_interleaved(rank, num_ranks, chunks, num_micro_batches) for rank in ranks]
    if schedule == "zero-bubble":
        return [_zero_bubble(rank, num_ranks, chunks, num_micro_batches) for rank in ranks]
    return [_zero_bubble_v(rank, num_ranks, num_micro_batches) for rank in ranks]


def _gpipe(rank: int, num_micro_batches: int) -> list[Action]:
    """All forwards, then all backwards: every micro-batch is held at once."""
    order: list[Step] = [("F", rank)] * num_micro_batches
    order += [("B", rank)] * num_micro_batches
    return _numbered(order)


def _one_forward_one_backward(rank: int, num_ranks: int, num_micro_batches: int) -> list[Action]:
    """A forward for each rank after this one, then forward and backward in turn: what arrives first is freed first."""
    warmup = min(num_ranks - 1 - rank, num_micro_batches)
    order: list[Step] = [("F", rank)] * warmup
    order += [("F", rank), ("B", rank)] * (num_micro_batches - warmup)
    order += [("B", rank)] * warmup
    return _numbered(order)


def _interleaved(rank: int, num_ranks: int, chunks: int, num_micro_batches: int) -> list[Action]:
    """1F1B over several short stages on each rank, so that filling and draining the pipeline take less time.

    Before its first backward a rank runs its first group through all chunks but the last, and of the last one as many
    micro-batches as go from there to the last rank and back: two for each rank in between.
    """
    groups = micro_batch_groups(num_ranks, num_micro_batches)
    forwards, backwards = _chunk_order(rank, num_ranks, chunks, groups)
    warmup = (chunks - 1) * groups[0] + 2 * (num_ranks - 1 - rank)
    return _in_turn(len(forwards), ("F", forwards, 0), ("B", backwards, warmup))


def _zero_bubble(rank: int, num_ranks: int, chunks: int, num_micro_batches: int) -> list[Action]:
    """1F1B in which only I is done in haste, and each rank does W as many micro-batches later as its number (ZB-H1).

    With no W on their way gradients come back earlier: one forward for each rank in between is enough. The W that are
    left over fill the time in which a rank would wait for its last gradients. Each rank holds as many micro-batches as
    the first one does under 1F1B.
    """
    groups = micro_batch_groups(num_ranks, num_micro_batches)
    forwards, backwards = _chunk_order(rank, num_ranks, chunks, groups)
    warmup = (chunks - 1) * groups[0] + num_ranks - 1 - rank
    return _in_turn(len(forwards), ("F", forwards, 0), ("I", backwards, warmup), ("W", backwards, warmup + rank))


def _zero_bubble_v(rank: int, num_ranks: int, num_micro_batches: int) -> list[Action]:
    """Two stages on each rank, down the ranks and back up, so that the first rank also has the last stage (ZB-V).

    Written for at least as many micro-batches as fill the pipeline; those too many are taken out again, which the
    others do not notice. The order is the best one where F, I and W take equal time.
    """
    down, up = rank, 2 * num_ranks - 1 - rank
    num_after = num_ranks - 1 - rank
    num_written = max(num_micro_batches, 2 * num_ranks - 1)
    num_steady = num_written - (2 * num_after + 1 + rank)  # forwards of `down` that the warm-up leaves
    back_down: list[Step] = [("I", down), ("W", down)]
    back_up: list[Step] = [("I", up), ("W", up)]
    order: list[Step] = [("F", down)] * (2 * num_after + 1)  # until the first micro-batch is back from the last rank
    order += [("F", up), ("F", down)] * rank  # until its gradient is here
    order += [("F", up), *back_up] * (num_after + 1)  # until its gradient is back from the last rank
    order += [("F", down), *back_down, ("F", up), *back_up] * num_steady
    order += [*back_down, ("F", up), *back_up] * (num_written - num_ranks - num_steady)
    order += [("I", down), ("I", up)] * rank
    order += back_down * (num_after + 1)
    order += [("W", up)] * rank
    order += [("W", down)] * rank
    return [action for action in _numbered(order) if action.micro_batch < num_micro_batches]


def micro_batch_groups(num_ranks: int, num_micro_batches: int) -> list[int]:
    """Micro-batches go through all chunks in groups: of as many as ranks, or of a few more where they do not divide.

    A smaller group would leave ranks idle: its first micro-batch is back at the first rank after `num_ranks` forwards.
    The larger groups come first, as the first one decides how far the forwards run ahead.
    """
    num_groups = max(1, num_micro_batches // num_ranks)
    size, rest = divmod(num_micro_batches, num_groups)
    return [size + 1] * rest + [size] * (num_groups - rest)


def _chunk_order(rank: int, num_ranks: int, chunks: int, groups: Sequence[int]) -> tuple[list[int], list[int]]:
    """The stages of a rank in the order of its forwards and of its backwards: each group chunk by chunk."""
    stages = range(rank, num_ranks * chunks, num_ranks)
    forwards = [stage for group in groups for stage in stages for _ in range(group)]
    backwards = [stage for group in groups for stage in reversed(stages) for _ in range(group)]
    return forwards, backwards


def _in_turn(total: int, *tracks: tuple[Kind, Sequence[int], int]) -> list[Action]:
    """One of each track in turn: (kind, its `total` stages in order, the number of turns before the first of them)."""
    turns = range(total + max(delay for _, _, delay in tracks))
    return _numbered(
        (kind, stages[turn - delay]) for turn in turns for kind, stages, delay in tracks if 0 <= turn - delay < total
    )


def _numbered(order: Iterable[Step]) -> list[Action]:
    """Actions of these kinds and stages: each one is of the next micro-batch of its kind and stage."""
    counts: dict[Step, Iterator[int]] = defaultdict(count)
    return [Action(kind, stage, next(counts[kind, stage])) for kind, stage in order]
