"""The search beside all layouts of small spaces, one by one; what is refused, and how."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.batch_size import check_batch_sizes
from pretrain.config import ParallelConfig, RunConfig, ScheduleKind, load_config, to_json
from pretrain.parallel.base.mesh import layout as mesh_layout
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.naming import parse_words
from pretrain.plan.prediction import Seconds
from pretrain.plan.search.legal import Constraints, Layout, Space
from pretrain.plan.search.search import GAIN, SLOWEST, Search, search
from pretrain.plan.time import pipeline_time
from pretrain.schedules import actions
from pretrain.workload import memory
from pretrain.workload.framework_profiles import MEGATRON_2021, MEGATRON_2022, OURS, FrameworkProfile

MODEL = {
    "num_layers": 6,
    "hidden_size": 1024,
    "num_heads": 8,
    "sequence_length": 512,
    "padded_vocab_size": 4096,
    "positions": "learned",
}


def config_of(model: dict[str, Any] | None = None, **training: Any) -> RunConfig:
    usual = {"num_steps": 10, "global_batch_size": 16, "micro_batch_size": 1, "precision": "bf16", "compile": False}
    training = {**usual, **training}
    sections: dict[str, Any] = {"model": MODEL | (model or {}), "training": training}
    sections |= {
        "optimizer": {"learning_rate": 1e-4},
        "checkpoint": {"every_steps": 5},
        "evaluation": {"every_steps": 5},
    }
    return RunConfig.model_validate(sections)


def layouts(space: Space, shape: Layout) -> Iterator[Layout]:
    """All of a shape, without offload."""
    for (schedule, chunks), sequence, (zero, replicas), (recompute, every) in product(
        space.schedules(shape), space.sequence_parallel(shape), space.sharding(shape), space.recomputes()
    ):
        shards: dict[str, Any] = {"zero": zero, "dp_replicate": replicas, "dp_shard": shape.data_parallel // replicas}
        plain = space.cut(shape, schedule, chunks)._replace(sequence_parallel=sequence, **shards)
        yield plain._replace(recompute=recompute, recompute_every=every)


def cluster_of(memory_gib: float, devices_per_node: int = 4) -> Cluster:
    cluster = load_cluster("selene-a100-80")
    device = cluster.device.model_copy(update={"memory_gib": memory_gib})
    networks = (cluster.networks[0].model_copy(update={"devices": devices_per_node}), *cluster.networks[1:])
    changes = {"device": device, "devices_per_node": devices_per_node, "networks": networks}
    return cluster.model_copy(update=changes)


@pytest.mark.parametrize(
    ("memory_gib", "software"), [(80, OURS), (0.4, OURS), (1.0, MEGATRON_2021), (0.6, MEGATRON_2022)]
)
def test_the_best_of_each_shape_is_that_of_all_its_layouts(memory_gib: float, software: FrameworkProfile) -> None:
    config, devices, cluster = config_of(global_batch_size=8), 4, cluster_of(memory_gib, devices_per_node=2)
    found = Search(Space(config, devices, cluster, software), slowest=float("inf"))
    found.run()
    assert found.best and (memory_gib == 80 or found.too_large)
    considered = 0
    for shape in found.space.shapes():
        own = list(layouts(found.space, shape))
        assert len(own) == found.space.size(shape)
        considered += len(own)
        fitting = []
        for layout in own:
            prediction = predict(layout.configure(config), devices, cluster, software, exact=False)
            assert prediction.fits == found.fits(layout), layout
            assert prediction.step_seconds >= found.least_seconds(layout) * 0.999, layout
            if prediction.fits:
                fitting.append(prediction.step_seconds)
        assert bool(fitting) == (shape in found.best), shape
        if fitting:
            assert min(fitting) <= found.best[shape].seconds <= min(fitting) * GAIN, shape
    assert found.considered == considered


def test_the_list_is_sorted_and_fits() -> None:
    config, cluster = config_of(), cluster_of(1.0)
    plans = search(config, 8, cluster, keep=3)
    seconds = [prediction.step_seconds for prediction in plans.layouts]
    assert seconds[:3] == sorted(seconds[:3]) and seconds[3:] == sorted(seconds[3:])
    assert all(prediction.fits for prediction in plans.layouts)
    assert plans.best.step_seconds == predict(plans.best.config, 8, cluster).step_seconds, "simulated"
    assert max(seconds) <= SLOWEST * min(seconds) * 1.1
    assert len(
        {(each.config.parallel.tp, each.config.parallel.pp, each.micro_batch_size) for each in plans.layouts}
    ) == len(plans.layouts)


@settings(max_examples=25, deadline=None)
@given(
    layers=st.integers(1, 7),
    heads=st.sampled_from([(4, 4), (6, 2), (8, 1), (12, 12)]),
    batch=st.sampled_from([4, 6, 12, 24]),
    devices=st.integers(1, 12),
    ramp=st.booleans(),
    software=st.sampled_from([OURS, MEGATRON_2021, MEGATRON_2022]),
    data=st.data(),
)
def test_every_layout_is_one_that_training_accepts(
    layers: int,
    heads: tuple[int, int],
    batch: int,
    devices: int,
    ramp: bool,
    software: FrameworkProfile,
    data: st.DataObject,
) -> None:
    rampup = {"rampup": {"start": 2, "increment": 2, "num_samples": 100}} if ramp else {}
    model = {"num_layers": layers, "num_heads": heads[0], "num_kv_heads": heads[1], "hidden_size": 48 * heads[0]}
    config = config_of(model, global_batch_size=batch, **rampup)
    space = Space(config, devices, cluster_of(80), software)
    shapes = list(space.shapes())
    if not shapes:
        return
    shape = data.draw(st.sampled_from(shapes))
    layout = data.draw(st.sampled_from(list(layouts(space, shape))))
    checked = RunConfig.model_validate(to_json(layout.configure(config)))
    assert mesh_layout(checked.parallel, devices) == (layout.pp, layout.dp_replicate, layout.dp_shard, layout.tp)
    check_batch_sizes(checked.training, layout.data_parallel)
    assert Layout.of(checked, devices) == layout


def test_every_shape_that_training_accepts_is_there_or_told() -> None:
    """All of tp, pp and micro-batch for six devices of a node of four."""
    config, devices = config_of({"num_heads": 12, "hidden_size": 768, "ffn_hidden_size": 3072}), 6
    config = config.model_copy(update={"training": config.training.model_copy(update={"global_batch_size": 12})})
    space = Space(config, devices, cluster_of(80))
    found = {(shape.tp, shape.pp, shape.micro_batch_size) for shape in space.shapes()}
    expected = set()
    for tp in range(1, 7):
        for pp in range(1, 7):
            for size in range(1, 13):
                sections = to_json(config) | {"parallel": {"tp": tp, "pp": pp, "sequence_parallel": False}}
                sections["training"]["micro_batch_size"] = size
                try:
                    accepted = RunConfig.model_validate(sections)
                    _, _, shards, _ = mesh_layout(accepted.parallel, devices)
                    check_batch_sizes(accepted.training, shards)
                except (ValueError, UsageError):
                    continue
                if size * shards <= 12:  # a larger one is the same run
                    expected.add((tp, pp, size))
    assert {shape for shape in expected if shape not in found} == {
        shape for shape in expected if space.straddles(shape[0])
    }
    assert found <= expected


def test_rank_of_a_layout() -> None:
    config, cluster = config_of(), cluster_of(80)
    plans = search(config, 8, cluster)
    first = plans.rank_of(plans.layouts[0])
    assert (first.place, first.of, first.slower) == (1, len(plans.layouts), 1.0)
    assert plans.rank_of(plans.layouts[2]).place == 3
    best = plans.best
    parallel = best.config.parallel.model_copy(update={"recompute": "full", "recompute_every": 1})
    slower = plans.rank_of(predict(best.config.model_copy(update={"parallel": parallel}), 8, cluster))
    assert slower.place > 1 and slower.slower > 1
    slowest = best.config.training.model_copy(update={"micro_batch_size": 1})
    worst = ParallelConfig(tp=8, recompute="full", sequence_parallel=False)
    config = best.config.model_copy(update={"training": slowest, "parallel": worst})
    last = plans.rank_of(predict(config, 8, cluster))
    assert last.place == last.of + 1 and last.words == f"slower than all {last.of} that are listed"
    assert first.words == f"at place 1 of {first.of}"


def test_memory_is_that_of_the_machine_at_hand() -> None:
    """CPUs have no device memory of their own; what was measured to be held counts."""
    config, cluster = config_of(), load_cluster("cpu")
    found = Search(Space(config, 4, cluster))
    layout = next(iter(found.space.shapes()))
    for gib in (4.0, 2000.0):
        small = cluster.model_copy(update={"host": cluster.host.model_copy(update={"memory_gib": gib})})
        found = Search(Space(config, 4, small))
        assert found.fits(layout) == predict(layout.configure(config), 4, small).fits == (gib == 2000.0)
    for held, fits in ((1.0, True), (100.0, False)):
        gpus = cluster_of(80)
        gpus = gpus.model_copy(update={"efficiency": gpus.efficiency.model_copy(update={"held": held})})
        found = Search(Space(config, 4, gpus))
        assert found.fits(layout) == predict(layout.configure(config), 4, gpus).fits == fits


def test_what_a_search_evaluates_and_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of the layouts that it considers; pipelines only as many as there is room for."""
    evaluated: list[Layout] = []
    simulated: list[float] = []
    whole, one = Search.seconds, pipeline_time.simulate_seconds

    def seconds(search: Search, layout: Layout) -> Seconds:
        evaluated.append(layout)
        return whole(search, layout)

    def simulate(*args: Any) -> float:
        simulated.append(one(*args))
        return simulated[-1]

    monkeypatch.setattr(Search, "seconds", seconds)
    monkeypatch.setattr(pipeline_time, "simulate_seconds", simulate)
    plans = search(config_of(), 8, cluster_of(80), keep=1)
    assert len(evaluated) < plans.considered / 8  # one in ten; in five or seven without one of its cuts
    assert len(simulated) <= 1


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_bytes_of_the_fullest_ranks_are_those_of_all_ranks(device: memory.Device) -> None:
    """Every schedule and recompute of a pipeline whose ranks are partly alike."""
    config = config_of({"num_layers": 16, "tied": True}, global_batch_size=12)
    space = Space(config, 10, cluster_of(80))
    shape = Layout(tp=1, pp=5, dp_replicate=1, dp_shard=2, micro_batch_size=1)
    for layout in layouts(space, shape):
        num_stages = layout.pp * layout.stages_per_rank
        cut = (1, *[3] * (num_stages - 2), 1)  # so that it is a rank between the first and the last
        model = config.model.model_copy(update={"num_layers": sum(cut)})
        run = layout._replace(layers_per_stage=cut).configure(config.model_copy(update={"model": model}))
        estimates = memory.estimate(run, 10, device)
        expected = max(each.device_bytes for each in estimates), max(each.host_bytes for each in estimates)
        assert memory.most_bytes(run, 10, device) == expected, layout


def test_actions_are_counted_as_they_are_simulated() -> None:
    kinds: list[tuple[ScheduleKind, int]] = [("1f1b", 1), ("interleaved", 2), ("zero-bubble", 2), ("zbv", 2)]
    for schedule, chunks in kinds:
        for num in (2, 9, 40):
            runs = pipeline_time._simulations(3, num)
            lists = [actions(schedule, 3, chunks, run) for run in runs]
            total = sum(len(own) for ranks in lists for own in ranks)
            assert pipeline_time.num_actions(schedule, 3, chunks, num) == total


def test_families_have_reasons() -> None:
    """A model for which a rank's memory decides: what does not fit says by how much, what is slow how slow it is."""
    plans = search(config_of(global_batch_size=24), 12, cluster_of(0.4))
    reasons = {rejected.family: rejected for rejected in plans.rejected}
    assert all(rejected.layouts > 0 and rejected.reason for rejected in plans.rejected)
    text = "\n".join(f"{rejected.family}: {rejected.reason}" for rejected in plans.rejected)
    assert "GiB on the fullest device" in text and "the best" in text, text
    assert (
        any("leaves the node of 4" in rejected.reason for rejected in plans.rejected)
        or "tensor parallel 8" not in reasons
    )


@pytest.mark.parametrize(
    ("memory_gib", "batch", "fitting"),
    [(0.45, 16, {"zero=1", "zero=2", "sp=off"}), (0.6, 24, {"zero=1", "zero=2", "sp=off", "dp_replicate=2"})],
)
def test_a_choice_does_not_fit_where_no_layout_of_the_shape_does(
    memory_gib: float, batch: int, fitting: set[str]
) -> None:
    """Another value of a choice may fit with more recompute: it is said how long that takes, and not what it lacks."""
    config, cluster = config_of(global_batch_size=batch), cluster_of(memory_gib)
    plans = search(config, 8, cluster)
    shape = Layout.of(plans.best.config, 8)
    tried = {each.family: each.reason for each in plans.rejected if "=" in each.family and "offload" not in each.family}
    assert {family for family, reason in tried.items() if reason.endswith("in its shape")} == fitting
    for family, reason in tried.items():
        space = Space(config, 8, cluster, OURS, Constraints(**{k: (v,) for k, v in parse_words(family, "").items()}))
        seconds = [
            prediction.step_seconds
            for prediction in (
                predict(each.configure(config), 8, cluster, exact=False) for each in layouts(space, shape)
            )
            if prediction.fits
        ]
        assert bool(seconds) == ("GiB" not in reason), family
        if family in fitting:
            assert float(reason.split()[1]) == pytest.approx(min(seconds), rel=GAIN - 0.99), family


def test_offload_only_where_nothing_else_fits() -> None:
    config = config_of({"num_layers": 24})
    cluster = cluster_of(80)
    assert not search(config, 1, cluster).best.config.parallel.offload
    small = cluster_of(3.2)
    assert search(config, 1, small).best.config.parallel.offload
    with pytest.raises(UsageError, match=r"needs .* GiB on the fullest device, .* too few"):
        search(config, 1, small, constraints=Constraints(offload=(False,)))


def test_nothing_fits() -> None:
    with pytest.raises(UsageError, match=r"the nearest, tp=.*needs .* GiB .* too few.*devices would do"):
        search(config_of({"num_layers": 24}), 2, cluster_of(1.0), constraints=Constraints(offload=(False,)))


@pytest.mark.parametrize(
    ("devices", "constraints", "message"),
    [
        (0, Constraints(), "takes one at least"),
        (7, Constraints(), "nearest numbers of devices that have one are 6 and 8; a batch of 21, 5 more"),
        (8, Constraints(tp=(3,)), "has tp=3: it can be 1, 2, 4 or 8"),
        (8, Constraints(pp=(5,)), "has pp=5: it can be 1, 2 or 4"),
        (8, Constraints(micro_batch_size=(5,)), "has mbs=5: it can be 1, 2, 4, 8 or 16"),
        (8, Constraints(pp=(2,), schedule=("zbv",), stages_per_rank=(3,)), "has pp=2: it can be 1"),
    ],
)
def test_what_cannot_be(devices: int, constraints: Constraints, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        search(config_of(), devices, cluster_of(80), constraints=constraints)


def test_more_devices_than_there_are() -> None:
    cluster = cluster_of(80).model_copy(update={"most_devices": 16})
    with pytest.raises(UsageError, match="has 16 devices, 48 fewer than the 64"):
        search(config_of(), 64, cluster)


def test_constraints_hold() -> None:
    chosen = Constraints(tp=(2, 4), schedule=("gpipe",), recompute=("full",), zero=(2,), sequence_parallel=(False,))
    plans = search(config_of(), 8, cluster_of(80), constraints=chosen)
    for prediction in plans.layouts:
        parallel = prediction.config.parallel
        assert parallel.tp in (2, 4) and parallel.zero == 2 and not parallel.sequence_parallel
        assert parallel.recompute == "full" and (parallel.pp == 1 or parallel.schedule == "gpipe")


@pytest.mark.long
@pytest.mark.parametrize("software", [OURS, MEGATRON_2021])
def test_published_yuan_is_among_those_that_fit(software: FrameworkProfile) -> None:
    """8 x 38 x 7 on 2,128 GPUs, held to its pipeline so that this is quick."""
    config, cluster = load_config("yuan-245b"), load_cluster("selene-a100-80")
    plans = search(config, 2128, cluster, software, keep=1, constraints=Constraints(tp=(8,), pp=(19, 38)))
    rank = plans.rank_of(predict(config, 2128, cluster, software))
    assert rank.prediction.fits and rank.place > 1 and rank.slower > 1
