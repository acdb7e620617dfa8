"""How long one rank takes for some operations: products at the rate of large ones, or of the bytes they move.

A product takes as long as its multiplications at the device's rate, or as its bytes, whichever is more (a roofline:
Williams, Waterman and Patterson 2009); everything else as its bytes. A GPU that is told of kernels ahead of time waits
for the host only where telling it takes longer than running them; a CPU does one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from pretrain.config import Precision
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.machines.collectives import Collectives, Group
from pretrain.workload.framework_profiles import FrameworkProfile
from pretrain.workload.memory import ITEM_BYTES
from pretrain.workload.operations import Operation

VIEWS = 1.5  # times the host's part of a kernel: torch makes nearly as many views, which take it about half as long
LARGE = float(1 << 24)  # bytes of a tensor from which on a collective's time is a line


class Spent(NamedTuple):
    """Seconds of some operations: in products, in moving bytes, and until they start."""

    products: float = 0.0
    memory: float = 0.0
    launches: float = 0.0

    @property
    def busy(self) -> float:
        """Of the device."""
        return self.products + self.memory

    def plus(self, other: Spent, times: float = 1) -> Spent:
        """Both, the other several times."""
        return Spent(*(own + times * more for own, more in zip(self, other, strict=True)))


class Line(NamedTuple):
    """Seconds of a collective as a function of its bytes."""

    latency: float
    per_byte: float

    def of(self, num_bytes: float) -> float:
        """Of a tensor; of an empty one none."""
        return self.latency + self.per_byte * num_bytes if num_bytes else 0.0


class Machine:
    """A device of a cluster beside all others of a run, which the caller must not change. Equal to itself alone."""

    def __init__(self, cluster: Cluster, software: FrameworkProfile, precision: Precision, devices: int) -> None:
        """Raises `UsageError` where nobody knows the device's peak in this precision."""
        peak = cluster.known_peak(precision)
        efficiency, pace = cluster.efficiency, cluster.pace(devices)
        self.cluster, self.software, self.devices = cluster, software, devices
        self.collectives = Collectives(cluster, devices)
        self._lines: dict[tuple[str, Group], Line] = {}
        self.item = ITEM_BYTES[precision]
        self.on_cpu = cluster.cores is not None
        self.half_depth = efficiency.half_depth
        self.rate = peak * efficiency.products * pace.products
        self.bandwidth = cluster.device.memory_bandwidth * efficiency.memory * pace.memory
        self.launch = efficiency.seconds_per_operation / pace.launches
        if not self.on_cpu:
            self.launch += software.seconds_per_launch
        if software.operations == "ours":
            self.launch *= VIEWS
        self.launches_ahead = software.launches_ahead and not self.on_cpu
        self.overlaps = not self.on_cpu  # collectives run beside products

    def seconds(self, operation: Operation) -> float:
        """Of one, once it has started."""
        moving = operation.bytes / self.bandwidth
        if not operation.flops:
            return moving
        start = 1 + self.half_depth / operation.depth if operation.depth else 1.0
        return max(operation.flops / (self.rate * operation.rate) * start, moving)

    def spent(self, operations: Iterable[Operation]) -> Spent:
        """Of some, one after the other."""
        products = moved = 0.0
        launches = 0
        rate, bandwidth, half_depth = self.rate, self.bandwidth, self.half_depth
        for _, flops, num_bytes, share, kernels, depth in operations:
            moving = num_bytes / bandwidth
            if flops:
                start = 1 + half_depth / depth if depth else 1.0
                products += max(flops / (rate * share) * start, moving)
            else:
                moved += moving
            launches += kernels
        return Spent(products, moved, launches * self.launch)

    def waiting(self, spent: Spent, beside: float = 0.0) -> float:
        """What launches add to an action that keeps the device busy for so long, and `beside` that."""
        return max(0.0, spent.launches - spent.busy - beside) if self.launches_ahead else spent.launches

    def line(self, name: Literal["all_gather", "reduce_scatter", "all_reduce"], group: Group) -> Line:
        """Of a collective of a group of ranks, for large tensors."""
        found = self._lines.get((name, group))
        if found is None:
            collective = getattr(self.collectives, name)
            one, two = collective(group, LARGE), collective(group, 2 * LARGE)
            found = self._lines[name, group] = Line(2 * one - two, (two - one) / LARGE)
        return found


@lru_cache(maxsize=64)
def machine_of(cluster: Cluster, software: FrameworkProfile, precision: Precision, devices: int) -> Machine:
    """A machine once for all layouts that a search asks for; raises as `Machine` does."""
    return Machine(cluster, software, precision, devices)
