"""Pipeline schedules: every list is a step that can run, and those that torch also has are the same lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules as oracle

from pretrain.config import ScheduleKind
from pretrain.parallel.base.simulate import most_held, simulate
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


def check(lists: Sequence[Sequence[Action]], ranks: Sequence[int]) -> None:
    """See that these lists are a training step of a pipeline whose stages lie on these ranks.

    Each stage runs on its rank, forward and backward once for each micro-batch (B, or I and later W), both in the order
    of the micro-batches, because activations and gradients arrive in the order in which they were sent. No rank waits
    forever.

    Raises:
        ValueError: one of these does not hold; it names the place.
    """
    for rank, own in enumerate(lists):
        for place, action in enumerate(own):
            if not 0 <= action.stage < len(ranks) or ranks[action.stage] != rank:
                raise ValueError(f"rank {rank}, place {place}: {action} is of a stage that is not on this rank")
    expected = list(range(sum(action.kind == "F" and action.stage == 0 for own in lists for action in own)))
    for stage, rank in enumerate(ranks):
        found = {
            kinds: [number for kind, other, number in lists[rank] if other == stage and kind in kinds]
            for kinds in ("F", "BI", "I", "W")
        }
        for kinds in ("F", "BI"):
            if found[kinds] != expected:
                raise ValueError(
                    f"rank {rank}, stage {stage}: {' or '.join(kinds)} runs micro-batches {found[kinds]}, "
                    f"not {expected}"
                )
        if sorted(found["W"]) != found["I"]:
            raise ValueError(f"rank {rank}, stage {stage}: I runs micro-batches {found['I']}, W {found['W']}")
    simulate(lists, ranks, lambda _: 1)


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
    found = [[one for one in own if one] for own in matches]
    return [[Action(one[2], int(one[1]), int(one[3])) for one in own] for own in found]  # type: ignore[arg-type]


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
