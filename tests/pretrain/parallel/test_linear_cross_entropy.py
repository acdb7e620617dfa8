"""The loss in chunks is the dense one: value and gradients, on ranks that share the vocabulary, in whole runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from pretrain.config import RunConfig
from pretrain.data import IGNORED_TARGET
from pretrain.parallel.base import linear_cross_entropy
from pretrain.parallel.base.linear_cross_entropy import linear_cross_entropy_sum, linear_losses
from pretrain.parallel.base.tensor import ALONE, TensorAxis
from tests.pretrain.parallel.test_recompute import Ops
from tests.pretrain.parallel.test_tensor import tensor_mesh
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps, whole_weights

SAMPLES, TOKENS, WIDTH, ENTRIES = 2, 12, 5, 24
Z_LOSS = 0.1


def example(vocab_size: int, ignored: float) -> tuple[Tensor, Tensor, Tensor]:
    """x [B, T, D], the whole matrix [V, D], and targets of which a share is ignored."""
    generator = torch.Generator().manual_seed(vocab_size)
    x_BTD = torch.randn(SAMPLES, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    weight_VD = torch.randn(ENTRIES, WIDTH, generator=generator, dtype=torch.float64)
    targets_BT = torch.randint(0, vocab_size, (SAMPLES, TOKENS), generator=generator)
    return (
        x_BTD,
        weight_VD,
        targets_BT.masked_fill(torch.rand(SAMPLES, TOKENS, generator=generator) < ignored, IGNORED_TARGET),
    )


def expected_of(
    x_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, vocab_size: int, z_loss: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By torch, in float64: the loss, and the gradients of three times that."""
    x, weight = x_BTD.clone().requires_grad_(), weight_VD.clone().requires_grad_()
    logits_NV = (x @ weight.T)[..., :vocab_size].flatten(0, 1)
    targets_N = targets_BT.flatten()
    loss = F.cross_entropy(logits_NV, targets_N, ignore_index=IGNORED_TARGET, reduction="sum")
    loss = loss + z_loss * (logits_NV.logsumexp(-1).square() * (targets_N != IGNORED_TARGET)).sum()
    return loss.detach(), *torch.autograd.grad(3 * loss, (x, weight))


def assert_parity(axis: TensorAxis, vocab_size: int, ignored: float, chunk: int, z_loss: float) -> None:
    """On every rank of the axis."""
    x_BTD, weight_VD, targets_BT = example(vocab_size, ignored)
    expected, of_x, of_weight = expected_of(x_BTD, weight_VD, targets_BT, vocab_size, z_loss)
    mine, own = axis.own_tokens(TOKENS), slice(axis.rank * ENTRIES // axis.size, (axis.rank + 1) * ENTRIES // axis.size)
    x, weight = x_BTD[:, mine].clone().requires_grad_(), weight_VD[own].clone().requires_grad_()
    with mock.patch.object(linear_cross_entropy, "CHUNK_LOGITS", chunk):
        loss = linear_cross_entropy_sum(x, weight, targets_BT, vocab_size, z_loss, axis)
        gradients = torch.autograd.grad(3 * loss, (x, weight))
        rows_ND = x_BTD.flatten(0, 1)
        losses = linear_losses(rows_ND, weight_VD[own], targets_BT.flatten(), vocab_size, axis)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(loss, expected, **close)
    torch.testing.assert_close(gradients[0], of_x[:, mine], **close)
    torch.testing.assert_close(gradients[1], of_weight[own], **close)
    if not z_loss:
        torch.testing.assert_close(losses.sum(), expected, **close)


CASES = [
    # vocabulary, ignored targets, logits of a chunk; 24 rows and entries: ragged, one row or entry, all at once
    (24, 0.3, 7 * 24),
    (22, 0.3, 5 * 24),
    (3, 0.0, 1),
    (24, 1.0, 7 * 24),
    (21, 0.97, 10_000),
]


@pytest.mark.parametrize("z_loss", [0.0, Z_LOSS])
@pytest.mark.parametrize(("vocab_size", "ignored", "chunk"), CASES)
def test_chunks_alone(vocab_size: int, ignored: float, chunk: int, z_loss: float) -> None:
    assert_parity(ALONE, vocab_size, ignored, chunk, z_loss)


def check_ranks(sequence_parallel: bool) -> None:
    axis = TensorAxis.of(tensor_mesh(), sequence_parallel)
    assert axis.size == dist.get_world_size()
    for vocab_size, ignored, chunk in CASES:  # a vocabulary of 3 leaves padding alone to all ranks but the first
        for z_loss in (0.0, Z_LOSS):
            assert_parity(axis, vocab_size, ignored, chunk, z_loss)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_chunks_on_ranks_that_share_the_vocabulary(num_ranks: int, sequence_parallel: bool) -> None:
    reused_ranks(check_ranks, num_ranks, sequence_parallel)


@pytest.mark.parametrize("vocab_size", [24, 20])
def test_the_dense_z_loss(vocab_size: int) -> None:
    x_BTD, weight_VD, targets_BT = example(vocab_size, 0.3)
    expected, of_x, of_weight = expected_of(x_BTD, weight_VD, targets_BT, vocab_size, Z_LOSS)
    x, weight = x_BTD.clone().requires_grad_(), weight_VD.clone().requires_grad_()
    loss = ALONE.cross_entropy_sum(x @ weight.T, targets_BT, vocab_size, Z_LOSS)
    found = (loss.detach(), *torch.autograd.grad(3 * loss, (x, weight)))
    for value, reference in zip(found, (expected, of_x, of_weight), strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-12, atol=1e-12)


def test_gradients_in_bf16_are_as_exact_as_dense_ones() -> None:
    """Against float64, of parts of 64 entries and 16 rows: at most 1.2 times the error."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 512, 64, generator=generator).bfloat16()
    weight = (0.2 * torch.randn(1024, 64, generator=generator)).bfloat16()
    targets = torch.randint(0, 1024, (1, 512), generator=generator)

    def gradients(dtype: torch.dtype, chunked: bool) -> list[Tensor]:
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (x, weight)]
        with mock.patch.object(linear_cross_entropy, "CHUNK_LOGITS", 64 * 512):
            loss = (
                linear_cross_entropy_sum(*leaves, targets, 1024, 0.0, ALONE)
                if chunked
                else ALONE.cross_entropy_sum(leaves[0] @ leaves[1].T, targets)
            )
        return [gradient.double() for gradient in torch.autograd.grad(loss, leaves)]

    exact, dense, chunked = (
        gradients(torch.float64, False),
        *(gradients(torch.bfloat16, each) for each in (False, True)),
    )
    for reference, usual, ours in zip(exact, dense, chunked, strict=True):
        assert 0 < (ours - reference).norm() <= 1.2 * (usual - reference).norm()


def test_no_more_than_a_few_chunks_is_held() -> None:
    """Forward and backward together, of logits that are 64 chunks."""
    x = torch.randn(1, 256, 4, requires_grad=True)
    weight = torch.randn(1024, 4, requires_grad=True)
    chunk = 256 * 1024 // 64

    class Peak(Ops):
        peak = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_dispatch__(func, types, args, kwargs)
            self.peak = max(self.peak, self.bytes_held(excluded=[]))
            return result

    with mock.patch.object(linear_cross_entropy, "CHUNK_LOGITS", chunk), Peak() as operators:
        loss = linear_cross_entropy_sum(x, weight, torch.zeros(1, 256, dtype=torch.int64), 1024, 0.0, ALONE)
        torch.autograd.backward(loss)
    assert 2 * 4 * chunk < operators.peak < x.shape[1] * weight.shape[0] * 4 / 8


def trained(config: RunConfig, chunked: bool) -> tuple[list[float], list[float], dict[str, Any], int]:
    """Losses, norms and weights of three steps, and how often the loss went in chunks."""
    with ExitStack() as patches:
        if chunked:
            patches.enter_context(mock.patch.object(linear_cross_entropy, "MOST_DENSE_LOGITS", 0))
            patches.enter_context(mock.patch.object(linear_cross_entropy, "CHUNK_LOGITS", 5 * 256))
        calls = patches.enter_context(
            mock.patch.object(linear_cross_entropy, "_forward", side_effect=linear_cross_entropy._forward)
        )
        run = patches.enter_context(tiny_run(config))
        losses, norms = train_steps(run, 3)
        return losses, norms, whole_weights(run), calls.call_count


@pytest.mark.parametrize(
    ("num_ranks", "parallel", "model"),
    [
        (1, {}, {}),
        (1, {"recompute": "full", "offload": True}, {"tied": False}),
        (2, {"zero": 3, "recompute": "selective"}, {}),
        (2, {"tp": 2}, {"tied": False}),
        (4, {"tp": 2, "pp": 2, "zero": 2}, {}),
        (2, {"pp": 2, "schedule": "zero-bubble"}, {}),
    ],
)
def test_runs_train_alike(num_ranks: int, parallel: dict[str, Any], model: dict[str, Any]) -> None:
    training = {"precision": "fp64", "z_loss": 1e-2}
    config = tiny_config(parallel=parallel, model=model, training=training)
    dense, chunked = (reused_ranks(trained, num_ranks, config, each) for each in (False, True))
    for (*expected, none), (losses, norms, weights, _) in zip(dense, chunked, strict=True):
        assert losses == pytest.approx(expected[0], rel=1e-12) and norms == pytest.approx(expected[1], rel=1e-9)
        for name, values in weights.items():
            torch.testing.assert_close(values, expected[2][name], rtol=1e-8, atol=1e-10)
        assert none == 0
    if parallel.get("schedule") != "zero-bubble":  # which keeps the dense path
        assert max(number for *_, number in chunked) == 12 // (
            num_ranks // (parallel.get("tp", 1) * parallel.get("pp", 1))
        )
    else:
        assert not any(number for *_, number in chunked)
    without = reused_ranks(trained, 1, tiny_config(model=model, training={"precision": "fp64"}), False)
    assert without[0][0][0] < chunked[0][0][0], "the z-loss is added"
