"""Products of one input with several matrices, with a backward of our own, which three things need.

- **Sequence parallelism**: a rank gathers the input's tokens, and keeps its own share of them alone; the backward
  gathers them again (Korthikanti et al. 2022, section 4.2.2). Several matrices share each gather.
- **Exchanges beside arithmetic**: in the backward the tokens come while the gradient of the input is computed, and that
  is summed over the ranks while those of the weights are.
- **Zero-bubble schedules**: the gradients of the weights are left for later (`weight_gradients`). Autograd gets
  none of them: whatever else a parameter is used for (a tied embedding) is counted by autograd, once, and the product
  by `accumulate_weight_gradients`, once. Under recompute the input is the one computed again, as it is saved as
  autograd saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from pretrain.parallel.base.tensor import TensorAxis
from pretrain.parallel.base.weight_gradients import DeferredWeightGradient, weight_gradient


class Matrix(NamedTuple):
    """A parameter, what this rank holds of it, and of its bias."""

    parameter: nn.Parameter
    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None


def products(
    x: Tensor, matrices: Sequence[Matrix], axis: TensorAxis, left: list[DeferredWeightGradient] | None = None
) -> tuple[Tensor, ...]:
    """x W' + b for each matrix, where x is spread over the ranks of the axis first.

    The weights' gradients are left in the list, if there is one.
    """
    if axis.group is None and left is None:
        return tuple(F.linear(x, weight, bias) for _, weight, bias in matrices)
    parameters, weights, biases = zip(*matrices, strict=True)
    if left is not None:
        weights = tuple(weight.detach() for weight in weights)
    function: Any = _Products
    # autograd calls the backward for the parameters' sake too, though it gets no gradient of them here
    results: tuple[Tensor, ...] = function.apply(x, axis, left, *parameters, *weights, *biases)
    return results


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        axis: TensorAxis,
        left: list[DeferredWeightGradient] | None,
        *matrices: Any,
    ) -> tuple[Tensor, ...]:
        parameters, weights, biases = _thirds(matrices)
        whole = axis.all_gather(x)()
        ctx.axis, ctx.left, ctx.parameters = axis, left, parameters
        ctx.keeps_whole = axis.keeps_whole and left is None
        ctx.save_for_backward(whole if ctx.keeps_whole else x, *weights)
        return tuple(F.linear(whole, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        of_weights: list[Tensor | None] = [None] * len(weights)
        if ctx.left is not None:
            ctx.left.append(DeferredWeightGradient(ctx.parameters, x, gradients, ctx.axis))
        elif not ctx.keeps_whole:
            coming = ctx.axis.all_gather(x)

        of_x: Tensor | None = None
        if ctx.needs_input_grad[0]:
            of_x = gradients[0] @ weights[0]
            for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
                of_x += gradient @ weight
            summing = ctx.axis.reduce_gradient(of_x)
        if ctx.left is None:
            whole = x if ctx.keeps_whole else coming()
            of_weights = [weight_gradient(gradient, whole) for gradient in gradients]
        _, _, needs_bias = _thirds(ctx.needs_input_grad[3:])
        of_biases = [
            gradient.flatten(0, -2).sum(0) if needed else None
            for gradient, needed in zip(gradients, needs_bias, strict=True)
        ]
        return (None if of_x is None else summing(), None, None, *[None] * len(weights), *of_weights, *of_biases)


def _thirds(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    num = len(values) // 3
    return values[:num], values[num : 2 * num], values[2 * num :]
