"""How long collectives take, by alpha and beta: latencies of messages, and bytes over the slowest network they cross.

| way | bytes past each of n ranks | latencies |
|---|---|---|
| ring | 2 (n - 1) / n of an all-reduce's, half of it for a gather or scatter | every hop, once or twice |
| tree | as many: two trees, each of half the bytes | hops inside a unit, the logarithm of the outermost units |
| hfreduce | what was measured (`HostReduce`): sums on the CPU of each node, then over the network | inside of that |

Rings: Thakur, Rabenseifner and Gropp 2005. Trees: Sanders, Speck and Träff 2009; NCCL since 2.4. hfreduce: An et al.
2024.

Groups that a unit of devices holds parts of at the same time share what leaves the unit: with tensor parallelism over a
node of 8, each of 8 data-parallel groups has an eighth of its network cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pretrain.plan.machines.cluster import Cluster, Network

Way = Literal["ring", "tree", "hfreduce"]


@dataclass(frozen=True)
class Group:
    """Ranks that talk to each other: `size` of them, every `stride`-th of the world."""

    size: int
    stride: int


class Crossing(NamedTuple):
    """A network that a group's messages cross."""

    network: Network
    is_innermost: bool
    parts: int  # of the group, each within a unit that the network joins
    joined: int  # parts that are left then
    sharing: int  # groups that leave such a unit side by side

    @property
    def bandwidth(self) -> float:
        """Bytes/s that messages of one group have of what leaves a unit."""
        return self.network.bandwidth * self.network.efficiency / self.sharing

    @property
    def ring_bandwidth(self) -> float:
        """The same of a ring or a tree, which waits for its slowest link."""
        is_crowded = self.sharing > 1 or self.parts > 2 * self.joined
        return self.bandwidth * (self.network.crowded if is_crowded else 1.0)

    @property
    def hops(self) -> int:
        """Of a ring."""
        return self.parts - self.joined

    @property
    def depth(self) -> int:
        """Hops of a tree: within the innermost units a chain."""
        units = -(-self.parts // self.joined)
        return units - 1 if self.is_innermost else math.ceil(math.log2(units))


@dataclass(frozen=True)
class Collectives:
    """Seconds of each collective on a cluster. Bytes are those of the whole tensor, on each rank of an all-reduce."""

    cluster: Cluster
    devices: int | None = None  # of the world, of which every rank is in such a group; None: groups fill their units

    def all_reduce(self, group: Group, num_bytes: float) -> float:
        """Sum over the group; every rank ends with the whole."""
        return min(self.all_reduce_ways(group, num_bytes).values())

    def all_reduce_ways(self, group: Group, num_bytes: float) -> dict[Way, float]:
        """Seconds of each way that this cluster has for the group."""
        if group.size == 1:
            return {"ring": 0.0}
        crossings = list(self.crossings(group))
        passing = 2 * num_bytes * (group.size - 1) / group.size
        seconds = max(passing / crossing.ring_bandwidth for crossing in crossings)
        ways: dict[Way, float] = {"ring": seconds + 2 * sum(one.hops * one.network.latency for one in crossings)}
        if all(crossing.network.trees for crossing in crossings):
            ways["tree"] = seconds + 2 * sum(one.depth * one.network.latency for one in crossings)
        on_hosts = self._host_reduce(group, num_bytes)
        return ways if on_hosts is None else {**ways, "hfreduce": on_hosts}

    def reduce_scatter(self, group: Group, num_bytes: float) -> float:
        """Sum over the group; every rank ends with its part of the `num_bytes`."""
        return self._half(group, num_bytes)

    def all_gather(self, group: Group, num_bytes: float) -> float:
        """Every rank ends with the `num_bytes` that all have together."""
        return self._half(group, num_bytes)

    def send(self, stride: int, num_bytes: float, ranks: int = 2) -> float:
        """From each of `ranks` to the one `stride` further, all at the same time: the slowest of these messages."""
        crossings = self.crossings(Group(ranks, stride)) if ranks > 1 else ()
        return max((crossing.network.latency + num_bytes / crossing.bandwidth for crossing in crossings), default=0.0)

    def crossings(self, group: Group) -> Iterator[Crossing]:
        """The networks that a group's messages cross, from the inside out."""
        unit, parts = 1, group.size
        for index, network in enumerate(self.cluster.networks):
            joined = self._parts(group, network.devices)
            if joined < parts:
                sharing = min(unit, group.stride * (2 if self._straddles(group, unit) else 1))
                yield Crossing(network, index == 0, parts, joined, sharing)
            unit, parts = network.devices or unit, joined

    def _parts(self, group: Group, unit: int | None) -> int:
        """Units of devices that hold ranks of the group, where it lies worst."""
        if unit is None or (self.devices is not None and self.devices <= unit):
            return 1
        members = max(1, min(group.size, unit // group.stride))
        return min(group.size, -(-group.size // members) + self._straddles(group, unit))

    def _straddles(self, group: Group, unit: int) -> bool:
        """Whether groups begin within a unit and end in another one: of 6 devices on nodes of 8."""
        span = group.size * group.stride
        return self.devices is not None and bool(unit % span and span % unit)

    def _half(self, group: Group, num_bytes: float) -> float:
        """One pass around a ring."""
        if group.size == 1:
            return 0.0
        crossings = list(self.crossings(group))
        passing = num_bytes * (group.size - 1) / group.size
        slowest = max(crossing.network.half_factor / crossing.ring_bandwidth for crossing in crossings)
        return passing * slowest + sum(crossing.hops * crossing.network.latency for crossing in crossings)

    def _host_reduce(self, group: Group, num_bytes: float) -> float | None:
        """Each node adds up what its devices have, for all groups that it holds parts of; None where nobody measured
        it."""
        table, per_node = self.cluster.host_reduce, self.cluster.devices_per_node
        nodes = self._parts(group, per_node)
        bandwidth = None if table is None or nodes == 1 else table.bandwidth_over(nodes * per_node)
        return None if bandwidth is None else num_bytes * min(per_node, group.stride) / bandwidth
