"""Train a case, take whole logical tensors from whatever ranks hold them, and compare two such trainings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from pretrain.config import RunConfig
from pretrain.training import step
from pretrain.training.optim import GradNorms
from pretrain.training.step import Run, train_step
from tests.pretrain.parity.cases import Case
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_run, whole

NUM_STEPS = 6

Arrays = dict[str, NDArray[Any]]
Scalars = list[tuple[float, float, int, int]]  # by step: loss, gradient norm, targets, samples
Tensors = tuple[Arrays, Arrays, Arrays]


@dataclass(frozen=True)
class Training:
    """What the first steps of a run did; tensors by name, in their logical shapes."""

    first: Arrays  # weights before the first step
    gradients: Arrays  # of the first step, before clipping
    last: Arrays  # weights after the last step
    losses: Sequence[float]
    norms: Sequence[float]
    num_tokens: Sequence[int]
    batch_sizes: Sequence[int]
    seconds: float  # of processor time, of all ranks together


class Limits(NamedTuple):
    """The largest relative differences that rounding may make."""

    loss: float
    norm: float
    gradient: float
    weights: float


FP64 = Limits(loss=1e-9, norm=1e-9, gradient=1e-9, weights=1e-8)


@dataclass(frozen=True)
class Difference:
    """Largest differences between two trainings, each relative to the largest magnitude there is."""

    loss: float
    norm: float
    gradient: float
    weights: float
    worst_gradient: str  # the parameter whose gradient differs most
    first_weights_equal: bool

    def is_within(self, limits: Limits) -> bool:
        """Whether a training is the same but for rounding."""
        parts = (self.loss, self.norm, self.gradient, self.weights)
        return self.first_weights_equal and all(part <= limit for part, limit in zip(parts, limits, strict=True))


def train(case: Case, num_steps: int = NUM_STEPS) -> Training:
    """The first steps of a case, on its ranks.

    Raises:
        AssertionError: the ranks do not agree about what all of them know.
    """
    ranks = reused_ranks(_train_here, case.num_ranks, case.config, num_steps, deadline_seconds=280)
    assert all(scalars == ranks[0][0] for scalars, _, _ in ranks), f"{case.name}: ranks have different losses or norms"
    scalars, _, tensors = ranks[0]
    assert tensors is not None
    losses, norms, num_tokens, batch_sizes = zip(*scalars, strict=True)
    return Training(*tensors, losses, norms, num_tokens, batch_sizes, seconds=sum(seconds for _, seconds, _ in ranks))


@cache
def _train_reference(config: str, num_steps: int) -> Training:
    return train(Case("one process", 1, RunConfig.model_validate_json(config)), num_steps)


def difference_from_one_process(case: Case, num_steps: int = NUM_STEPS) -> tuple[Difference, Training]:
    """How far the training of a case is from that of one process, and the training."""
    training = train(case, num_steps)
    reference = _train_reference(case.reference.model_dump_json(), num_steps)
    assert (training.num_tokens, training.batch_sizes) == (reference.num_tokens, reference.batch_sizes)
    return difference(training, reference), training


def difference(training: Training, reference: Training) -> Difference:
    """How far two trainings are apart.

    A gradient is measured against its tensor's largest element. An attention's bias has a part, that of the keys, whose
    true gradient is zero where positions are learned; it is one tensor with queries and values and needs no exception.

    Raises:
        AssertionError: they have not the same parameters.
    """
    for one, other in ((training.first, reference.first), (training.gradients, reference.gradients)):
        assert one.keys() == other.keys(), f"not in both: {sorted(one.keys() ^ other.keys())}"
    gradients = {
        name: relative_difference(training.gradients[name], gradient) for name, gradient in reference.gradients.items()
    }
    worst = max(gradients, key=lambda name: gradients[name])
    return Difference(
        loss=max(map(relative_difference, training.losses, reference.losses)),
        norm=max(map(relative_difference, training.norms, reference.norms)),
        gradient=gradients[worst],
        weights=max(relative_difference(training.last[name], weights) for name, weights in reference.last.items()),
        worst_gradient=worst,
        first_weights_equal=all(
            np.array_equal(training.first[name], reference.first[name]) for name in reference.first
        ),
    )


def relative_difference(value: Any, reference: Any) -> float:
    """max |value - reference| / max |reference|; infinite where shapes differ or a number is not finite."""
    value, reference = np.asarray(value), np.asarray(reference)
    if value.shape != reference.shape or not np.isfinite(value).all():
        return float("inf")
    return float(np.abs(value - reference).max() / np.abs(reference).max())


def _train_here(config: RunConfig, num_steps: int) -> tuple[Scalars, float, Tensors | None]:
    """Train on this rank; the tensors, of which every rank has all, come from rank 0."""
    gradients: Arrays = {}
    results = []
    begun = time.process_time()
    with tiny_run(config) as run, _gradients_seen(run, gradients):
        first = _weights(run)
        for _ in range(num_steps):
            results.append(train_step(run))
        last = _weights(run)
        for name, copy in run.model.copies.items():
            np.testing.assert_array_equal(whole(copy), last[name], err_msg=f"the copy of {name}")
    scalars = [(result.loss, result.grad_norm, result.num_tokens, result.batch_size) for result in results]
    tensors = (first, gradients, last) if run.world.rank == 0 else None
    return scalars, time.process_time() - begun, tensors


@contextmanager
def _gradients_seen(run: Run, gradients: Arrays) -> Iterator[None]:
    """Copy the gradients of the first step into `gradients` when they are about to be clipped."""
    clip = step.clip_grad_norm

    def seeing(*args: Any) -> GradNorms:
        if not gradients:
            own = {
                name: whole(parameter.grad) for name, parameter in run.parameters.items() if parameter.grad is not None
            }
            gradients.update(_of_all_stages(run, own))
        return clip(*args)

    with mock.patch.object(step, "clip_grad_norm", seeing):
        yield


def _weights(run: Run) -> Arrays:
    return _of_all_stages(run, {name: whole(parameter) for name, parameter in run.parameters.items()})


def _of_all_stages(run: Run, own: Arrays) -> Arrays:
    """The tensors of every stage; each belongs to one, a tied weight to that of the embedding."""
    stages: list[Arrays] = [{}] * run.world.pp_size
    dist.all_gather_object(stages, own, group=run.world.mesh.get_group("pp"))
    tensors: Arrays = {}
    for stage in stages:
        assert not tensors.keys() & stage.keys(), "a parameter on two ranks of a pipeline"
        tensors |= stage
    return tensors
