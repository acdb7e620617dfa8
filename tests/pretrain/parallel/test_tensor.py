"""Tensor parallelism against one process: every exchange, and the loss."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional as F

from pretrain.data import IGNORED_TARGET
from pretrain.parallel.base.tensor import ALONE, TensorAxis
from tests.pretrain.ranks import reused_ranks

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
NUM_RANKS = 3
NUM_SHAPES = 3


def whole_numbers(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Small integers, whose sums are exact in every type; the same on every rank."""
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


@lru_cache
def tensor_mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


def cases() -> Iterator[tuple[TensorAxis, torch.dtype, tuple[int, int, int], torch.Generator]]:
    """Both kinds of axis, each type, random shapes [B, T, D]."""
    mesh = tensor_mesh()
    generator = torch.Generator().manual_seed(0)
    for sequence_parallel in (False, True):
        axis = TensorAxis.of(mesh, sequence_parallel)
        for dtype in DTYPES:
            for _ in range(NUM_SHAPES):
                num_samples, share, width = torch.randint(1, 4, (3,), generator=generator).tolist()
                yield axis, dtype, (num_samples, share * axis.size, width), generator


def gradient_of(y: Tensor, x: Tensor, cotangent: Tensor) -> Tensor:
    """Of a leaf, for an output's gradient that is not contiguous."""
    (gradient,) = torch.autograd.grad(y, x, cotangent.mT.contiguous().mT)
    return gradient


def check_spread() -> None:
    for axis, dtype, shape, generator in cases():
        own = axis.own_tokens(shape[1])
        x = whole_numbers(*shape, dtype=dtype, generator=generator)
        cotangents = whole_numbers(axis.size, *shape, dtype=dtype, generator=generator)
        mine = x[:, own]
        torch.testing.assert_close(axis.all_gather(mine)(), x, rtol=0, atol=0)
        gradient = axis.reduce_gradient(cotangents[axis.rank].mT.contiguous().mT)()
        torch.testing.assert_close(gradient, cotangents.sum(0)[:, own], rtol=0, atol=0)


def check_collect() -> None:
    for axis, dtype, shape, generator in cases():
        own = axis.own_tokens(shape[1])
        addends = whole_numbers(axis.size, *shape, dtype=dtype, generator=generator)
        mine = addends[axis.rank].mT.contiguous().mT.requires_grad_()
        y = axis.reduce_scatter(mine)
        torch.testing.assert_close(y, addends.sum(0)[:, own], rtol=0, atol=0)
        # what flows back into the sum: each rank has the part for its tokens, or all of it
        cotangent = whole_numbers(*shape, dtype=dtype, generator=generator)
        torch.testing.assert_close(gradient_of(y, mine, cotangent[:, own]), cotangent, rtol=0, atol=0)


def check_embed() -> None:
    for axis, dtype, (num_samples, num_tokens, width), generator in cases():
        own, num_rows = axis.own_tokens(num_tokens), 3 * axis.size
        tokens = torch.randint(0, num_rows, (num_samples, num_tokens), generator=generator)
        table = whole_numbers(num_rows, width, dtype=dtype, generator=generator).requires_grad_()
        cotangent = whole_numbers(num_samples, num_tokens, width, dtype=dtype, generator=generator)
        expected = F.embedding(tokens, table)
        expected.backward(cotangent)
        assert table.grad is not None
        mine = slice(3 * axis.rank, 3 * axis.rank + 3)
        rows = table.detach()[mine].clone().requires_grad_()
        y = axis.embed(tokens, rows)
        torch.testing.assert_close(y, expected[:, own], rtol=0, atol=0)
        torch.testing.assert_close(gradient_of(y, rows, cotangent[:, own]), table.grad[mine], rtol=0, atol=0)


def check_whole_logits() -> None:
    for axis, dtype, shape, generator in cases():
        parts = whole_numbers(axis.size, *shape, dtype=dtype, generator=generator)
        torch.testing.assert_close(axis.whole_logits(parts[axis.rank]), torch.cat([*parts], -1), rtol=0, atol=0)


def check_exchanges() -> None:
    check_spread()
    check_collect()
    check_embed()
    check_whole_logits()


def test_exchanges_and_their_gradients_are_exact() -> None:
    reused_ranks(check_exchanges, NUM_RANKS)


def test_alone_nothing_happens() -> None:
    x, parameter = torch.randn(2, 3, 4), nn.Parameter(torch.randn(5, 4))
    assert ALONE.all_gather(x)() is ALONE.reduce_gradient(x)() is ALONE.reduce_scatter(x) is ALONE.whole_logits(x) is x
    layer = nn.Linear(4, 5)
    assert ALONE.weight(layer) is layer.weight and ALONE.weight(layer, "bias") is layer.bias
    assert x[:, ALONE.own_tokens(3)].shape == x.shape
    tokens = torch.tensor([[4, 0]])
    torch.testing.assert_close(ALONE.embed(tokens, parameter), parameter[tokens])


def dense_loss(logits_BTV: Tensor, targets_BT: Tensor, vocab_size: int) -> Tensor:
    """What one process computes from all logits, in float64."""
    return F.cross_entropy(
        logits_BTV[..., :vocab_size].flatten(0, 1).double(),
        targets_BT.flatten(),
        ignore_index=IGNORED_TARGET,
        reduction="sum",
    )


def loss_and_gradient(
    axis: TensorAxis, logits_BTV: Tensor, targets_BT: Tensor, vocab_size: int | None
) -> tuple[Tensor, Tensor]:
    """With the gradient of three times the loss, of this rank's logits."""
    width = logits_BTV.shape[-1] // axis.size
    mine = logits_BTV[..., axis.rank * width : (axis.rank + 1) * width].clone().requires_grad_()
    loss = axis.cross_entropy_sum(mine * 1, targets_BT, vocab_size)
    (gradient,) = torch.autograd.grad(3 * loss, mine)
    return loss.detach(), gradient


def random_logits(
    width: int, vocab_size: int, scale: float, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """[3, 4, V], and targets of which some do not count."""
    logits = (scale * torch.randn(3, 4, width, generator=generator, dtype=torch.float64)).to(dtype)
    targets = torch.randint(0, vocab_size, (3, 4), generator=generator)
    return logits, targets.masked_fill(torch.rand(3, 4, generator=generator) < 0.3, IGNORED_TARGET)


def check_loss() -> None:
    axis = TensorAxis.of(tensor_mesh(), sequence_parallel=True)
    generator = torch.Generator().manual_seed(1)
    width = 5 * axis.size
    # the last size leaves padding alone to all ranks but the first
    for vocab_size in (width, width - 2, 3):
        for scale in (1.0, 1e4):
            for dtype, tolerance in zip(DTYPES, (1e-12, 3e-6, 1e-2), strict=True):
                logits, targets = random_logits(width, vocab_size, scale, dtype, generator)
                expected_logits = logits.double().requires_grad_()
                expected = dense_loss(expected_logits, targets, vocab_size)
                (expected_gradient,) = torch.autograd.grad(3 * expected, expected_logits)
                loss, gradient = loss_and_gradient(axis, logits, targets, vocab_size)
                assert loss.dtype == torch.promote_types(dtype, torch.float32) and gradient.dtype == dtype
                # of bf16 logits the loss is as precise as of the same logits in fp32
                torch.testing.assert_close(loss.double(), expected, rtol=min(tolerance, 3e-6), atol=1e-12)
                mine = slice(5 * axis.rank, 5 * axis.rank + 5)
                torch.testing.assert_close(
                    gradient.double(), expected_gradient[..., mine], rtol=tolerance, atol=tolerance
                )
                losses = [torch.empty_like(loss) for _ in range(axis.size)]
                dist.all_gather(losses, loss)
                assert all(torch.equal(loss, other) for other in losses)


def check_unusual_targets() -> None:
    axis = TensorAxis.of(tensor_mesh(), sequence_parallel=False)
    width = 5 * axis.size
    logits, targets = random_logits(width, width - 2, 1.0, torch.float64, torch.Generator().manual_seed(2))
    loss, gradient = loss_and_gradient(axis, logits, torch.full_like(targets, IGNORED_TARGET), width - 2)
    assert loss == 0 and not gradient.any()
    for nowhere in (width - 1, width, -2):  # in the padding, or no entry at all
        loss, _ = loss_and_gradient(axis, logits, targets.index_fill(0, torch.tensor(1), nowhere), width - 2)
        assert loss == torch.inf
    logits[0, 0, 2] = torch.nan  # on one rank; all see it
    loss, _ = loss_and_gradient(axis, logits, targets.clamp(min=0), width - 2)
    assert loss.isnan()


def check_losses() -> None:
    check_loss()
    check_unusual_targets()


def test_the_loss_of_parts_is_that_of_all_logits() -> None:
    reused_ranks(check_losses, NUM_RANKS)


@given(
    width=st.integers(1, 20),
    vocab_size=st.integers(1, 20),
    scale=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    seed=st.integers(0, 2**32),
)
def test_the_loss_alone_is_cross_entropy(width: int, vocab_size: int, scale: float, seed: int) -> None:
    vocab_size = min(width, vocab_size)
    generator = torch.Generator().manual_seed(seed)
    logits, targets = random_logits(width, vocab_size, scale, torch.float64, generator)
    expected_logits = logits.clone().requires_grad_()
    expected = dense_loss(expected_logits, targets, vocab_size)
    (expected_gradient,) = torch.autograd.grad(3 * expected, expected_logits)
    loss, gradient = loss_and_gradient(ALONE, logits, targets, vocab_size)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)


def test_padding_is_masked_where_the_logits_lie() -> None:
    logits = torch.zeros(1, 1, 4)
    loss = ALONE.cross_entropy_sum(logits, torch.tensor([[1]]), vocab_size=3)
    assert loss.item() == pytest.approx(torch.tensor(3.0).log().item())
    assert logits.tolist() == [[[0.0, 0.0, 0.0, -torch.inf]]]
