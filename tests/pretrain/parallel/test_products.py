"""Products of one input: gradients are those of one process, wherever they are computed; exchanges and memory as
stated."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F

from pretrain.model.layers import ColumnParallelLinear
from pretrain.parallel.base import weight_gradients
from pretrain.parallel.base.products import Matrix, products
from pretrain.parallel.base.tensor import ALONE, TensorAxis
from pretrain.parallel.base.weight_gradients import DeferredWeightGradient
from tests.pretrain.operations import Operations
from tests.pretrain.ranks import reused_ranks

NUM_SAMPLES, NUM_TOKENS, NUM_INPUTS, NUM_OUTPUTS = 2, 6, 3, (5, 4)
NAMES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
EXCHANGES = [f"_c10d_functional::{name}" for name in NAMES]


class Case(NamedTuple):
    axis: TensorAxis
    num_matrices: int
    later: bool
    bias: bool
    of_input: bool


def axes() -> list[TensorAxis]:
    if not dist.is_initialized():
        return [ALONE]
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    return [TensorAxis.of(mesh, False), TensorAxis.of(mesh, True), replace(TensorAxis.of(mesh, True), keeps_whole=True)]


def cases() -> Iterator[Case]:
    for axis, *choices in product(axes(), (1, 2), (False, True), (False, True), (False, True)):
        yield Case(axis, *choices)  # type: ignore[arg-type]


def check(case: Case) -> None:
    """Against autograd on whole inputs, in integers: exactly; and what is exchanged and saved."""
    axis, generator = case.axis, torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randint(-9, 10, shape, generator=generator).double()

    x = numbers(NUM_SAMPLES, NUM_TOKENS, NUM_INPUTS).requires_grad_()
    sizes = NUM_OUTPUTS[: case.num_matrices]
    held = [
        [(numbers(size, NUM_INPUTS).requires_grad_(), numbers(size).requires_grad_()) for size in sizes]
        for _ in range(axis.size)
    ]  # by rank and matrix
    outputs = [[F.linear(x, weight, bias if case.bias else None) for weight, bias in of_rank] for of_rank in held]
    cotangents = [[numbers(*y.shape) for y in of_rank] for of_rank in outputs]
    torch.autograd.backward(list(chain(*outputs)), list(chain(*cotangents)))

    own, mine = axis.own_tokens(NUM_TOKENS), held[axis.rank]
    share = x.detach()[:, own].clone().requires_grad_(case.of_input)
    parameters = [nn.Parameter(weight.detach()) for weight, _ in mine]
    biases = [nn.Parameter(bias.detach()) for _, bias in mine]
    matrices = [
        Matrix(parameter, parameter, bias if case.bias else None)
        for parameter, bias in zip(parameters, biases, strict=True)
    ]
    left: list[DeferredWeightGradient] | None = [] if case.later else None
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if all(tensor.data_ptr() != parameter.data_ptr() for parameter in parameters):
            saved.append(tensor)
        return tensor

    with Operations() as exchanges:
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            found = products(share, matrices, axis, left)
        in_forward = exchanges.since(*EXCHANGES)
        torch.autograd.backward(found, cotangents[axis.rank])
        in_backward = exchanges.since(*EXCHANGES)
        if left is not None:
            assert all(parameter.grad is None for parameter in parameters) and len(left) == 1
            weight_gradients.accumulate_weight_gradients(left)
            assert not left
        in_accumulate = exchanges.since(*EXCHANGES)

    for y, expected in zip(found, outputs[axis.rank], strict=True):
        assert torch.equal(y, expected)
    if case.of_input:
        assert x.grad is not None and share.grad is not None and torch.equal(share.grad, x.grad[:, own])
    for parameter, bias, (weight, bias_alone) in zip(parameters, biases, mine, strict=True):
        assert parameter.grad is not None and weight.grad is not None and torch.equal(parameter.grad, weight.grad)
        if case.bias:
            assert bias.grad is not None and bias_alone.grad is not None and torch.equal(bias.grad, bias_alone.grad)

    is_cut, whole_is_kept = axis.sequence_parallel, axis.keeps_whole and not case.later
    again = int(is_cut and not whole_is_kept)
    assert in_forward == (int(is_cut), 0, 0)
    summed = (int(is_cut), int(axis.size > 1 and not is_cut)) if case.of_input else (0, 0)
    assert in_backward == (0 if case.later else again, *summed)
    assert in_accumulate == (again if case.later else 0, 0, 0)
    if axis.size > 1 or case.later:  # alone it is torch's own product
        assert [tensor.shape[1] for tensor in saved] == [NUM_TOKENS if whole_is_kept else share.shape[1]]


def check_all() -> int:
    done = 0
    for case in cases():
        check(case)
        done += 1
    return done


def test_gradients_exchanges_and_what_is_kept() -> None:
    assert reused_ranks(check_all, 3) == [48] * 3


def test_alone() -> None:
    assert check_all() == 16


def test_a_product_holds_until_then_its_input_and_gradient_alone() -> None:
    layer = ColumnParallelLinear(4, 4, bias=True, axis=ALONE).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    left: list[DeferredWeightGradient] = []
    weight_gradients.defer_weight_gradients(left, nn.Sequential(layer))
    middle = layer(torch.ones(2, 4, dtype=torch.float64))
    layer(middle).sum().backward()
    alive = weakref.ref(middle)
    del middle
    assert alive() is not None and len(left) == 2  # the input of one of them
    weight_gradients.accumulate_weight_gradients(left)
    assert alive() is None
