"""The planner's answers as text for a terminal: at most 100 columns, no colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

from pretrain.config import ParallelConfig, RunConfig
from pretrain.plan.prediction import Axis, Prediction, Seconds
from pretrain.plan.search.search import Rejected
from pretrain.workload import parameters

WIDTH = 100
GIB = 2**30
SCHEDULES = {"interleaved": "inter", "zero-bubble": "zb"}  # in a narrow column
RECOMPUTES = {"none": "-", "selective": "select"}
PARTS = tuple(field.name for field in fields(Seconds))
COLUMNS = {"products": "matmul", "recompute": "recomp", "messages": "pipe", "optimizer": "update", "launches": "launch"}
AXES: dict[Axis, str] = {"tensor": "tp", "pipeline": "pp", "data": "dp"}
LEGEND = (
    "memory: of the fullest device; host: of a node; bubble: waiting for other stages over own work, (p-1)/m of 1f1b; "
    "8-: without sequence parallelism; 2x64: replicas of shards; +o: offloaded"
)


class Unit(NamedTuple):
    """What figures of one table are told in."""

    size: float
    name: str


def time_unit(seconds: float) -> Unit:
    """Of steps that take about so long."""
    return Unit(1.0, "s") if seconds >= 0.1 else Unit(1e-3, "ms")


def memory_unit(num_bytes: float) -> Unit:
    """Of devices that hold about so much."""
    return Unit(GIB, "GiB") if num_bytes >= GIB else Unit(2**20, "MiB")


def header(config: RunConfig, prediction: Prediction, tokens: int, name: str) -> Iterator[str]:
    """What was asked."""
    cluster, training = prediction.cluster, config.training
    nodes = -(-prediction.devices // cluster.devices_per_node)
    yield (
        f"{name}: {big(parameters.of_model(config.model))} parameters on {prediction.devices:,} x {cluster.device.name} "
        f"({cluster.name}, {nodes:,} node{'s' * (nodes > 1)} of {cluster.devices_per_node})"
    )
    yield (
        f"{training.global_batch_size:,} samples x {config.model.sequence_length:,} tokens a step, {big(tokens)} tokens in all, "
        f"{training.precision}; software: {prediction.software.name}"
    )


def table(rows: Sequence[tuple[str, Prediction]], tokens: int) -> Iterator[str]:
    """Layouts below each other, each with what stands before it, such as its place."""
    time = time_unit(min(prediction.step_seconds for _, prediction in rows))
    memory = memory_unit(max(prediction.memory_bytes for _, prediction in rows))
    yield (
        f"{'':>4}{'tp':>4}{'pp':>4}{'dp':>5}{'mbs':>4} {'schedule':<8}{'ZeRO':>5} {'recomp':<7}{f'step {time.name}':>8}{'tok/s':>8}"
        f"{'MFU':>6}{'HFU':>6}{'days':>8}{memory.name:>7}{'host':>7}{'bubble':>7}"
    )
    for mark, prediction in rows:
        parallel = prediction.config.parallel
        yield (
            f"{mark:>4}{tensor(parallel):>4}{parallel.pp:>4}{data(prediction):>5}{prediction.micro_batch_size:>4} "
            f"{schedule(parallel):<8}{zero(parallel):>5} {recompute(parallel):<7}{number(prediction.step_seconds / time.size):>8}"
            f"{big(prediction.tokens_per_second):>8}{percent(prediction.mfu):>6}{percent(prediction.hfu):>6}"
            f"{number(prediction.days(tokens)):>8}{number(prediction.memory_bytes / memory.size):>7}"
            f"{number(prediction.host_bytes_per_node / memory.size):>7}{percent(prediction.bubble):>7}"
        )


def split(rows: Sequence[tuple[str, Prediction]]) -> Iterator[str]:
    """Of the same layouts: the parts of the step in percent of it, and how long each axis communicates."""
    time = time_unit(min(prediction.step_seconds for _, prediction in rows))
    parts = [part for part in PARTS if any(_share(prediction, part) >= 0.0005 for _, prediction in rows)]
    axes = [axis for axis in AXES if any(each.communication[axis].total for _, each in rows)]
    yield (
        f"{'':>4}"
        + "".join(f"{COLUMNS.get(part, part):>8}" for part in parts)
        + "".join(f"{f'{AXES[axis]} {time.name}':>8}" for axis in axes)
    )
    for mark, prediction in rows:
        shares = "".join(f"{percent(_share(prediction, part)):>8}" for part in parts)
        sent = "".join(f"{number(prediction.communication[axis].total / time.size):>8}" for axis in axes)
        yield f"{mark:>4}{shares}{sent}"
    yield from wrapped(
        "percent: of the step, on the busiest rank, what nothing hides"
        + ("; tp, pp, dp: how long each axis communicates in a step, hidden or not" if axes else "")
    )


def others(name: str, found: Mapping[str, Prediction]) -> Iterator[str]:
    """A layout as programs other than `name` would run it."""
    yield from wrapped(f"All this is of {name}. The same layout, run by another program (--software NAME):")
    for other, prediction in found.items():
        time, memory = time_unit(prediction.step_seconds), memory_unit(prediction.memory_bytes)
        yield (
            f"  {other:<16}{number(prediction.step_seconds / time.size):>8} {time.name:<3}{prediction.tflops_per_gpu:>8.1f} TFLOP/s"
            f"{number(prediction.memory_bytes / memory.size):>8} {memory.name}{'' if prediction.fits else ', does not fit'}"
        )


def rejections(rejected: Sequence[Rejected], most: int) -> Iterator[str]:
    """The families of layouts that are not in the table, each with its reason."""
    if rejected:
        yield "not there, and why:"
    for family in rejected[:most]:
        yield from wrapped(f"{family.family} ({family.layouts:,} layouts): {family.reason}", "  ", "    ")
    if len(rejected) > most:
        rest = sum(family.layouts for family in rejected[most:])
        yield f"  and {len(rejected) - most} more, with {rest:,} layouts: --top {len(rejected)} shows them, and --json"


def tensor(parallel: ParallelConfig) -> str:
    """As in `8-`: without sequence parallelism."""
    return f"{parallel.tp}{'-' * (parallel.tp > 1 and not parallel.sequence_parallel)}"


def data(prediction: Prediction) -> str:
    """As in `2x64`: replicas of what 64 ranks share."""
    replicas = prediction.config.parallel.dp_replicate
    number = prediction.data_parallel
    return f"{replicas}x{number // replicas}" if replicas > 1 else f"{number}"


def schedule(parallel: ParallelConfig) -> str:
    """As in `inter/2`: two stages on each rank."""
    if parallel.pp == 1:
        return "-"
    name = SCHEDULES.get(parallel.schedule, parallel.schedule)
    return f"{name}/{parallel.chunks}" if parallel.chunks > 1 and parallel.schedule != "zbv" else name


def zero(parallel: ParallelConfig) -> str:
    """The level, and whether it offloads."""
    return f"{parallel.zero}{'+o' * parallel.offload}"


def recompute(parallel: ParallelConfig) -> str:
    """As in `full/2`: of every second layer."""
    name = RECOMPUTES.get(parallel.recompute, parallel.recompute)
    return f"{name}/{parallel.recompute_every}" if parallel.recompute_every > 1 else name


def number(value: float) -> str:
    """Digits that matter, in at most seven columns below 10,000.

    >>> [number(value) for value in (0.0, 0.0000456, 0.00123, 0.0456, 1.234, 36.0436, 123.4, 12345.6)]
    ['0', '4.6e-05', '0.0012', '0.046', '1.23', '36.0', '123', '12,346']
    """
    if abs(value) < 0.01:
        return f"{value:.2g}"
    digits = next((digits for bound, digits in ((0.1, 3), (10, 2), (100, 1)) if abs(value) < bound), 0)
    return f"{value:,.{digits}f}"


def big(value: float) -> str:
    """Four digits and a letter.

    >>> [big(value) for value in (950, 12_345, 190_921, 245_735_000_000, 1.008e12)]
    ['950', '12.35 k', '190.9 k', '245.7 B', '1.008 T']
    """
    for unit, letter in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.{3 - len(str(int(scaled))) + 1}f}{letter}"
    return f"{value:.0f}"


def percent(share: float) -> str:
    """
    >>> percent(0.4567), percent(0.0006), percent(1e-17)
    ('45.7%', '0.1%', '-')
    """
    return f"{share:.1%}" if abs(share) >= 0.0005 else "-"


def wrapped(text: str, first: str = "", rest: str = "") -> Iterator[str]:
    """A paragraph in lines of at most `WIDTH`."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def _share(prediction: Prediction, part: str) -> float:
    return float(getattr(prediction.seconds, part)) / prediction.step_seconds


def seconds_of(prediction: Prediction) -> Mapping[str, float]:
    """The parts of the step."""
    return {part: getattr(prediction.seconds, part) for part in PARTS}
