"""The tables of operations: their FLOPs against what torch counts, their bytes against what the docstring says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from pretrain.config import ModelConfig
from pretrain.model import GPT
from pretrain.workload import megatron_operations, operations
from pretrain.workload.framework_profiles import MEGATRON_2021
from pretrain.workload.operations import Operation, Shape
from tests.pretrain.plan.layouts import config
from tests.pretrain.tiny import tiny_config


def flops(work: tuple[Operation, ...]) -> float:
    """Of the products with weights."""
    return sum(one.flops for one in work if one.name not in ("attention", "attention backward"))


def shape(
    model: ModelConfig, samples: int = 2, tensor: int = 1, item: int = 2, token_ranks: int = 1, **more: bool
) -> Shape:
    """Of a micro-batch of whole windows."""
    return Shape(model, samples * model.sequence_length, tensor, token_ranks, item, samples, **more)


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_products_are_those_that_torch_runs(activation: str, kv_heads: int | None) -> None:
    model = tiny_config(model={"activation": activation, "num_kv_heads": kv_heads}).model
    part = GPT(model)
    tokens = torch.zeros(2, model.sequence_length, dtype=torch.long)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter)
    with FlopCounterMode(display=False) as forward:
        loss = part.cross_entropy_sum(part(tokens), tokens)
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(loss)
    own = shape(model)
    layer, head = operations.layer(own), operations.head(own)

    def counted(mode: FlopCounterMode) -> int:
        return sum(number for op, number in mode.get_flop_counts()["Global"].items() if "mm" in str(op))

    assert model.num_layers * flops(layer.forward) + flops(head.forward) == counted(forward)
    two_halves = (*layer.inputs, *layer.weights)
    assert model.num_layers * flops(two_halves) + flops((*head.inputs, *head.weights)) == counted(backward)


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that compute, and those that make views."""

    VIEWS = tuple("view transpose t slice select unsqueeze expand detach split as_strided permute unbind alias".split())

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = self.views = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.split(".")[0].removeprefix("_unsafe_")
        self.views += name in self.VIEWS
        self.kernels += name not in self.VIEWS
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "shaped", [{}, {"activation": "gelu", "norm": "layernorm", "positions": "learned", "bias": True}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_are_as_many_as_torch_runs(shaped: dict[str, Any], dtype: torch.dtype) -> None:
    """Of a layer: what a model of two has more than one of one. Views are nearly as many (`machine.VIEWS`)."""

    def counted(num_layers: int) -> tuple[Counting, Counting]:
        model = tiny_config(model=shaped | {"num_layers": num_layers}).model
        part, tokens = GPT(model).to(dtype), torch.zeros(2, model.sequence_length, dtype=torch.long)
        with Counting() as forward:
            loss = part.cross_entropy_sum(part(tokens), tokens)
        with Counting() as backward:
            torch.autograd.backward(loss)
        return forward, backward

    of_layer = [
        (two.kernels - one.kernels, two.views - one.views) for one, two in zip(counted(1), counted(2), strict=True)
    ]
    model = tiny_config(model=shaped).model
    own = operations.layer(shape(model, item=dtype.itemsize, on_cpu=True))
    table = [sum(one.kernels for one in part) for part in (own.forward, (*own.inputs, *own.weights))]
    assert table == pytest.approx([kernels for kernels, _ in of_layer], rel=0.15, abs=6)
    assert sum(views for _, views in of_layer) == pytest.approx(sum(table), rel=0.35, abs=40)


def test_a_loss_in_chunks_multiplies_once_more() -> None:
    """And only where there are many logits."""
    model = config().model
    dense, chunked = (operations.head(shape(model, loss_in_chunks=each)) for each in (False, True))
    flops = [sum(one.flops for part in work for one in part) for work in (dense, chunked)]
    assert flops[1] == pytest.approx(4 / 3 * flops[0])


def test_attention_sees_half_and_computes_scores_again() -> None:
    model = config().model
    own = {one.name: one for one in (*operations.layer(shape(model)).forward, *operations.layer(shape(model)).inputs)}
    tokens, width, window = 2 * model.sequence_length, model.hidden_size, model.sequence_length
    assert own["attention"].flops == 2 * tokens * width * window  # 4, of the half that a token sees
    assert own["attention backward"].flops == 2.5 * own["attention"].flops
    masked = {one.name: one for one in operations.layer(shape(model, backend="dense")).forward}
    assert masked["attention"].flops == 2 * own["attention"].flops
    assert masked["attention"].rate < own["attention"].rate
    assert masked["mask"].bytes == 1.5 * 2 * tokens * window


def test_tensor_parallel_ranks_share_products_and_with_sequence_parallelism_norms() -> None:
    model = config().model
    alone, shared = operations.layer(shape(model)), operations.layer(shape(model, tensor=4))
    split = operations.layer(shape(model, tensor=4, token_ranks=4))
    for name in ("qkv", "attention", "attention out", "up", "down"):
        by_name = [{one.name: one for one in work.forward} for work in (alone, shared, split)]
        assert by_name[0][name].flops == 4 * by_name[1][name].flops == 4 * by_name[2][name].flops
    norms = [next(one for one in work.forward if one.name == "norm").bytes for work in (alone, shared, split)]
    assert norms[0] == norms[1] == 4 * norms[2]


def test_gelu_layer_in_bytes() -> None:
    """The table of the module, for h = 2048, T = 2048 and two bytes."""
    model = config().model
    tokens, hidden = 2 * model.sequence_length, model.hidden_size
    moved = {one.name: one.bytes for one in operations.layer(shape(model)).forward if not one.flops}
    assert moved == {"norm": 4 * tokens * hidden, "residual": 6 * tokens * hidden, "gelu": 4 * tokens * 4 * hidden}
    back = {one.name: one.bytes for one in operations.layer(shape(model)).inputs if not one.flops}
    assert back["qkv gradients"] == 11 * 2 * tokens * 3 * hidden
    assert back["bias gradients"] == 2 * tokens * (3 + 1 + 4 + 1) * hidden


def test_rotary_positions_of_both_precisions() -> None:
    model = config({"positions": "rope"}).model
    numbers = 2 * model.sequence_length * 2 * model.hidden_size
    for item, each in ((2, 2 * 6 + 36), (4, 36)):
        (rotary,) = (one for one in operations.layer(shape(model, item=item)).forward if one.name == "rotary")
        assert rotary.bytes == each * numbers
    (fused,) = (one for one in operations.layer(shape(model, is_compiled=True)).forward if one.name == "rotary")
    assert fused.bytes == 4 * numbers


def test_swiglu_compiled_is_one_kernel() -> None:
    model = config({"activation": "swiglu"}).model
    eager, fused = (
        {one.name: one for one in operations.layer(shape(model, is_compiled=is_compiled)).forward}["swiglu"]
        for is_compiled in (False, True)
    )
    numbers = 2 * model.sequence_length * model.ffn_size
    assert (eager.bytes, eager.kernels) == (10 * numbers, 2)
    assert (fused.bytes, fused.kernels) == (6 * numbers, 1)


def test_tokens_are_put_in_order_where_a_micro_batch_has_several_samples() -> None:
    model = config().model
    names = [
        {one.name for one in operations.layer(shape(model, samples, tensor=4, token_ranks=token_ranks)).forward}
        for samples, token_ranks in ((2, 4), (1, 4), (2, 1))
    ]
    assert ["order of tokens" in each for each in names] == [True, False, False]


def test_embedding_and_head() -> None:
    model = config({"tied": True}).model
    own, apart = operations.embedding(shape(model)), operations.embedding(shape(config({"tied": False}).model))
    table = model.padded_vocab_size * model.hidden_size
    assert own.weights[0].bytes - apart.weights[0].bytes == 2 * 3 * table  # both gradients of it become one
    tokens = 2 * model.sequence_length
    loss = next(one for one in operations.head(shape(model)).forward if one.name == "loss")
    assert loss.bytes == (3 * 2 + 2 * 4) * tokens * model.padded_vocab_size


def test_megatron_layer_is_24_b_s_h_squared() -> None:
    """FACTS 3.2: a layer's forward is 24 B S h^2 (1 + S / 6h), and its backward twice that."""
    model = config().model
    hidden, window = model.hidden_size, model.sequence_length
    work = megatron_operations.layer(shape(model), MEGATRON_2021)
    expected = 24 * 2 * window * hidden**2 * (1 + window / (6 * hidden))
    assert sum(one.flops for one in work.forward) == pytest.approx(expected)
    assert sum(one.flops for one in (*work.inputs, *work.weights)) == pytest.approx(2 * expected)
