"""Pipeline schedules: every list is a step that can run, and those that torch also has are the same lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules as oracle

from pretrain.config import ScheduleKind
from pretrain.parallel.base.simulate import check, most_held
from pretrain.schedules import Action, actions, stage_ranks

CHUNKS: dict[ScheduleKind, tuple[int, ...]] = {
    "gpipe": (1,),
    "1f1b": (1,),
    "interleaved": (1, 2, 3),
    "zero-bubble": (1, 2, 3),
    "zbv": (2,),
}
ORACLES = {
    "gpipe": oracle.ScheduleGPipe,
    "1f1b": oracle.Schedule1F1B,
    "interleaved": oracle.ScheduleInterleaved1F1B,
    "zero-bubble": oracle.ScheduleInterleavedZeroBubble,
    "zbv": oracle.ScheduleZBVZeroBubble,
}


def shapes(schedule: ScheduleKind, most_micro_batches: int = 12) -> Iterator[tuple[int, int, int]]:
    """All small pipelines: ranks, chunks, micro-batches."""
    for num_ranks in range(1, 7):
        for chunks in CHUNKS[schedule]:
            for num_micro_batches in range(1, most_micro_batches + 1):
                yield num_ranks, chunks, num_micro_batches


@pytest.mark.parametrize("schedule", CHUNKS)
def test_every_small_pipeline_runs(schedule: ScheduleKind) -> None:
    for num_ranks, chunks, num_micro_batches in shapes(schedule):
        lists = actions(schedule, num_ranks, chunks, num_micro_batches)
        ranks = stage_ranks(schedule, num_ranks, chunks)
        assert len(lists) == num_ranks and len(ranks) == num_ranks * chunks
        check(lists, ranks)
        kinds = {action.kind for own in lists for action in own}
        if num_ranks * chunks > 1:
            assert kinds == (set("FIW") if schedule in ("zero-bubble", "zbv") else set("FB"))


def test_one_stage_alternates() -> None:
    for schedule in CHUNKS:
        assert "".join(action.kind for action in actions(schedule, 1, 1, 3)[0]) == "FBFBFB"
        assert stage_ranks(schedule, 1, 1) == [0]


def test_stages_go_round_or_there_and_back() -> None:
    assert stage_ranks("interleaved", 3, 2) == [0, 1, 2, 0, 1, 2]
    assert stage_ranks("zbv", 3, 2) == [0, 1, 2, 2, 1, 0]


def test_wrong_number_of_chunks_is_refused() -> None:
    for schedule, chunks in (("gpipe", 2), ("1f1b", 2), ("zbv", 1), ("zbv", 3)):
        with pytest.raises(ValueError, match=f"schedule {schedule} does not run {chunks} stages on each rank"):
            actions(schedule, 2, chunks, 4)  # type: ignore[arg-type]


def held(schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int) -> list[int]:
    """By rank the most micro-batches of its stages held at once."""
    lists = actions(schedule, num_ranks, chunks, num_micro_batches)
    return [int(most_held(own, [1] * num_ranks * chunks)) for own in lists]


def test_memory_is_what_the_table_says() -> None:
    for p, _, m in shapes("1f1b"):
        assert held("1f1b", p, 1, m) == [min(m, p - rank) for rank in range(p)]
        assert p == 1 or held("gpipe", p, 1, m) == [m] * p
    for p, v, m in shapes("interleaved"):
        first_group = -(-m // max(1, m // p))
        if p > 1:
            bounds = [(v - 1) * first_group + 2 * (p - rank) - 1 for rank in range(p)]
            assert held("interleaved", p, v, m) == [min(v * m, bound) for bound in bounds]
            assert max(held("zero-bubble", p, v, m)) == min(v * m, (v - 1) * first_group + p)
    for p, _, m in shapes("zbv"):
        assert max(held("zbv", p, 2, m)) == 2 * min(m, p)


def torch_actions(schedule: ScheduleKind, num_ranks: int, chunks: int, num_micro_batches: int) -> list[list[Action]]:
    """The lists of torch.distributed.pipelining; it refuses some numbers of micro-batches with ValueError."""
    num_stages = num_ranks * chunks
    stages: Any = [
        SimpleNamespace(
            stage_index=index, num_stages=num_stages, group_size=num_ranks, group_rank=0, group=None, submod=None
        )
        for index in range(chunks)
    ]  # as much of a stage as a schedule reads when it is made
    single = issubclass(ORACLES[schedule], oracle.PipelineScheduleSingle)
    made: Any = ORACLES[schedule](stages[0] if single else stages, num_micro_batches, loss_fn=lambda: 0)
    matches = [
        [re.fullmatch(r"(\d+)([FBIW])(\d+)", str(each)) for each in made.pipeline_order[r]] for r in range(num_ranks)
    ]
    return [[Action(found[2], int(found[1]), int(found[3])) for found in own if found] for own in matches]  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", CHUNKS)
def test_equal_to_torch(schedule: ScheduleKind) -> None:
    compared = refused = 0
    for shape in shapes(schedule):
        if shape[0] not in (2, 3, 5):
            continue
        try:
            theirs: Any = torch_actions(schedule, *shape)
        except ValueError:
            refused += 1
            continue
        ours: Any = actions(schedule, *shape)
        if schedule == "1f1b":  # on the last rank torch's list, unlike the loop that it runs instead, counts from 1
            ours, theirs = ([[action.kind for action in own] for own in lists] for lists in (ours, theirs))
        assert ours == theirs, shape
        compared += 1
    assert compared >= 29 and (refused > 0) == (schedule in ("1f1b", "interleaved", "zero-bubble"))


SMALL = actions("zero-bubble", 2, 1, 3)  # F0 F1 I0 W0 F2 ... on rank 0; F0 I0 F1 I1 W0 ... on rank 1


def test_check_finds_every_missing_or_doubled_action() -> None:
    ranks = [0, 1]
    for rank in range(2):
        for place in range(len(SMALL[rank])):
            lists = [list(own) for own in SMALL]
            action = lists[rank].pop(place)
            with pytest.raises(ValueError, match=f"rank {action.stage}, stage {action.stage}"):
                check(lists, ranks)
            lists[rank][place:place] = [action, action]
            with pytest.raises(ValueError, match=f"rank {action.stage}, stage {action.stage}"):
                check(lists, ranks)


def test_check_finds_what_is_out_of_order() -> None:
    f0, f1, i0, w0, *rest = SMALL[0]
    assert [f0.kind, f1.kind, i0.kind, w0.kind] == list("FFIW")
    with pytest.raises(ValueError, match=r"rank 0, stage 0: F runs micro-batches \[1, 0, 2\], not \[0, 1, 2\]"):
        check([[f1, f0, i0, w0, *rest], SMALL[1]], [0, 1])
    with pytest.raises(ValueError, match=r"rank 0, place 2: Action.kind='W', stage=0, micro_batch=0. waits"):
        check([[f0, f1, w0, i0, *rest], SMALL[1]], [0, 1])
    with pytest.raises(ValueError, match=r"rank [01], place \d+: .* waits"):
        check([[f0, i0, f1, w0, *rest], sorted(SMALL[1], key=lambda action: "FIW".index(action.kind))], [0, 1])
    with pytest.raises(ValueError, match=r"rank 0, place 0: .* not on this rank"):
        check(SMALL, [1, 0])
    with pytest.raises(ValueError, match=r"rank 0, place 6: .* not on this rank"):
        check([[*SMALL[0][:6], Action("F", 2, 0)], SMALL[1]], [0, 1])


def test_whole_and_cut_backwards_may_be_mixed() -> None:
    backward = [Action("F", 1, 0), Action("I", 1, 0), Action("W", 1, 0), Action("F", 1, 1), Action("B", 1, 1)]
    first = [Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0), Action("B", 0, 1)]
    check([first, backward], [0, 1])
    with pytest.raises(ValueError, match=r"rank 1, stage 1: I runs micro-batches .0., W .1."):
        check([first, [*backward[:2], Action("W", 1, 1), *backward[3:]]], [0, 1])


def test_groups_are_chunk_by_chunk() -> None:
    """Seven micro-batches on two ranks: groups of 3, 2 and 2, each through stage 0 and then stage 2."""
    forwards = [action.stage for action in actions("interleaved", 2, 2, 7)[0] if action.kind == "F"]
    assert [(stage, len(list(each))) for stage, each in groupby(forwards)] == [
        (0, 3),
        (2, 3),
        (0, 2),
        (2, 2),
        (0, 2),
        (2, 2),
    ]
