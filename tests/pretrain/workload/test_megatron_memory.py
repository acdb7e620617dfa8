from typing import Any

import pytest

from pretrain.parallel.base.simulate import most_held
from pretrain.schedules import actions, stage_ranks
from pretrain.workload import megatron_memory, parameters
from pretrain.workload.framework_profiles import (
    BLOOM_2022,
    DEEPSPEED_2021,
    DEEPSPEED_2022,
    MEGATRON_2021,
    MEGATRON_2022,
    FrameworkProfile,
)
from tests.fidelity.rows import Row

SHAPE: dict[str, Any] = {
    "name": "small",
    "software": "megatron-2022",
    "layers": 8,
    "hidden": 512,
    "heads": 8,
    "sequence": 256,
    "vocabulary": 1024,
    "micro_batch": 2,
    "batch": 32,
    "gpus": 8,
}


def row(**values: Any) -> Row:
    return Row(**{**SHAPE, **values})


def first(software: FrameworkProfile, **values: Any) -> Any:
    one = row(**values)
    return megatron_memory.estimate(one.config, one.gpus, software)[0]


def test_bytes_of_a_layer_are_those_of_the_table() -> None:
    x, a_s_h = 256 * 2 * 512, 5 * 8 * 256 / 512
    of = megatron_memory.layer_bytes
    assert of(row(tp=4).config, 2) == x * (10 + 24 / 4 + a_s_h / 4)
    assert of(row(tp=4, sequence_parallel=True).config, 2) == x / 4 * (34 + a_s_h)
    assert of(row(tp=4, sequence_parallel=True, recompute="selective").config, 2) == x / 4 * 34
    assert of(row(tp=4, recompute="selective").config, 2) == x * (10 + 24 / 4)
    assert of(row(tp=4, recompute="full").config, 2) == 2 * x
    assert of(row(tp=4).config, 2, fuses_attention=True) == x * (10 + 24 / 4)


@pytest.mark.parametrize(("pp", "interleave"), [(4, 1), (2, 2), (4, 2)])
def test_stages_hold_what_their_lists_hold(pp: int, interleave: int) -> None:
    one = row(pp=pp, interleave=interleave)
    kind = "interleaved" if interleave > 1 else "1f1b"
    micro_batches = 32 // (8 // pp) // 2
    lists = actions(kind, pp, interleave, micro_batches)
    owners = stage_ranks(kind, pp, interleave)
    size = 8 / (pp * interleave) * megatron_memory.layer_bytes(one.config, 2)
    for rank, estimate in enumerate(megatron_memory.estimate(one.config, 8, MEGATRON_2021)):
        assert estimate.activations == most_held(lists[rank], [size] * len(owners))


def test_full_recompute_has_a_whole_layer_beside() -> None:
    estimate = first(MEGATRON_2021, recompute="full")
    one = row(recompute="full").config
    whole = megatron_memory.whole_layer_bytes(one, 2)
    assert estimate.working + megatron_memory.layer_bytes(one, 2) == whole


def test_state_is_whole_under_megatron_whatever_zero_says() -> None:
    numbers = parameters.of_model(row().config.model)
    assert first(MEGATRON_2021, zero=3).resting == 20 * numbers
    assert first(MEGATRON_2022, zero=1).resting == 18 * numbers


@pytest.mark.parametrize(("zero", "of_eight"), [(1, 2 + 2 + 16 / 8), (2, 2 + (2 + 16) / 8), (3, 20 / 8)])
def test_deepspeed_shares_what_its_stage_says(zero: int, of_eight: float) -> None:
    estimate = first(DEEPSPEED_2021, zero=zero)
    assert estimate.resting == pytest.approx(of_eight * parameters.of_model(row().config.model), abs=3)
    assert (estimate.gathered > 0) == (zero == 3)


def test_bf16_keeps_gradients_in_fp32() -> None:
    numbers = parameters.of_model(row().config.model)
    assert first(BLOOM_2022).gradients == 4 * numbers
    assert first(BLOOM_2022).resting == pytest.approx((6 + 12 / 8) * numbers, abs=3)


def test_stage_3_gathers_two_layers_and_what_lies_outside() -> None:
    rooms = parameters.by_room(row().config.model)
    outside = parameters.of_model(row().config.model) - 8 * rooms["layer"]
    assert first(DEEPSPEED_2021, zero=3).gathered == 2 * (outside + 2 * rooms["layer"])


def test_an_unfused_update_has_temporaries_unless_it_is_on_the_host() -> None:
    numbers = parameters.of_model(row().config.model)
    plain = first(DEEPSPEED_2021, zero=3, recompute="full", micro_batch=1, batch=8, gpus=2)
    apart = first(DEEPSPEED_2022, zero=3, recompute="full", micro_batch=1, batch=8, gpus=2)
    host = first(DEEPSPEED_2022, zero=3, recompute="full", micro_batch=1, batch=8, gpus=2, offload=True)
    assert apart.working == max(plain.working, int(8 * numbers / 2)) > plain.working
    assert host.working == plain.working
    assert host.device_bytes == host.moving and host.host_bytes > host.resting


def test_weights_on_the_host_come_whole_without_stage_3() -> None:
    numbers = parameters.of_model(row().config.model)
    assert first(DEEPSPEED_2022, zero=2, offload=True).gathered == 2 * numbers


def test_only_the_last_stage_has_logits() -> None:
    one = row(pp=4, tp=2)
    estimates = megatron_memory.estimate(one.config, 8, MEGATRON_2021)
    assert [estimate.logits > 0 for estimate in estimates] == [False, False, False, True]
    assert estimates[-1].logits == 4 * 256 * 2 * (512 + 1024) / 2
