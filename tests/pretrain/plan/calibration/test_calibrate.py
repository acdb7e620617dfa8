"""Calibration: figures from measurements that are known, a real one on two ranks, and the file that comes of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pretrain.config import ParallelConfig
from pretrain.parallel.base import mesh
from pretrain.plan.calibration import benchmarks, calibrate
from pretrain.plan.calibration.benchmarks import DTYPES, Findings, Sample, findings, training_configs
from pretrain.plan.calibration.calibrate import Calibration, cluster_of
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.machines.collectives import Collectives, Group
from tests.pretrain.ranks import reused_ranks

GIB = 2**30
SIZES = [2.0**power for power in range(10, 25, 2)]


def sample(kind: str, work: float, seconds: float, precision: Any = None, spread: float = 0.0) -> Sample:
    return Sample(
        kind=kind, work=work, seconds=[seconds * (1 - spread), seconds, seconds * (1 + spread)], precision=precision
    )


def known(
    ranks: int, speed: float = 1.0, latency: float = 1e-4, bandwidth: float = 1e9, factor: float = 1.0, **changes: Any
) -> Findings:
    """What ranks would find on a machine of these figures: `speed` x 100 GFLOP/s and 10 GB/s each."""
    samples = [sample("products", work, work / (rate * speed), precision)
               for precision in DTYPES for work, rate in ((1e8, 99e9), (1e9, 100e9), (1e10, 80e9))]  # fmt: skip
    samples += [sample("memory", work, work / (10e9 * speed)) for work in (1e6, 1e8)]
    samples += [sample("operation", 1.0, 3e-6)]
    hops, passing = ranks - 1, (ranks - 1) / ranks
    for size in SIZES if ranks > 1 else ():
        half = hops * latency + factor * passing * size / bandwidth
        samples += [sample("all_reduce", size, 2 * (hops * latency + passing * size / bandwidth))]
        samples += [sample(kind, size, half) for kind in ("all_gather", "reduce_scatter")]
        samples += [sample("send", size, latency + size / bandwidth)]
    values: dict[str, Any] = {"device": "cpu", "memory_bytes": 8 * GIB, "ranks": ranks, "samples": samples, "steps": []}
    return Findings(**(values | changes))


def with_steps(found: Findings, cluster: Cluster) -> Findings:
    """And training steps as a cluster predicts them."""
    configs = training_configs("cpu", found.ranks)
    steps = [[predict(config, found.ranks, cluster).step_seconds] * 3 for config in configs]
    return found.model_copy(update={"steps": steps})


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_network_is_found_again(ranks: int) -> None:
    """From seconds that its own model predicts, at every size, to the same model."""
    together = known(ranks, latency=2e-4, bandwidth=3e9, factor=1.4)
    (network,) = cluster_of("here", ranks, known(1), together).networks
    assert network.latency == pytest.approx(2e-4, rel=1e-3)
    assert network.bandwidth == pytest.approx(3e9, rel=1e-3)
    assert network.half_factor == pytest.approx(1.4, rel=1e-3)
    cluster = cluster_of("here", ranks, known(1), together)
    for one in together.of("all_reduce"):
        ways = Collectives(cluster).all_reduce_ways(Group(ranks, 1), one.work)
        assert ways["ring"] == pytest.approx(one.median, rel=1e-3)
    for one in together.of("all_gather"):
        assert Collectives(cluster).all_gather(Group(ranks, 1), one.work) == pytest.approx(one.median, rel=1e-3)


def test_gathers_that_are_faster_than_half_an_all_reduce_count_as_half_of_one() -> None:
    (network,) = cluster_of("here", 2, known(1), known(2, factor=0.5)).networks
    assert network.half_factor == 1.0


def test_the_peak_is_the_fastest_product_and_cores_keep_a_share_of_it() -> None:
    cluster = cluster_of("here", 4, known(1), known(4, speed=0.7))
    assert cluster.device.peak == pytest.approx(dict.fromkeys(DTYPES, 100e9))
    assert cluster.device.memory_bandwidth == pytest.approx(10e9)
    assert cluster.cores is not None and cluster.cores.number == 4
    assert (cluster.cores.products, cluster.cores.memory) == pytest.approx((0.7, 0.7))
    assert cluster.host.memory_bandwidth == pytest.approx(4 * 7e9)
    assert cluster.device.memory_gib == 2.0  # 8 for four cores
    assert (cluster.devices_per_node, cluster.most_devices) == (4, None)
    faster = cluster_of("here", 4, known(1), known(4, speed=1.1)).cores
    assert faster is not None and faster.products == 1.0


def test_deeper_products_are_faster() -> None:
    """Rates of 100 GFLOP/s x n / (n + 32): half of it at 32; the peak is that of the deepest that nobody measured."""
    samples = [sample("products", 2.0 * n**3, 2.0 * n**3 * (1 + 32 / n) / 100e9, "fp32") for n in (64, 128, 512)]
    one = known(1)
    others = [each for each in one.samples if (each.kind, each.precision) != ("products", "fp32")]
    cluster = cluster_of("here", 1, one.model_copy(update={"samples": [*samples, *others]}), None)
    assert cluster.efficiency.half_depth == pytest.approx(32)
    assert cluster.device.peak["fp32"] == pytest.approx(100e9)
    assert (
        cluster_of("here", 1, one, None).efficiency.half_depth == 0
    )  # those of `known` are faster where they are small


def test_a_known_gpu_keeps_its_vendors_peak() -> None:
    one = known(1, device="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB)
    one = one.model_copy(update={"samples": [*one.samples, sample("host", 1e9, 0.02)]})
    cluster = cluster_of("here", 1, one, None)
    assert cluster.device.peak == {} and cluster.device.peak_flops("bf16") == 989.4e12
    assert (cluster.cores, cluster.most_devices, cluster.device.memory_gib) == (None, 1, 80.0)
    assert cluster.host.link_bandwidth == pytest.approx(50e9)
    assert cluster.networks[0].name == "none measured"
    unknown = cluster_of("here", 1, one.model_copy(update={"device": "a new one"}), None)
    assert unknown.device.peak["bf16"] == pytest.approx(100e9 * (1 + 128 / (1e9 / 2) ** (1 / 3)))


def test_training_steps_have_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a machine whose products are slower than the benchmark: the fit explains them."""
    alone, together = known(1), known(2)
    first = cluster_of("here", 2, alone, together)
    truth = first.model_copy(
        update={
            "efficiency": first.efficiency.model_copy(
                update={"products": 0.6, "memory": 0.7, "seconds_per_operation": 2e-5}
            )
        }
    )
    found = {ranks: with_steps(one, truth) for ranks, one in ((1, alone), (2, together))}
    monkeypatch.setattr(calibrate, "_findings", found.__getitem__)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cluster = calibrate.calibrate("here").cluster
    worst_before, worst = 0.0, 0.0
    for ranks in (1, 2):
        for config in training_configs("cpu", ranks):
            before, after, true = (predict(config, ranks, one).step_seconds for one in (first, cluster, truth))
            worst_before, worst = max(worst_before, abs(before / true - 1)), max(worst, abs(after / true - 1))
    assert worst < 0.05 < 0.2 < worst_before


def test_a_machine_too_busy_for_all_models_is_fitted_to_the_first() -> None:
    found = with_steps(known(1), load_cluster("cpu"))
    runs = list(calibrate._runs(load_cluster("cpu"), [found.model_copy(update={"steps": found.steps[:2]})]))
    assert [run.prediction.config for run in runs] == training_configs("cpu", 1)[:2]


def test_the_file_reads_back_and_the_figures_are_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibration = _calibration()
    monkeypatch.setattr(calibrate, "calibrate", lambda name: calibration)
    path = tmp_path / "here.toml"
    parser = argparse.ArgumentParser()
    calibrate.add_arguments(parser)
    calibrate.main(parser.parse_args(["--out", str(path)]))
    assert load_cluster(str(path)) == calibration.cluster
    printed = capsys.readouterr().out
    assert "products fp32 1e+09 10000.0 us 0% 100.00 GFLOP/s" in " ".join(printed.split())
    assert "1 x 4 layers of 64, window 32, zero 2" in printed
    assert f"--cluster {path}" in printed and "WARNING" not in printed


def _calibration() -> Calibration:
    alone, together = known(1), known(2)
    cluster = cluster_of("here", 2, alone, together)
    found = [with_steps(one, cluster) for one in (alone, together)]
    return Calibration(cluster, found[0], found[1], list(calibrate._runs(cluster, found)))


def quick_findings() -> dict[str, Any]:
    """On a rank: everything once, small."""
    small: dict[str, Any] = {
        "PRODUCT_SIZES": {"cpu": (8, 16)},
        "MEMORY_NUMBERS": {"cpu": (64, 256)},
        "MESSAGE_BYTES": (64, 1024),
        "SHAPES": ((1, 32, 8, 128, 1), (1, 32, 16, 128, 1), (1, 64, 8, 128, 2)),
        "SAMPLE_SECONDS": 1e-5,
        "ROUNDS": 3,
        "STEPS": 2,
        "MOST_SECONDS": 1e9,  # also on a machine that is busy
    }
    with patch.multiple(benchmarks, **small), mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        return findings(world).model_dump(mode="json")


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ranks_measure(ranks: int) -> None:
    first, *others = reused_ranks(quick_findings, ranks) if ranks > 1 else [quick_findings()]
    found = Findings.model_validate(first, strict=False)
    kinds = {one.kind for one in found.samples}
    collectives = {"all_reduce", "all_gather", "reduce_scatter", "send"} if ranks > 1 else set()
    assert kinds == {"products", "memory", "operation"} | collectives
    assert [one.work for one in found.of("products", "fp32")] == [2 * 8**3, 2 * 16**3]
    assert all(one.median > 0 and len(one.seconds) == 3 for one in found.samples)
    assert len(found.steps) == (3 if ranks == 1 else 4) and all(len(steps) == 2 for steps in found.steps)
    assert all(other["samples"] == first["samples"] for other in others)  # the mean of all ranks, on each of them


def test_late_ranks_agree_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "MOST_SECONDS", -1.0)
    monkeypatch.setattr(benchmarks, "PRODUCT_SIZES", {"cpu": (8,)})
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        cases = list(benchmarks._product_cases(world))
        assert all(len(one.seconds) == benchmarks.FEWEST_ROUNDS for one in benchmarks._time_all(cases, world))
        monkeypatch.setattr(benchmarks, "_steps", lambda config, world: [1.0])
        assert list(benchmarks._all_steps(world)) == [[1.0]] * benchmarks.FEWEST_CONFIGS
