"""Why layouts are not among those that a search found: families of them, each with a sentence; and what to do where none is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, ScheduleKind
from pretrain.plan import naming
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import RESERVED, Prediction, missing, ranks_per_machine
from pretrain.plan.search.legal import Constraints, Layout, Rejected, Space, batch_sizes, divisors

if TYPE_CHECKING:
    from pretrain.plan.search.search import Search

GIB = 2**30
MOST_TIMES = 64  # the devices that are asked for, among which the fewest that are enough are looked for
DIMENSIONS = {"tp": "tensor parallel", "pp": "pipeline", "micro_batch_size": "micro-batch"}
RECOMPUTE = {"none": "no recompute", "selective": "selective recompute", "full": "full recompute"}


def families(found: Search, best: Prediction) -> list[Rejected]:
    """Of one dimension of a layout each the values that no layout found has, or that the best one does not have."""
    return [*_undivided(found.space), *_straddling(found.space), *_shapes(found, best), *_choices(found, best)]


def _straddling(space: Space) -> Iterator[Rejected]:
    node = space.cluster.devices_per_node
    for tp in space.tensor_degrees():
        if space.straddles(tp) and space.constraints.tp is None:
            own = replace(space, constraints=replace(space.constraints, tp=(tp,)))
            number = sum(own.size(shape) for shape in own.shapes())
            if number:
                reason = f"groups of {tp} do not divide a node of {node}: some of them would lie in two nodes"
                yield Rejected(f"tensor parallel {tp}", reason, number)


def _undivided(space: Space) -> Iterator[Rejected]:
    """Data-parallel ranks over which the batch does not divide."""
    sizes = batch_sizes(space.config.training)
    refused = set()
    number = 0
    for tp in space.tensor_degrees():
        for pp in divisors(space.devices // tp):
            data = space.devices // (tp * pp)
            if pp <= space.config.model.num_layers and any(size % data for size in sizes):
                refused.add(data)
                number += 1
    if refused:
        ranks = _listed([f"{data:,}" for data in sorted(refused)])
        batch = f"{sizes[-1]:,} samples" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} samples of a step"
        yield Rejected(f"{ranks} data-parallel ranks", f"{batch} do not divide over them", number)


def _shapes(found: Search, best: Prediction) -> Iterator[Rejected]:
    """Values of tp, pp and micro-batch size that no shape found has."""
    space = found.space
    shapes = [*found.best, *found.too_slow, *found.too_large]
    for dimension, label in DIMENSIONS.items():
        for value in sorted({getattr(shape, dimension) for shape in shapes}):
            own = [shape for shape in shapes if getattr(shape, dimension) == value]
            if any(shape in found.best for shape in own):
                continue
            slow = [found.too_slow[shape] for shape in own if shape in found.too_slow]
            if slow:
                reason = f"takes at least {_than(min(slow), best.step_seconds)}"
                large = len(own) - len(slow)
                reason += f"; {large} of {len(own)} shapes do not fit" if large else ""
            else:
                reason = _too_large(found, [found.too_large[shape] for shape in own])
            node = space.cluster.devices_per_node
            if dimension == "tp" and value > node:
                reason = f"leaves the node of {node}; {reason}"
            yield Rejected(f"{label} {value}", reason, sum(space.size(shape) for shape in own))


def _choices(found: Search, best: Prediction) -> Iterator[Rejected]:
    """Schedules, recompute, ZeRO and the rest, where the best layout chooses otherwise: tried in its shape."""
    layout, space = Layout.of(best.config, best.devices), found.space
    seconds = found.seconds(layout).total
    for family, constraint in _others(found, layout):
        held = replace(space, constraints=replace(space.constraints, **constraint))
        number = sum(held.size(shape) for shape in (*found.best, *found.too_large, *found.too_slow))
        layouts = list(_changed(held, layout, found.offload or constraint.get("offload") == (True,)))
        if not layouts:
            continue
        fitting = [found.seconds(each).total for each in layouts if found.fits(each)]
        if not fitting:
            yield Rejected(family, f"in the best shape {_too_large(found, layouts)}", number)
        elif min(fitting) > seconds:
            yield Rejected(family, f"takes {_than(min(fitting), seconds)}, all else as in that", number)


def _changed(space: Space, best: Layout, offload: bool) -> Iterator[Layout]:
    """The best layout as a space that does not have it allows it: all else is kept that it leaves open, but recompute."""
    kinds, sharding, sequence = space.schedules(best), space.sharding(best), space.sequence_parallel(best)
    own = best.zero, best.dp_replicate
    for schedule, chunks in [kind for kind in kinds if kind == (best.schedule, best.stages_per_rank)] or kinds:
        plain = space.cut(best, schedule, chunks)
        plain = plain.but(
            sequence_parallel=(best.sequence_parallel in sequence and best.sequence_parallel) or sequence[0]
        )
        for zero, replicas in [pair for pair in sharding if pair == own] or sharding:
            for recompute, every in space.recomputes():
                yield plain.but(
                    zero=zero,
                    dp_replicate=replicas,
                    dp_shard=best.data_parallel // replicas,
                    recompute=recompute,
                    recompute_every=every,
                    offload=offload,
                )


def _others(found: Search, best: Layout) -> Iterator[tuple[str, dict[str, Any]]]:
    """Families that the best layout is not of, each with what holds a search to it."""
    space = found.space
    if best.pp > 1:
        kinds: list[ScheduleKind] = list(dict.fromkeys(kind for kind, _ in space.schedules(best)))
        for kind in [*kinds, *(["gpipe"] if space.constraints.schedule is None else [])]:
            if kind != best.schedule:
                yield f"schedule {kind}", {"schedule": (kind,)}
    for recompute in dict.fromkeys(kind for kind, _ in space.recomputes()):
        if recompute != best.recompute:
            yield RECOMPUTE[recompute], {"recompute": (recompute,)}
    for zero in dict.fromkeys(zero for zero, _ in space.sharding(best)):
        if zero != best.zero:
            yield f"ZeRO-{zero}", {"zero": (zero,)}
    for replicas in dict.fromkeys(replicas for _, replicas in space.sharding(best)):
        if replicas != best.dp_replicate and replicas in (1, best.data_parallel):
            what = "shards over all data-parallel ranks" if replicas == 1 else "no shards, a replica on each rank"
            yield what, {"dp_replicate": (replicas,)}
    if best.tp > 1 and len(space.sequence_parallel(best)) > 1:
        without = "no " * best.sequence_parallel + "sequence parallelism"
        yield without, {"sequence_parallel": (not best.sequence_parallel,)}
    if space.software.shards and not best.offload and space.constraints.offload is None:
        yield "offload", {"offload": (True,)}


def _too_large(found: Search, layouts: Sequence[Layout]) -> str:
    """What the least of some layouts that do not fit needs."""
    space = found.space

    def lacking(layout: Layout) -> tuple[int, int]:
        return missing(space.cluster, space.devices, *found.bytes_of(layout))

    least = min(layouts, key=lambda layout: max(lacking(layout)))
    device, host = found.bytes_of(least)
    if lacking(least)[0] > 0:
        return (
            f"needs at least {device / GIB:,.1f} GiB on the fullest device, {_room(space.cluster) / GIB:,.1f} are there"
        )
    needed = host * ranks_per_machine(space.cluster, space.devices)
    return f"needs at least {needed / GIB:,.0f} GiB of a node's memory, {space.cluster.host.memory_gib:,.0f} are there"


def _room(cluster: Cluster) -> float:
    """Bytes of a device that a layout may take, as they are predicted."""
    return RESERVED * cluster.device.memory_gib * GIB / cluster.efficiency.held


def _than(seconds: float, best: float) -> str:
    ratio = seconds / best
    times = f"{ratio:.1f} times the best" if ratio > 1.3 else f"{(ratio - 1) * 100:.1f} % more than the best"
    return f"{seconds:,.3g} s, {times}"


def check_cluster(config: RunConfig, devices: int, cluster: Cluster) -> None:
    """Refuse what no layout could change.

    Raises:
        UsageError: there are no such devices; it says how many are missing.
    """
    if devices < 1:
        raise UsageError(f"{devices} devices: a step takes one at least")
    if cluster.most_devices is not None and devices > cluster.most_devices:
        raise UsageError(
            f"cluster {cluster.name} has {cluster.most_devices:,} devices, {devices - cluster.most_devices:,} fewer than the "
            f"{devices:,} that are asked for. Ask for {cluster.most_devices:,} at most, or name a larger cluster"
        )


def nothing_fits(found: Search) -> str:
    """One sentence: the nearest layout and what is missing."""
    space = found.space
    if found.considered:
        return _nearest_fit(found)
    if any(value is not None for value in asdict(space.constraints).values()):
        open_space = replace(space, constraints=Constraints())
        if any(True for _ in open_space.shapes()):
            return _constrained(space)
    return _nearest_number(space)


def _nearest_fit(found: Search) -> str:
    """Of memory."""
    space = found.space
    layouts = list(found.too_large.values())
    least = min(layouts, key=lambda layout: found.bytes_of(layout))
    device, host = found.bytes_of(least)
    said = naming.layout_name(least.configure(space.config), space.devices)
    lacking, room = missing(space.cluster, space.devices, device, host), _room(space.cluster)
    if lacking[0] > 0:
        what = (
            f"needs {device / GIB:,.1f} GiB on the fullest device, {(device - room) / GIB:,.1f} more than the "
            f"{room / GIB:,.1f} of its {space.cluster.device.memory_gib:g} that it may take"
        )
    else:
        needed = host * ranks_per_machine(space.cluster, space.devices)
        what = f"needs {needed / GIB:,.1f} GiB of a node's memory, {lacking[1] / GIB:,.1f} more than it has"
    return (
        f"no layout of {space.devices:,} devices of {space.cluster.name} fits: the nearest, {said}, {what}"
        f"{_enough_devices(found)}"
    )


def _enough_devices(found: Search) -> str:
    times = 2
    while times <= MOST_TIMES:
        more = replace(found.space, devices=found.space.devices * times)
        most = more.cluster.most_devices
        if most is not None and more.devices > most:
            break
        larger = type(found)(more, offload=found.offload)
        if any(larger.fits(larger.leanest(shape)) for shape in more.shapes()):
            return f". {more.devices:,} devices would do"
        times *= 2
    return ""


def _constrained(space: Space) -> str:
    """Which of the constraints leave nothing."""
    for name, chosen in asdict(space.constraints).items():
        if chosen is None:
            continue
        without = replace(space, constraints=replace(space.constraints, **{name: None}))
        shapes = list(without.shapes())
        if shapes:
            shown = naming.SHOWN.get(name, name).replace("data_parallel", "dp")
            legal = sorted({getattr(shape, name) for shape in shapes}) if name in (*DIMENSIONS, "data_parallel") else []
            choose = f"it can be {_listed([str(value) for value in legal], 'or')}" if legal else "leave it out"
            return f"no layout of {space.devices:,} devices has {shown}={'/'.join(map(str, chosen))}: {choose}"
    said = ", ".join(name for name, chosen in asdict(space.constraints).items() if chosen is not None)
    return f"no layout of {space.devices:,} devices is left by {said} together: leave some of them out"


def _nearest_number(space: Space) -> str:
    """Devices that the model and the batch divide over; the batch that would divide over these."""

    def has_layout(devices: int) -> bool:
        return any(True for _ in replace(space, devices=devices).shapes())

    below = next((number for number in range(space.devices - 1, 0, -1) if has_layout(number)), None)
    above = next((number for number in range(space.devices + 1, 2 * space.devices + 1) if has_layout(number)), None)
    most = space.cluster.most_devices
    numbers = [f"{number:,}" for number in (below, above) if number is not None and (most is None or number <= most)]
    batch = space.config.training.global_batch_size
    ranks = [
        space.devices // (tp * pp)
        for tp in space.tensor_degrees()
        for pp in divisors(space.devices // tp)
        if pp <= space.config.model.num_layers
    ]
    nearest = min((-(-batch // data) * data for data in ranks), default=batch)
    return (
        f"no layout of {space.devices:,} devices cuts {space.config.model.num_layers} layers into stages and a batch of {batch:,} "
        f"samples over what remains. The nearest numbers of devices that have one are {_listed(numbers)}; a batch of "
        f"{nearest:,}, {nearest - batch:,} more, would divide here"
    )


def _listed(words: Sequence[str], last: str = "and") -> str:
    """As one writes them.

    >>> _listed(["1", "2", "4"], "or")
    '1, 2 or 4'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
