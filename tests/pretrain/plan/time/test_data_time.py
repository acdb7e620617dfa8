from dataclasses import replace
from typing import Any

import pytest

from pretrain.plan.cost import step_seconds
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.machines.collectives import Collectives, Group
from pretrain.plan.prediction import Seconds
from pretrain.workload import megatron_operations
from pretrain.workload.framework_profiles import (
    DEEPSPEED_2021,
    DEEPSPEED_2022,
    MEGATRON_2020,
    MEGATRON_2021,
    MEGATRON_2024,
    FrameworkProfile,
)
from pretrain.workload.megatron_memory import whole_layer_bytes
from pretrain.workload.operations import Shape
from tests.fidelity.rows import Row

SHAPE: dict[str, Any] = {
    "name": "some",
    "software": "megatron-2021",
    "layers": 8,
    "hidden": 4096,
    "heads": 32,
    "sequence": 2048,
    "vocabulary": 51200,
    "micro_batch": 1,
    "batch": 64,
    "gpus": 16,
    "recompute": "full",
}


def seconds(software: FrameworkProfile, cluster: Cluster, **values: Any) -> Seconds:
    row = Row(**{**SHAPE, **values})
    return step_seconds(row.config, row.gpus, cluster, software)


def test_stage_3_gathers_three_times_where_blocks_are_computed_again(cluster: Cluster) -> None:
    both = [
        seconds(replace(DEEPSPEED_2021, gathers_to_recompute=again), cluster, zero=3, batch=16).data
        for again in (False, True)
    ]
    assert both[1] / both[0] == pytest.approx(4 / 3, rel=0.01)  # gathers and one reduction, of as many bytes


def test_exchanges_asked_for_ahead_hide_behind_the_arithmetic(cluster: Cluster) -> None:
    blocking = seconds(DEEPSPEED_2021, cluster, zero=3)
    ahead = seconds(replace(DEEPSPEED_2021, exchanges_ahead=True), cluster, zero=3)
    hidden = blocking.data - ahead.data
    assert 0 < hidden <= blocking.total - blocking.data
    assert seconds(DEEPSPEED_2021, cluster, zero=3, batch=32).data == pytest.approx(
        blocking.data / 2
    )  # each micro-batch


def test_stage_1_reduces_once_and_gathers_weights(cluster: Cluster) -> None:
    megatron, stage_1 = (seconds(software, cluster, gpus=32) for software in (MEGATRON_2021, DEEPSPEED_2021))
    assert stage_1.data / megatron.data == pytest.approx(1.5, rel=0.02)
    assert stage_1.optimizer == pytest.approx(megatron.optimizer / 32)
    assert seconds(DEEPSPEED_2021, cluster, gpus=32, batch=128).data == pytest.approx(stage_1.data)


def test_offload_updates_on_the_host_with_its_traffic(cluster: Cluster) -> None:
    plain = seconds(DEEPSPEED_2022, cluster, zero=3, offload=True)
    twice = seconds(replace(DEEPSPEED_2022, host_traffic=224), cluster, zero=3, offload=True)
    assert twice.optimizer == pytest.approx(2 * plain.optimizer)


def test_overlap_hides_the_reduction_after_the_last_backward(cluster: Cluster) -> None:
    assert seconds(MEGATRON_2024, cluster).data < seconds(replace(MEGATRON_2024, data_overlap=0.0), cluster).data


def test_kernels_that_are_not_fused_move_more_and_multiply_as_much() -> None:
    shape = Shape(Row(**SHAPE).config.model, tokens=2048, tensor=1, token_ranks=1, item=2)
    fused, apart = (megatron_operations.layer(shape, software) for software in (MEGATRON_2021, MEGATRON_2020))
    for own, other in zip(fused[:2], apart[:2], strict=True):
        assert sum(one.flops for one in own) == sum(one.flops for one in other)
        assert sum(one.kernels for one in own) < sum(one.kernels for one in other)
    found = {one.name: one.bytes for one in apart.forward}
    scores, x = 2048 * 2048 * 32, 2048 * 4096
    assert found["softmax"] == (2 * (2 + 4) + 6 * 4 + 1) * scores
    assert found["gelu"] == 4 * 2 * 4 * x and found["residual"] == (7 * 2 + 1) * x


def test_fused_attention_keeps_no_scores() -> None:
    shape = Shape(Row(**SHAPE).config.model, tokens=2048, tensor=1, token_ranks=1, item=2)
    names = {one.name for one in megatron_operations.layer(shape, MEGATRON_2024).forward}
    assert "attention" in names and "softmax" not in names
    config = Row(**SHAPE).config
    assert whole_layer_bytes(config, 1, with_scores=False) == 34 * 2048 * 4096


def test_rings_share_a_crowded_network(cluster: Cluster) -> None:
    outer = cluster.networks[-1]
    calm = cluster.model_copy(update={"networks": (*cluster.networks[:-1], outer.model_copy(update={"crowded": 1.0}))})
    for group, is_crowded in ((Group(16, 1), False), (Group(32, 1), True), (Group(2, 8), True)):
        slow, fast = (Collectives(cluster).all_reduce(group, 1e12) for cluster in (cluster, calm))
        assert slow / fast == pytest.approx(1 / outer.crowded if is_crowded else 1.0, rel=0.01)
    sends = [Collectives(cluster).send(8, 1e9) for cluster in (cluster, calm)]
    assert sends[0] == sends[1]


def test_products_of_short_sums_are_slower(cluster: Cluster) -> None:
    efficiency = cluster.efficiency.model_copy(update={"half_depth": 0.0})
    flat = cluster.model_copy(update={"efficiency": efficiency})
    losses = [
        seconds(MEGATRON_2021, cluster, tp=tp).products / seconds(MEGATRON_2021, flat, tp=tp).products for tp in (1, 8)
    ]
    assert 1.02 < losses[0] < losses[1] < 1.2
