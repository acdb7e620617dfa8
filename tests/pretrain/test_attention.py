"""Every back-end of attention against a dense mask of the one definition: outputs, gradients, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention, varlen
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

from pretrain.attention_backend import choose_backend
from pretrain.model import attention, gpt
from pretrain.model.attention import (
    Attend,
    Blocks,
    Causal,
    Dense,
    Flex,
    Parts,
    attention_for,
    block_mask_of,
    blocks_of,
    runs_of,
    varlen_of,
)
from pretrain.model.attention_mask import Visibility
from pretrain.parallel.engine.compose import _compile_blocks
from tests.pretrain.models import build, small, some_tokens

LIMIT = 1e-12  # of float64, relative to the largest, or to 1


def marks(*rows: list[tuple[int, int, int]]) -> Tensor:
    """Of windows of runs of (length, document or branch, prefix end): int32 [2, B, T]."""
    spread = [[[mark] * length for length, *both in row for mark in [both]] for row in rows]
    return torch.tensor([[mark for run in row for mark in run] for row in spread], dtype=torch.int32).permute(2, 0, 1)


DOCUMENTS = marks([(5, 0, 0), (9, 1, 0), (6, 2, 0)], [(1, 0, 0), (17, 1, 0), (2, 2, 0)])[0]
ONE_TOKEN = torch.arange(20, dtype=torch.int32).expand(2, -1)
BOTH = marks([(5, 0, 2), (9, 1, 14), (6, 2, 14)], [(1, 0, 5), (17, 1, 9), (2, 2, 18)])
AGAIN = marks([(5, 0, 0), (9, 1, 0), (6, 0, 0)], [(7, 3, 0), (7, 1, 0), (6, 3, 0)])[0]
PADDED = marks([(12, 0, 7), (8, 0, 0)], [(20, 0, 3)])[1]  # as `Pipeline.last_logits` pads prefixes
BRANCHES = marks([(8, 0, 0), (7, 1, 0), (5, 2, 0)], [(3, 0, 0), (9, 1, 0), (8, 2, 0)])[0]
UNEVEN = torch.arange(20, dtype=torch.int32).flip(0).expand(2, -1)  # another end at each place

CASES: dict[str, tuple[Visibility, type[Attend]]] = {
    "documents": (Visibility(DOCUMENTS), Parts),
    "documents of one token": (Visibility(ONE_TOKEN), Parts),
    "one document": (Visibility(torch.zeros_like(ONE_TOKEN)), Parts),
    "prefixes": (Visibility(None, marks([(20, 0, 7)], [(20, 0, 19)])[1]), Parts),
    "empty prefix": (Visibility(None, torch.zeros_like(ONE_TOKEN)), Parts),
    "prefix of one token": (Visibility(None, torch.ones_like(ONE_TOKEN)), Parts),
    "prefix of the whole window, and beyond": (Visibility(None, marks([(20, 0, 20)], [(20, 0, 31)])[1]), Parts),
    "padded prefix": (Visibility(None, PADDED), Parts),
    "documents and prefixes": (Visibility(*BOTH), Parts),
    "a document in two pieces": (Visibility(AGAIN), Blocks),
    "pieces and prefixes": (Visibility(AGAIN, BOTH[1]), Blocks),
    "an end at each place": (Visibility(None, UNEVEN), Blocks),
    "a prefix that grows": (Visibility(None, marks([(12, 0, 7), (8, 0, 18)], [(20, 0, 3)])[1]), Blocks),
    "branches": (Visibility(None, None, BRANCHES), Blocks),
    "documents and branches": (Visibility(DOCUMENTS, None, BRANCHES), Blocks),
}


def dense_of(visibility: Visibility) -> Dense:
    shape = visibility.shape
    assert shape is not None
    return Dense(visibility.mask(range(shape[0]), range(shape[1]), range(shape[1])))


def queries_keys_values(num_samples: int, num_tokens: int, groups: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """[B, 4, T, 16] and twice [B, G, T, 16], as the layers have them: views of [B, T, heads, 16]."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(num_samples, num_tokens, heads, 16) for heads in (4, groups, groups)]
    return tuple(
        torch.randn(shape, generator=generator, dtype=dtype).transpose(1, 2).requires_grad_() for shape in shapes
    )


def with_gradients(attend: Attend, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The output, and the gradients of a sum with weights that are not alike."""
    y = attend(*inputs)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    return y, *torch.autograd.grad((y * weights).sum(), inputs)


def assert_alike(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], limit: float = LIMIT) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).detach().abs().max()) <= limit * max(1.0, float(other.detach().abs().max()))


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("name", CASES)
def test_parts_are_the_dense_mask_in_outputs_and_gradients(name: str, groups: int) -> None:
    visibility, expected = CASES[name]
    inputs = queries_keys_values(2, 20, groups, torch.float64)
    attend = attention_for(visibility, inputs[0], 16, is_compiled=False)
    assert isinstance(attend, expected)
    assert_alike(with_gradients(attend, inputs), with_gradients(dense_of(visibility), inputs))


def test_blocks_read_no_more_keys_than_their_rows_see() -> None:
    with mock.patch("pretrain.model.attention.BLOCK_ROWS", 6):
        for name, (visibility, _) in CASES.items():
            blocks = blocks_of(visibility)
            inputs = queries_keys_values(2, 20, 2, torch.float64)
            found = with_gradients(Blocks(visibility, blocks), inputs)
            assert_alike(found, with_gradients(dense_of(visibility), inputs))
            if visibility.branches_BT is not None or name == "pieces and prefixes":  # gaps may lie at the end
                continue
            for b, of_window in enumerate(blocks):
                for rows, keys in of_window:
                    seen = visibility.mask(range(b, b + 1), rows, range(20))[0].any(0).nonzero()
                    assert (int(seen.min()), int(seen.max()) + 1) == (keys.start, keys.stop), name


# -------------------------------------------------------------------------------------------------------------- flex


@pytest.mark.parametrize("name", CASES)
def test_the_mask_of_flex_attention_is_the_dense_one_pair_by_pair(name: str) -> None:
    visibility = CASES[name][0]
    mask_mod = block_mask_of(visibility).mask_mod
    dense = dense_of(visibility).mask_BTP
    assert dense is not None
    place = partial(torch.tensor, dtype=torch.int64)
    for b in range(2):
        for q in range(20):
            found = [bool(mask_mod(place(b), place(0), place(q), place(k))) for k in range(20)]
            assert found == dense[b, q].tolist()


@pytest.mark.parametrize("num_tokens", [128, 300, 1100])
def test_blocks_of_flex_attention_are_those_of_create_block_mask(num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(1)
    ids = (torch.rand(2, num_tokens, generator=generator) < 0.01).cumsum(1)
    ends = (torch.rand(2, num_tokens, generator=generator) * num_tokens).int()
    for visibility in (Visibility(ids), Visibility(ids, ends), Visibility(None, None, ids)):
        ours = block_mask_of(visibility)
        theirs = create_block_mask(ours.mask_mod, 2, 1, num_tokens, num_tokens, device="cpu")
        assert ours.shape == theirs.shape and ours.seq_lengths == theirs.seq_lengths
        for kind in ("kv", "full_kv", "q", "full_q"):
            number, other = (getattr(mask, f"{kind}_num_blocks") for mask in (ours, theirs))
            order, other_order = (getattr(mask, f"{kind}_indices") for mask in (ours, theirs))
            is_used = torch.arange(order.shape[-1]) < number[..., None]
            assert torch.equal(number, other) and torch.equal(order * is_used, other_order * is_used), kind


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", CASES)
def test_flex_attention_is_the_dense_mask(name: str) -> None:
    visibility = CASES[name][0]
    inputs = tuple(x.detach() for x in queries_keys_values(2, 20, 2, torch.float64))
    flex, dense = Flex(block_mask_of(visibility)), dense_of(visibility)
    assert_alike((flex(*inputs),), (dense(*inputs),))


# ------------------------------------------------------------------------------------------------------------ varlen


def _of_documents(cu_seqlens: Tensor, *tensors: Tensor) -> Iterator[list[Tensor]]:
    """Tensors [B x T, H, K] as [1, H, length, K] of each document."""
    parts = [torch.split(tensor, cu_seqlens.diff().tolist()) for tensor in tensors]
    for part in zip(*parts, strict=True):
        yield [x.transpose(0, 1)[None] for x in part]


def _forward(query: Tensor, key: Tensor, value: Tensor, cuts: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What `_varlen_attn` gives, on a CPU: it goes through the cuts. Causal; `rest` as in any torch."""
    assert torch.equal(cuts, rest[0]) and rest[1] == rest[2] == int(cuts.diff().max()) and rest[3] is True
    group_size = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group_size, dim=1) for x in (key, value))
    found = [
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*part, 0.0, True)
        for part in _of_documents(cuts, query, key, value)
    ]
    y, log_sums = zip(*found, strict=True)
    return (
        torch.cat([x[0].transpose(0, 1) for x in y]).contiguous(),
        torch.cat([x[0] for x in log_sums], dim=1),
        torch.zeros(2, dtype=torch.uint64),
    )


def _backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sums: Tensor, cuts: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    group_size = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group_size, dim=1) for x in (key, value))
    of_parts = torch.split(log_sums, cuts.diff().tolist(), dim=1)
    found = [
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*part, of_part[None], 0.0, True)
        for part, of_part in zip(_of_documents(cuts, gradient, query, key, value, out), of_parts, strict=True)
    ]
    q, k, v = (torch.cat([x[0].transpose(0, 1) for x in parts]) for parts in zip(*found, strict=True))
    return q, *(x.view(len(x), -1, group_size, x.shape[-1]).sum(2) for x in (k, v))


@pytest.fixture(scope="module", autouse=True)
def varlen_on_a_cpu() -> None:
    """A CPU has no kernel for it; what is around it (autograd, tracing) is torch's own."""
    varlen._varlen_attn.register_kernel("cpu")(_forward)
    varlen._varlen_attn_backward.register_kernel("cpu")(_backward)


def test_cuts_are_where_documents_begin_in_all_windows_together() -> None:
    runs = runs_of(Visibility(DOCUMENTS))
    assert runs is not None
    found = varlen_of(runs, torch.device("cpu"))
    assert found.cu_seqlens.dtype == torch.int32 and found.longest == 17
    assert found.cu_seqlens.tolist() == [0, 5, 14, 20, 21, 38, 40]


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("name", ["documents", "documents of one token", "one document"])
@pytest.mark.parametrize("takes_groups", {False, attention._takes_groups})
def test_varlen_is_the_dense_mask(name: str, groups: int, takes_groups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the interface of torch 2.11, which takes no groups."""
    monkeypatch.setattr(attention, "_takes_groups", takes_groups)
    visibility = CASES[name][0]
    inputs = queries_keys_values(2, 20, groups, torch.float64)
    assert_alike(with_gradients(forced("varlen", visibility), inputs), with_gradients(dense_of(visibility), inputs))


# ------------------------------------------------------------------------------------------------- in the whole model


def forced(backend: str, visibility: Visibility, *_: Any) -> Attend:
    """A back-end that no rule chooses on a CPU."""
    if backend == "dense":
        return dense_of(visibility)
    if backend == "flex":
        return Flex(block_mask_of(visibility))
    runs = runs_of(visibility)
    assert runs is not None
    return varlen_of(runs, torch.device("cpu")) if backend == "varlen" else Parts(tuple(runs))


def loss_and_gradients(model: gpt.GPT, backend: str, *seen: Tensor | None) -> tuple[Tensor, ...]:
    tokens = some_tokens(2, 20)
    with mock.patch.object(gpt, "attention_for", partial(forced, backend)):
        loss = model.cross_entropy_sum(model(tokens, *seen), tokens)
    return loss, *torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("backend", ["varlen", "parts"])
def test_a_model_has_the_loss_and_gradients_of_the_dense_mask(backend: str, recompute: Any) -> None:
    model = build(small(num_kv_heads=2, sequence_length=20)).double()
    expected = loss_and_gradients(model, "dense", DOCUMENTS)
    for block in model.layers.values():
        block.recompute = recompute
    assert_alike(loss_and_gradients(model, backend, DOCUMENTS), expected)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("backend", "num_graphs"), [("varlen", 2), ("flex", 1)])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_compiled_blocks_keep_their_graph_when_documents_change(
    backend: str, num_graphs: int, recompute: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced forward and backward; varlen a second time, for numbers of documents that it has not seen."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)  # refuses a CPU's backward, which traces
    torch._dynamo.reset()
    plain, model = (build(small(num_kv_heads=2, hidden_size=64, sequence_length=20)) for _ in range(2))
    for block in model.layers.values():
        block.recompute = recompute
    with mock.patch.object(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True)):
        _compile_blocks(model)
    counters.clear()
    for length in (8, 5, 7, 3):  # of a document
        ids = torch.arange(40, dtype=torch.int32).view(2, 20) // length
        found, expected = loss_and_gradients(model, backend, ids), loss_and_gradients(plain, "dense", ids)
        assert_alike(found, expected, limit=1e-5)
    assert counters["stats"]["unique_graphs"] == num_graphs and not counters["graph_break"]


# --------------------------------------------------------------------------------------------- what is held, and chosen


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most numbers that a tensor has, of all that operators make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("name", ["documents", "prefixes", "documents and prefixes", "branches", "blocks of flex"])
def test_no_tensor_of_all_pairs_of_a_long_window(name: str) -> None:
    num_tokens = 2304
    ids = (torch.arange(num_tokens) // 500)[None].int()
    ends = (torch.arange(num_tokens) // 500 * 500 + 300)[None].int()
    visibility = {
        "documents": Visibility(ids),
        "prefixes": Visibility(None, torch.full_like(ids, 1000)),
        "documents and prefixes": Visibility(ids, ends),
        "branches": Visibility(None, None, ids),
        "blocks of flex": Visibility(ids, ends),
    }[name]
    inputs = tuple(
        x.detach().requires_grad_(name != "branches") for x in queries_keys_values(1, num_tokens, 1, torch.float32)
    )
    work: Callable[[], object] = partial(block_mask_of, visibility)
    if name != "blocks of flex":
        attend = attention_for(visibility, inputs[0], 16, is_compiled=True)
        work = partial(attend, *inputs) if name == "branches" else partial(with_gradients, attend, inputs)
    with Largest() as largest:
        work()
    assert 0 < largest.numel < num_tokens**2 / 2
    with Largest() as largest:
        dense_of(visibility)
    assert largest.numel == num_tokens**2


def test_nothing_marked_is_plainly_causal() -> None:
    inputs = queries_keys_values(1, 9, 2, torch.float64)
    attend = attention_for(Visibility(), inputs[0], 16, is_compiled=False)
    assert isinstance(attend, Causal)
    expected = Dense(torch.ones(1, 9, 9, dtype=torch.bool).tril())
    assert_alike(with_gradients(attend, inputs), with_gradients(expected, inputs))


@pytest.mark.parametrize(
    ("backend", "marked", "device", "item", "num_tokens", "head_size", "options"),
    [
        ("causal", "none", "cuda", 2, 8192, 128, {}),
        ("varlen", "documents", "cuda", 2, 2049, 128, {}),
        ("dense", "documents", "cuda", 2, 2048, 128, {}),
        ("parts", "documents", "cuda", 4, 8192, 128, {}),
        ("parts", "documents", "cuda", 2, 8192, 100, {}),
        ("parts", "documents", "cuda", 2, 8192, 128, {"has_flash": False}),
        ("flex", "other", "cuda", 2, 8192, 128, {}),
        ("flex", "other", "cuda", 4, 8192, 128, {}),
        ("parts", "other", "cuda", 8, 8192, 128, {}),
        ("parts", "other", "cuda", 2, 8192, 128, {"is_training": False}),
        ("dense", "other", "cuda", 8, 2048, 128, {}),
        ("parts", "documents", "cpu", 4, 32, 8, {}),
        ("dense", "documents", "cpu", 4, 2048, 8, {"is_compiled": True}),
        ("parts", "other", "cpu", 4, 2049, 8, {"is_compiled": True}),
    ],
)
def test_a_back_end_for_each_device_and_shape(
    backend: str, marked: Any, device: str, item: int, num_tokens: int, head_size: int, options: dict[str, bool]
) -> None:
    choice = choose_backend(marked, device, item, num_tokens, head_size, **options)
    assert choice.backend == backend
    assert ("documents" in choice.reason) == (marked == "documents")
