"""What only a GPU shows; each test is skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from pretrain.parallel.base.linear_cross_entropy import linear_cross_entropy_sum
from pretrain.parallel.base.tensor import ALONE

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


# ---------------------------------------------------------------------------------------------- the loss in chunks


def head_of(num_tokens: int, num_entries: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """x [1, N, D] and a matrix [V, D] in bf16, and targets, on the GPU."""
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(1, num_tokens, width, generator=generator, device="cuda").bfloat16()
    weight = (0.02 * torch.randn(num_entries, width, generator=generator, device="cuda")).bfloat16()
    targets = torch.randint(0, num_entries, (1, num_tokens), generator=generator, device="cuda")
    return x.requires_grad_(), weight.requires_grad_(), targets


@gpu
def test_loss_in_chunks_in_bf16_beside_dense_in_fp32() -> None:
    """Against dense fp32: the loss within 1e-4, and gradients at most 1.2 times as far off as dense ones in bf16."""
    x, weight, targets = head_of(4096, 32_000, 2048)

    def found(dtype: torch.dtype, chunked: bool) -> list[Tensor]:
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (x, weight)]
        if chunked:
            loss = linear_cross_entropy_sum(*leaves, targets, len(weight), 0.0, ALONE)
        else:
            loss = ALONE.cross_entropy_sum(leaves[0] @ leaves[1].T, targets)
        return [each.detach().double() for each in (loss, *torch.autograd.grad(loss / 4096, leaves))]

    exact, dense, chunked = (
        found(torch.float32, False),
        found(torch.bfloat16, False),
        found(torch.bfloat16, True),
    )
    assert abs(chunked[0] / exact[0] - 1) < 1e-4
    for name, reference, usual, ours in zip("xw", exact[1:], dense[1:], chunked[1:], strict=True):
        errors = [float((each - reference).norm() / reference.norm()) for each in (usual, ours)]
        print(f"gradient of {name}: dense bf16 off by {errors[0]:.2e}, in chunks by {errors[1]:.2e}")
        assert errors[1] <= 1.2 * errors[0] < 0.05


@gpu
def test_peak_memory_of_a_loss_in_chunks() -> None:
    """8,192 tokens, 152k entries, width 2,048: 0.6 GB beyond weights, input and their gradients."""
    x, weight, targets = head_of(8192, 151_936, 2048)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_cross_entropy_sum(x, weight, targets, len(weight), 0.0, ALONE).backward()  # type: ignore[no-untyped-call]
    beyond = torch.cuda.max_memory_allocated() - before - weight.nbytes - x.nbytes
    print(f"{beyond / 1e9:.3f} GB beyond weights, input and gradients")
    assert weight.grad is not None and beyond <= 0.6e9


# ------------------------------------------------------------------------------------------------ the allocator


@gpu
def test_segments_of_memory_grow() -> None:
    """In a process of its own, before CUDA is initialised."""
    code = (
        "import torch; from pretrain.parallel.base import mesh; mesh.choose_device('auto'); torch.ones(1).cuda(); "
        "print(torch.cuda.memory._snapshot()['allocator_settings']['expandable_segments'])"
    )
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split()[-1] == "True"
