"""Seconds of collectives: properties on any topology, published figures on those of the package."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.plan.machines.cluster import Cluster, load_cluster, named_clusters
from pretrain.plan.machines.collectives import Collectives, Group

MIB = 2**20
FIREFLY, SELENE, FRONTIER = (load_cluster(name) for name in ("firefly-a100-40", "selene-a100-80", "frontier-mi250x"))
GRADIENTS = 186 * MIB  # of An et al. 2024


def way(collectives: Collectives, group: Group, num_bytes: float) -> str:
    """The fastest one."""
    ways = collectives.all_reduce_ways(group, num_bytes)
    return min(ways, key=lambda name: ways[name])


@st.composite
def topologies(draw: st.DrawFn) -> Cluster:
    """One to three networks of any speeds, the last of which joins all."""
    units, networks = 1, []
    for _ in range(draw(st.integers(0, 2))):
        units *= draw(st.sampled_from([2, 4, 8]))
        networks.append(units)
    speeds = st.floats(1e8, 1e12)
    values = [
        {
            "name": str(number),
            "devices": devices,
            "bandwidth": draw(speeds),
            "latency": draw(st.floats(0, 1e-4)),
            "efficiency": draw(st.floats(0.1, 1)),
            "half_factor": draw(st.floats(1, 2)),
            "trees": draw(st.booleans()),
            "crowded": draw(st.floats(0.1, 1)),
        }
        for number, devices in enumerate([*networks, None])
    ]
    base = SELENE.model_dump(mode="json", exclude_none=True)
    return Cluster.model_validate(base | {"networks": values})


def powers(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most).map(lambda power: 2**power)


def all_of(collectives: Collectives, group: Group, num_bytes: float) -> dict[str, float]:
    ways = {f"all-reduce {way}": seconds for way, seconds in collectives.all_reduce_ways(group, num_bytes).items()}
    return {
        **ways,
        "reduce": collectives.all_reduce(group, num_bytes),
        "scatter": collectives.reduce_scatter(group, num_bytes),
        "gather": collectives.all_gather(group, num_bytes),
        "send": collectives.send(group.stride, num_bytes, group.size),
    }


@given(topologies(), powers(10), powers(6), st.floats(1, 1e10), st.floats(1, 10))
def test_more_bytes_and_more_ranks_take_no_less_time(
    cluster: Cluster, size: int, stride: int, num_bytes: float, factor: float
) -> None:
    collectives = Collectives(cluster)
    seconds = all_of(collectives, Group(size, stride), num_bytes)
    for name, more in all_of(collectives, Group(size, stride), num_bytes * factor).items():
        assert more >= seconds[name] * (1 - 1e-12), name
    for name, more in all_of(collectives, Group(2 * size, stride), num_bytes).items():
        assert more >= seconds.get(name, 0.0) * (1 - 1e-12), name


@given(topologies(), powers(10), powers(6), st.floats(1, 1e10))
def test_nothing_is_faster_than_any_network_that_it_crosses(
    cluster: Cluster, size: int, stride: int, num_bytes: float
) -> None:
    """Each unit that holds a part of the group passes on what no other unit has; what leaves it is shared by all groups
    there."""
    collectives = Collectives(cluster)
    seconds = all_of(collectives, Group(size, stride), num_bytes)
    unit = 1
    for network in cluster.networks:
        num_units = size * stride / max(unit, stride)
        groups = min(unit, stride)
        joined = 1 if network.devices is None else size * stride / max(network.devices, stride)
        if num_units > 1 and joined < num_units:
            half = groups * num_bytes * (num_units - 1) / num_units / network.bandwidth
            assert seconds["reduce"] >= 2 * half * (1 - 1e-12)
            assert min(seconds["gather"], seconds["scatter"]) >= half * (1 - 1e-12)
            assert seconds["send"] >= groups * num_bytes / network.bandwidth + network.latency - 1e-12
        unit = network.devices or unit


@given(topologies(), powers(6), powers(6), st.floats(1, 1e10))
def test_a_group_within_a_unit_does_not_see_what_lies_outside(
    cluster: Cluster, size: int, stride: int, num_bytes: float
) -> None:
    """The outermost network may be as slow as it likes."""
    *inner, outer = cluster.networks
    slow = outer.model_copy(update={"bandwidth": 1.0, "latency": 1e3, "trees": False})
    slower = cluster.model_copy(update={"networks": (*inner, slow)})
    group = Group(size, stride)
    inside = size == 1 or (bool(inner) and size * stride <= (inner[-1].devices or 0))
    before, after = (all_of(Collectives(one), group, num_bytes) for one in (cluster, slower))
    del before["reduce"], after["reduce"]
    assert (before == after) is inside


def test_groups_side_by_side_share_the_cards_of_a_node() -> None:
    """Data parallelism of 64 nodes: alone in each, or one of 8 groups with tensor parallelism of 8."""
    collectives = Collectives(SELENE)
    (*_, alone), (shared,) = (list(collectives.crossings(group)) for group in (Group(512, 1), Group(64, 8)))
    assert (alone.sharing, shared.sharing) == (1, 8)
    assert shared.bandwidth == pytest.approx(25e9 * 0.87)
    assert shared.ring_bandwidth == pytest.approx(25e9 * 0.87 * 0.46)  # which wait for the slowest of them
    assert alone.ring_bandwidth == pytest.approx(200e9 * 0.87 * 0.46)
    *_, of_two_nodes = collectives.crossings(Group(16, 1))
    assert of_two_nodes.ring_bandwidth == of_two_nodes.bandwidth == pytest.approx(200e9 * 0.87)
    (_, half) = collectives.crossings(Group(128, 4))
    assert half.sharing == 4
    assert collectives.all_gather(Group(64, 8), 1e9) == pytest.approx(63 / 64 * 1e9 / (25e9 * 0.87 * 0.46) + 63 * 8e-6)


def test_messages_between_stages() -> None:
    """Stages on a node of their own send with all its devices; stages that share a node wait for the one hop that
    leaves it."""
    collectives = Collectives(SELENE)
    network = SELENE.networks[1]
    line = network.bandwidth * network.efficiency
    assert collectives.send(8, 1e8, ranks=4) == pytest.approx(network.latency + 8e8 / line)
    assert collectives.send(64, 1e8, ranks=4) == collectives.send(8, 1e8, ranks=4)
    inside = collectives.send(2, 1e8, ranks=4)
    assert inside == pytest.approx(SELENE.networks[0].latency + 1e8 / (300e9 * 0.775))
    assert collectives.send(2, 1e8, ranks=8) == pytest.approx(network.latency + 2e8 / line)
    assert collectives.send(2, 1e8, ranks=1) == 0.0


def test_groups_that_straddle_nodes() -> None:
    """Six devices on nodes of eight: the second group lies on two of them, and two such groups leave each."""
    group = Group(6, 1)
    assert [one.network.name for one in Collectives(SELENE).crossings(group)] == ["NVLink 3"]
    assert [one.network.name for one in Collectives(SELENE, 6).crossings(group)] == ["NVLink 3"]
    assert [one.network.name for one in Collectives(SELENE, 48).crossings(Group(4, 1))] == ["NVLink 3"]
    inside, outside = Collectives(SELENE, 48).crossings(group)
    assert (inside.hops, outside.hops) == (4, 1)
    assert outside.sharing == 2
    aligned = Collectives(SELENE, 48).all_reduce(Group(8, 1), 1e8)
    assert Collectives(SELENE, 48).all_reduce(group, 1e8) > aligned


def test_dies_of_a_package_are_joined_first() -> None:
    """Frontier: pairs, nodes, all; 128 dies at every second place are in 32 nodes, two groups side by side."""
    collectives = Collectives(FRONTIER)
    assert [one.network.name for one in collectives.crossings(Group(2, 1))] == ["Infinity Fabric in a package"]
    assert [one.hops for one in collectives.crossings(Group(8, 1))] == [4, 3]
    crossed = list(collectives.crossings(Group(128, 2)))
    assert [one.network.name for one in crossed] == ["Infinity Fabric", "Slingshot 11"]
    assert [one.hops for one in crossed] == [96, 31]
    assert [one.sharing for one in crossed] == [2, 2]
    assert collectives.all_reduce(Group(2, 1), 1e9) < collectives.all_reduce(Group(4, 1), 1e9)


def test_trees_are_as_wide_as_rings_and_not_as_long() -> None:
    collectives = Collectives(SELENE)
    ways = collectives.all_reduce_ways(Group(64, 8), 8.0)
    assert ways["ring"] == pytest.approx(2 * 63 * 8e-6, rel=1e-3)
    assert ways["tree"] == pytest.approx(2 * 6 * 8e-6, rel=1e-2)
    assert way(collectives, Group(64, 8), 1e9) == "tree"
    within = collectives.all_reduce_ways(Group(8, 1), 1e6)
    assert within["ring"] == within["tree"]
    across = collectives.all_reduce_ways(Group(128, 1), 8.0)["tree"]
    assert across == pytest.approx(2 * (7 * SELENE.networks[0].latency + 4 * 8e-6), rel=1e-2)
    assert "tree" not in Collectives(FIREFLY).all_reduce_ways(Group(64, 1), 8.0)


def bandwidth(seconds: float) -> float:
    return GRADIENTS / seconds / 1e9


@pytest.mark.parametrize("devices", [16, 32, 64, 128, 256, 512])
def test_nccl_on_firefly_as_published(devices: int) -> None:
    """An et al. 2024: 3.73 to 4.83 GB/s of 186 MiB, which fall with the devices; hfreduce is faster."""
    ways = Collectives(FIREFLY).all_reduce_ways(Group(devices, 1), GRADIENTS)
    assert 3.73 <= bandwidth(ways["ring"]) <= 4.83
    assert 6.31 < bandwidth(ways["hfreduce"]) < 8.11
    assert way(Collectives(FIREFLY), Group(devices, 1), GRADIENTS) == "hfreduce"
    assert Collectives(FIREFLY).all_reduce(Group(devices, 1), GRADIENTS) == ways["hfreduce"]


def test_hfreduce_as_published() -> None:
    table = FIREFLY.host_reduce
    assert table is not None
    memory_bound = FIREFLY.host.memory_bandwidth / 24  # a gradient's bytes touch the host's memory 24 times
    card_bound = FIREFLY.networks[1].bandwidth / 2
    assert (memory_bound, card_bound) == pytest.approx((13.3e9, 12.5e9), rel=0.005)
    assert max(table.bandwidth) < min(memory_bound, card_bound)
    collectives = Collectives(FIREFLY)
    for devices, expected in ((16, 8.10), (1024, 6.31), (1440, 6.99), (4096, 6.99)):
        assert bandwidth(collectives.all_reduce_ways(Group(devices, 1), GRADIENTS)["hfreduce"]) == pytest.approx(
            expected
        )


def test_where_hfreduce_was_not_measured_it_is_not_a_way() -> None:
    assert set(Collectives(FIREFLY).all_reduce_ways(Group(8, 1), GRADIENTS)) == {"ring"}
    assert all("hfreduce" not in Collectives(SELENE).all_reduce_ways(Group(64, 1), size) for size in (8, GRADIENTS))
    assert FIREFLY.host_reduce is not None
    of_nodes = FIREFLY.host_reduce.model_copy(update={"devices": (8, 16), "bandwidth": (9e9, 8e9)})
    within = Collectives(FIREFLY.model_copy(update={"host_reduce": of_nodes}))
    assert set(within.all_reduce_ways(Group(8, 1), GRADIENTS)) == {"ring"}  # one node has nobody to sum with


def test_hfreduce_of_groups_side_by_side() -> None:
    """With tensor parallelism of 8 each node sums for 8 groups."""
    collectives = Collectives(FIREFLY)
    alone = collectives.all_reduce_ways(Group(128, 1), GRADIENTS)["hfreduce"]
    assert collectives.all_reduce_ways(Group(16, 8), GRADIENTS)["hfreduce"] == pytest.approx(8 * alone)


@pytest.mark.parametrize("name", named_clusters())
def test_one_rank_talks_to_nobody(name: str) -> None:
    seconds = all_of(Collectives(load_cluster(name)), Group(1, 4), 1e9)
    assert set(seconds.values()) == {0.0}
    assert math.isfinite(Collectives(load_cluster(name)).all_reduce(Group(4096, 1), 1e9))
