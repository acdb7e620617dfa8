"""How long a pipeline takes beside the work of its busiest rank: its own lists simulated, or closed forms.

Closed forms are those of `parallel.schedule`, for stages that need not be equal: of p ranks with v stages on each, for m
micro-batches, where a sum is over all stages and a maximum that of the busiest rank.

| schedule | lost a step | messages on the way of the last micro-batch, where a rank computes while it sends |
|---|---|---|
| gpipe | sum (F + B) - max (F + B) | 2 (p - 1) |
| 1f1b | the same; less where the busiest rank is not the last one (`_lost_by_turns`) | 2 (p - 1) m / p + 2 (p - 2): no forward is held in reserve, so that each turn waits for its messages |
| interleaved | the same / v | 2 (p v - 1) |
| zero-bubble | (sum (F + I - W) - max (F + I - W)) / v | 4 (p - 1); with v > 1 2 (p v - 1) + p - 2 |
| zbv | (sum I - max I) / 2 | 5 (p - 1) - 2 |

The numbers of messages are those that the simulation of equal stages finds. A long step is simulated in part: once full, a
pipeline repeats itself every p micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pretrain.config import ScheduleKind
from pretrain.parallel.schedule import Action, actions
from pretrain.parallel.simulate import simulate

FULL = 4  # times as many micro-batches as ranks after which a pipeline repeats itself


class Times(NamedTuple):
    """Seconds of one stage: of each micro-batch, and what the step's first forward and last backward take more."""

    forward: float
    inputs: float
    weights: float
    first: float = 0.0
    last: float = 0.0

    @property
    def each(self) -> float:
        """Of one micro-batch."""
        return self.forward + self.inputs + self.weights


class Lost(NamedTuple):
    """Seconds of a step in which the busiest rank waits: for other stages, for what they send, and for the ends of their steps."""

    bubble: float
    messages: float = 0.0
    ends: float = 0.0  # for what other stages do before their first forward and after their last backward

    @property
    def total(self) -> float:
        """All of it."""
        return self.bubble + self.messages + self.ends

    def within(self, waited: float) -> Lost:
        """The same parts of what a rank really waits, messages as they are."""
        messages = min(self.messages, waited)
        share = (waited - messages) / (self.bubble + self.ends) if self.bubble + self.ends else 0.0
        return Lost(self.bubble * share, messages, self.ends * share)


def simulated(schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], num: int, send: float) -> float:
    """Seconds until all of `num` micro-batches are through, by the schedule's own lists."""
    num_ranks = max(owners) + 1
    period, full = num_ranks, FULL * num_ranks
    if num < full + 2 * period:
        return _simulated(schedule, stages, owners, num, send)
    begun = full + num % period
    short, longer = (_simulated(schedule, stages, owners, some, send) for some in (begun, begun + period))
    most = max(_own(stages, owners))
    return short + (num - begun) // period * max(longer - short, period * most)


def closed(
    schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], num_micro_batches: int, send: float
) -> Lost:
    """What the busiest rank loses in a step, by the table above."""
    num_ranks = max(owners) + 1
    chunks = len(stages) // num_ranks
    if num_ranks == 1:
        return Lost(0.0)
    messages = send * _messages(schedule, num_ranks, chunks, num_micro_batches)
    own = _own(stages, owners)
    busiest = own.index(max(own))
    if schedule == "1f1b":
        return _lost_by_turns(stages, busiest, messages)
    # the first micro-batch meets what all stages do once a step, and so does the last one on its way back
    ends = sum(stage.first for stage, rank in zip(stages, owners, strict=True) if rank != busiest)
    if schedule not in ("zero-bubble", "zbv"):  # there the last W is not on anybody's way
        ends += sum(stage.last for stage, rank in zip(stages, owners, strict=True) if rank != busiest)
    if schedule == "zbv":
        costs = [stage.inputs for stage in stages]
    elif schedule == "zero-bubble":
        costs = [stage.forward + stage.inputs - stage.weights for stage in stages]
    else:
        return Lost((sum(own) - own[busiest]) / chunks, messages, ends)
    lost = sum(cost for cost, rank in zip(costs, owners, strict=True) if rank != busiest) / chunks
    return Lost(max(0.0, lost), messages, ends)


def _lost_by_turns(stages: Sequence[Times], busiest: int, messages: float) -> Lost:
    """Of 1f1b: the way to the busiest rank and back, and beyond it as far as its first forwards, or last backwards, last less."""
    slow, num_after = stages[busiest], len(stages) - 1 - busiest
    before, after = stages[:busiest], stages[busiest + 1 :]
    beyond = sum(stage.each for stage in after)
    at_first = beyond - num_after * slow.forward
    at_last = beyond - num_after * (slow.inputs + slow.weights)
    bubble = sum(stage.each for stage in before) + max(0.0, at_first) + max(0.0, at_last)
    ends = sum(stage.first + stage.last for stage in before)
    ends += max(0.0, sum(stage.first for stage in after) + min(0.0, at_first))
    ends += max(0.0, sum(stage.last for stage in after) + min(0.0, at_last))
    return Lost(bubble, messages, ends)


def _messages(schedule: ScheduleKind, ranks: int, chunks: int, num_micro_batches: int) -> float:
    if schedule == "1f1b":
        return 2 * (ranks - 1) * num_micro_batches / ranks + 2 * (ranks - 2)
    if schedule == "zbv":
        return 5 * (ranks - 1) - 2
    if schedule == "zero-bubble":
        return 4 * (ranks - 1) if chunks == 1 else 2 * (ranks * chunks - 1) + ranks - 2
    return 2 * (ranks * chunks - 1)


def _own(stages: Sequence[Times], owners: Sequence[int]) -> list[float]:
    """Of each rank, seconds of a micro-batch in its stages."""
    own = [0.0] * (max(owners) + 1)
    for stage, rank in zip(stages, owners, strict=True):
        own[rank] += stage.each
    return own


def _simulated(schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], num: int, send: float) -> float:
    durations = [
        {"F": stage.forward, "I": stage.inputs, "W": stage.weights, "B": stage.inputs + stage.weights}
        for stage in stages
    ]

    def of_action(action: Action) -> float:
        kind, stage, micro_batch = action
        seconds = durations[stage][kind]
        if micro_batch == 0 and kind == "F":
            seconds += stages[stage].first
        if micro_batch == num - 1 and kind in "BW":
            seconds += stages[stage].last
        return seconds

    num_ranks = max(owners) + 1
    return simulate(_lists(schedule, num_ranks, len(stages) // num_ranks, num), owners, of_action, send).total


@lru_cache(maxsize=8)
def _lists(schedule: ScheduleKind, num_ranks: int, chunks: int, num: int) -> list[list[Action]]:
    return actions(schedule, num_ranks, chunks, num)
