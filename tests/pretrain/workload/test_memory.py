"""Predicted memory beside what tensors take: exact at rest, within a stated factor in a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, load_config
from pretrain.model import GPT
from pretrain.model.micro_batch import read_micro_batches
from pretrain.parallel.base import linear_cross_entropy
from pretrain.parallel.base.mesh import layout
from pretrain.parallel.base.params import num_parameters, param_specs
from pretrain.training.step import train_step
from pretrain.workload.memory import estimate, worst
from tests.pretrain.models import CHOICES, build
from tests.pretrain.parallel.test_recompute import Ops
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Of all storages, each once, padding included."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    storages = [tensor.untyped_storage() for tensor in local]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def at_rest(config: RunConfig) -> dict[str, int]:
    """Bytes of what this rank holds from one step to the next, and of the gradients before the update."""
    with tiny_run(config) as run:
        batch_size = config.training.global_batch_size
        micro_batches = list(read_micro_batches(run.loader, 0, batch_size, config, run.world))
        run.model.step(micro_batches, 1)
        held = [*run.model.parameters.values(), *run.model.copies.values()]
        gradients = [parameter.grad for parameter in held if parameter.grad is not None]
        assert len(gradients) == len(held)
        states = [tensor for parameter in held for tensor in run.optimizer.state[parameter].values()]
        return {
            "pp_rank": run.world.pp_rank,
            "weights": storage_bytes(held),
            "gradients": storage_bytes(gradients),
            "optimizer": storage_bytes(states),
            "is_first": run.world.dp_rank == 0,
        }


@pytest.mark.parametrize(
    ("num_ranks", "sections"),
    [
        (1, {}),
        (1, {"model": {"tied": False, "bias": True}, "parallel": {"offload": True}}),
        (2, {"parallel": {"zero": 3}, "training": {"precision": "bf16"}}),
        (2, {"parallel": {"tp": 2}, "model": {"positions": "learned", "norm": "layernorm", "bias": True}}),
        (2, {"parallel": {"pp": 2, "schedule": "zbv"}, "model": {"num_layers": 5}}),
        (3, {"training": {"global_batch_size": 6, "precision": "fp64"}}),  # 32 rows in thirds
        pytest.param(4, {"parallel": {"pp": 2, "dp_replicate": 2, "zero": 1}}, marks=pytest.mark.slow),
    ],
)
def test_weights_gradients_and_optimizer_are_exact(num_ranks: int, sections: dict[str, Any]) -> None:
    """On every rank; of the optimizer's state, which has no padding, the largest shard is told."""
    config = tiny_config(**sections)
    estimates = estimate(config, num_ranks, "cpu")
    for held in reused_ranks(at_rest, num_ranks, config):
        expected = estimates[held["pp_rank"]]
        assert held["weights"] == expected.weights
        assert held["gradients"] == expected.gradients
        assert held["optimizer"] == expected.optimizer if held["is_first"] else held["optimizer"] <= expected.optimizer


def kept_bytes(config: RunConfig, dtype: torch.dtype) -> int:
    """What the forward of one micro-batch of two samples keeps, the loss included."""
    model = build(config.model)
    parallel = config.parallel
    with torch.device("meta"):
        again = GPT(config.model, recompute=parallel.recompute, recompute_every=parallel.recompute_every)
    again = again.to_empty(device="cpu")
    again.load_state_dict(model.state_dict())
    again = again.to(dtype)
    again.tie()
    tokens = torch.randint(0, 250, (2, config.model.sequence_length))
    ids = torch.arange(tokens.shape[1])[None].expand(2, -1) // 10 if config.model.document_mask else None
    with Ops() as forward:
        loss = again.cross_entropy_sum(again(tokens, ids), tokens)
    return forward.bytes_held(excluded=[loss, *again.parameters()])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("choices", CHOICES)
def test_what_a_forward_keeps(choices: dict[str, Any], recompute: str, masked: bool) -> None:
    """Within 6 %: counted are wide tensors; a mask and angles as if each sample had its own."""
    model = {**choices, "num_layers": 4, "hidden_size": 64, "sequence_length": 64, "document_mask": masked}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        config = tiny_config(
            model=model, training={"precision": precision, "micro_batch_size": 2}, parallel={"recompute": recompute}
        )
        (expected,) = estimate(config, 1, "cpu")
        measured = kept_bytes(config, dtype)
        assert expected.activations + expected.logits == pytest.approx(measured, rel=0.06), precision


class Peak(Ops):
    """Also knows the most that was held at once after any operator."""

    def __init__(self, excluded: list[Tensor]) -> None:
        super().__init__()
        self.peak = 0
        self._excluded = excluded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        alive = {key: at for key, at in self._storages.items() if not at.expired()}  # type: ignore[no-untyped-call]
        self._storages = alive
        self.peak = max(self.peak, self.bytes_held(self._excluded))
        return result


def peak_of_step(config: RunConfig) -> tuple[int, int]:
    """Place in the pipeline; bytes of all tensors at the worst moment of a step, the second."""
    with tiny_run(config) as run:
        train_step(run)
        held = [*run.model.parameters.values(), *run.model.copies.values()]
        resting = [*held, *(tensor for parameter in held for tensor in run.optimizer.state[parameter].values())]
        local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in resting]
        with Peak(local) as operators:
            train_step(run)
        return run.world.pp_rank, storage_bytes(resting) + operators.peak


WIDE = {"num_layers": 3, "hidden_size": 64, "sequence_length": 64}
MODERATE: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (2, {"parallel": {"zero": 3}}),
    (2, {"parallel": {"zero": 1, "recompute": "full"}, "training": {"precision": "bf16"}}),
    (1, {"training": {"precision": "bf16"}}),
    (2, {"parallel": {"tp": 2}}),
    (2, {"parallel": {"pp": 2, "schedule": "zbv", "zero": 2}, "model": {**WIDE, "num_layers": 4}}),
]


@pytest.mark.parametrize(("num_ranks", "sections"), MODERATE)
def test_the_worst_moment_of_a_step(num_ranks: int, sections: dict[str, Any]) -> None:
    """Never more than predicted, and two thirds of it at least."""
    config = tiny_config(**{"model": WIDE, **sections})
    estimates = estimate(config, num_ranks, "cpu")
    for pp_rank, measured in reused_ranks(peak_of_step, num_ranks, config):
        one = estimates[pp_rank]
        assert 0.66 * one.device_bytes <= measured <= one.device_bytes
        assert one.host_bytes_at_least - one.snapshot <= measured


def few_logits() -> ExitStack:
    """The loss goes in chunks of two rows."""
    patches = ExitStack()
    for name, number in (("MOST_DENSE_LOGITS", 0), ("CHUNK_LOGITS", 2 * 4096)):
        patches.enter_context(mock.patch.object(linear_cross_entropy, name, number))
    return patches


def chunked_peak(config: RunConfig) -> tuple[int, int]:
    with few_logits():
        return peak_of_step(config)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_loss_in_chunks_keeps_no_logits(precision: str) -> None:
    """Never more than predicted, and two thirds of it at least; schedules that split the backward keep them."""
    model = {**WIDE, "padded_vocab_size": 4096}
    config = tiny_config(model=model, training={"precision": precision})
    (dense,) = estimate(config, 1, "cpu")
    pipeline = tiny_config(model={**model, "num_layers": 4}, parallel={"pp": 2, "schedule": "zero-bubble"})
    with few_logits():
        (chunked,) = estimate(config, 1, "cpu")
        assert chunked.logits == 0 < estimate(pipeline, 2, "cpu")[-1].logits
    assert dense.logits == 4 * 4096 * 2 * 64
    assert dense.device_bytes - chunked.device_bytes > dense.logits / 2
    ((_, measured),) = reused_ranks(chunked_peak, 1, config)
    assert 0.66 * chunked.device_bytes <= measured <= chunked.device_bytes


def test_no_number_is_lost_or_counted_twice() -> None:
    """Weights of all places together are the model's, and a second output matrix of a tied one."""
    for name, num_ranks in (("yuan-245b", 2128), ("llama-2-7b", 8), ("frontier-22b", 32)):
        config = load_config(name)
        parallel, shape = config.parallel, layout(config.parallel, num_ranks)
        estimates = estimate(config, num_ranks)
        total = sum(one.weights for one in estimates) * shape[2] // 4
        copies = (parallel.tp - 1) * sum(
            math.prod(spec.shape) for spec in param_specs(config.model) if isinstance(spec.tp_dim, str)
        )
        tied = config.model.padded_vocab_size * config.model.hidden_size if config.model.tied and parallel.pp > 1 else 0
        expected = num_parameters(config.model) + tied
        assert total * parallel.tp == pytest.approx(expected + copies, rel=1e-3)  # rows that 7 ranks do not divide
        assert worst(estimates).device_bytes == max(one.device_bytes for one in estimates)


def test_a_published_example() -> None:
    """ZeRO, section 3.1 and figure 1: 16 bytes a parameter, 120 GB for 7.5 B; 4 of 16 of them are left whole in fp16
    there.

    Here weights are kept in fp32 and gathered in bf16: 16 bytes shared by all ranks, and what is gathered.
    """
    config = load_config("llama-2-7b", ["parallel.zero=2", "training.global_batch_size=128"])
    (one,), (many,) = estimate(config, 1), estimate(config, 64)
    count = num_parameters(config.model)
    assert one.resting == pytest.approx(16 * count, rel=1e-6)
    assert many.resting == pytest.approx(16 * count / 64, rel=1e-3)
    assert one.gathered == many.gathered == 2 * count
    (sharded,) = estimate(load_config("llama-2-7b", ["parallel.zero=3", "training.global_batch_size=128"]), 64)
    assert sharded.gathered < 0.15 * many.gathered
    (whole,) = estimate(load_config("llama-2-7b", ["parallel.zero=1", "training.global_batch_size=128"]), 64)
    assert (many.unreduced, sharded.unreduced) == (0, 0)
    assert whole.unreduced + whole.gradients == 4 * count  # a gradient that is reduced makes room for its shard


@pytest.mark.parametrize("replicas", [1, 2])
def test_zero_2_over_one_rank_is_zero_1(replicas: int) -> None:
    """But not where the device has no room for what 1 keeps whole; and 3 keeps no copies in bf16."""
    first, second, third = (
        estimate(
            tiny_config(
                model={"num_layers": 4},
                parallel={"zero": zero, "dp_replicate": replicas},
                training={"precision": "bf16"},
            ),
            replicas,
        )
        for zero in (1, 2, 3)
    )
    assert first == second and third[0].gathered < first[0].gathered
    first, second = (
        estimate(tiny_config(parallel={"zero": zero, "offload": True, "dp_replicate": replicas}), replicas)
        for zero in (1, 2)
    )
    assert first[0].unreduced == first[0].weights > second[0].unreduced == 0


@pytest.mark.parametrize(
    ("schedule", "in_flight"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("zero-bubble", [4, 4, 4, 4])]
)
def test_the_schedule_says_how_many_micro_batches_are_held(schedule: str, in_flight: list[int]) -> None:
    model = {"num_layers": 4, "positions": "learned"}
    training = {"global_batch_size": 8, "micro_batch_size": 1}
    parallel: dict[str, Any] = {"layers_per_stage": [1, 1, 1, 1], "schedule": schedule}
    estimates = estimate(tiny_config(model=model, training=training, parallel={"pp": 4, **parallel}), 4)
    between = [one.activations / number for one, number in zip(estimates, in_flight, strict=True)]
    logits = 16 * 256 * 4
    assert between[0] == between[1] == between[2] < between[3] < between[2] + logits / 2  # which has a norm more
    assert estimates[3].logits == in_flight[3] * logits
    assert not any(one.logits for one in estimates[:3])


def test_offload_moves_what_rests() -> None:
    """Into pinned blocks of powers of two where there is a GPU; on a CPU it is where it was."""
    sections: dict[str, Any] = {"checkpoint": {"async_save": False}, "model": {"hidden_size": 96, "num_heads": 4}}
    here, there = (
        estimate(tiny_config(**sections, training={"precision": "bf16"}, parallel={"offload": offload}), 1)[0]
        for offload in (False, True)
    )
    assert here.resting == there.resting and here.moving == there.moving
    assert here.device_bytes - there.device_bytes == here.resting
    assert there.host_bytes - here.host_bytes == here.resting + there.pinning
    specs = param_specs(tiny_config(**sections).model)
    sizes = [4 * math.prod(spec.shape) for spec in specs]
    assert there.pinning == 2 * sum(2 ** math.ceil(math.log2(size)) - size for size in sizes) > 0
    (on_cpu,) = estimate(tiny_config(**sections, parallel={"offload": True}), 1, "cpu")
    assert on_cpu.pinning == 0
    assert on_cpu.host_bytes == on_cpu.process + on_cpu.resting + on_cpu.moving


def test_a_save_in_the_background_has_a_copy_of_what_a_rank_writes() -> None:
    """Ranks that hold the same share the writing."""
    (one,) = estimate(tiny_config(), 2)
    (two,) = estimate(tiny_config(parallel={"dp_replicate": 2}), 2)
    assert one.snapshot == one.weights + one.optimizer
    assert two.snapshot == -(-(two.weights + two.optimizer) // 2)


def test_what_does_not_fit_the_ranks_is_refused() -> None:
    with pytest.raises(UsageError, match="is not the number of ranks, 3"):
        estimate(tiny_config(parallel={"tp": 2}), 3)
    with pytest.raises(UsageError, match="does not divide into micro-batches"):
        estimate(tiny_config(), 3)
