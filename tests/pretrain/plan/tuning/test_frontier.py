"""Frontier's experiment on a corner of its space: what each point comes to, the searches, and what matters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import permutations, product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.config import load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.tuning import frontier
from pretrain.plan.tuning.frontier import NO_LAYOUT, NO_MEMORY
from pretrain.workload.framework_profiles import OURS

CORNER = {**frontier.SPACE, "pp": (1, 8, 12), "micro_batch": (4, 6, 20), "micro_batches": (5,)}


def result(**choices: object) -> float | str:
    point = {"pp": 8, "tp": 8, "micro_batch": 4, "micro_batches": 5, "zero1": True, "nodes": 16} | choices
    config, cluster = load_config("frontier-175b"), load_cluster("frontier-mi250x")
    return frontier.outcome(config, cluster, OURS, tuple(point[name] for name in frontier.SPACE))


def test_a_point_is_a_layout_of_whole_nodes() -> None:
    """Of 128 dies, 8 x 8 to a copy of the model: two copies, each of which has five micro-batches of four a step."""
    layout = ["parallel.tp=8", "parallel.pp=8", "training.global_batch_size=40", "training.micro_batch_size=4"]
    expected = predict(load_config("frontier-175b", layout), 128, load_cluster("frontier-mi250x"), OURS, exact=False)
    assert expected.micro_batches == 5
    assert result() == pytest.approx(expected.tflops_per_gpu)


def test_what_does_not_divide_and_what_does_not_fit_are_told_apart() -> None:
    assert result(pp=12) == NO_LAYOUT  # 96 of 128 dies
    assert result(pp=12, nodes=12, zero1=False) != NO_LAYOUT
    assert result(pp=16, nodes=12) == NO_LAYOUT  # 128 of 96
    assert result(pp=1, tp=4) == NO_MEMORY


def test_without_shards_more_is_held() -> None:
    cluster = load_cluster("frontier-mi250x")
    roomy = cluster.model_copy(update={"device": cluster.device.model_copy(update={"memory_gib": 1000.0})})
    copied = ["parallel.tp=8", "parallel.pp=1", "parallel.dp_shard=1", "parallel.dp_replicate=16", "parallel.zero=1"]
    batch = ["parallel.recompute=full", "training.global_batch_size=320", "training.micro_batch_size=4"]
    expected = predict(load_config("frontier-175b", copied + batch), 128, roomy, OURS, exact=False)
    found = [frontier.outcome(load_config("frontier-175b"), roomy, OURS, (1, 8, 4, 5, z, 16)) for z in (True, False)]
    assert found[1] == pytest.approx(expected.tflops_per_gpu) and found[0] != found[1]


def tune(*words: str) -> None:
    parser = argparse.ArgumentParser()
    frontier.add_arguments(parser)
    frontier.main(parser.parse_args(words))


def test_both_tables_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(frontier, "SPACE", CORNER)
    tune("--trials", "20", "--seeds", "1")
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("72 points (")
    best = float(told[1].split()[2])
    table = {line.split()[0]: line.split()[1:] for line in told if line.split()[:1] and line.split()[0].isdecimal()}
    assert float(table["1"][0]) == best and len(table["20"]) == 4
    assert all(float(cell) <= best for cell in table["20"])
    shares = [float(line.split()[1].rstrip("%")) for line in told if line.split() and line.split()[0] in CORNER]
    assert len(shares) == 6 and sum(shares) == pytest.approx(100, abs=0.5)
    assert shares == sorted(shares, reverse=True)


def test_a_sampler_is_drawn_by_its_seed_and_tpe_learns() -> None:
    """The value is the micro-batch: its largest is found sooner than by chance."""
    pytest.importorskip("optuna")
    values = {point: float(point[2]) for point in product(*frontier.SPACE.values())}
    tpe = [frontier.sample_trials(values, "TPESampler", seed, 40) for seed in (0, 0, 1)]
    assert tpe[0] == tpe[1] != tpe[2] and len(tpe[0]) == 40
    drawn = frontier.sample_trials(values, "RandomSampler", 0, 40)
    assert fmean(tpe[0][20:]) > fmean(drawn[20:]) + 2


def test_bad_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="must be 1 or more"):
        tune("--trials", "0")
    monkeypatch.setattr(frontier, "SPACE", {**CORNER, "pp": (1,), "tp": (4,)})
    with pytest.raises(UsageError, match="no point of the space fits"):
        tune()
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'wenhai\[tune\]'"):
        frontier.sample_trials({}, "TPESampler", 0, 1)


def by_orders(points: Sequence[tuple[int, ...]], values: list[float]) -> list[float]:
    """What each parameter adds to the explained variance, over all orders in which they become known."""

    def explained(known: tuple[int, ...]) -> float:
        pairs = list(zip(points, values, strict=True))
        alike = [[value for other, value in pairs if all(other[i] == point[i] for i in known)] for point in points]
        return float(np.var([fmean(one) for one in alike]))

    axes, orders = range(len(points[0])), list(permutations(range(len(points[0]))))
    added = [0.0 for _ in axes]
    for order in orders:
        for place, axis in enumerate(order):
            added[axis] += explained(order[: place + 1]) - explained(order[:place])
    return [one / len(orders) / float(np.var(values)) for one in added]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_shares_are_shapley_effects_with_points_missing_too(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "SPACE", {"a": (0, 1), "b": (0, 1, 2), "c": (0, 1)})
        whole = list(product((0, 1), (0, 1, 2), (0, 1)))
        points = data.draw(st.lists(st.sampled_from(whole), min_size=4, unique=True))
        values = data.draw(st.lists(st.integers(0, 9).map(float), min_size=len(points), max_size=len(points)))
        found = frontier.effects(points, values)
        expected = by_orders(points, values) if len(set(values)) > 1 else [0.0] * 3
        assert list(found.values()) == pytest.approx(expected, abs=1e-9)
