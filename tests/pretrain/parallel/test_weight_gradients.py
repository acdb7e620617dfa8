"""Weight gradients that are computed later are those of autograd, wherever the weight lives and whatever else it
does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pretrain.model import GPT
from pretrain.model.layers import ColumnParallelLinear
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base import mesh, weight_gradients
from pretrain.parallel.base.params import init_parameters
from pretrain.parallel.base.tensor import ALONE
from pretrain.parallel.base.weight_gradients import DeferredWeightGradient
from pretrain.parallel.engine import compose, fsdp
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import VOCAB_SIZE, tiny_config


def new_linear(num_inputs: int, num_outputs: int, bias: bool) -> ColumnParallelLinear:
    layer = ColumnParallelLinear(num_inputs, num_outputs, bias, ALONE).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    bias=st.booleans(),
    of_input=st.booleans(),
    times=st.integers(1, 2),
)
def test_gradients_are_those_of_autograd(shape: list[int], bias: bool, of_input: bool, times: int) -> None:
    layer = new_linear(4, 5, bias)
    x = torch.randn(*shape, 4, dtype=torch.float64, requires_grad=of_input)
    upstream = torch.randn(*shape, 5, dtype=torch.float64)
    leaves = [leaf for leaf in (x, *layer.parameters()) if leaf.requires_grad]
    expected = [times * gradient for gradient in torch.autograd.grad(layer(x), leaves, upstream)]

    left: list[DeferredWeightGradient] = []
    weight_gradients.defer_weight_gradients(left, layer)
    for _ in range(times):
        layer(x).backward(upstream)
    assert layer.weight.grad is None and len(left) == times
    weight_gradients.accumulate_weight_gradients(left)
    assert not left
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient)


def model(recompute: Any = "none", tied: bool = True) -> GPT:
    config = tiny_config(model={"bias": True, "tied": tied}).model
    part = GPT(config, recompute=recompute).double()
    init_parameters(dict(part.named_parameters()), config, seed=1)
    return part


def batch(seed: int) -> MicroBatch:
    random = torch.Generator().manual_seed(seed)
    tokens, targets = (torch.randint(1, VOCAB_SIZE, (2, 16), generator=random) for _ in range(2))
    return MicroBatch(tokens, targets, None, None, None, 32)


def backward(part: GPT, micro_batch: MicroBatch) -> None:
    part.cross_entropy_sum(part(micro_batch.tokens), micro_batch.targets).backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_under_recompute_tied_or_not(recompute: str, tied: bool) -> None:
    part, reference = model(recompute, tied), model(tied=tied)
    left: list[DeferredWeightGradient] = []
    weight_gradients.defer_weight_gradients(left, part)
    addresses: list[int] = []
    part.layers["0"].get_submodule("attention_norm").register_forward_hook(
        lambda _, __, output: addresses.append(output.data_ptr())
    )
    backward(part, batch(0))
    assert len(addresses) == (1 if recompute == "none" else 2)
    assert addresses[-1] in [product.input.data_ptr() for product in left]  # the one computed again
    weight_gradients.accumulate_weight_gradients(left)
    backward(reference, batch(0))
    gradients = dict(reference.named_parameters())
    for name, parameter in part.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, msg=name)


def laid_over_ranks(parallel: dict[str, Any], precision: str, later: bool) -> dict[str, Tensor]:
    """The gradients that this rank holds after three backwards, each cut in two (`later`) or whole."""
    config = tiny_config(
        model={"tied": False, "bias": True}, parallel=parallel, training={"precision": precision, "micro_batch_size": 2}
    )
    with mesh.start(config.parallel, "cpu", 1.0) as world:
        built = compose.build(config, world)
        (part,) = built.parts.values()
        zero = config.parallel.zero
        left: list[DeferredWeightGradient] = []
        weight_gradients.defer_weight_gradients(left if later else None, part)
        products: list[list[DeferredWeightGradient]] = []
        for index in range(3):
            if later:
                fsdp.before_backward_of_inputs(part, zero)
            else:
                fsdp.before_backward(part, zero, is_last=index == 2, pipelined=True)
            backward(part, batch(seed=10 * world.dp_rank + index))
            products.append(left.copy())
            left.clear()
        if later:
            for index in range(3):
                weight_gradients.accumulate_weight_gradients(products[index])
                fsdp.reduce_deferred(part, zero, is_last=index == 2)
        gradients = {}
        for name, parameter in built.parameters.items():
            gradient = parameter.grad
            if isinstance(parameter, DTensor):
                assert isinstance(gradient, DTensor) and gradient.placements == parameter.placements
                gradient = gradient.to_local()
            assert gradient is not None
            gradients[name] = gradient.clone()
        return gradients


@pytest.mark.parametrize(
    ("parallel", "precision"),
    [
        ({"tp": 2, "zero": 1}, "fp64"),
        ({"tp": 2, "sequence_parallel": False, "zero": 1}, "fp64"),
        ({"zero": 1}, "bf16"),  # sums in fp32, as in a backward
        ({"zero": 2}, "fp64"),
        ({"zero": 3}, "fp64"),
        ({"zero": 3}, "bf16"),
    ],
)
def test_where_ranks_share_the_weights(parallel: dict[str, Any], precision: str) -> None:
    at_once = reused_ranks(laid_over_ranks, 2, parallel, precision, False)
    later = reused_ranks(laid_over_ranks, 2, parallel, precision, True)
    for expected, gradients in zip(at_once, later, strict=True):
        for name, gradient in gradients.items():
            assert gradient.dtype == (torch.float64 if precision == "fp64" else torch.float32)
            torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-9, msg=name)
