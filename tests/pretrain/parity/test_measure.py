"""The measure sees what it should: whatever part of a training is off, however little."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.pretrain.parity.cases import new_case
from tests.pretrain.parity.measure import FP64, Arrays, Training, difference, relative_difference


def a_training() -> Training:
    def tensors() -> Arrays:
        return {"a": np.array([1.0, -2.0]), "b": np.array([[4.0]])}

    return Training(tensors(), tensors(), tensors(), [3.0, 2.0], [1.0, 0.5], [10, 10], [2, 2], seconds=1.0)


def test_equal_trainings_do_not_differ() -> None:
    off = difference(a_training(), a_training())
    assert (off.loss, off.norm, off.gradient, off.weights, off.first_weights_equal) == (0, 0, 0, 0, True)
    assert off.is_within(FP64)


@pytest.mark.parametrize("field", ["first", "gradients", "last"])
@pytest.mark.parametrize("by", [1e-7, math.nan])
def test_an_element_that_is_off_is_seen(field: str, by: float) -> None:
    training = a_training()
    getattr(training, field)["a"][0] += by
    off = difference(training, a_training())
    assert not off.is_within(FP64)
    assert off.worst_gradient == "a" or field != "gradients"


@pytest.mark.parametrize("field", ["losses", "norms"])
def test_a_step_that_is_off_is_seen(field: str) -> None:
    training = replace(a_training(), **{field: [value * (1 + 1e-8) for value in getattr(a_training(), field)]})
    assert not difference(training, a_training()).is_within(FP64)


@pytest.mark.parametrize("field", ["first", "gradients"])
def test_a_parameter_too_many_or_too_few_is_seen(field: str) -> None:
    training = a_training()
    getattr(training, field)["c"] = np.zeros(1)
    for pair in ((training, a_training()), (a_training(), training)):
        with pytest.raises(AssertionError, match=r"\['c'\]"):
            difference(*pair)


def test_differences_are_relative_to_the_largest_magnitude() -> None:
    assert relative_difference([1.0, -4.0], [1.0, -2.0]) == 1.0
    assert relative_difference([1.0], [[1.0]]) == math.inf
    assert relative_difference([math.nan], [1.0]) == math.inf


def test_the_reference_is_the_same_run_on_one_process() -> None:
    layout = {"pp": 2, "tp": 2, "dp_shard": 2, "schedule": "zbv", "recompute": "full", "zero": 3}
    made = new_case("", {"parallel": layout, "training": {"num_micro_batches": 5}})
    alone = made.reference
    assert made.num_ranks == 8
    assert (alone.parallel.pp, alone.parallel.tp, alone.parallel.dp_shard, alone.parallel.recompute) == (
        1,
        1,
        None,
        "none",
    )
    assert (alone.model, alone.training, alone.data) == (made.config.model, made.config.training, made.config.data)
    assert alone.training.global_batch_size == 5 * 2 * 2 and alone.training.precision == "fp64"
