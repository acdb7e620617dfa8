"""The planner's answers as text for a terminal: at most 100 columns, no colours. The page shows the same rows."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence

from pretrain.columns import align_table
from pretrain.config import ParallelConfig, RunConfig
from pretrain.plan.prediction import Axis, Prediction
from pretrain.plan.search.search import Rejected
from pretrain.workload import parameters

WIDTH = 100
GIB = 2**30
SMALL = 0.0005  # of a whole: smaller shares are left out
RECOMPUTES = {"none": "-", "selective": "select"}
COLUMNS = {"products": "matmul", "recompute": "recomp", "messages": "pipe", "optimizer": "update", "launches": "launch"}
AXES: dict[Axis, str] = {"tensor": "tp", "pipeline": "pp", "data": "dp"}
LEGEND = (
    "memory: of the fullest device; host: of a node; bubble: waiting for other stages over own work, (p-1)/m of 1f1b; "
    "8-: without sequence parallelism; 2x64: replicas of shards; +o: offloaded"
)
Unit = tuple[float, str]  # what figures of one table are told in: size and name
Row = tuple[str, Prediction]  # what stands before a layout, such as its place


def time_unit(seconds: float) -> Unit:
    """Of steps that take about so long."""
    return (1.0, "s") if seconds >= 0.1 else (1e-3, "ms")


def memory_unit(num_bytes: float) -> Unit:
    """Of devices that hold about so much."""
    return (GIB, "GiB") if num_bytes >= GIB else (2**20, "MiB")


def header(config: RunConfig, prediction: Prediction, tokens: int, name: str) -> Iterator[str]:
    """What was asked."""
    cluster, training = prediction.cluster, config.training
    nodes = -(-prediction.devices // cluster.devices_per_node)
    yield (
        f"{name}: {big(parameters.of_model(config.model))} parameters on {prediction.devices:,} x "
        f"{cluster.device.name} ({cluster.name}, {nodes:,} node{'s' * (nodes > 1)} of {cluster.devices_per_node})"
    )
    yield (
        f"{training.global_batch_size:,} samples x {config.model.sequence_length:,} tokens a step, "
        f"{big(tokens)} tokens in all, {training.precision}; software: {prediction.software.name}"
    )


def cells(rows: Sequence[Row], tokens: int) -> list[dict[str, str]]:
    """Layouts below each other, by column."""
    time, seconds = time_unit(min(prediction.step_seconds for _, prediction in rows))
    memory, gib = memory_unit(max(prediction.memory_bytes for _, prediction in rows))
    found = []
    for mark, prediction in rows:
        parallel = prediction.config.parallel
        replicas, ranks = parallel.dp_replicate, prediction.data_parallel
        found.append(
            {
                "": mark,
                "tp": f"{parallel.tp}{'-' * (parallel.tp > 1 and not parallel.sequence_parallel)}",
                "pp": f"{parallel.pp}",
                "dp": f"{replicas}x{ranks // replicas}" if replicas > 1 else f"{ranks}",
                "mbs": f"{prediction.micro_batch_size}",
                "schedule": schedule(parallel),
                "ZeRO": f"{parallel.zero}{'+o' * parallel.offload}",
                "recomp": recompute(parallel),
                f"step {seconds}": number(prediction.step_seconds / time),
                "tok/s": big(prediction.tokens_per_second),
                "MFU": percent(prediction.mfu),
                "HFU": percent(prediction.hfu),
                "days": number(prediction.days(tokens)),
                gib: number(prediction.memory_bytes / memory),
                "host": number(prediction.host_bytes_per_node / memory),
                "bubble": percent(prediction.bubble),
            }
        )
    return found


def table(rows: Sequence[Row], tokens: int) -> Iterator[str]:
    """The same, aligned."""
    return of_cells(cells(rows, tokens), ("schedule", "recomp"))


def of_cells(rows: Sequence[Mapping[str, str]], left: Collection[str] = ()) -> Iterator[str]:
    """Rows by column, aligned."""
    return align_table([list(rows[0]), *(list(row.values()) for row in rows)], left=left, gap=" ")


def split(rows: Sequence[Row]) -> Iterator[str]:
    """Of the same layouts: the parts of the step in percent of it, and how long each axis communicates."""
    time, seconds = time_unit(min(prediction.step_seconds for _, prediction in rows))
    shares = [
        {name: value / prediction.step_seconds for name, value in prediction.seconds.named.items()}
        for _, prediction in rows
    ]
    parts = [name for name in shares[0] if any(of_row[name] >= SMALL for of_row in shares)]
    axes = [axis for axis in AXES if any(each.communication[axis].total for _, each in rows)]
    yield from of_cells(
        [
            {
                "": mark,
                **{COLUMNS.get(part, part): percent(of_row[part]) for part in parts},
                **{f"{AXES[axis]} {seconds}": number(one.communication[axis].total / time) for axis in axes},
            }
            for (mark, one), of_row in zip(rows, shares, strict=True)
        ]
    )
    told = "; tp, pp, dp: how long each axis communicates in a step, hidden or not" if axes else ""
    yield from wrap(f"percent: of the step, on the busiest rank, what nothing hides{told}")


def others(name: str, found: Mapping[str, Prediction]) -> Iterator[str]:
    """A layout as programs other than `name` would run it."""
    yield from wrap(f"All this is of {name}. The same layout, run by another program (--software NAME):")
    rows = []
    for other, one in found.items():
        (time, seconds), (memory, gib) = time_unit(one.step_seconds), memory_unit(one.memory_bytes)
        held = f"{number(one.memory_bytes / memory)} {gib}{'' if one.fits else ', does not fit'}"
        rows.append((f"  {other}", f"{number(one.step_seconds / time)} {seconds}", f"{one.tflops_per_gpu:.1f}", held))
    yield from align_table([("", "step", "TFLOP/s", "memory"), *rows], left=("", "memory"))


def rejections(rejected: Sequence[Rejected], most: int) -> Iterator[str]:
    """The families of layouts that are not in the table, each with its reason."""
    if rejected:
        yield "not there, and why:"
    for family in rejected[:most]:
        yield from wrap(f"{family.family} ({family.layouts:,} layouts): {family.reason}", "  ", "    ")
    if len(rejected) > most:
        rest = sum(family.layouts for family in rejected[most:])
        yield f"  and {len(rejected) - most} more, with {rest:,} layouts: --top {len(rejected)} shows them, and --json"


def schedule(parallel: ParallelConfig) -> str:
    """As in `inter/2`: two stages on each rank."""
    if parallel.pp == 1:
        return "-"
    spec = parallel.schedule_spec
    name = spec.short or parallel.schedule
    return f"{name}/{parallel.chunks}" if parallel.chunks > 1 and spec.most_chunks != parallel.chunks else name


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
    return f"{share:.1%}" if abs(share) >= SMALL else "-"


def wrap(text: str, first: str = "", rest: str = "") -> Iterator[str]:
    """A paragraph in lines of at most `WIDTH`."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
