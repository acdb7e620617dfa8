"""Weight gradients that are computed later (the W of zero-bubble schedules; Qi et al. 2024).

The stage before waits for the gradient of a product's input, nobody for that of its weight: the backward of
`products` computes the first (and the bias's, a mere sum) and leaves what the second is computed from in
a list: the input and the gradient of the output, as much as the input and output of the layer, until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pretrain.parallel.base.tensor import TensorAxis


class DeferredWeightGradient(NamedTuple):
    """Products of one input whose weight gradients are still due: outputs = all_gather(input) @ weights.T."""

    parameters: Sequence[nn.Parameter]  # whole, or DTensors of which this rank holds the part that it computed with
    input: Tensor  # [..., inputs]; with sequence parallelism this rank's tokens
    gradients: Sequence[Tensor]  # of the outputs: [..., outputs]
    axis: TensorAxis


def defer_weight_gradients(left: list[DeferredWeightGradient] | None, module: nn.Module) -> None:
    """Let the linear layers of a module leave the gradients of their weights in this list, or, with None, compute
    them."""
    for layer in module.modules():
        if hasattr(layer, "deferred"):
            layer.deferred = left  # type: ignore[assignment]


@torch.no_grad()
def accumulate_weight_gradients(products: list[DeferredWeightGradient]) -> None:
    """Add the gradients of the weights to their parameters', and empty the list: what it holds is freed one by one."""
    products.reverse()
    while products:
        parameters, share, gradients, axis = products.pop()
        x = axis.all_gather(share)()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            whole = _like(weight_gradient(gradient, x), parameter)
            if parameter.grad is None:
                parameter.grad = whole
            else:
                parameter.grad += whole


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """[outputs, inputs], of a product's output gradient [..., outputs] and input [..., inputs]."""
    return gradient.flatten(0, -2).T @ x.flatten(0, -2)


def _like(local: Tensor, parameter: nn.Parameter) -> Tensor:
    """This rank's part of a gradient, placed like the parameter."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
