"""How long collectives take, by alpha and beta: latencies of messages, and bytes over the slowest network they cross.

A ring of n ranks moves 2 (n - 1) / n of the bytes of an all-reduce past each of them, half of that for a
reduce-scatter or an all-gather (Thakur, Rabenseifner and Gropp 2005). Groups of ranks that a unit of devices holds at
the same time share what leaves the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pretrain.plan.cluster import Cluster, Network


@dataclass(frozen=True)
class Group:
    """Ranks that talk to each other: `size` of them, every `stride`-th of the world."""

    size: int
    stride: int


@dataclass(frozen=True)
class Collectives:
    """Seconds of each collective on a cluster. Bytes are those of the whole tensor, on each rank of an all-reduce."""

    cluster: Cluster

    def all_reduce(self, group: Group, num_bytes: float) -> float:
        """Sum over the group; every rank ends with the whole."""
        return self._ring(group, 2 * num_bytes, 2, is_half=False)

    def reduce_scatter(self, group: Group, num_bytes: float) -> float:
        """Sum over the group; every rank ends with its part of the `num_bytes`."""
        return self._ring(group, num_bytes, 1, is_half=True)

    def all_gather(self, group: Group, num_bytes: float) -> float:
        """Every rank ends with the `num_bytes` that all have together."""
        return self._ring(group, num_bytes, 1, is_half=True)

    def send(self, stride: int, num_bytes: float) -> float:
        """From each rank to the one `stride` further, all at the same time."""
        *_, (network, unit, _) = self._crossed(Group(2, stride))
        return network.latency + num_bytes * unit / (network.bandwidth * network.efficiency)

    def _ring(self, group: Group, num_bytes: float, passes: int, is_half: bool) -> float:
        if group.size == 1:
            return 0.0
        seconds, latency = 0.0, 0.0
        for network, unit, units in self._crossed(group):
            members = max(1, min(group.size, unit // group.stride))
            sharing = unit / members  # groups that leave a unit side by side
            bandwidth = network.bandwidth * network.efficiency / (sharing * (network.half_factor if is_half else 1.0))
            seconds = max(seconds, num_bytes * (group.size - 1) / group.size / bandwidth)
            latency += passes * math.ceil(math.log2(units)) * network.latency
        return seconds + latency

    def _crossed(self, group: Group) -> Iterator[tuple[Network, int, int]]:
        """The networks that a group's messages cross: each with the devices of its units, and how many of them."""
        span = group.size * group.stride
        unit = 1
        for network in self.cluster.networks:
            reach = min(span, network.devices or span)
            if reach > max(unit, group.stride):
                yield network, unit, -(-reach // max(unit, group.stride))
            if network.devices is None or network.devices >= span:
                return
            unit = network.devices
