"""The cost of a step: closed forms of the literature, what changes must do to it, and that its parts add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.config import Zero
from pretrain.plan.cost import predict, step_seconds
from pretrain.plan.machines.collectives import Group
from pretrain.plan.prediction import RESERVED, Seconds
from pretrain.plan.time.data_time import Numbers
from pretrain.plan.time.machine import VIEWS, Machine
from pretrain.plan.time.stage_time import StageTime, places_of
from pretrain.plan.time.step_time import StepTime
from pretrain.workload import memory
from pretrain.workload.framework_profiles import MEGATRON_2021, MEGATRON_2022, OURS, FrameworkProfile
from pretrain.workload.operations import Operation, Shape
from tests.pretrain.plan.layouts import GPT, cluster, config

FAST_MEMORY = 1e30
EXACT = {"hidden_size": 4096, "num_heads": 32, "sequence_length": 2048}


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("hidden, window", [(4096, 2048), (8192, 1024)])
def test_arithmetic_over_exchanges_of_tensor_parallelism(tensor: int, hidden: int, window: int) -> None:
    """FACTS 1.4: (4 h + 2 S / 3) W / ((t - 1) F) with full recompute; it does not depend on the batch."""
    own = cluster(memory_bandwidth=FAST_MEMORY)
    model = config({"hidden_size": hidden, "num_heads": 32, "sequence_length": window}).model
    machine = Machine(own, MEGATRON_2021, "bf16", tensor)
    for samples in (1, 4):
        times = StageTime(Shape(model, samples * window, tensor, 1, 2), "full", False, machine)
        work = machine.spent((*times.again.repeated, *(one for phase in times.again.work for one in phase)))
        exchanges = sum(traffic.total for traffic in times.again.exchanges)
        expected = (4 * hidden + 2 * window / 3) * 100e9 / ((tensor - 1) * 300e12)
        assert work.products / exchanges == pytest.approx(expected)


def test_arithmetic_over_messages_of_a_pipeline() -> None:
    """FACTS 1.4: l (24 h + 4 S) W / (t F) for stages of l layers, t times that where ranks send their parts."""
    own = cluster(memory_bandwidth=FAST_MEMORY)
    run = config(EXACT, global_batch_size=8, pp=4, schedule="1f1b", recompute="full", tp=2, sequence_parallel=False)
    step = StepTime(run, 8, own, replace(MEGATRON_2021, scatters_messages=False))
    layers, (hidden, window) = 4, (4096, 2048)
    arithmetic = layers * 96 * window * hidden**2 * (1 + window / (6 * hidden)) / 2 / 300e12
    messages = 2 * step.message
    assert arithmetic / messages == pytest.approx(layers * (24 * hidden + 4 * window) * 100e9 / (2 * 300e12), rel=1e-6)


@pytest.mark.parametrize("ranks, batch", [(4, 16), (16, 64)])
def test_arithmetic_over_reductions_of_data_parallelism(ranks: int, batch: int) -> None:
    """FACTS 1.4: 4 B S (1 + S / 6h) W / ((d - 1) b F), for gradients of b bytes."""
    machine = Machine(cluster(memory_bandwidth=FAST_MEMORY), MEGATRON_2021, "bf16", ranks)
    hidden, window = 4096, 2048
    reduction = machine.line("all_reduce", Group(ranks, 1)).of(2 * 12 * hidden**2)
    arithmetic = batch / ranks * 96 * window * hidden**2 * (1 + window / (6 * hidden)) / machine.rate
    expected = 4 * batch * window * (1 + window / (6 * hidden)) * 100e9 / ((ranks - 1) * 2 * 300e12)
    assert arithmetic / reduction == pytest.approx(expected)


def test_flops_of_a_step_are_96_b_s_l_h_squared() -> None:
    """FACTS 3.2: 96 B S L h^2 (1 + S / 6h + V / 16 L h) with full recompute: of the operations, and of TFLOP/s per
    GPU."""
    prediction = predict(config(EXACT, recompute="full", global_batch_size=32), 4, cluster(), MEGATRON_2021)
    hidden, window, layers = 4096, 2048, GPT["num_layers"]
    share = 1 + window / (6 * hidden) + GPT["padded_vocab_size"] / (16 * layers * hidden)  # type: ignore[operator]
    expected = 96 * 32 * window * layers * hidden**2 * share  # type: ignore[operator]
    assert 4 * sum(line.flops for line in prediction.work) == pytest.approx(expected)
    assert prediction.tflops_per_gpu * 1e12 * 4 * prediction.step_seconds == pytest.approx(expected)
    assert prediction.hfu == pytest.approx(prediction.tflops_per_gpu / 300)


@pytest.mark.parametrize("software", [OURS, MEGATRON_2022])
@pytest.mark.parametrize(
    "change", [{"peak": 600e12}, {"memory_bandwidth": 4e12}, {"network": 400e9}, {"latency": 1e-6}, {"launch": 1e-6}]
)
def test_better_machines_are_faster(software: FrameworkProfile, change: dict[str, Any]) -> None:
    poor: dict[str, Any] = {"latency": 1e-4, "launch": 1e-4}
    runs = [
        config(tp=4, micro_batch_size=2),
        config(tp=2, pp=2, recompute="full", zero=1),
        config(zero=3),
        config(dp_replicate=2, global_batch_size=32),
        config(micro_batch_size=32, global_batch_size=256),
    ]
    before = [predict(run, 8, cluster(**poor), software).step_seconds for run in runs]
    after = [predict(run, 8, cluster(**poor | change), software).step_seconds for run in runs]
    assert all(new <= old for old, new in zip(before, after, strict=True))
    assert sum(after) < sum(before)


def test_recompute_costs_what_it_repeats() -> None:
    """Full a third of the arithmetic, but for the last product; selective no product at all."""
    run = {kind: predict(config(recompute=kind), 1, cluster()) for kind in ("none", "selective", "full")}
    again = {kind: [line for line in prediction.work if line.phase == "recompute"] for kind, prediction in run.items()}
    assert run["none"].seconds.recompute == 0 and not again["none"]
    assert {line.name for line in again["selective"]} == {"norm", "gelu"}
    forward = {line.name: line.times for line in run["full"].work if (line.phase, line.part) == ("forward", "layer")}
    repeated = {line.name: line.times for line in again["full"]}
    assert forward.keys() - repeated.keys() == {"down"}
    assert repeated["residual"] * 2 == forward["residual"]
    assert run["none"].step_seconds < run["selective"].step_seconds < run["full"].step_seconds
    every = predict(config(recompute="full", recompute_every=4), 1, cluster())
    assert every.seconds.recompute == pytest.approx(run["full"].seconds.recompute / 4)


def test_every_nth_layer_is_recomputed_wherever_its_stage_begins() -> None:
    parallel = config(pp=4, recompute="full", recompute_every=3, layers_per_stage=[4, 4, 4, 4]).parallel
    kinds = places_of(config().model, parallel).kinds
    assert [kind.num_recomputed for kind in kinds] == [2, 1, 1, 2]  # 0 3 | 6 | 9 | 12 15


def test_zero_bubble_repeats_the_last_product_too() -> None:
    run = predict(config(recompute="full", pp=2, schedule="zero-bubble"), 2, cluster())
    assert any(line.name == "down" for line in run.work if line.phase == "recompute")


def test_sequence_parallelism_gathers_again_what_it_did_not_keep() -> None:
    """Of 2 gathers and 2 scatters forward, 4 and 2 backward two gathers and two scatters lie beside products."""
    own = cluster(peak=1e9)  # so slow that all that can be hidden is
    model = {"num_layers": 4}
    both = {
        sp: predict(config(model, tp=4, sequence_parallel=sp), 4, own).communication["tensor"] for sp in (True, False)
    }
    # head and embedding are one layer's worth of their own
    assert both[True].hidden / both[True].total == pytest.approx(0.4, abs=0.05)
    assert both[False].hidden / both[False].total == pytest.approx(0.5, abs=0.05)
    assert both[True].total == pytest.approx(1.25 * both[False].total, rel=0.05)  # 10 halves against 4 whole ones
    kept = predict(config(model, tp=4, recompute="selective"), 4, own).communication["tensor"]
    assert kept.exposed > both[True].exposed and kept.total == pytest.approx(both[True].total)
    split = predict(config(model, tp=2, pp=2, schedule="zero-bubble"), 4, own).communication["tensor"]
    assert split.hidden == 0


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_weights_are_gathered_and_gradients_reduced_as_fsdp_does(pp: int, zero: Zero) -> None:
    """Its table: times a step that a rank's weights are gathered, and its gradients reduced, with 4 micro-batches."""
    run = config({"tied": False, "padded_vocab_size": 128}, global_batch_size=16, zero=zero, pp=pp)
    found = StepTime(run, 4 * pp, cluster(), OURS)
    gathers, reductions = {1: (1, 1), 2: (4 if pp == 1 else 1, 4), 3: (8, 4)}[zero]
    numbers = 16 / pp * 12 * 2048**2
    unit = numbers * 3 / 4 / 100e9  # of one byte of each: 3 of 4 parts pass each rank
    assert found.data_seconds == pytest.approx((2 * gathers + 4 * reductions) * unit, rel=0.03)


@pytest.mark.parametrize("exact", [True, False])
def test_stages_do_not_wait_for_what_others_gather_and_reduce(exact: bool) -> None:
    """All gather at once, and a last gradient is sent before its stage reduces: the first stage's alone is in the
    way."""
    plenty = {"global_batch_size": 32, "zero": 1, "pp": 4}  # a micro-batch takes longer than any stage's exchanges
    step = StepTime(config(**plenty), 8, cluster(peak=1e12), OURS)
    first, *others = (step.of(kind).once.data for kind in step.places.kinds)
    assert step.seconds(exact).data == pytest.approx(first, rel=0.05)
    assert min(others) > 0.1 * first
    slow = StepTime(config(**plenty), 8, cluster(network=1e7), OURS)  # or all wait, the longest of them most
    longest = max(slow.of(kind).extra.first.data for kind in slow.places.kinds)
    longest += max(slow.of(kind).extra.last.data for kind in slow.places.kinds)
    assert slow.seconds(exact).data == pytest.approx(longest, rel=0.05)


def test_a_stage_that_has_sent_its_last_gradient_hides_no_reduction() -> None:
    """With zero 1 it reduces block after block then; the first stage reduces beside its backward, as any with zero 2
    does."""
    numbers = Numbers(4, 12 * 2048**2, 0.0)
    for zero, blocks in ((1, 4), (2, 1)):
        step = StepTime(config(global_batch_size=32, zero=zero, pp=4), 8, cluster(peak=1e12), OURS)
        micro = step.stage_time.of(step.places.kinds[1])
        once = 4 * numbers.block / 2 / 100e9
        assert step.data.extra(numbers, micro).last.data == pytest.approx(once, rel=0.01)
        assert step.data.extra(numbers._replace(sends=True), micro).last.data == pytest.approx(blocks * once, rel=0.01)
        assert step.of(step.places.kinds[1]).extra.last.data == pytest.approx(blocks * once, rel=0.01)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_only_the_first_gather_and_the_last_reduction_are_exposed(zero: Zero) -> None:
    """Beside plenty of arithmetic: of what lies outside of the blocks, and of one block; each micro-batch, or once a
    step."""
    run = config({"tied": False}, global_batch_size=32, zero=zero)
    slow = cluster(peak=1e12)
    step = StepTime(run, 8, slow, OURS)
    outside = 2 * 51200 * 2048 + 1024 * 2048 + 2 * 2048
    block = 2048 * (12 * 2048 + 13)
    ends = (2 + 4) * (outside + block) * 7 / 8 / 100e9
    times = 1 if zero == 1 else 4
    assert step.seconds(exact=True).data == pytest.approx(times * ends, rel=0.01)
    on_cpu = StepTime(run, 8, cluster(peak=1e12, cores=8), OURS)
    assert on_cpu.seconds(exact=True).data == pytest.approx(on_cpu.data_seconds, rel=0.01)


def test_what_is_gathered_again_is_copied_again() -> None:
    """Zero 3, for each micro-batch: shards are cast and put into a buffer, the gathered bf16 weights are taken out of
    another."""
    gathered = (
        StepTime(config({"tied": False}, global_batch_size=32, zero=zero), 8, cluster(), OURS) for zero in (2, 3)
    )
    twice, thrice = (step.seconds(exact=True).memory for step in gathered)
    numbers = 16 * 2048 * (12 * 2048 + 13) + 2 * 51200 * 2048 + 1024 * 2048 + 2 * 2048
    assert thrice - twice == pytest.approx(4 * ((4 + 2) / 8 + 2 * 2) * numbers / 2e12, rel=0.01)


def test_replicas_of_shards_reduce_twice_and_gather_less_far() -> None:
    networks = [
        {"name": "inside", "devices": 8, "bandwidth": 300e9, "latency": 0},
        {"name": "outside", "bandwidth": 25e9, "latency": 0},
    ]
    own = cluster(networks=networks)
    wide, hybrid = (predict(config(zero=3, dp_replicate=replicas), 64, own) for replicas in (1, 8))
    assert hybrid.communication["data"].total < wide.communication["data"].total


def test_offload_moves_shards_and_updates_on_the_host() -> None:
    here, there = (predict(config({"tied": False}, offload=offload, zero=3), 8, cluster()) for offload in (False, True))
    assert here.seconds.offload == 0 < there.seconds.offload
    numbers = 16 * 12 * 2048**2 + 2 * 51200 * 2048
    assert there.seconds.optimizer == pytest.approx(40 * numbers / 300e9, rel=0.02)  # 8 ranks share 8 shards' host
    assert here.seconds.optimizer == pytest.approx(40 * numbers / 8 / 2e12, rel=0.02)


def test_offload_hides_its_transfers_but_for_the_ends() -> None:
    """Beside plenty of arithmetic: the first shards down, the last gradients up; the host adds later gradients
    itself."""
    outside = 2 * 51200 * 2048 + 1024 * 2048 + 2 * 2048
    block = 2048 * (12 * 2048 + 13)
    slow = cluster(peak=1e12)
    found = {
        number: StepTime(config({"tied": False}, global_batch_size=8 * number, offload=True), 8, slow, OURS)
        for number in (1, 2)
    }
    ends = 2 * 4 / 8 * (outside + block) / 25e9
    assert found[1].seconds(exact=True).offload == pytest.approx(ends, rel=0.01)
    numbers = outside + 16 * block
    adding = numbers * 3 * 4 / 300e9 + numbers * 4 / 8 / 25e9 + numbers * 4 * 7 / 8 / 100e9
    assert found[2].seconds(exact=True).offload == pytest.approx(2 * ends + adding, rel=0.05)
    assert StepTime(config(offload=True), 8, cluster(cores=8), OURS).seconds(exact=True).offload == 0


def test_recompute_keeps_the_host_busy() -> None:
    """Full adds what it repeats and 50 launches a layer; selective looks at each operation of a forward, twice."""
    launch = 1e-2
    bound = {
        kind: StepTime(config(global_batch_size=1, recompute=kind), 1, cluster(launch=launch), OURS)
        for kind in ("none", "selective", "full")
    }
    seconds = {kind: step.seconds(exact=True).total / (VIEWS * launch + 1.5 * 8e-6) for kind, step in bound.items()}
    layer = bound["full"].stage_time.again
    forward, repeated = (sum(one.kernels for one in work) for work in (layer.work.forward, layer.repeated))
    assert seconds["full"] - seconds["none"] == pytest.approx(16 * (repeated + 50), rel=0.01)
    again = sum(one.kernels for one in bound["selective"].stage_time.again.repeated)
    assert seconds["selective"] - seconds["none"] == pytest.approx(16 * (2 * 4 * forward + again), rel=0.01)


def test_tied_weights_of_a_pipeline_add_their_gradients() -> None:
    own = cluster(network=1e9)
    apart, tied = (predict(config({"tied": tied}, pp=2, global_batch_size=4), 2, own) for tied in (False, True))
    table = 4 * 51200 * 2048
    assert tied.seconds.messages - apart.seconds.messages == pytest.approx(table / 1e9, rel=0.2)
    v_shaped = predict(config({"tied": True}, pp=2, schedule="zbv", global_batch_size=4), 2, own)
    assert v_shaped.seconds.messages < table / 1e9  # both storages lie on the first rank


def test_a_gpu_waits_for_the_host_only_where_launches_take_longer() -> None:
    plain = replace(OURS, seconds_per_launch=0.0)

    def seconds(size: int, launch: float, software: FrameworkProfile = plain) -> Seconds:
        return step_seconds(config(micro_batch_size=size), 1, cluster(launch=launch), software)

    assert seconds(1, 1e-6).launches == 0
    few, many = seconds(8, 1e-3), seconds(1, 1e-3)
    assert many.launches > few.launches >= 0
    assert many.products == pytest.approx(few.products, rel=0.01)
    busy = many.total - many.optimizer - many.launches
    doubled = seconds(1, 2e-3)
    # it is the host's time that counts then, whatever the device does meanwhile
    assert doubled.launches + busy == pytest.approx(2 * (many.launches + busy), rel=0.02)
    assert seconds(1, 0.0, replace(OURS, seconds_per_launch=1e-3)).launches == pytest.approx(many.launches)
    each_waits = seconds(1, 1e-6, replace(plain, launches_ahead=False)).launches
    assert each_waits == pytest.approx((doubled.launches + busy) * 1e-6 / 2e-3, rel=0.02)


def test_ranks_of_a_cpu_share_its_cores_and_hide_nothing() -> None:
    own = cluster(peak=1e11, memory_bandwidth=1e10, launch=1e-5, cores=2)
    tiny = {"num_layers": 2, "hidden_size": 256, "num_heads": 4, "sequence_length": 64, "padded_vocab_size": 1024}
    precision = {"precision": "bf16"}
    two, four = (
        predict(config(tiny, global_batch_size=8, training=precision, tp=ranks, zero=3), ranks, own) for ranks in (2, 4)
    )
    full = {"tp": 1, "zero": 3, "global_batch_size": 8}
    alone, crowd = (predict(config(tiny, training=precision, **full), ranks, own).seconds for ranks in (1, 4))
    # four ranks have a quarter of the batch each, and half a core
    assert crowd.products == pytest.approx(alone.products * 2 / 4, rel=0.02)
    assert crowd.optimizer == pytest.approx(alone.optimizer * 2 / 4, rel=0.02)
    for prediction in (two, four):
        assert prediction.communication["tensor"].hidden == 0
        assert prediction.seconds.launches > 0
    data = predict(config(tiny, global_batch_size=8, training=precision, zero=3), 2, own).communication["data"]
    assert data.hidden == pytest.approx(0, abs=1e-12)


LAYOUTS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2]),
        "pp": st.sampled_from([1, 2, 4]),
        "schedule": st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble", "zbv"]),
        "zero": st.sampled_from([1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "offload": st.booleans(),
        "sequence_parallel": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(parallel=LAYOUTS, tied=st.booleans(), size=st.sampled_from([1, 2]), compiled=st.booleans())
def test_parts_add_up(parallel: dict[str, Any], tied: bool, size: int, compiled: bool) -> None:
    compiled = compiled and not (parallel["pp"] > 1 and parallel["schedule"] in ("zero-bubble", "zbv"))
    run = config({"tied": tied}, size, 32, {"compile": compiled}, **parallel)
    own = cluster(latency=1e-5, launch=2e-6)
    exact, fast = (predict(run, 8, own, exact=is_exact) for is_exact in (True, False))
    assert exact.step_seconds == pytest.approx(sum(exact.seconds))
    assert min(exact.seconds) >= 0
    exchanged = sum(exact.communication[axis].exposed for axis in ("tensor", "pipeline"))
    repeated = sum(line.seconds for line in exact.work if line.phase == "recompute")
    again = exact.seconds.recompute - repeated  # exchanges of what is recomputed
    assert again >= -1e-9
    computed = sum(line.seconds for line in exact.work if line.phase != "recompute")
    assert exact.seconds.products + exact.seconds.memory == pytest.approx(computed)
    assert exact.communication["tensor"].exposed == pytest.approx(exact.seconds.tensor + again)
    assert exchanged >= exact.communication["tensor"].exposed
    assert exact.communication["data"].exposed == exact.seconds.data
    assert fast.step_seconds == pytest.approx(exact.step_seconds, rel=0.15)
    assert len(exact.step.stages) == run.parallel.num_stages and min(stage.forward for stage in exact.step.stages) > 0
    slowest = max(
        sum(
            stage.each
            for stage, owner in zip(exact.step.stages, exact.step.places.owners, strict=True)
            if owner == rank
        )
        for rank in range(run.parallel.pp)
    )
    assert exact.step_seconds > exact.micro_batches * slowest * 0.999


def test_ranks_on_a_cpu_share_the_memory_of_one_machine() -> None:
    """However many there are of them; what they hold beyond what is predicted counts as on a GPU."""
    own, held = cluster(cores=2), {"held": 1.5}
    device, host = memory.most_bytes(config(zero=1), 16, "cpu")
    assert memory.most_bytes(config(zero=1), 16, "cuda") != (device, host)
    prediction = predict(config(zero=1), 16, own)
    assert prediction.host_bytes_per_node == 16 * host and host >= device > 0
    small = {"memory_gib": 16 * (host + device // 4) / 2**30, "memory_bandwidth": 1e9, "link_bandwidth": 1e9}
    assert predict(config(zero=1), 16, cluster(cores=2, host=small)).fits
    more = predict(config(zero=1), 16, cluster(cores=2, host=small, efficiency=held))
    assert more.missing_bytes == pytest.approx(16 * device / 4, rel=1e-6)
    large = cluster(cores=2, host=small | {"memory_gib": 1e6}, efficiency={"held": 100.0})
    assert predict(config(zero=1), 16, large).fits  # a core has no memory of its own to be too small
    on_gpu = predict(config(), 8, cluster(efficiency={"held": 100.0}))
    assert on_gpu.missing_bytes == int(100 * on_gpu.memory_bytes - RESERVED * 80 * 2**30)


def test_memory_that_is_missing_is_told() -> None:
    large = {"num_layers": 64, "hidden_size": 8192, "num_heads": 64}
    prediction = predict(config(large, micro_batch_size=4), 8, cluster())
    assert not prediction.fits
    assert prediction.missing_bytes == int(prediction.memory_bytes - RESERVED * 80 * 2**30)
    assert predict(config(), 8, cluster()).missing_bytes == 0
    offloaded = predict(config(large, offload=True, zero=3, recompute="full"), 8, cluster())
    assert offloaded.host_bytes_per_node > 1024 * 2**30
    assert offloaded.missing_bytes == offloaded.host_bytes_per_node - 1024 * 2**30
    assert prediction.memory_bytes == prediction.worst.device_bytes


def test_products_of_few_tokens_wait_for_their_weights() -> None:
    """A roofline: as many bytes as weights, however fast the arithmetic is."""
    fast = Machine(cluster(peak=1e30, memory_bandwidth=1e12), OURS, "bf16", 1)
    product = Operation("product", flops=2 * 10 * 4096**2, bytes=2 * 4096**2)
    assert fast.seconds(product) == fast.spent([product]).products == 2 * 4096**2 / 1e12
    slow = Machine(cluster(peak=1e6, memory_bandwidth=1e12), OURS, "bf16", 1)
    assert slow.seconds(product) == slow.spent([product]).products == product.flops / 1e6


@pytest.mark.parametrize("micro_batches, replicas", [(1, 1), (4, 1), (4, 4)])
def test_zero_2_over_one_rank_takes_as_long_as_zero_1(micro_batches: int, replicas: int) -> None:
    first, second = (
        predict(
            config(zero=zero, global_batch_size=micro_batches * replicas, dp_replicate=replicas), replicas, cluster()
        )
        for zero in (1, 2)
    )
    assert first.seconds == second.seconds and first.memory_bytes == second.memory_bytes
    other = predict(config(zero=2, offload=True, global_batch_size=micro_batches), 1, cluster())
    assert other.memory_bytes < first.memory_bytes


def test_recompute_of_a_block_exchanges_again() -> None:
    """With sequence parallelism full repeats 2 gathers and a scatter, selective 2 gathers; without it an all-reduce."""
    own = cluster()
    machine = Machine(own, OURS, "bf16", 4)
    run = config()
    one = machine.line("all_gather", Group(4, 1)).of(2 * 1024 * 2048)
    for recompute, token_ranks, times in (("full", 4, 3), ("selective", 4, 2), ("full", 1, 2), ("selective", 1, 0)):
        shape = Shape(run.model, 1024, 4, token_ranks, 2)
        stage = StageTime(shape, recompute, False, machine)  # type: ignore[arg-type]
        assert stage.again.exchanges.again.total == pytest.approx(times * one)


def test_a_precision_without_a_peak_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^cluster test: nobody has said what a test does in fp64"):
        predict(config(training={"precision": "fp64"}), 1, cluster())
