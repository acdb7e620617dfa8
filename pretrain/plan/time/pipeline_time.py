"""How long a pipeline takes beside the work of its busiest rank: its own lists simulated, or closed forms.

Closed forms are those of `pretrain.schedules`, for stages that need not be equal: of p ranks with v stages on each,
for m micro-batches, where a sum is over all stages and a maximum that of the busiest rank.

| schedule | lost a step | messages on the way of the last micro-batch, where a rank computes while it sends |
|---|---|---|
| gpipe | sum (F + B) - max (F + B) | 2 (p - 1) |
| 1f1b | the same; less where the busiest rank is not the last one (`_lost_by_turns`) | 2 (p - 1) m / p + 2 (p - 2) |
| interleaved | the same / v | 2 (p v - 1) |
| zero-bubble | (sum (F + I - W) - max (F + I - W)) / v | 4 (p - 1); with v > 1 2 (p v - 1) + p - 2 |
| zbv | (sum I - max I) / 2 | 5 (p - 1) - 2 |

Under 1f1b no forward is held in reserve: each turn waits for its messages. The entries of `SCHEDULES` have both.
A long step is simulated in part: once full, a pipeline repeats itself every p micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pretrain.config import ScheduleKind
from pretrain.parallel.base.simulate import Timeline, simulate
from pretrain.schedules import SCHEDULES, Action, actions

FULL = 4  # times as many micro-batches as ranks after which a pipeline repeats itself


class Times(NamedTuple):
    """Seconds of one stage: of each micro-batch, and what it does for data parallelism once a step
    (`parallel.engine.pipeline`).

    Before the step's first forward, all stages at once; after the last backward, when its gradient is on the way to the
    stage before. Neither keeps another stage waiting, but for the first stage's first and where a gather outlasts the
    way of the first micro-batch.
    """

    forward: float
    inputs: float
    weights: float
    first: float = 0.0
    last: float = 0.0

    @property
    def each(self) -> float:
        """Of one micro-batch."""
        return self.forward + self.inputs + self.weights

    @property
    def once(self) -> float:
        """Of a step."""
        return self.first + self.last


class Lost(NamedTuple):
    """Seconds of a step beside the busiest rank's own work (`StepTime.ranks`): what it waits for."""

    bubble: float
    messages: float = 0.0
    ends: float = 0.0  # what `Times.first` and `Times.last` add to the step, as far as nobody computes meanwhile

    @property
    def total(self) -> float:
        """All of it."""
        return self.bubble + self.messages + self.ends

    def within(self, waited: float) -> Lost:
        """The same parts of what a rank really waits, messages as they are."""
        messages = min(self.messages, waited)
        share = (waited - messages) / (self.bubble + self.ends) if self.bubble + self.ends else 0.0
        return Lost(self.bubble * share, messages, self.ends * share)


def simulate_seconds(
    schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], num: int, send: float
) -> float:
    """Seconds until all of `num` micro-batches are through, by the schedule's own lists."""
    num_ranks = max(owners) + 1
    first, *rest = _simulations(num_ranks, num)
    short = timeline(schedule, stages, owners, first, send).total
    if not rest:
        return short
    longer = timeline(schedule, stages, owners, rest[0], send).total
    most = max(own_seconds(stages, owners))
    return short + (num - first) // num_ranks * max(longer - short, num_ranks * most)


def _simulations(num_ranks: int, num: int) -> tuple[int, ...]:
    """Micro-batches of the runs that `simulate_seconds` makes: all of them; or of a full pipeline, and of one period
    more."""
    if num < (FULL + 2) * num_ranks:
        return (num,)
    begun = FULL * num_ranks + num % num_ranks
    return begun, begun + num_ranks


def num_actions(schedule: ScheduleKind, num_ranks: int, chunks: int, num: int) -> int:
    """That `simulate_seconds` goes through, of stages that are `chunks` on each of a pipeline's ranks; none without
    one."""
    kinds = 3 if SCHEDULES[schedule].splits_backward else 2
    return kinds * num_ranks * chunks * sum(_simulations(num_ranks, num)) if num_ranks > 1 else 0


def closed_form_loss(
    schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], num_micro_batches: int, send: float
) -> Lost:
    """What the busiest rank loses in a step, by the table above; simulated where a schedule has no closed form."""
    num_ranks = max(owners) + 1
    chunks = len(stages) // num_ranks
    if num_ranks == 1:
        return Lost(0.0)
    form = SCHEDULES[schedule].closed
    own = own_seconds(stages, owners)
    busiest = own.index(max(own))
    if form is None:
        work = num_micro_batches * own[busiest] + (stages[0].once if busiest == owners[0] else 0.0)
        return Lost(max(0.0, simulate_seconds(schedule, stages, owners, num_micro_batches, send) - work))
    messages = send * form.messages(num_ranks, chunks, num_micro_batches)
    firsts = gathering(stages, send)
    if busiest == owners[0]:
        firsts[0] = 0.0  # its own work
    ends = _at_the_end(schedule, stages, owners, busiest)
    if form.waits_each_turn:
        return _lost_by_turns(stages, firsts, busiest, messages, ends)
    others = (stage for stage, rank in zip(stages, owners, strict=True) if rank != busiest)
    lost = sum(form.lost(stage.forward, stage.inputs, stage.weights) for stage in others) / chunks
    return Lost(max(0.0, lost), messages, ends + sum(firsts))


def gathering(stages: Sequence[Times], send: float) -> list[float]:
    """By stage, how much later its first forward begins because of what it gathers: all begin to at the start of the
    step.

    >>> gathering([Times(1, 1, 1, first) for first in (0.5, 0.5, 4.0)], send=0.25)
    [0.5, 0.0, 1.0]
    """
    found, arrival = [], 0.0
    for stage in stages:
        waits = max(0.0, stage.first - arrival)
        found.append(waits)
        arrival += waits + stage.forward + send
    return found


def _at_the_end(schedule: ScheduleKind, stages: Sequence[Times], owners: Sequence[int], busiest: int) -> float:
    """By how much reductions after the last backwards make a step longer, but for what `StepTime.ranks` has of them."""
    own, num_ranks = stages[0].last if busiest == owners[0] else 0.0, max(owners) + 1
    if SCHEDULES[schedule].splits_backward:  # all ranks end with their last W, at about the same time
        of_ranks = [0.0] * num_ranks
        for stage, rank in zip(stages, owners, strict=True):
            of_ranks[rank] += stage.last
        return max(of_ranks) - own
    on_its_way = sum(stages[index].last for index in range(num_ranks + busiest, len(stages), num_ranks))
    latest = draining = 0.0
    for stage in stages:  # a stage has its last gradient before those before it, which begin then
        latest = max(latest, stage.last - draining)
        draining += stage.inputs + stage.weights
    return on_its_way + latest - own


def _lost_by_turns(
    stages: Sequence[Times], firsts: Sequence[float], busiest: int, messages: float, ends: float
) -> Lost:
    """Of 1f1b: the way to the busiest rank and back, and beyond it as far as its first forwards, or last backwards,
    last less."""
    slow, num_after = stages[busiest], len(stages) - 1 - busiest
    before, after = stages[:busiest], stages[busiest + 1 :]
    beyond = sum(stage.each for stage in after)
    at_first = beyond - num_after * slow.forward
    at_last = beyond - num_after * (slow.inputs + slow.weights)
    bubble = sum(stage.each for stage in before) + max(0.0, at_first) + max(0.0, at_last)
    ends += sum(firsts[: busiest + 1]) + max(0.0, sum(firsts[busiest + 1 :]) + min(0.0, at_first))
    return Lost(bubble, messages, ends)


def own_seconds(stages: Sequence[Times], owners: Sequence[int]) -> list[float]:
    """Of each rank, seconds of a micro-batch in its stages."""
    own = [0.0] * (max(owners) + 1)
    for stage, rank in zip(stages, owners, strict=True):
        own[rank] += stage.each
    return own


def timeline(schedule: str, stages: Sequence[Times], owners: Sequence[int], num: int, send: float) -> Timeline:
    """All actions of a step of `num` micro-batches, by the schedule's own lists."""
    durations = [
        {"F": stage.forward, "I": stage.inputs, "W": stage.weights, "B": stage.inputs + stage.weights}
        for stage in stages
    ]
    firsts = gathering(stages, send)

    def of_action(action: Action) -> float:
        kind, stage, micro_batch = action
        seconds = durations[stage][kind]
        return seconds + firsts[stage] if micro_batch == 0 and kind == "F" else seconds

    def after(action: Action) -> float:
        kind, stage, micro_batch = action
        return stages[stage].last if micro_batch == num - 1 and kind in "BW" else 0.0

    num_ranks = max(owners) + 1
    return simulate(_lists(schedule, num_ranks, len(stages) // num_ranks, num), owners, of_action, send, after)


@lru_cache(maxsize=8)
def _lists(schedule: ScheduleKind, num_ranks: int, chunks: int, num: int) -> list[list[Action]]:
    return actions(schedule, num_ranks, chunks, num)
