"""The modules that hold a model's parameters, each with the tensor-parallel axis that they are cut over.

A parameter is one tensor of the logical shape, a DTensor where ranks share it; `axis.weight` is the part that this rank
computes with. Between the modules flow plain tensors: which part of the tokens or channels they are, and when ranks
exchange them, is said by the axis (`pretrain.parallel.base.tensor`) and shown by whoever calls it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pretrain.config import ModelConfig
from pretrain.parallel.base.products import Matrix, products
from pretrain.parallel.base.recompute import last_product
from pretrain.parallel.base.tensor import ALONE, TensorAxis
from pretrain.parallel.base.weight_gradients import DeferredWeightGradient


class VocabParallelEmbedding(nn.Module):
    """A vector for each token. The table is cut by rows: a rank looks up the tokens it has, and the results are
    summed."""

    def __init__(self, num_rows: int, width: int, axis: TensorAxis) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, width))
        self.axis = axis

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Vectors [B, T/s, D]."""
        return self.axis.embed(tokens_BT, self.axis.weight(self))


class PositionEmbedding(nn.Module):
    """A vector for each position; every rank has the whole table."""

    def __init__(self, num_rows: int, width: int, axis: TensorAxis) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, width))
        self.axis = axis

    def forward(self, positions_BT: Tensor) -> Tensor:
        """Vectors [B or 1, T/s, D] of the tokens that this rank holds."""
        own_BT = positions_BT[:, self.axis.own_tokens(positions_BT.shape[1])]
        return F.embedding(own_BT, self.axis.weight(self))


class Norm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019) or LayerNorm; every rank has all weights, for the tokens that it holds."""

    def __init__(self, config: ModelConfig, axis: TensorAxis) -> None:
        super().__init__()
        self.kind = config.norm
        self.epsilon = config.norm_epsilon
        self.axis = axis
        self.weight = nn.Parameter(torch.empty(config.hidden_size))
        has_bias = config.norm == "layernorm" and config.bias
        self.bias = nn.Parameter(torch.empty(config.hidden_size)) if has_bias else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same shape."""
        weight = self.axis.weight(self)
        if self.kind == "rmsnorm":
            return F.rms_norm(x_BTD, weight.shape, weight, self.epsilon)
        bias = None if self.bias is None else self.axis.weight(self, "bias")
        return F.layer_norm(x_BTD, weight.shape, weight, bias, self.epsilon)


class ColumnParallelLinear(nn.Module):
    """x W' + b with W and b cut by rows ("column-parallel"): from whole inputs, some of the outputs.

    x is spread over the ranks first. Layers with the same input share that: `column_parallel`.
    """

    def __init__(self, num_inputs: int, num_outputs: int, bias: bool, axis: TensorAxis) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, num_inputs))
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None
        self.axis = axis
        self.deferred: list[DeferredWeightGradient] | None = (
            None  # where a zero-bubble schedule leaves the weight's gradient
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shapes [B, T/s, inputs] to [B, T, outputs/t]."""
        return column_parallel(x, self)[0]

    def local(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product of what this rank holds, without an exchange before or after it."""
        return products(x, [Matrix(self.weight, self.axis.weight(self), bias)], ALONE, self.deferred)[0]

    def local_bias(self) -> Tensor | None:
        """The part of the bias that this rank holds."""
        return None if self.bias is None else self.axis.weight(self, "bias")


def column_parallel(x: Tensor, *layers: ColumnParallelLinear) -> tuple[Tensor, ...]:
    """Each layer's result for one input [B, T/s, inputs]."""
    first = layers[0]
    matrices = [Matrix(layer.weight, layer.axis.weight(layer), layer.local_bias()) for layer in layers]
    return products(x, matrices, first.axis, first.deferred)


class RowParallelLinear(ColumnParallelLinear):
    """x W' + b with W cut by columns ("row-parallel"): from some of the inputs a partial sum, collected over the ranks.

    The bias, whole on each rank, is added once, after the sum.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Shapes [B, T, inputs/t] to [B, T/s, outputs]."""
        bias = self.local_bias()
        # a product that leaves its weight's gradient saves its input when it is done: recompute would repeat it
        with last_product(self.deferred is None):
            if self.axis.size == 1:  # the product adds the bias on its way
                return self.local(x, bias)
            partial_sum = self.local(x)
        y = self.axis.reduce_scatter(partial_sum)
        return y if bias is None else y + bias
