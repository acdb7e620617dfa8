"""Why layouts are not among those that a search found: families of them, each with a sentence; and what to do where
none is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from corpus.engine.errors import UsageError
from pretrain.plan import naming
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import RESERVED, Prediction, missing, ranks_per_machine
from pretrain.plan.search.legal import Constraints, Layout, Rejected, Space, batch_sizes, divisors, neighbours

if TYPE_CHECKING:
    from pretrain.plan.search.search import Search

GIB = 2**30
MOST_TIMES = 64  # the devices that are asked for, among which the fewest that are enough are looked for
DIMENSIONS = {"tp": "tensor parallel", "pp": "pipeline", "micro_batch_size": "micro-batch"}
CHOICES = (
    "schedule",
    "recompute",
    "zero",
    "dp_replicate",
    "sequence_parallel",
    "offload",
)  # of which the best layout has one


def families(found: Search, best: Prediction) -> list[Rejected]:
    """Of one dimension of a layout each the values that no layout found has, or that the best one does not have."""
    return [*_undivided(found.space), *_straddling(found.space), *_shapes(found, best), *_choices(found, best)]


def _straddling(space: Space) -> Iterator[Rejected]:
    node = space.cluster.devices_per_node
    for tp in space.tensor_degrees() if space.constraints.tp is None else ():
        if space.straddles(tp):
            own = replace(space, constraints=replace(space.constraints, tp=(tp,)))
            if number := sum(own.size(shape) for shape in own.shapes()):
                reason = f"groups of {tp} do not divide a node of {node}: some of them would lie in two nodes"
                yield Rejected(f"tensor parallel {tp}", reason, number)


def _undivided(space: Space) -> Iterator[Rejected]:
    """Data-parallel ranks over which the batch does not divide."""
    sizes = batch_sizes(space.config.training)
    refused = [data for data in _data_ranks(space) if any(size % data for size in sizes)]
    if refused:
        ranks = _listed([f"{data:,}" for data in sorted(set(refused))])
        batch = f"{sizes[-1]:,} samples" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} samples of a step"
        yield Rejected(f"{ranks} data-parallel ranks", f"{batch} do not divide over them", len(refused))


def _data_ranks(space: Space) -> list[int]:
    """Of each tp and pp that divide the model and the devices."""
    layers, devices = space.config.model.num_layers, space.devices
    return [devices // (tp * pp) for tp in space.tensor_degrees() for pp in divisors(devices // tp) if pp <= layers]


def _shapes(found: Search, best: Prediction) -> Iterator[Rejected]:
    """Values of tp, pp and micro-batch size that no shape found has."""
    space = found.space
    shapes = [*found.best, *found.too_slow, *found.too_large]
    for dimension, label in DIMENSIONS.items():
        for value in sorted({getattr(shape, dimension) for shape in shapes}):
            own = [shape for shape in shapes if getattr(shape, dimension) == value]
            if any(shape in found.best for shape in own):
                continue
            if slow := [found.too_slow[shape] for shape in own if shape in found.too_slow]:
                reason, large = f"takes at least {_than(min(slow), best.step_seconds)}", len(own) - len(slow)
                reason += f"; {large} of {len(own)} shapes do not fit" if large else ""
            else:
                reason = _too_large(found, [found.too_large[shape] for shape in own])
            if dimension == "tp" and value > space.cluster.devices_per_node:
                reason = f"leaves the node of {space.cluster.devices_per_node}; {reason}"
            yield Rejected(f"{label} {value}", reason, sum(space.size(shape) for shape in own))


def _choices(found: Search, best: Prediction) -> Iterator[Rejected]:
    """Schedules, recompute, ZeRO and the rest, where the best layout chooses otherwise: tried in its place, all else as
    it is; and, where that does not fit, in all layouts of its shape."""
    layout, space = Layout.of(best.config, best.devices), found.space
    seconds = found.seconds(layout).total
    for name, value, other in (*neighbours(layout), *_replicas(space, layout)):
        is_cut = other.pp * other.stages_per_rank <= space.config.model.num_layers
        if name not in CHOICES or getattr(space.constraints, name) is not None or not is_cut:
            continue
        held = replace(space, constraints=replace(space.constraints, **{name: (value,)}))
        number = sum(held.size(shape) for shape in (*found.best, *found.too_large, *found.too_slow))
        if not number or (name == "offload" and not space.software.shards):
            continue
        family = f"{naming.SHOWN.get(name, name)}={naming.format_value(value)}"
        if found.fits(other):
            slower, how = found.seconds(other).total, "all else as in that"
        else:
            inside = type(found)(held, offload=other.offload)
            shape = Layout(layout.tp, layout.pp, 1, layout.data_parallel, layout.micro_batch_size)
            if not (fitting := inside.best_of(shape)):
                least = _too_large(found, [other, inside.leanest(shape)])
                yield Rejected(family, f"in the shape of the best layout {least}", number)
                continue
            slower, how = fitting.seconds, "in its shape"
        if slower > seconds:
            yield Rejected(family, f"takes {_than(slower, seconds)}, {how}", number)


def _replicas(space: Space, layout: Layout) -> Iterator[tuple[str, int, Layout]]:
    """As `neighbours`: other numbers of replicas of the shards. ZeRO 1 is the only one without shards."""
    data = layout.data_parallel
    for number in sorted({number for _, number in space.sharding(layout)} - {layout.dp_replicate}):
        zero = 1 if number == data else layout.zero
        yield "dp_replicate", number, layout._replace(dp_replicate=number, dp_shard=data // number, zero=zero)


def _too_large(found: Search, layouts: Sequence[Layout]) -> str:
    """What the least of some layouts that do not fit needs."""
    space = found.space
    lacking = {layout: missing(space.cluster, space.devices, *found.bytes_of(layout)) for layout in layouts}
    least = min(layouts, key=lambda layout: max(lacking[layout]))
    device, host = found.bytes_of(least)
    if lacking[least][0] > 0:
        room = RESERVED * space.cluster.device.memory_gib / space.cluster.efficiency.held  # as bytes are predicted
        return f"needs at least {device / GIB:,.1f} GiB on the fullest device, {room:,.1f} are there"
    needed = host * ranks_per_machine(space.cluster, space.devices)
    return f"needs at least {needed / GIB:,.0f} GiB of a node's memory, {space.cluster.host.memory_gib:,.0f} are there"


def _than(seconds: float, best: float) -> str:
    ratio = seconds / best
    times = f"{ratio:.1f} times the best" if ratio > 1.3 else f"{(ratio - 1) * 100:.1f} % more than the best"
    return f"{seconds:,.3g} s, {times}"


def check_cluster(devices: int, cluster: Cluster) -> None:
    """Refuse what no layout could change.

    Raises:
        UsageError: there are no such devices; it says how many are missing.
    """
    if devices < 1:
        raise UsageError(f"{devices} devices: a step takes one at least")
    if cluster.most_devices is not None and devices > cluster.most_devices:
        raise UsageError(
            f"cluster {cluster.name} has {cluster.most_devices:,} devices, {devices - cluster.most_devices:,} "
            f"fewer than the {devices:,} that are asked for. Ask for {cluster.most_devices:,} at most, or name a "
            "larger cluster"
        )


def nothing_fits(found: Search) -> str:
    """One sentence: the nearest layout and what is missing."""
    space = found.space
    if found.considered:
        return _nearest_fit(found)
    if any(True for _ in replace(space, constraints=Constraints()).shapes()):
        return _constrained(space)
    return _nearest_number(space)


def _nearest_fit(found: Search) -> str:
    """Of memory."""
    space = found.space
    least = min(found.too_large.values(), key=found.bytes_of)
    name, needs = naming.layout_name(least.configure(space.config), space.devices), _too_large(found, [least])
    device, host = missing(space.cluster, space.devices, *found.bytes_of(least))
    lack = (device if device > 0 else host) / GIB
    start = f"no layout of {space.devices:,} devices of {space.cluster.name} fits: the nearest, {name},"
    return f"{start} {needs}, {lack:,.1f} GiB too few{_enough_devices(found)}"


def _enough_devices(found: Search) -> str:
    times = 2
    while times <= MOST_TIMES:
        more = replace(found.space, devices=found.space.devices * times)
        if more.cluster.most_devices is not None and more.devices > more.cluster.most_devices:
            break
        larger = type(found)(more, offload=found.offload)
        if any(larger.fits(larger.leanest(shape)) for shape in more.shapes()):
            return f". {more.devices:,} devices would do"
        times *= 2
    return ""


def _constrained(space: Space) -> str:
    """Which of the constraints leave nothing."""
    chosen = {name: values for name, values in asdict(space.constraints).items() if values is not None}
    for name, values in chosen.items():
        without = replace(space, constraints=replace(space.constraints, **{name: None}))
        if shapes := list(without.shapes()):
            shown = naming.SHOWN.get(name, name).replace("data_parallel", "dp")
            legal = sorted({getattr(shape, name) for shape in shapes}) if name in (*DIMENSIONS, "data_parallel") else []
            choose = f"it can be {_listed([str(value) for value in legal], 'or')}" if legal else "leave it out"
            return f"no layout of {space.devices:,} devices has {shown}={'/'.join(map(str, values))}: {choose}"
    return f"no layout of {space.devices:,} devices is left by {', '.join(chosen)} together: leave some of them out"


def _nearest_number(space: Space) -> str:
    """Devices that the model and the batch divide over; the batch that would divide over these."""

    def has_layout(devices: int) -> bool:
        return any(True for _ in replace(space, devices=devices).shapes())

    most = min(2 * space.devices, space.cluster.most_devices or 2 * space.devices)
    below = next((number for number in range(space.devices - 1, 0, -1) if has_layout(number)), None)
    above = next((number for number in range(space.devices + 1, most + 1) if has_layout(number)), None)
    numbers = [f"{number:,}" for number in (below, above) if number is not None]
    batch, layers = space.config.training.global_batch_size, space.config.model.num_layers
    nearest = min((-(-batch // data) * data for data in _data_ranks(space)), default=batch)
    return (
        f"no layout of {space.devices:,} devices cuts {layers} layers into stages and a batch of {batch:,} "
        f"samples over what remains. The nearest numbers of devices that have one are {_listed(numbers)}; a batch "
        f"of {nearest:,}, {nearest - batch:,} more, would divide here"
    )


def _listed(words: Sequence[str], last: str = "and") -> str:
    """As one writes them.

    >>> _listed(["1", "2", "4"], "or")
    '1, 2 or 4'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
