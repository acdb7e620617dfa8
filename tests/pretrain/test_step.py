"""One step whose loss or gradient is not finite, wherever that happens: all ranks do the same, and what they should."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.config import RunConfig
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.training.step import NotFinite, Run, StepResult, train_step
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, whole, whole_weights

NUM_STEPS = 4
AT = 2  # steps done before the one that a fault is in
SCALE = 2.0**10
MATRIX = "layers.1.mlp.down.weight"
ALL = 1 << 30


class Fault(NamedTuple):
    """One rank's loss, or gradient, is not finite in the first `attempts` of the step after `after` steps."""

    rank: int
    where: str  # "loss", or the name of a parameter
    attempts: int = 1
    value: float = math.nan
    after: int = AT


class Trained(NamedTuple):
    """What a rank did."""

    results: list[StepResult]
    scales: list[list[float]]  # of each attempt, by step
    weights: list[dict[str, NDArray[Any]]]  # after each step
    copies: dict[str, NDArray[Any]]
    counters: tuple[int, ...]


def train(config: RunConfig, faults: list[Fault], scale_from_fault_on: float | None = None) -> Trained:
    with tiny_run(config) as run:
        results, weights = [], []
        scales: list[list[float]] = []
        original = ParallelModel.step

        def attempt(model: ParallelModel, *args: Any) -> Tensor:
            losses = original(model, *args)
            scales[-1].append(args[-1])
            for fault in faults:
                if (fault.rank, fault.after) == (run.world.rank, run.state.step) and len(scales[-1]) <= fault.attempts:
                    losses = break_(run, losses, fault)
            return losses

        with mock.patch.object(ParallelModel, "step", attempt):
            for _ in range(NUM_STEPS):
                if run.state.step == AT and scale_from_fault_on:
                    run.state.loss_scale, run.state.steps_at_scale = scale_from_fault_on, 0
                scales.append([])
                results.append(train_step(run))
                weights.append(whole_weights(run))
        copies = {name: whole(copy) for name, copy in run.model.copies.items()}
        state = run.state
        counters = (state.step, state.num_samples, state.num_tokens, state.num_bad_steps, state.num_bad_in_a_row)
        return Trained(results, scales, weights, copies, counters)


def break_(run: Run, losses: Tensor, fault: Fault) -> Tensor:
    if fault.where == "loss":
        return torch.cat((losses[:-1], losses[-1:] * fault.value))
    gradient: Any = {**run.parameters, **run.model.copies}[fault.where].grad
    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    assert local.numel()
    local.view(-1)[0] = fault.value
    return losses


def fp16(initial: float = SCALE, growth_steps: int = 1000, **sections: Any) -> RunConfig:
    loss_scale = {"initial": initial, "growth_steps": growth_steps}
    return tiny_config(**{**sections, "training": {"precision": "fp16", "loss_scale": loss_scale}})


def on_ranks(config: RunConfig, num_ranks: int, *faults: Fault, scale_from_fault_on: float | None = None) -> Trained:
    """What all ranks did: that is, the same."""
    first, *others = reused_ranks(train, num_ranks, config, list(faults), scale_from_fault_on)
    for other in others:
        assert repr(other[:2]) == repr(first[:2]), "not a number is equal to none"
        assert other.counters == first.counters
        for ours, theirs in zip(other.weights, first.weights, strict=True):
            assert_same(ours, theirs)
    for each in (first, *others):
        assert_same(each.copies, {name: first.weights[-1][name] for name in each.copies})
    return Trained(*first)


@cache
def undisturbed(parallel: str, num_ranks: int) -> Trained:
    """What all ranks do without a fault; `parallel` as JSON."""
    return on_ranks(tiny_config(parallel=json.loads(parallel)), num_ranks)


def assert_same(ours: dict[str, NDArray[Any]], theirs: dict[str, NDArray[Any]]) -> None:
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values, err_msg=name)


LAYOUTS: dict[str, tuple[int, dict[str, Any], list[tuple[int, str]]]] = {
    "alone": (1, {}, [(0, MATRIX)]),
    "shards": (2, {}, [(1, MATRIX)]),
    "replicas": (2, {"dp_replicate": 2}, [(1, "final_norm.weight")]),  # which counts for nothing in the norm
    "tensor": (2, {"tp": 2}, [(1, MATRIX)]),
    "tensor, whole tokens": (2, {"tp": 2, "sequence_parallel": False}, [(1, "final_norm.weight")]),
    "pipeline": (2, {"pp": 2}, [(0, "layers.0.attention.qkv.weight"), (1, "embedding.weight")]),  # the second storage
    "zero-bubble": (2, {"pp": 2, "schedule": "zero-bubble"}, [(1, "final_norm.weight")]),
}
CASES = [
    (num_ranks, parallel, rank, where) for num_ranks, parallel, places in LAYOUTS.values() for rank, where in places
]


@pytest.mark.parametrize(("num_ranks", "parallel", "rank", "where"), CASES)
def test_an_overflow_on_one_rank_halves_the_scale_of_all(
    num_ranks: int, parallel: dict[str, Any], rank: int, where: str
) -> None:
    """And they do the batch again at once: as if it had been done with that scale the first time, bit for bit."""
    config = fp16(parallel=parallel)
    found = on_ranks(config, num_ranks, Fault(rank, where, attempts=2, value=math.inf))
    expected = on_ranks(config, num_ranks, scale_from_fault_on=SCALE / 4)
    assert found.scales == [[SCALE], [SCALE], [SCALE, SCALE / 2, SCALE / 4], [SCALE / 4]]
    assert [result.overflows for result in found.results] == [0, 0, 2, 0]
    assert [result.loss_scale for result in found.results] == [SCALE, SCALE, SCALE / 4, SCALE / 4]
    assert found.counters == expected.counters and found.counters[3:] == (0, 0)
    for ours, theirs in zip(found.weights, expected.weights, strict=True):
        assert_same(ours, theirs)
    assert found.results[-1] == expected.results[-1]


@pytest.mark.long
@pytest.mark.parametrize(("num_ranks", "parallel"), [(1, {}), (2, {"tp": 2}), (2, {"pp": 2})])
def test_a_scale_that_is_too_large_comes_down_within_the_first_step(num_ranks: int, parallel: dict[str, Any]) -> None:
    """A true overflow, of gradients that stages and tensor-parallel ranks send each other."""
    found = on_ranks(fp16(2.0**32, parallel=parallel), num_ranks)
    first = found.scales[0]
    assert first == [2.0 ** (32 - number) for number in range(len(first))] and len(first) > 3
    assert [result.applied for result in found.results] == [True] * NUM_STEPS
    expected = on_ranks(fp16(found.scales[0][-1], parallel=parallel), num_ranks)
    assert_same(found.weights[0], expected.weights[0])


PLACES: list[tuple[int, dict[str, Any], int, str]] = [
    *CASES[:6],
    (2, {}, 1, "loss"),
    (2, {"tp": 2}, 1, "loss"),  # which counts for nothing in the loss
    (2, {"pp": 2}, 1, "loss"),
]


@pytest.mark.parametrize(("num_ranks", "parallel", "rank", "where"), PLACES)
def test_what_is_not_finite_once_leaves_no_trace_and_twice_changes_no_weight(
    num_ranks: int, parallel: dict[str, Any], rank: int, where: str
) -> None:
    """FAULTS row 28, on any rank: the batch is done again. The second step fails once, the third each time."""
    faults = [Fault(rank, where, after=1), Fault(rank, where, ALL, math.inf)]
    found = on_ranks(tiny_config(parallel=parallel), num_ranks, *faults)
    assert [len(scales) for scales in found.scales] == [1, 2, 2, 1]
    assert [result.applied for result in found.results] == [True, True, False, True]
    for ours, theirs in zip(found.weights[:2], undisturbed(json.dumps(parallel), num_ranks).weights, strict=False):
        assert_same(ours, theirs)
    assert_same(found.weights[2], found.weights[1])
    assert (found.weights[3][MATRIX] != found.weights[2][MATRIX]).any() and np.isfinite(found.weights[3][MATRIX]).all()
    before, once, twice, after = (result.not_finite for result in found.results)
    assert before is after is None and once is not None and twice is not None
    assert (once.verdict, twice.verdict) == ("transient", "data")
    assert math.isnan(once.loss if where == "loss" else once.grad_norm)
    in_one_position = len(parallel.keys() & {"tp", "pp"}) == 1 and where == "loss"  # they have computed it together
    assert list(once.hosts) == (list(range(num_ranks)) if in_one_position else [rank])
    assert list(once.samples) == (list(range(14, 16)) if where == "loss" else [])  # of the last micro-batch of two
    assert list(twice.samples) == (list(range(22, 24)) if where == "loss" else [])
    assert found.counters == (NUM_STEPS, NUM_STEPS * 8, NUM_STEPS * 8 * 16, 1, 0)


def not_finite(found: Trained) -> NotFinite:
    """What is said of the only step that was not finite."""
    (report,) = [result.not_finite for result in found.results if result.not_finite is not None]
    assert found.results[AT].not_finite == report
    return report


def test_several_ranks_and_micro_batches_are_named() -> None:
    """On data-parallel ranks: 4 of 8 samples each, of which the last two are not finite."""
    found = on_ranks(tiny_config(), 2, Fault(0, "loss", ALL), Fault(1, "loss", ALL))
    report = not_finite(found)
    assert report.samples == [18, 19, 22, 23]
    assert list(report.hosts) == [0, 1] and all(report.hosts.values())


def test_at_the_smallest_scale_it_is_no_overflow() -> None:
    """And says nothing about the scale: the next step has that of before. A loss that is not finite halves nothing."""
    small = on_ranks(fp16(4.0), 1, Fault(0, MATRIX, ALL))
    assert small.scales == [[4.0], [4.0], [4.0, 2.0, 1.0, 1.0], [4.0]]
    assert not_finite(small).verdict == "data" and not small.results[AT].applied
    assert small.results[AT].overflows == 2
    once = on_ranks(fp16(4.0), 1, Fault(0, MATRIX, attempts=3))
    assert once.scales == [[4.0], [4.0], [4.0, 2.0, 1.0, 1.0], [1.0]]
    assert not_finite(once).verdict == "transient"
    of_loss = on_ranks(fp16(), 1, Fault(0, "loss", ALL))
    assert of_loss.scales == [[SCALE], [SCALE], [SCALE, SCALE], [SCALE]]
