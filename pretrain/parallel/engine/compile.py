"""Blocks by torch.compile: one graph for all blocks that are alike, forward and backward.

What lies around the blocks (embeddings, head, loss) is not compiled: it is a product or a fused kernel each. Selective
recompute and the exchanges of tensor parallelism are part of the graph; FSDP2's hooks and full recompute, which runs
the graph twice, lie around it. The first step of each shape of a micro-batch takes a minute or so longer. Evaluation
and generation, whose shapes change, are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pretrain.model.gpt import GPT, Block


def compile_blocks(part: GPT) -> None:
    """Compile each block at its first training step, in place; names of parameters stay. To be called before FSDP2."""
    for block in part.layers.values():
        assert isinstance(block, Block)
        block.residuals = partial(_call, block.residuals, torch.compile(block.residuals))  # type: ignore[method-assign]


def _call(plain: Callable[..., Tensor], compiled: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return (compiled if torch.is_grad_enabled() else plain)(*inputs)
