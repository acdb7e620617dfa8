"""Measured tuning: what runs teach, a run out of memory among them, and which layouts are run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from corpus.engine.errors import WenhaiError
from pretrain.config import RunConfig, load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.naming import layout_name
from pretrain.plan.prediction import RESERVED, Prediction
from pretrain.plan.search.search import Plans, search
from pretrain.plan.tuning import refit, tune
from pretrain.plan.tuning.measure import Measurement
from pretrain.plan.tuning.refit import Run
from pretrain.workload.framework_profiles import OURS

GPUS = 8
GIB = 2**30
OUT = Measurement("out of memory", message="CUDA out of memory")


def with_efficiency(cluster: Cluster, **values: float) -> Cluster:
    return cluster.model_copy(update={"efficiency": cluster.efficiency.model_copy(update=values)})


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return with_efficiency(load_cluster("selene-a100-80"), products=0.747, memory=0.622, seconds_per_operation=3e-6)


@pytest.fixture(scope="module")
def plans(cluster: Cluster) -> Plans:
    """The best layouts of a model of 1.2 billion on a node."""
    found = search(load_config("llama-3.2-1b", ["training.global_batch_size=32"]), GPUS, cluster, keep=4)
    return replace(found, layouts=found.layouts[:12])


def machine(truth: Cluster, failing: Callable[[RunConfig], Measurement | None] = lambda config: None) -> tune.Measure:
    """Runs as a cluster would that is not as the planner believes."""

    def run(config: RunConfig, num_ranks: int) -> Measurement:
        prediction = predict(config, num_ranks, truth, OURS)
        held = int(prediction.memory_bytes * truth.efficiency.held)
        return failing(config) or Measurement("done", (prediction.step_seconds,), (held,))

    return run


def runs_of(layouts: list[Prediction], measure: tune.Measure) -> list[Run]:
    return [Run(layout, measure(layout.config, layout.devices)) for layout in layouts]


def test_the_fit_finds_the_scalars_that_made_the_times(cluster: Cluster, plans: Plans) -> None:
    """Half the products and slower memory, held by nothing but the prior: the runs win."""
    truth = with_efficiency(cluster, products=0.45, memory=0.4)
    layouts = list(plans.layouts)
    fitted = refit.refit(cluster, runs_of(layouts, machine(truth)))
    for layout in layouts:
        again, true = refit.predicted_again(layout, fitted), refit.predicted_again(layout, truth)
        assert again.step_seconds == pytest.approx(true.step_seconds, rel=0.03)
    assert fitted.efficiency.products == pytest.approx(0.45, rel=0.1)


def test_what_was_right_already_stays(cluster: Cluster, plans: Plans) -> None:
    fitted = refit.refit(cluster, runs_of(list(plans.layouts[:4]), machine(cluster)))
    for name, value in cluster.efficiency:
        assert getattr(fitted.efficiency, name) == pytest.approx(value, rel=1e-4), name
    assert refit.refit(cluster, []) == cluster


def test_shares_stay_shares(cluster: Cluster, plans: Plans) -> None:
    """Runs faster than the peak allows."""
    fast = [
        Run(layout, Measurement("done", (layout.step_seconds / 5,), (layout.memory_bytes,)))
        for layout in plans.layouts[:3]
    ]
    fitted = refit.refit(cluster, fast)
    assert fitted.efficiency.products == 1.0
    assert Cluster.model_validate(fitted.model_dump()) == fitted


def test_steps_that_differ_count_less(plans: Plans) -> None:
    steady, restless = (Run(plans.best, Measurement("done", seconds)) for seconds in ((1.0, 1.0), (0.5, 1.5)))
    assert (steady.error, restless.error) == (
        pytest.approx(refit.RUN_ERROR),
        pytest.approx(math.hypot(0.05, math.sqrt(0.5))),
    )


def test_measured_memory_is_a_factor(cluster: Cluster, plans: Plans) -> None:
    truth = with_efficiency(cluster, held=1.2)
    assert refit.refit_held(cluster, runs_of(list(plans.layouts), machine(truth))) == pytest.approx(1.2, rel=0.01)


def test_out_of_memory_is_censored(cluster: Cluster, plans: Plans) -> None:
    """It says that more is held than there is, not how much; and nothing about time."""
    room = cluster.device.memory_gib * GIB * RESERVED
    near = _held(plans.best, 0.8 * room)
    raised = refit.refit(cluster, [Run(near, OUT)])
    assert 0.8 * raised.efficiency.held > 0.98
    assert not replace(near, cluster=raised).fits
    assert raised.model_copy(update={"efficiency": cluster.efficiency}) == cluster
    beyond = refit.refit_held(cluster, [Run(_held(plans.best, 1.5 * room), OUT)])
    assert beyond == pytest.approx(1.0, abs=0.01)  # as expected: nothing new


def test_measured_memory_and_a_bound_are_weighed(cluster: Cluster, plans: Plans) -> None:
    """Two runs held a tenth more than predicted; one that is out of memory asks for a quarter more."""
    room = cluster.device.memory_gib * GIB * RESERVED
    seen = _held(plans.best, 0.5 * room)
    done = Run(seen, Measurement("done", (1.0,), (int(0.55 * room),)))
    factor = refit.refit_held(cluster, [done, done, Run(_held(plans.best, 0.8 * room), OUT)])
    assert 1.1 < factor < 1.25


def test_little_memory_says_little(cluster: Cluster, plans: Plans) -> None:
    """A hundred megabytes beside a model of as many are no factor two for a large one."""
    few = Run(_held(plans.best, 100 * 2**20), Measurement("done", (1.0,), (200 * 2**20,)))
    assert few.held_error == pytest.approx(math.hypot(0.05, 1.0))
    assert refit.refit_held(cluster, [few]) == pytest.approx(2 ** (0.3**2 / (0.3**2 + 0.05**2 + 1)), rel=1e-4)


def test_on_cpus_a_rank_has_its_part_of_the_machine(plans: Plans) -> None:
    """16 GiB for 8 ranks, each with half a GiB beside what is predicted: a run of 1.2 GiB that was too large holds
    1.5."""
    cpu = load_cluster("cpu")
    cpu = cpu.model_copy(update={"host": cpu.host.model_copy(update={"memory_gib": 16.0})})
    held = replace(_held(plans.best, 1.2 * GIB, beside=0.5 * GIB), cluster=cpu)
    small = replace(_held(plans.best, 0.3 * GIB, beside=0.5 * GIB), cluster=cpu)
    factor = refit.refit_held(cpu, [Run(held, OUT), Run(small, Measurement("done", (1.0,)))])
    assert 1.25 < factor < 1.4


def test_the_fit_weighs_what_was_believed(cluster: Cluster, plans: Plans) -> None:
    """Where it ends, no scalar moved a little makes runs and beliefs together likelier; one run decides nothing
    alone."""
    layouts = list(plans.layouts[:2])
    runs = [Run(layout, Measurement("done", (layout.step_seconds * 3,))) for layout in layouts]

    def badness(now: Cluster) -> float:
        misses = [
            math.log(run.measurement.seconds[0] / refit.predicted_again(run.prediction, now).step_seconds) / run.error
            for run in runs
        ]
        moved = [
            math.log(after.value / before.value) / before.error
            for before, after in zip(refit._scalars(cluster), refit._scalars(now), strict=True)
        ]
        return sum(one * one for one in [*misses, *moved])

    fitted = refit.refit_speed(cluster, runs)
    least = badness(fitted)
    assert least < 0.1 * badness(cluster)
    for scalar in refit._scalars(fitted):
        for factor in (0.97, 1.03):
            if scalar.value * factor <= scalar.most:
                assert badness(scalar.put(fitted, scalar.value * factor)) > least * 0.999


def test_the_best_k_are_measured_when_it_ends(
    cluster: Cluster, plans: Plans, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = with_efficiency(cluster, memory=0.2, seconds_per_operation=3e-5)
    tuned = tune.measure_best(plans, 3, run=machine(truth))
    assert tuned.is_settled and len(capsys.readouterr().err.splitlines()) == len(tuned.runs) >= 3
    assert tuned.runs[0].prediction is plans.best
    assert tuned.best is not None
    fastest = max(plans.layouts, key=lambda layout: refit.predicted_again(layout, truth).tokens_per_second)
    assert tuned.best.prediction.config == fastest.config
    assert len({id(run.prediction) for run in tuned.runs}) == len(tuned.runs)


def test_an_injected_out_of_memory_is_censored_and_the_search_goes_on(cluster: Cluster, plans: Plans) -> None:
    first = plans.best.config
    tuned = tune.measure_best(plans, 2, run=machine(cluster, lambda config: OUT if config == first else None))
    assert [run.measurement.outcome for run in tuned.runs] == ["out of memory", "done", "done", "done"]
    assert tuned.is_settled and tuned.out_of_memory == 1
    others = [refit.predicted_again(layout, tuned.cluster) for layout in plans.layouts[1:]]
    fastest = max((layout for layout in others if layout.fits), key=lambda layout: layout.tokens_per_second)
    assert tuned.best is not None and tuned.best.prediction.config == fastest.config  # of what fits as known by now
    assert tuned.cluster.efficiency.held > 1
    assert tuned.cluster.efficiency.products == pytest.approx(cluster.efficiency.products, rel=1e-3)
    told = "\n".join(tune.lines(tuned))
    assert "out of memory: 1; memory is now expected to be" in told


def test_memory_that_is_learnt_excludes_others_unseen(cluster: Cluster, plans: Plans) -> None:
    """Where a run is out of memory, layouts that were predicted to hold as much are not run."""
    room = cluster.device.memory_gib * GIB * RESERVED
    full = [_held(layout, (0.9 if number < 5 else 0.2) * room) for number, layout in enumerate(plans.layouts)]
    crowded = with_efficiency(cluster, held=1.4)
    ran: list[RunConfig] = []

    def run(config: RunConfig, num_ranks: int) -> Measurement:
        ran.append(config)
        layout = next(each for each in full if each.config == config)
        seconds, held = layout.step_seconds, int(layout.memory_bytes * crowded.efficiency.held)
        return OUT if held > room else Measurement("done", (seconds,), (held,))

    def again(prediction: Prediction, cluster: Cluster) -> Prediction:
        return replace(prediction, cluster=cluster)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "predicted_again", again)
        patch.setattr(refit, "predicted_again", again)
        tuned = tune.measure_best(replace(plans, layouts=full), 2, run=run)
    assert ran == [full[0].config, full[5].config, full[6].config]
    assert tuned.is_settled


def test_a_failure_is_no_candidate_and_teaches_nothing(cluster: Cluster, plans: Plans) -> None:
    first = plans.best.config
    broken = Measurement("failed", message="a bug")
    tuned = tune.measure_best(plans, 2, run=machine(cluster, lambda config: broken if config == first else None))
    assert [run.measurement.outcome for run in tuned.runs] == ["failed", "done", "done"]
    assert tuned.cluster.efficiency.held == pytest.approx(1.0, abs=1e-3)
    assert any("a bug" in line for line in tune.lines(tuned))


def test_a_machine_that_runs_nothing_is_given_up(plans: Plans) -> None:
    with pytest.raises(WenhaiError, match=r"none of 2 layouts could be run here\. The last: too few GPUs"):
        tune.measure_best(plans, 2, run=lambda config, num_ranks: Measurement("failed", message="too few GPUs"))


def test_runs_are_not_endless(cluster: Cluster, plans: Plans) -> None:
    """All out of memory, far beyond what a fit believes."""
    tuned = tune.measure_best(plans, 2, run=lambda config, num_ranks: OUT)
    assert len(tuned.runs) <= tune.MOST_RUNS * 2 and tuned.best is None
    assert "fastest" not in "\n".join(tune.lines(tuned))


def test_the_table_the_layout_and_the_cluster_can_be_used(cluster: Cluster, plans: Plans, tmp_path: Path) -> None:
    truth = with_efficiency(cluster, products=0.5)
    tuned = tune.measure_best(plans, 2, run=machine(truth))
    told = list(tune.lines(tuned))
    assert any("products 0.747 -> 0.5" in line for line in told)
    assert tuned.best is not None and told[-1].startswith("[parallel]")
    path = tmp_path / "here.toml"
    path.write_text(tuned.cluster.as_toml())
    assert load_cluster(str(path)) == tuned.cluster
    value = tune.as_json(tuned)
    assert value["best"] == layout_name(tuned.best.prediction.config, GPUS)
    assert [one["outcome"] for one in value["runs"]] == ["done"] * len(tuned.runs)
    assert value["cluster"]["name"] == cluster.name


@dataclass(frozen=True)
class Holding(Prediction):
    """One whose memory is told."""

    told_bytes: int = 0
    told_host_bytes: int = 0  # beside them, of a rank on a CPU

    @property
    def _most_bytes(self) -> tuple[int, int]:
        return self.told_bytes, self.told_bytes + self.told_host_bytes


def _held(prediction: Prediction, num_bytes: float, beside: float = 0) -> Holding:
    told = {field.name: getattr(prediction, field.name) for field in fields(Prediction)}
    return Holding(**told, told_bytes=int(num_bytes), told_host_bytes=int(beside))


def test_runs_rank_as_measured_and_those_without_a_time_not_at_all(plans: Plans) -> None:
    layouts = list(plans.layouts[:4])
    slow = Measurement("done", (10 * layouts[1].step_seconds,))
    assert tune.ranking(layouts, {0: Run(layouts[0], OUT), 1: Run(layouts[1], slow)}) == [2, 3, 1]
