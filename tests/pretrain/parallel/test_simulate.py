"""The simulator: equal to the definition, and each schedule loses what its paper says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.config import ScheduleKind
from pretrain.parallel.base.simulate import Timeline, most_held, simulate
from pretrain.schedules import Action, actions, stage_ranks
from tests.pretrain.parallel.test_schedule import CHUNKS, shapes


def run(
    schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int, times: Sequence[int] = (1, 1, 1)
) -> Timeline:
    """Simulate stages that all take the times of F, I and W."""
    forward, inputs, weights = times
    seconds = {"F": forward, "B": inputs + weights, "I": inputs, "W": weights}
    lists = actions(schedule, num_ranks, chunks, num_micro_batches)
    return simulate(lists, stage_ranks(schedule, num_ranks, chunks), lambda action: seconds[action.kind])


def lost(timeline: Timeline) -> int:
    return int(timeline.total - timeline.ideal)


def spans(timeline: Timeline) -> dict[Action, tuple[float, float]]:
    """Start and end of each action."""
    each = zip(timeline.lists, timeline.starts, timeline.ends, strict=True)
    return {action: (start, end) for own in each for action, start, end in zip(*own, strict=True)}


def in_flight(timeline: Timeline) -> list[int]:
    """By stage the most micro-batches it holds at once."""
    stages = range(len(timeline.ranks))
    return [int(most_held(timeline.lists[timeline.ranks[one]], [other == one for other in stages])) for one in stages]


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("times", [(1, 1, 1), (2, 2, 1), (2, 3, 2), (10, 12, 8)])
def test_lost_time_is_what_the_table_says(schedule: ScheduleKind, times: tuple[int, int, int]) -> None:
    """In times of a stage, of which a rank has v, so that the table's divisions by v disappear."""
    forward, inputs, weights = times
    for p, v, m in shapes(schedule):
        if schedule == "zero-bubble":
            each = forward + inputs - weights
        else:
            each = inputs if schedule == "zbv" else forward + inputs + weights
        fills = 1 if schedule in ("gpipe", "1f1b") else 2 * p - 1 if schedule == "zbv" else p
        if m >= fills:
            assert lost(run(schedule, p, v, m, times)) == (p - 1) * each, (p, v, m)


@given(
    st.sampled_from(list(CHUNKS)),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_equal_to_the_definition(schedule: ScheduleKind, p: int, m: int, send_seconds: int, chance: Random) -> None:
    """Each start is the later one of two ends: of the action before it in its list, and of the one it waits for."""
    chunks = CHUNKS[schedule][-1]
    lists, ranks = actions(schedule, p, chunks, m), stage_ranks(schedule, p, chunks)
    seconds = {action: chance.randrange(5) for own in lists for action in own}
    rank_of = {action: rank for rank, own in enumerate(lists) for action in own}
    before = {b: a for own in lists for a, b in pairwise(own)}

    @cache
    def end(action: Action) -> int:
        kind, stage, micro_batch = action
        needed = []
        if kind == "F":
            needed = [Action("F", stage - 1, micro_batch)]
        elif kind != "W":
            needed = [Action(kind, stage + 1, micro_batch) for kind in "BI"]  # type: ignore[arg-type]
        starts = [end(before[action])] if action in before else [0]
        for other in needed:
            if other in seconds:
                starts.append(end(other) + send_seconds * (rank_of[other] != rank_of[action]))
        return max(starts) + seconds[action]

    timeline = simulate(lists, ranks, seconds.__getitem__, send_seconds)
    assert spans(timeline) == {action: (end(action) - seconds[action], end(action)) for action in seconds}
    assert timeline.total == max(map(end, seconds))
    assert timeline.ideal == max(sum(seconds[action] for action in own) for own in lists)


def test_ranks_that_wait_for_each_other_are_named() -> None:
    first = [Action("F", 0, 0), Action("B", 0, 0), Action("F", 0, 1), Action("B", 0, 1)]
    second = [Action("F", 1, 0), Action("F", 1, 1), Action("B", 1, 0), Action("B", 1, 1)]
    with pytest.raises(ValueError, match=r"rank [01], place 1: Action.* waits for what never comes"):
        simulate([first, second], [0, 1], lambda _: 1)
