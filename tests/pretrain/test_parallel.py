"""The same model on every layout: first weights bit for bit, losses, gradient norms and weights within rounding."""

from __future__ import annotations

import os
import socket
import traceback
from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain.batch_size import local_batches
from pretrain.config import ParallelConfig, RunConfig
from pretrain.errors import LostPeer
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World, layout
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps, whole_weights

LOSS_TOLERANCE = 1e-5  # measured: 1e-6
WEIGHT_TOLERANCE = 1e-3  # AdamW turns rounding in a gradient near zero into a step of up to the learning rate, 1e-2
NUM_STEPS = 6
OLD_FASHIONED = {"norm": "layernorm", "activation": "gelu", "positions": "learned", "bias": True}

Result = dict[str, Any]


def measure(config: RunConfig) -> Result:
    with tiny_run(config) as run:
        first = whole_weights(run)
        losses, norms = train_steps(run, NUM_STEPS)
        return {"first": first, "losses": losses, "norms": norms, "last": whole_weights(run)}


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "2 ranks, zero 2": (2, {"parallel": {"zero": 2}}),
    "2 ranks, zero 3": (2, {"parallel": {"zero": 3}}),
    "2 ranks, 2 replicas": (2, {"parallel": {"dp_replicate": 2, "zero": 1}}),
    "1 rank, other micro-batches": (1, {"training": {"micro_batch_size": 8}}),
}
SLOW_CASES: dict[str, tuple[int, dict[str, Any]]] = {  # in double precision they are cases of `parity.test_quick`
    "2 ranks, zero 1": (2, {"parallel": {"zero": 1}}),
    "4 ranks, zero 2": (4, {"parallel": {"zero": 2}}),
    "4 ranks, 2 replicas of 2 shards": (4, {"parallel": {"dp_replicate": 2, "zero": 3}}),
}


@pytest.fixture(scope="module")
def reference() -> Result:
    result: Result = reused_ranks(measure, 1, tiny_config())[0]
    return result


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_CASES)])
def test_every_layout_trains_the_same_model(name: str, reference: Result) -> None:
    num_ranks, sections = (CASES | SLOW_CASES)[name]
    for result in reused_ranks(measure, num_ranks, tiny_config(**sections)):
        assert_same_training(result, reference)


@pytest.mark.parametrize("tied", [True, False])
def test_learned_positions_biases_and_either_head_train_the_same(tied: bool) -> None:
    config = tiny_config(model={**OLD_FASHIONED, "tied": tied, "document_mask": True}, parallel={"zero": 3})
    alone = reused_ranks(measure, 1, config)[0]
    assert_same_training(reused_ranks(measure, 2, config)[0], alone)


def test_training_learns(reference: Result) -> None:
    assert reference["losses"][-1] < reference["losses"][0] - 0.3
    assert any((reference["first"][name] != reference["last"][name]).any() for name in reference["first"])


def assert_same_training(result: Result, reference: Result) -> None:
    assert result["first"].keys() == reference["first"].keys()
    for name, weights in reference["first"].items():
        np.testing.assert_array_equal(result["first"][name], weights, err_msg=name)
    np.testing.assert_allclose(result["losses"], reference["losses"], rtol=LOSS_TOLERANCE)
    np.testing.assert_allclose(result["norms"], reference["norms"], rtol=1e-4)
    for name, weights in reference["last"].items():
        np.testing.assert_allclose(result["last"][name], weights, atol=WEIGHT_TOLERANCE, err_msg=name)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every operation of torch by its name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def count_collectives(zero: int) -> tuple[int, int]:
    """How often a step of two micro-batches gathers weights and reduces gradients."""
    with tiny_run(tiny_config(parallel={"zero": zero})) as run:
        train_steps(run, 1)
        with Operations() as operations:
            train_steps(run, 1)
        return operations.counts["c10d._allgather_base_.default"], operations.counts[
            "c10d._reduce_scatter_base_.default"
        ]


@pytest.mark.parametrize(("zero", "gathers", "reductions"), [(1, 3, 3), (2, 6, 6), (3, 10, 6)])
def test_zero_is_what_its_table_says(zero: int, gathers: int, reductions: int) -> None:
    """Two blocks and the root are three groups; with zero 3 the blocks are gathered again in the backward."""
    assert reused_ranks(count_collectives, 2, zero) == [(gathers, reductions)] * 2


def bfloat16(config: RunConfig) -> list[float]:
    with tiny_run(config) as run:
        assert {parameter.dtype for parameter in run.parameters.values()} == {torch.float32}
        return train_steps(run, NUM_STEPS)[0]


def test_bfloat16_follows_fp32(reference: Result) -> None:
    one, two = (reused_ranks(bfloat16, n, tiny_config(training={"precision": "bf16"}))[0] for n in (1, 2))
    np.testing.assert_allclose(two, reference["losses"], rtol=0.01)
    np.testing.assert_allclose(one, two, rtol=2e-3)  # one rank casts as many do
    assert one != reference["losses"]


def test_a_layout_that_is_not_the_number_of_ranks_is_refused() -> None:
    assert layout(ParallelConfig(dp_replicate=2, dp_shard=3), 6) == (1, 2, 3, 1)
    assert layout(ParallelConfig(tp=2, pp=2), 8) == (2, 1, 2, 2)
    for parallel, size, message in (
        (
            ParallelConfig(dp_replicate=2),
            5,
            "dp_shard 2 x tp 1 is not the number of ranks, 5: start a multiple of 2, for example 4 ",
        ),
        (
            ParallelConfig(pp=2, tp=2),
            2,
            "pp 2 .*tp 2 is not the number of ranks, 2: start a multiple of 4, for example 4 of them",
        ),
        (ParallelConfig(tp=2, dp_shard=3), 8, "ranks, 8: leave dp_shard out to use all of them, or start 6 of them"),
        (ParallelConfig(tp=2, dp_shard=3), 9, "ranks, 9: start 6 of them"),
    ):
        with pytest.raises(UsageError, match=message):
            layout(parallel, size)


def test_a_batch_that_does_not_divide_over_the_ranks_is_refused() -> None:
    training = tiny_config(training={"global_batch_size": 12, "micro_batch_size": 4}).training
    assert [local_batches(training, 12, num_ranks) for num_ranks in (1, 3, 4, 12)] == [(12, 4), (4, 4), (3, 3), (1, 1)]
    for num_ranks, fitting in ((2, 16), (5, 20), (24, 24)):
        with pytest.raises(UsageError, match=rf"on {num_ranks} data-parallel.*global_batch_size={fitting}$"):
            local_batches(training, 12, num_ranks)


def ranks_fail(errors: dict[int, Exception]) -> tuple[str, str]:
    """What this rank raises, and the function that it came from."""
    with tiny_run(tiny_config(training={"global_batch_size": 6})) as run:
        try:
            with run.world.together():
                if error := errors.get(run.world.rank):
                    fail(error, run.world)
        except Exception as raised:
            where = traceback.extract_tb(raised.__traceback__)[-1].name
            return f"{type(raised).__name__}: {raised}", where
    return "nothing", ""


def fail(error: Exception, world: World) -> None:
    if not isinstance(error, OSError | WenhaiError):  # then the device may have failed, and its clock with it
        world.phases._clock.count = mock.Mock(side_effect=RuntimeError("no clock"))  # type: ignore[method-assign]
    raise error


def test_an_error_on_one_rank_is_raised_on_all() -> None:
    for error, kind in ((OSError("no such shard"), "WenhaiError"), (Stopped("no such shard"), "Stopped")):
        messages = [message for message, _ in reused_ranks(ranks_fail, 3, {1: error})]
        assert messages == [f"{kind}: {rank}no such shard" for rank in ("rank 1: ", "", "rank 1: ")]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyError("weight"), "KeyError: 'weight'"),
        (MemoryError(), "MemoryError"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "OutOfMemoryError: CUDA out of memory. Tried"),
        (
            RuntimeError("CUDA error: an illegal access\nCUDA kernel errors might"),
            "RuntimeError: CUDA error: an illegal access",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_bug_on_one_rank_keeps_its_traceback_and_is_told_to_all(error: Exception, cause: str) -> None:
    first, failing, last = reused_ranks(ranks_fail, 3, {1: error, 0: WenhaiError("a refusal, which some go on from")})
    assert failing == (f"{type(error).__name__}: {error}", "fail")
    told = f"rank 1: {cause} (on {socket.gethostname()}). What that rank said last has the traceback."
    assert first[0] == last[0] == f"FailedRank: {told}"


def test_of_a_lost_peer_nobody_is_told() -> None:
    with (
        mesh.start(ParallelConfig(), "cpu", timeout_minutes=1) as world,
        mock.patch.object(World, "any_of", side_effect=AssertionError("asked")),
        pytest.raises(LostPeer),
        world.together(),
    ):
        raise LostPeer("gone")


def dies() -> None:
    with tiny_run(tiny_config()) as run:
        if run.world.rank == 1:
            os._exit(9)
        run.world.any_of(False)


def test_a_rank_that_waits_for_a_dead_one_says_so_in_a_sentence() -> None:
    with pytest.raises(RanksFailed, match=r"LostRank: rank 1 \(.*\) has ended; rank 0 waited in .* it resumes\."):
        run_ranks(dies, 2)
