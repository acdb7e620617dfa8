"""A new schedule is one entry of `SCHEDULES`: configuration, memory, time, search and page follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pretrain.__main__ import main
from pretrain.parallel.base import simulate
from pretrain.plan.cost import predict
from pretrain.plan.search.search import Constraints, search
from pretrain.plan.time import pipeline_time
from pretrain.schedules import SCHEDULES, Kind, Place, ScheduleSpec, Step, actions, stage_ranks
from pretrain.workload import memory
from tests.pretrain.parallel.test_schedule import check
from tests.pretrain.plan.layouts import cluster, config


def one_later(at: Place) -> dict[Kind, int]:
    """1F1B with one more forward in reserve on each rank."""
    return {"B": at.num_after + 1}


def split_at_the_end(at: Place) -> list[Step]:
    """The gradients of all weights after those of all inputs."""
    all_of: list[Kind] = ["F", "I", "W"]
    return [(kind, at.rank) for kind in all_of for _ in range(at.num_micro_batches)]


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (ScheduleSpec(turns=one_later, most_chunks=1, searched_chunks=(1,), short="late"), [5, 4, 3, 2]),
        (
            ScheduleSpec(
                order=split_at_the_end, most_chunks=1, searched_chunks=(1,), splits_backward=True, short="late"
            ),
            [8, 8, 8, 8],
        ),
    ],
    ids=["in turns", "in an order of its own"],
)
def test_a_new_schedule_is_one_entry(
    spec: ScheduleSpec,
    held: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(SCHEDULES, "late", spec)
    layout: dict[str, Any] = {"pp": 4, "zero": 1, "schedule": "late"}
    run, own = config(global_batch_size=8, **layout), cluster()

    lists = actions("late", 4, 1, 8)
    check(lists, stage_ranks("late", 4, 1))
    estimates, usual = (memory.estimate(one, 4) for one in (run, config(global_batch_size=8, pp=4, zero=1)))
    ratios = [one.activations / other.activations for one, other in zip(estimates, usual, strict=True)]
    if not spec.splits_backward:  # else a micro-batch keeps more between its two halves
        assert ratios == pytest.approx([number / (4 - rank) for rank, number in enumerate(held)])
    assert [round(simulate.most_held(one, [1] * 4)) for one in lists] == held

    prediction = predict(run, 4, own)
    timeline = pipeline_time.timeline("late", prediction.step.stages, range(4), 8, send=0.0)
    assert prediction.step_seconds > timeline.total  # and the update, messages, copies
    assert prediction.seconds.bubble > 0.9 * (timeline.total - timeline.ideal)
    assert predict(run, 4, own, exact=False).step_seconds == pytest.approx(prediction.step_seconds)
    found = search(run, 4, own, constraints=Constraints(pp=(4,), schedule=("late",)))
    assert {each.config.parallel.schedule for each in found.layouts} == {"late"}

    words = "plan --config gpt2-124m --cluster h100-80 --gpus 4 --schedule late --layout pp=4,mbs=1,schedule=late"
    assert main([*words.split(), "--report", str(tmp_path / "page.html")]) == 0
    assert " late " in capsys.readouterr().out
    assert ">late</td>" in (tmp_path / "page.html").read_text()
