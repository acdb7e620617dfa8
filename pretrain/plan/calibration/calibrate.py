"""`python -m pretrain plan calibrate --out FILE`: the machine at hand as a cluster, measured in about half a minute.

    python -m pretrain plan calibrate --out build/here.toml
    python -m pretrain plan --config demo --cluster build/here.toml --gpus 2

Two jobs measure what `plan.calibration.benchmarks` lists: one rank, and one on each core (of a GPU machine: on each
GPU). Then:

| figure | from |
|---|---|
| device.peak | the fastest matrix product of a precision, of one rank; on a GPU the vendor's figure where it is known |
| efficiency.half_depth | how a CPU's products speed up with their size; a GPU has that of the package's clusters |
| device.memory_bandwidth | the fastest sum of two tensors, of one rank |
| cores.products, cores.memory | the same with all ranks at work, relative to one of them alone |
| networks: latency, bandwidth, half_factor | straight lines through the seconds of each collective over its bytes |
| efficiency, networks' too | fitted to steps of small models (`plan.tuning.refit`), from the figures above |

On a busy machine the figures are those of a busy machine: the spread between quartiles is printed beside each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from corpus.engine import durable
from corpus.engine.config import parse
from corpus.engine.errors import WenhaiError
from corpus.engine.executor import available_cpus
from pretrain.columns import align_table
from pretrain.hardware import find_device, processor_name
from pretrain.launch import launch
from pretrain.plan.calibration.benchmarks import DTYPES, Findings, Sample, training_configs
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, Cores, Device, Efficiency, Host, Network
from pretrain.plan.tuning.measure import Measurement
from pretrain.plan.tuning.refit import Run, predicted_again, refit_speed

GIB = 2**30
START = Efficiency(products=0.9, memory=0.4, seconds_per_operation=5e-6)  # where the fit begins
MOST_SPREAD = 0.2  # of a machine that is left alone
GPU_HALF_DEPTH = 128.0  # as selene-a100-80
UNKNOWN_NETWORK = 1e9  # bytes/s, where one device is all there is


@dataclass(frozen=True)
class Calibration:
    """What was measured, and what was made of it."""

    cluster: Cluster
    alone: Findings
    together: Findings | None  # all ranks at once; None where there is one device
    runs: Sequence[Run]  # training steps, as predicted before the fit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain plan calibrate`."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the cluster's file, TOML")
    parser.add_argument("--name", help="of the cluster (default: FILE's)")


def main(args: argparse.Namespace) -> None:
    """Measure, write the file, and print what was measured."""
    calibration = calibrate(args.name or args.out.stem)
    text = calibration.cluster.as_toml()
    durable.write_bytes(args.out, f"# Measured by `python -m pretrain plan calibrate`.\n{text}\n".encode())
    for line in lines(calibration):
        print(line)
    print(f"wrote {args.out}: `python -m pretrain plan --cluster {args.out}` plans for it", flush=True)


def calibrate(name: str) -> Calibration:
    """Measure this machine: its GPUs, or its CPU where it has none.

    Raises:
        WenhaiError: a measuring rank failed; it has said why.
    """
    on_gpu = torch.cuda.is_available()
    number = torch.cuda.device_count() if on_gpu else available_cpus()
    alone = _findings(1)
    together = _findings(max(2, number)) if number > 1 or not on_gpu else None
    cluster = cluster_of(name, number, alone, together)
    runs = list(_runs(cluster, [alone, *([together] if together else [])]))
    return Calibration(refit_speed(cluster, runs), alone, together, runs)


def cluster_of(name: str, number: int, alone: Findings, together: Findings | None) -> Cluster:
    """What the benchmarks say, before training steps are asked.

    Args:
        number: of devices of the machine.
    """
    on_cpu = alone.device == "cpu"
    half_depth = _half_depth(alone.of("products", "fp32")) if on_cpu else GPU_HALF_DEPTH
    peaks = {
        precision: _rate_of_deepest(max(samples, key=lambda sample: sample.rate), half_depth)
        for precision in DTYPES
        if (samples := alone.of("products", precision)) and (on_cpu or find_device(alone.device) is None)
    }
    bandwidth = max(sample.rate for sample in alone.of("memory"))
    link = alone.of("host")
    all_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = _cores(number, alone, together) if on_cpu else None
    return Cluster(
        name=name,
        description=f"measured: {number} x {processor_name(torch.device('cpu')) if on_cpu else alone.device}",
        devices_per_node=number,
        most_devices=None if on_cpu else number,  # ranks may share cores
        device=Device(
            name=alone.device,
            memory_gib=round(alone.memory_bytes / GIB / (number if on_cpu else 1), 2),
            memory_bandwidth=bandwidth,
            peak=peaks,
        ),
        host=Host(
            memory_gib=round(all_memory / GIB, 2),
            memory_bandwidth=bandwidth * (cores.memory * number if cores else 1.0),
            link_bandwidth=link[0].rate if link else bandwidth,
        ),
        networks=(_network("gloo" if on_cpu else "NCCL", together),),
        cores=cores,
        efficiency=START.model_copy(update={"half_depth": half_depth}),
    )


def _findings(ranks: int) -> Findings:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a device is a core
    with tempfile.TemporaryDirectory(prefix="calibrate-") as folder:
        code = launch([sys.executable, "-m", "pretrain.plan.calibration.benchmarks", folder], ranks)
        if code:
            raise WenhaiError(f"plan calibrate: a rank of {ranks} ended with exit code {code}; what it said is above.")
        return parse(Findings, durable.read_json(Path(folder) / "findings.json"), "findings of plan calibrate")


def _half_depth(products: Sequence[Sample]) -> float:
    """The depth at which products reach half of the rate of the deepest (Hockney's n_1/2), by the seconds of an
    operation."""
    seconds = np.array([1 / sample.rate for sample in products])
    columns = np.stack([1 / seconds, 1 / (seconds * np.array([_depth(sample) for sample in products]))], axis=1)
    (of_deepest, of_shallow), *_ = np.linalg.lstsq(columns, np.ones(len(products)), rcond=None)
    return max(0.0, float(of_shallow / of_deepest)) if of_deepest > 0 else 0.0


def _rate_of_deepest(product: Sample, half_depth: float) -> float:
    """FLOP/s of products of any depth, by one of them."""
    return product.rate * (1 + half_depth / _depth(product))


def _depth(product: Sample) -> float:
    """Of a square one."""
    return float((product.work / 2) ** (1 / 3))


def _cores(number: int, alone: Findings, together: Findings | None) -> Cores:
    """What a core keeps of its lone rates where all work: products, and memory beyond the caches."""
    if together is None or number == 1:
        return Cores(number=number)
    products = [
        both.rate / one.rate
        for one, both in zip(alone.of("products", "fp32"), together.of("products", "fp32"), strict=True)
    ]
    memory = together.of("memory")[-1].rate / alone.of("memory")[-1].rate
    return Cores(number=number, products=min(1.0, statistics.median(products)), memory=min(1.0, memory))


def _network(name: str, together: Findings | None) -> Network:
    """One ring's hop and its bandwidth: of n ranks an all-reduce takes 2 (n - 1) hops and passes 2 (n - 1) / n of the
    bytes."""
    if together is None:
        return Network(name="none measured", bandwidth=UNKNOWN_NETWORK, latency=0.0)
    ranks = together.ranks
    whole_start, whole_each = _line(together.of("all_reduce"))
    half_start, half_each = (
        statistics.mean(numbers)
        for numbers in zip(*(_line(together.of(kind)) for kind in ("all_gather", "reduce_scatter")), strict=True)
    )
    latency = statistics.mean((whole_start / 2, half_start)) / (ranks - 1)
    passing = 2 * (ranks - 1) / ranks
    return Network(
        name=name,
        bandwidth=passing / whole_each,
        latency=latency,
        half_factor=max(1.0, 2 * half_each / whole_each),
    )


def _line(samples: Sequence[Sample]) -> tuple[float, float]:
    """Seconds at no bytes and seconds a byte, both positive, by least squares of relative errors."""
    seconds = np.array([sample.median for sample in samples])
    work = np.array([sample.work for sample in samples])
    columns: NDArray[np.float64] = np.stack([1 / seconds, work / seconds], axis=1)
    (start, each), *_ = np.linalg.lstsq(columns, np.ones(len(samples)), rcond=None)
    return max(float(start), float(seconds.min()) / 10), max(float(each), 1e-15)


def _runs(cluster: Cluster, found: Sequence[Findings]) -> Iterator[Run]:
    """Training steps beside what the cluster predicts of them."""
    for one in found:
        kind = "cpu" if one.device == "cpu" else "cuda"
        for config, seconds in zip(training_configs(kind, one.ranks), one.steps, strict=False):
            yield Run(predict(config, one.ranks, cluster), Measurement("done", tuple(seconds)))


def lines(calibration: Calibration) -> Iterator[str]:
    """Every measurement with its spread, and the cluster that was made of them."""
    cluster = calibration.cluster
    yield f"{cluster.description}; spread: between the quartiles, relative to the median"
    spread = statistics.median(sample.spread for sample in calibration.alone.samples)
    if spread > MOST_SPREAD:
        yield (
            f"WARNING: a typical measurement of one rank varies by {spread:.0%}: this machine is busy with "
            "something else. Measure again when it is not"
        )
    for found in (calibration.alone, calibration.together):
        if found is not None:
            yield from _sample_lines(found)
    yield ""
    rows = []
    for run in calibration.runs:
        config = run.prediction.config
        model, measured = config.model, Sample(kind="step", work=1.0, seconds=list(run.measurement.seconds))
        predicted = predicted_again(run.prediction, cluster).step_seconds
        shape = f"{model.num_layers} layers of {model.hidden_size}, window {model.sequence_length}"
        times = (f"{1e3 * measured.median:.1f}", f"{measured.spread:.0%}", f"{1e3 * predicted:.1f}")
        name = f"{run.prediction.devices} x {shape}, zero {config.parallel.zero}"
        rows.append((name, *times, f"{predicted / measured.median - 1:+.1%}"))
    yield from align_table(
        [("training step", "measured ms", "spread", "predicted ms", "error"), *rows], left=("training step",)
    )
    yield ""
    yield from cluster.as_toml().splitlines()
    yield ""


def _sample_lines(found: Findings) -> Iterator[str]:
    units: Mapping[str, tuple[float, str]] = {"products": (1e9, "GFLOP/s"), "operation": (1e6, "million/s")}
    rows = []
    for sample in found.samples:
        unit, name = units.get(sample.kind, (1e9, "GB/s"))
        times = (f"{1e6 * sample.median:.1f} us", f"{sample.spread:.0%}", f"{sample.rate / unit:.2f}", name)
        rows.append((f"{sample.kind} {sample.precision or ''}".strip(), f"{sample.work:.3g}", *times))
    ranks = f"{found.ranks} rank{'s at once' if found.ranks > 1 else ''}"
    yield ""
    yield from align_table([(ranks, "work", "each", "spread", "rate", " "), *rows], left=(ranks, " "))
