"""Recompute: the same gradients bit for bit, products never repeated where they are kept, and memory as stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from pretrain.config import ModelConfig, Recompute
from pretrain.model import GPT
from pretrain.parallel.base.params import init_parameters, part_specs
from pretrain.parallel.base.recompute import KEPT
from pretrain.parallel.base.stages import Stage
from pretrain.parallel.base.tensor import TensorAxis, distribute
from tests.pretrain.models import CHOICES, small
from tests.pretrain.operations import Operations
from tests.pretrain.ranks import reused_ranks


class Ops(Operations):
    """Counts operators, and watches the storages that they make for as long as something holds them."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
                storage = local.untyped_storage()
                self._storages[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return result

    def bytes_held(self, excluded: Sequence[Tensor]) -> int:
        known = {tensor.untyped_storage()._cdata for tensor in excluded}
        total = 0
        for key, reference in self._storages.items():
            if key not in known and not reference.expired():  # type: ignore[no-untyped-call]
                total += torch.UntypedStorage._new_with_weak_ptr(reference.cdata).nbytes()
        return total

    def num_products(self) -> int:
        return sum(self.counts[op.name()] for op in KEPT)


def config_of(**choices: Any) -> ModelConfig:
    return small(num_layers=4, hidden_size=64, sequence_length=32, **choices)


def layers_of(recompute: Recompute, every: int = 1, dtype: torch.dtype = torch.float64, **choices: Any) -> GPT:
    """The layers alone, as a stage in the middle of a pipeline has them."""
    config = config_of(**choices)
    with torch.device("meta"):
        model = GPT(
            config, Stage(1, range(config.num_layers), False, False), recompute=recompute, recompute_every=every
        )
    model = model.to(dtype).to_empty(device="cpu")
    init_parameters(dict(model.named_parameters()), config, seed=3)
    return model


def step(model: GPT, masked: bool = False) -> tuple[Ops, Ops, float, list[Tensor]]:
    """Operators of the forward and of the backward, what is held between them (values a token), and the gradients."""
    dtype = next(model.parameters()).dtype
    x = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(1), dtype=dtype)
    ids = (torch.arange(32)[None] // 10).expand(2, 32) if masked else None
    parameters = list(model.parameters())
    with Ops() as forward:
        y = model(x, ids)
    held = forward.bytes_held(excluded=[y, *parameters]) / (2 * 32 * dtype.itemsize)
    with Ops() as backward:
        y.square().sum().backward()
    gradients = [parameter.grad for parameter in parameters]
    assert all(gradient is not None for gradient in gradients)
    return forward, backward, held, [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("choices", CHOICES)
def test_gradients_are_the_same_bits(choices: dict[str, Any], masked: bool) -> None:
    expected = step(layers_of("none", **choices), masked)[3]
    kinds: list[tuple[Recompute, int]] = [("selective", 1), ("full", 1), ("full", 3)]
    for recompute, every in kinds:
        found = step(layers_of(recompute, every, **choices), masked)[3]
        assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("choices", CHOICES)
def test_what_is_computed_again(choices: dict[str, Any]) -> None:
    """A layer has its products and one attention: full repeats them all but the last, selective none of them."""
    kinds: list[tuple[Recompute, int]] = [("none", 1), ("selective", 1), ("full", 1), ("full", 3)]
    none, selective, full, some = (step(layers_of(kind, every, **choices)) for kind, every in kinds)
    num_products = 6 if config_of(**choices).activation == "swiglu" else 5
    assert all(run[0].num_products() == 4 * num_products for run in (none, selective, full, some))
    assert selective[1].num_products() == none[1].num_products()
    assert full[1].num_products() == none[1].num_products() + 4 * (num_products - 1)
    assert some[1].num_products() == none[1].num_products() + 2 * (num_products - 1)  # layers 0 and 3
    is_layernorm = choices.get("norm") == "layernorm"
    norm = "aten::native_layer_norm" if is_layernorm else "aten::rsqrt"
    assert [run[1].counts[norm] for run in (none, selective, full, some)] == [0, 8, 8, 4]


@pytest.mark.parametrize("choices", CHOICES)
def test_what_is_kept(choices: dict[str, Any]) -> None:
    """In values a token: selective what the module's table says, full one x a layer, none much more."""
    config = config_of(**choices)
    kinds: list[Recompute] = ["none", "selective", "full"]
    none, selective, full = (step(layers_of(kind, **choices))[2] for kind in kinds)
    width, kv_width = config.hidden_size, config.kv_heads * config.head_size
    num_wide = 2 if config.activation == "swiglu" else 1  # gate and up
    a_layer = 2 * width + (width + 2 * kv_width) + width + num_wide * config.ffn_size
    assert selective == pytest.approx(4 * a_layer - width, rel=0.02)  # the first x is the stage's input
    assert full == pytest.approx(3 * width, rel=0.1)
    assert none > 1.5 * selective


def test_predictions_keep_nothing() -> None:
    model = layers_of("selective")
    with torch.no_grad(), Ops() as forward:
        y = model(torch.zeros(2, 32, 64, dtype=torch.float64))
    assert forward.bytes_held(excluded=[y, *model.parameters()]) == 0


def gathers_of_ranks(sequence_parallel: bool) -> list[tuple[bool, int, int, float]]:
    """On tensor-parallel ranks, for each kind: whether the gradients are none's, gathers and products of the backward,
    held."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    axis = TensorAxis.of(mesh, sequence_parallel)
    config = config_of()
    found = []
    expected: list[Tensor] = []
    kinds: list[Recompute] = ["none", "selective", "full"]
    for kind in kinds:
        with torch.device("meta"):
            model = GPT(config, Stage(1, range(config.num_layers), False, False), axis, kind)
        distribute(model, part_specs(config), mesh, sequence_parallel)
        model = model.double().to_empty(device="cpu")
        init_parameters(dict(model.named_parameters()), config, seed=3)
        x = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        with Ops() as forward:
            y = model(x[:, axis.own_tokens(32)])
        dist.barrier(mesh.get_group())  # gloo's worker lets a tensor go when it begins the next exchange
        local = [parameter.to_local() for parameter in model.parameters() if isinstance(parameter, DTensor)]
        held = forward.bytes_held(excluded=[y, *local]) / (2 * 32 * 8)
        with Ops() as backward:
            y.square().sum().backward()
        gradients = [
            parameter.grad.to_local() for parameter in model.parameters() if isinstance(parameter.grad, DTensor)
        ]
        expected = expected or gradients
        equal = len(gradients) == len(local) and all(map(torch.equal, gradients, expected))
        gathers = backward.counts["_c10d_functional::all_gather_into_tensor"]
        found.append((equal, gathers, backward.num_products(), held))
    return found


@pytest.mark.parametrize("sequence_parallel", [True, pytest.param(False, marks=pytest.mark.long)])
def test_on_tensor_parallel_ranks(sequence_parallel: bool) -> None:
    """Gradients are none's bit for bit; each gathers the tokens again once, repeats no product, and keeps a rank's
    share."""
    kinds: list[Recompute] = ["none", "selective"]
    (none, selective, full), other = reused_ranks(gathers_of_ranks, 2, sequence_parallel)
    assert other == [none, selective, full]
    assert none[0] and selective[0] and full[0]
    again = 8 if sequence_parallel else 0  # into qkv, and into gate and up, of four layers; as many gradients
    assert [none[1], selective[1], full[1]] == [2 * again] * 3
    assert [none[2], selective[2], full[2]] == [40, 40, 60]  # 5 more in the backward of each layer
    for (_, _, _, held), kind in zip((none, selective), kinds, strict=True):
        assert held < (0.55 if sequence_parallel else 0.7) * step(layers_of(kind))[2]
