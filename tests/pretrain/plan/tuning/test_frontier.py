"""Frontier's experiment on a corner of its space: what each point comes to, and the tables."""

from __future__ import annotations

import argparse

import pytest

from corpus.engine.errors import UsageError
from pretrain.config import load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.tuning import frontier
from pretrain.plan.tuning.searchers import FAILED, OUT_OF_MEMORY, Space
from pretrain.workload.software import OURS

CORNER = Space({**frontier.SPACE.choices, "pp": (1, 8, 12), "micro_batch": (4, 6, 20), "micro_batches": (5,)})


def result(**choices: object) -> object:
    point = {"pp": 8, "tp": 8, "micro_batch": 4, "micro_batches": 5, "zero1": True, "nodes": 16} | choices
    config, cluster = load_config("frontier-175b"), load_cluster("frontier-mi250x")
    return frontier.outcome(config, cluster, OURS, tuple(point[name] for name in frontier.SPACE.choices))


def test_the_space_is_the_recalled_one() -> None:
    assert len(frontier.SPACE) == 6 * 2 * 17 * 2 * 2 * 2
    assert set(frontier.RECALLED) < set(frontier.SPACE.choices)


def test_a_point_is_a_layout_of_whole_nodes() -> None:
    """Of 128 dies, 8 x 8 to a copy of the model: two copies, each of which has five micro-batches of four a step."""
    config = load_config(
        "frontier-175b",
        ["parallel.tp=8", "parallel.pp=8", "training.global_batch_size=40", "training.micro_batch_size=4"],
    )
    expected = predict(config, 128, load_cluster("frontier-mi250x"), OURS, exact=False)
    assert expected.micro_batches == 5
    assert result() == pytest.approx(expected.tflops_per_gpu)


def test_what_does_not_divide_and_what_does_not_fit_are_told_apart() -> None:
    assert result(pp=12) is FAILED  # 96 of 128 dies
    assert result(pp=12, nodes=12, zero1=False) is not FAILED
    assert result(pp=16, nodes=12) is FAILED  # 128 of 96
    assert result(pp=1, tp=4) is OUT_OF_MEMORY


def test_without_shards_more_is_held() -> None:
    config = load_config("frontier-175b")
    cluster = load_cluster("frontier-mi250x")
    small = cluster.model_copy(update={"device": cluster.device.model_copy(update={"memory_gib": 1000.0})})
    with_shards, without = (frontier.outcome(config, small, OURS, (1, 8, 4, 5, zero1, 16)) for zero1 in (True, False))
    assert isinstance(with_shards, float) and isinstance(without, float) and with_shards != without
    copied = ["parallel.tp=8", "parallel.pp=1", "parallel.dp_shard=1", "parallel.dp_replicate=16", "parallel.zero=1"]
    batch = ["parallel.recompute=full", "training.global_batch_size=320", "training.micro_batch_size=4"]
    expected = predict(load_config("frontier-175b", copied + batch), 128, small, OURS, exact=False)
    assert without == pytest.approx(expected.tflops_per_gpu)


def test_the_experiment_prints_its_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(frontier, "SPACE", CORNER)
    parser = argparse.ArgumentParser()
    frontier.add_arguments(parser)
    frontier.main(parser.parse_args(["--trials", "20", "--seeds", "1"]))
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{len(CORNER)} points (")
    best = float(told[2].split()[2])
    assert "the machine is the planner itself" in told[3]
    table = {line.split()[0]: line.split()[1:] for line in told if line.split()[:1] and line.split()[0].isdecimal()}
    assert float(table["1"][0]) == best and len(table["20"]) == 4
    assert [float(cell) <= best for cell in table["20"]] == [True] * 4
    assert any(line.split()[:3] == ["in", "1", "%"] and line.split()[3] == "1" for line in told)
    shares = [float(line.split()[1].rstrip("%")) for line in told if line.split() and line.split()[0] in CORNER.choices]
    assert len(shares) == 6 and sum(shares) == pytest.approx(100, abs=0.5)
    assert shares == sorted(shares, reverse=True)


def test_bad_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    frontier.add_arguments(parser)
    with pytest.raises(UsageError, match="must be 1 or more"):
        frontier.main(parser.parse_args(["--trials", "0"]))
    monkeypatch.setattr(frontier, "SPACE", Space({**CORNER.choices, "pp": (1,), "tp": (4,)}))
    with pytest.raises(UsageError, match="no point of the space fits"):
        frontier.main(parser.parse_args([]))
