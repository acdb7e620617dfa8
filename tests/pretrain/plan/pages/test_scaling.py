"""Predicted scaling: what is kept, what limits, and that the changes it names gain what it says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.pages import scaling
from pretrain.plan.pages.neighbours import changes
from pretrain.plan.pages.scaling import Scaling, curves
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Plans
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

NUMBERS = (128, 256, 512)


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config("frontier-22b")  # tp 2, pp 8, batch 640


def few(config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile = OURS, **how: object) -> Plans:
    """A search of three layouts."""
    found = []
    for tp, pp in ((4, 1), (8, 1), (4, 2)):
        layout = Layout(tp, pp, 1, devices // (tp * pp), 1, recompute="full")
        with suppress(UsageError):
            found.append(predict(layout.configure(config), devices, cluster, software, exact=False))
    if not found:
        raise UsageError(f"nothing on {devices} devices")
    return Plans(sorted(found, key=lambda one: one.step_seconds), [], 3, 0.0)


@pytest.fixture
def found(config: RunConfig, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Scaling:
    monkeypatch.setattr(scaling, "search", few)
    return curves(config, NUMBERS, cluster)


def efficiencies(found: Scaling, kind: str, is_searched: bool) -> Sequence[float]:
    (curve,) = (curve for curve in found.curves if (curve.kind, curve.is_searched) == (kind, is_searched))
    return [point.efficiency for point in curve.points]


def test_the_configured_layout_is_kept_and_grows_by_data_ranks(found: Scaling, config: RunConfig) -> None:
    assert "the configured one" in found.kept and "tp=2" in found.kept and "pp=8" in found.kept
    for curve in found.curves:
        assert [point.devices for point in curve.points] == list(NUMBERS)
        batches = [640, 1280, 2560] if curve.kind == "weak" else [640] * 3
        assert [point.batch for point in curve.points] == batches
        for point in curve.points:
            assert point.prediction is not None
            assert point.prediction.config.training.global_batch_size == point.batch
            if not curve.is_searched:
                assert point.prediction.data_parallel == point.devices // 16
                assert point.prediction.config.parallel.pp == config.parallel.pp


def test_efficiency_is_speed_a_device_over_the_first(found: Scaling) -> None:
    for curve in found.curves:
        first, *_, last = curve.points
        assert first.prediction is not None and last.prediction is not None and first.efficiency == 1.0
        speeds = [point.prediction.tokens_per_second / point.devices for point in (first, last) if point.prediction]
        assert last.efficiency == pytest.approx(speeds[1] / speeds[0])
    assert efficiencies(found, "weak", False)[-1] > 0.95  # on a network that is not oversubscribed
    strong = efficiencies(found, "strong", False)
    assert strong == sorted(strong, reverse=True) and strong[-1] < 0.85  # fewer micro-batches, larger bubble


def test_what_limits_is_named_with_a_change_that_gains(found: Scaling) -> None:
    (curve,) = (curve for curve in found.curves if curve.kind == "strong" and not curve.is_searched)
    sentence = scaling.limit(curve)
    first, last = (curve.points[at].prediction for at in (0, -1))
    assert first is not None and last is not None
    costs = [
        {name: value * one.devices for name, value in one.seconds.named.items()} for one in (first, last)
    ]  # one batch
    most = max(costs[1], key=lambda name: costs[1][name] - costs[0].get(name, 0.0))
    share = last.seconds.named[most] / last.step_seconds
    assert f"What grows is {most}: {share:.1%} of a step there" in sentence, sentence
    assert f"To change next: {changes(last)[0].words}; or " in sentence
    rows = list(scaling.table(found))
    assert len(rows) == 4 * len(NUMBERS) and all(len(row) == len(scaling.COLUMNS) for row in rows)
    assert rows[2][:3] == ("weak, layout kept", "512", "2,560") and rows[2][-1].startswith("tp=2,pp=8,")
    value = scaling.as_json(found)
    assert [len(each["points"]) for each in value["curves"]] == [3] * 4
    assert value["curves"][0]["points"][0]["efficiency"] == 1.0 and value["curves"][0]["layout"] == "layout kept"


def test_what_was_added_is_what_efficiency_lacks(found: Scaling) -> None:
    for curve in found.curves:
        first, last = (curve.points[at].prediction for at in (0, -1))
        assert first is not None and last is not None
        assert sum(scaling.growth(first, last).values()) == pytest.approx(1 - curve.points[-1].efficiency)


def test_a_number_that_the_layout_does_not_divide_says_so(
    config: RunConfig, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "search", few)
    found = curves(config, [128, 136, 144, 2048], cluster)
    kept = found.curves[2]  # strong
    problems = [point.problem for point in kept.points]
    assert problems[1] == "136 devices are no multiple of 2 x 8 x 1" and "640" in problems[2] and not problems[3]
    assert kept.last.devices == 2048 and any("136 devices are no multiple" in row[-1] for row in scaling.table(found))
    assert "problem" in scaling.as_json(found)["curves"][2]["points"][1]


def test_a_configured_layout_that_does_not_fit_is_not_kept(
    config: RunConfig, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "search", few)
    small = cluster.model_copy(update={"device": cluster.device.model_copy(update={"memory_gib": 8.0})})
    assert "the best one of the fewest devices" in curves(config, [128, 256], small).kept


def test_replicas_of_shards_stay_replicas(config: RunConfig, cluster: Cluster) -> None:
    layout = Layout(2, 8, 2, 4, 1, recompute="full")
    start = predict(layout.configure(config), 128, cluster)
    more, _ = scaling._kept(start, 1280, 256)
    assert more is not None and more.config.parallel.dp_replicate == 4 and more.config.parallel.dp_shard == 4


def test_one_number_is_no_curve(config: RunConfig, cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="scaling over 128 devices has no curve"):
        curves(config, [128, 128], cluster)


def test_every_change_is_one_parameter_and_gains_what_it_says(config: RunConfig, cluster: Cluster) -> None:
    start = predict(config, 128, cluster, exact=False)
    found = changes(start)
    assert {"tp", "pp", "micro_batch_size", "recompute", "schedule", "zero", "global_batch_size"} <= {
        one.name for one in found
    }
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    for change in found:
        assert change.gain == pytest.approx(change.prediction.tokens_per_second / start.tokens_per_second - 1)
        assert change.prediction.fits and change.prediction.devices == 128
        same = {"tp": start.config.parallel.tp, "pp": start.config.parallel.pp, "recompute": "full"}
        differ = {name for name, value in same.items() if getattr(change.prediction.config.parallel, name) != value}
        assert differ <= {change.name}, change.words
    assert any(change.words.startswith("pipeline parallel 8 -> 4 (") for change in found)


def test_changes_that_do_not_fit_are_not_offered(config: RunConfig, cluster: Cluster) -> None:
    start = predict(config, 128, cluster)
    memory = start.memory_bytes / 0.92 / 2**30 + 0.1
    tight = cluster.model_copy(update={"device": cluster.device.model_copy(update={"memory_gib": memory})})
    found = changes(predict(config, 128, tight))
    assert found and not any(one.name == "recompute" for one in found)
