"""Closed forms of a pipeline's time against the simulation of its lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.config import ScheduleKind
from pretrain.plan.time import pipeline_time
from pretrain.plan.time.pipeline_time import Lost, Times, closed_form_loss, simulate_seconds
from pretrain.schedules import stage_ranks

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
    lost = closed_form_loss(schedule, stages, owners, micro_batches, send=0)
    assert lost.messages == 0
    assert lost.bubble / work == pytest.approx((ranks - 1) / micro_batches / chunks)
    assert simulate_seconds(schedule, stages, owners, micro_batches, 0) == pytest.approx(work + lost.bubble)


@settings(max_examples=60, deadline=None)
@given(
    which=st.sampled_from(CHUNKS),
    ranks=st.integers(2, 5),
    groups=st.integers(2, 5),
    weights=st.floats(0.5, 1.0),
    shares=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_closed_forms_are_those_of_the_lists(
    which: tuple[ScheduleKind, int], ranks: int, groups: int, weights: float, shares: tuple[float, float]
) -> None:
    schedule, chunks = which
    forward = weights + shares[0] * (1.0 - weights)
    inputs = 1.0 + shares[1] * (2 * weights - 1.0)  # W <= F <= I <= 2 W, as the table says
    stages = [Times(forward, inputs, weights)] * (ranks * chunks)
    owners, micro_batches = stage_ranks(schedule, ranks, chunks), ranks * groups
    work = micro_batches * chunks * stages[0].each
    found = work + closed_form_loss(schedule, stages, owners, micro_batches, send=0).total
    assert simulate_seconds(schedule, stages, owners, micro_batches, 0) == pytest.approx(
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
    waited = simulate_seconds(schedule, stages, owners, micro_batches, send) - simulate_seconds(
        schedule, stages, owners, micro_batches, 0
    )
    assert waited == pytest.approx(closed_form_loss(schedule, stages, owners, micro_batches, send).messages, rel=0.1)


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2)]),
    costs=st.lists(st.floats(1.0, 2.0), min_size=4, max_size=4),
    firsts=st.lists(st.floats(0.0, 4.0), min_size=4, max_size=4),
    lasts=st.lists(st.floats(0.0, 4.0), min_size=4, max_size=4),
)
def test_stages_need_not_be_equal(
    which: tuple[ScheduleKind, int], costs: list[float], firsts: list[float], lasts: list[float]
) -> None:
    schedule, chunks = which
    ranks = len(costs) // chunks
    stages = [Times(cost, cost, cost, *ends) for cost, *ends in zip(costs, firsts, lasts, strict=True)]
    owners, micro_batches = stage_ranks(schedule, ranks, chunks), 8
    own = [
        sum(total(stage, micro_batches) for stage, owner in zip(stages, owners, strict=True) if owner == rank)
        for rank in range(ranks)
    ]
    own[own.index(max(own))] += firsts[0] + lasts[0] if own.index(max(own)) == 0 else 0.0
    found = max(own) + closed_form_loss(schedule, stages, owners, micro_batches, send=0).total
    assert found == pytest.approx(simulate_seconds(schedule, stages, owners, micro_batches, 0), rel=TOLERANCE[schedule])


@settings(max_examples=20, deadline=None)
@given(
    which=st.sampled_from(CHUNKS),
    ranks=st.integers(2, 4),
    firsts=st.lists(st.floats(0.0, 9.0), min_size=12, max_size=12),
    lasts=st.lists(st.floats(0.0, 9.0), min_size=12, max_size=12),
)
def test_gathers_begin_at_once_and_reductions_follow_the_last_gradient(
    which: tuple[ScheduleKind, int], ranks: int, firsts: list[float], lasts: list[float]
) -> None:
    schedule, chunks = which
    stages = [EQUAL._replace(first=firsts[index], last=lasts[index]) for index in range(ranks * chunks)]
    owners, micro_batches = stage_ranks(schedule, ranks, chunks), 3 * ranks
    own = micro_batches * chunks * EQUAL.each + firsts[0] + lasts[0]
    found = own + closed_form_loss(schedule, stages, owners, micro_batches, send=0).total
    most = {"interleaved": 0.25, "zero-bubble": 0.2, "zbv": 0.07}  # worst of 6,000: 0.21, 0.17, 0.04
    several = most.get(schedule, 1e-6)
    assert found == pytest.approx(simulate_seconds(schedule, stages, owners, micro_batches, 0), rel=several)


def test_ends_of_a_step_by_hand() -> None:
    """Two stages of 1f1b, two micro-batches: F F B B on the first, and F B F B on the second from 1 to 7, in units of
    one product."""
    first, second = Times(1.0, 1.0, 1.0), Times(1.0, 1.0, 1.0)
    for changed, whole in (
        ((first, second), 9.0),
        ((first._replace(first=2.0), second), 11.0),
        ((first, second._replace(first=1.0)), 9.0),  # ready when the first message comes
        ((first, second._replace(first=4.0)), 12.0),
        ((first._replace(last=2.0), second), 11.0),
        ((first, second._replace(last=2.0)), 9.0),  # while the first stage ends
        ((first, second._replace(last=5.0)), 12.0),
    ):
        assert simulate_seconds("1f1b", changed, [0, 1], 2, 0) == pytest.approx(whole)
        own = 2 * 3.0 + changed[0].first + changed[0].last
        assert own + closed_form_loss("1f1b", changed, [0, 1], 2, 0).total == pytest.approx(whole)


def test_the_busiest_rank_need_not_be_the_first() -> None:
    """Its own gather is in the way as any other's is, where it outlasts the way of the first micro-batch."""
    stages = [EQUAL, Times(2.0, 2.0, 2.0, first=4.0), EQUAL]
    lost = closed_form_loss("1f1b", stages, [0, 1, 2], 6, send=0)
    assert lost.ends == pytest.approx(3.0)
    assert 6 * 6.0 + lost.total == pytest.approx(simulate_seconds("1f1b", stages, [0, 1, 2], 6, 0))


def test_a_rank_of_several_stages_reduces_before_it_goes_on() -> None:
    """Its later stage has its last gradient first, and the backwards of the earlier one wait for that reduction."""
    stages = [EQUAL, EQUAL, EQUAL._replace(last=3.0), EQUAL]
    lost = closed_form_loss("interleaved", stages, [0, 1, 0, 1], 6, send=0)
    assert lost.ends == pytest.approx(3.0)
    assert 6 * 6.0 + lost.total == pytest.approx(simulate_seconds("interleaved", stages, [0, 1, 0, 1], 6, 0), rel=0.02)


@pytest.mark.parametrize("schedule, chunks", CHUNKS)
@pytest.mark.parametrize("extra", [0, 1])
def test_long_steps_are_simulated_in_part(schedule: ScheduleKind, chunks: int, extra: int) -> None:
    ranks, micro_batches = 3, 39 + extra
    stages = [Times(1.0 + 0.1 * (index == 1), 1.2, 0.9, 0.3, 0.2) for index in range(ranks * chunks)]
    owners = stage_ranks(schedule, ranks, chunks)
    whole = pipeline_time.timeline(schedule, stages, owners, micro_batches, 0.05).total
    assert simulate_seconds(schedule, stages, owners, micro_batches, 0.05) == pytest.approx(
        whole, rel=0.01 if schedule == "interleaved" else 1e-9
    )


def test_one_rank_loses_nothing() -> None:
    assert closed_form_loss("1f1b", [EQUAL], [0], 4, send=1.0).total == 0


def test_waiting_is_shared_as_the_closed_forms_say() -> None:
    assert Lost(2.0, 1.0, 2.0).within(9.0) == (4.0, 1.0, 4.0)
    assert Lost(2.0, 1.0, 2.0).within(0.5) == (0.0, 0.5, 0.0)
    assert Lost(0.0).within(0.0).total == 0
