"""Matrix products whose weight gradient is computed later (the W of zero-bubble schedules; Qi et al. 2024).

The stage before waits for the gradient of the input, nobody for that of the weight: the backward of `linear` returns
the first (and the bias's, a mere sum) and leaves what the second is computed from in a list. Autograd gets no gradient
of the weight: whatever else the parameter is used for (a tied embedding) is counted by autograd, once, and the product
by `accumulate`, once. What is left is the input and the gradient of the output, until then: of a linear layer as
much as its input and output. Under recompute the input is the one computed again, as it is saved as autograd saves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor
from torch.nn import functional as F


class Product(NamedTuple):
    """A product whose weight gradient is still to be computed: output = input @ weight.T (+ bias)."""

    parameter: nn.Parameter  # whole, or a DTensor of which this rank holds the part that it computed with
    input: Tensor  # [..., inputs]
    gradient: Tensor  # of the output: [..., outputs]


def linear(
    x: Tensor, parameter: nn.Parameter, weight: Tensor, bias: Tensor | None, left: list[Product] | None
) -> Tensor:
    """x W' + b, where `weight` is what this rank holds of `parameter`; its gradient is left in the list, if there is one."""
    if left is None:
        return F.linear(x, weight, bias)
    function: Any = _Linear
    y: Tensor = function.apply(x, weight.detach(), bias, parameter, left)
    return y


def leave_to(left: list[Product] | None, module: nn.Module) -> None:
    """Let the linear layers of a module leave the gradients of their weights in this list, or, with None, compute them."""
    for layer in module.modules():
        if hasattr(layer, "deferred"):
            layer.deferred = left  # type: ignore[assignment]


@torch.no_grad()
def accumulate(products: list[Product]) -> None:
    """Add the gradients of the weights to their parameters', and empty the list: what it holds is freed one by one."""
    products.reverse()
    while products:
        parameter, x, gradient = products.pop()
        local = gradient.flatten(0, -2).T @ x.flatten(0, -2)
        whole = _like(local, parameter)
        if parameter.grad is None:
            parameter.grad = whole
        else:
            parameter.grad += whole


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, parameter: nn.Parameter, left: list[Product]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.parameter, ctx.left = parameter, left
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        ctx.left.append(Product(ctx.parameter, x, gradient))
        of_x = gradient @ weight if ctx.needs_input_grad[0] else None
        of_bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return of_x, None, of_bias, None, None


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
