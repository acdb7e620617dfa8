"""Closed forms of a pipeline's time against the simulation of its lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.config import ScheduleKind
from pretrain.parallel.schedule import stage_ranks
from pretrain.plan.time import pipeline_time
from pretrain.plan.time.pipeline_time import Lost, Times, closed, simulated

CHUNKS: list[tuple[ScheduleKind, int]] = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved", 2),
    ("interleaved", 3),
    ("zero-bubble", 1),
    ("zero-bubble", 2),
    ("zbv", 2),
]
EQUAL = Times(1.0, 1.0, 1.0)
TOLERANCE = {
    "1f1b": 0.05,
    "gpipe": 0.06,
    "interleaved": 0.16,
}  # of closed forms, where stages differ by up to a factor of two


def total(times: Times, number: int) -> float:
    return times.each * number


@pytest.mark.parametrize("ranks, micro_batches", [(2, 6), (4, 8), (4, 32), (7, 21)])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_bubble_of_narayanan_2021(ranks: int, micro_batches: int, chunks: int) -> None:
    schedule: ScheduleKind = "1f1b" if chunks == 1 else "interleaved"
    stages, owners = [EQUAL] * (ranks * chunks), stage_ranks(schedule, ranks, chunks)
    work = micro_batches * chunks * EQUAL.each
    lost = closed(schedule, stages, owners, micro_batches, send=0)
    assert lost.messages == 0
    assert lost.bubble / work == pytest.approx((ranks - 1) / micro_batches / chunks)
    assert simulated(schedule, stages, owners, micro_batches, 0) == pytest.approx(work + lost.bubble)


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from(CHUNKS),
    ranks=st.integers(2, 5),
    groups=st.integers(2, 5),
    forward=st.floats(0.5, 1.0),
    inputs=st.floats(1.0, 1.5),
)
def test_closed_forms_are_those_of_the_lists(
    which: tuple[ScheduleKind, int], ranks: int, groups: int, forward: float, inputs: float
) -> None:
    schedule, chunks = which
    stages = [Times(forward, inputs, min(forward, 0.8))] * (ranks * chunks)  # W <= F <= I <= 2 W, as the table says
    owners, micro_batches = stage_ranks(schedule, ranks, chunks), ranks * groups
    work = micro_batches * chunks * stages[0].each
    found = work + closed(schedule, stages, owners, micro_batches, send=0).total
    assert simulated(schedule, stages, owners, micro_batches, 0) == pytest.approx(
        found, rel=1e-6 if schedule != "zbv" else 0.01
    )


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from(CHUNKS),
    ranks=st.sampled_from([2, 4, 6]),
    groups=st.integers(2, 6),
    send=st.floats(0.001, 0.1),
)
def test_messages_are_those_of_the_lists(which: tuple[ScheduleKind, int], ranks: int, groups: int, send: float) -> None:
    schedule, chunks = which
    stages, owners, micro_batches = [EQUAL] * (ranks * chunks), stage_ranks(schedule, ranks, chunks), ranks * groups
    waited = simulated(schedule, stages, owners, micro_batches, send) - simulated(
        schedule, stages, owners, micro_batches, 0
    )
    assert waited == pytest.approx(closed(schedule, stages, owners, micro_batches, send).messages, rel=0.1)


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2)]),
    costs=st.lists(st.floats(1.0, 2.0), min_size=4, max_size=4),
    first=st.floats(0.0, 0.5),
    last=st.floats(0.0, 0.5),
)
def test_stages_need_not_be_equal(
    which: tuple[ScheduleKind, int], costs: list[float], first: float, last: float
) -> None:
    schedule, chunks = which
    ranks = len(costs) // chunks
    stages = [Times(cost, cost, cost, first, last) for cost in costs]
    owners, micro_batches = stage_ranks(schedule, ranks, chunks), 8
    own = [
        sum(
            total(stage, micro_batches) + first + last
            for stage, owner in zip(stages, owners, strict=True)
            if owner == rank
        )
        for rank in range(ranks)
    ]
    found = max(own) + closed(schedule, stages, owners, micro_batches, send=0).total
    assert found == pytest.approx(simulated(schedule, stages, owners, micro_batches, 0), rel=TOLERANCE[schedule])


@pytest.mark.parametrize("schedule, chunks", CHUNKS)
@pytest.mark.parametrize("extra", [0, 1])
def test_long_steps_are_simulated_in_part(schedule: ScheduleKind, chunks: int, extra: int) -> None:
    ranks, micro_batches = 3, 39 + extra
    stages = [Times(1.0 + 0.1 * (index == 1), 1.2, 0.9, 0.3, 0.2) for index in range(ranks * chunks)]
    owners = stage_ranks(schedule, ranks, chunks)
    whole = pipeline_time._simulated(schedule, stages, owners, micro_batches, 0.05)
    assert simulated(schedule, stages, owners, micro_batches, 0.05) == pytest.approx(
        whole, rel=0.01 if schedule == "interleaved" else 1e-9
    )


def test_one_rank_loses_nothing() -> None:
    assert closed("1f1b", [EQUAL], [0], 4, send=1.0).total == 0


def test_waiting_is_shared_as_the_closed_forms_say() -> None:
    assert Lost(2.0, 1.0, 2.0).within(9.0) == (4.0, 1.0, 4.0)
    assert Lost(2.0, 1.0, 2.0).within(0.5) == (0.0, 0.5, 0.0)
    assert Lost(0.0).within(0.0).total == 0
