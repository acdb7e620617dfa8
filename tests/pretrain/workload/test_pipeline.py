"""Closed forms of what a rank holds against the schedules' own lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.config import ScheduleKind
from pretrain.parallel.base import simulate
from pretrain.schedules import actions, stage_ranks
from pretrain.workload.pipeline import most_held, own_stages


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        ("gpipe", 1),
        ("1f1b", 1),
        ("interleaved", 2),
        ("interleaved", 3),
        ("zero-bubble", 1),
        ("zero-bubble", 2),
        ("zbv", 2),
    ],
)
@settings(max_examples=60)
@given(
    pp=st.integers(2, 7),
    num_micro_batches=st.integers(1, 24),
    sizes=st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_what_a_rank_holds(
    schedule: ScheduleKind, chunks: int, pp: int, num_micro_batches: int, sizes: list[int]
) -> None:
    lists = actions(schedule, pp, chunks, num_micro_batches)
    owners = stage_ranks(schedule, pp, chunks)
    for rank, own in enumerate(own_stages(schedule, pp, chunks)):
        assert [stage for stage, owner in enumerate(owners) if owner == rank] == list(own)
        of_stage = [0] * len(owners)
        for stage, size in zip(own, sizes, strict=False):
            of_stage[stage] = size
        expected = simulate.most_held(lists[rank], of_stage)
        assert most_held(schedule, pp, chunks, num_micro_batches, rank, sizes[:chunks]) == expected
