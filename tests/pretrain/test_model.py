"""The model against a slow reference written from the formulas, and the promises of its masks and its table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pretrain.config import ModelConfig
from pretrain.data import IGNORED_TARGET, positions
from pretrain.model.gpt import (
    GPT,
    Attention,
    rotary_angles,
    rotate,
)
from pretrain.model.layers import Linear
from pretrain.model.masks import dense_mask, visible
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.params import num_matmul_parameters, num_parameters, param_specs
from pretrain.parallel.base.tensor import ALONE
from tests.pretrain.models import CHOICES, build, dense_loss, small, some_tokens
from tests.pretrain.tiny import tiny_loader


@pytest.mark.parametrize("choices", CHOICES)
def test_the_table_is_the_models_parameters(choices: dict[str, Any]) -> None:
    config = small(**choices)
    with torch.device("meta"):
        model = GPT(config)
    table = {spec.name: spec.shape for spec in param_specs(config)}
    assert table == {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert num_parameters(config) == sum(parameter.numel() for parameter in model.parameters())
    matrices = sum(m.weight.numel() for m in model.modules() if isinstance(m, Linear))
    assert num_matmul_parameters(config) == matrices  # the head is a Linear, tied or not
    assert not list(model.buffers())


@pytest.mark.parametrize("choices", CHOICES)
def test_a_token_never_sees_the_future(choices: dict[str, Any]) -> None:
    model, tokens = build(small(**choices)), some_tokens()
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 120
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=1e-5)
    assert not torch.allclose(before[:, 7:, :120], after[:, 7:, :120], atol=1e-2)


@pytest.mark.parametrize("choices", CHOICES)
def test_masked_documents_are_as_if_alone(choices: dict[str, Any]) -> None:
    model, tokens = build(small(**choices)), some_tokens(1)
    document_ids = torch.tensor([[0] * 5 + [1] * 7])
    with torch.no_grad():
        together, first = model(tokens, document_ids), model(tokens[:, :5])
        torch.testing.assert_close(together[:, :5], first, rtol=0, atol=1e-5)
        if model.config.positions == "rope":  # only distances count
            second = model(tokens[:, 5:])
            torch.testing.assert_close(together[:, 5:], second, rtol=0, atol=1e-4)


@pytest.mark.parametrize("choices", CHOICES)
def test_a_masked_document_with_positions_of_its_own_is_as_if_alone(choices: dict[str, Any]) -> None:
    """Learned positions too: the second document begins at position 0 again."""
    model, tokens = build(small(**choices)), some_tokens(1)
    ids = torch.tensor([[0] * 5 + [1] * 7], dtype=torch.int32)
    reset = torch.from_numpy(positions(ids.numpy()))
    with torch.no_grad():
        together = model(tokens, ids, None, reset)
        torch.testing.assert_close(together[:, :5], model(tokens[:, :5]), rtol=0, atol=1e-5)
        torch.testing.assert_close(together[:, 5:], model(tokens[:, 5:]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("choices", CHOICES)
def test_positions_say_where_a_token_stands_not_whom_it_sees(choices: dict[str, Any]) -> None:
    model, tokens = build(small(**choices)), some_tokens(1)
    with torch.no_grad():
        plain, reset = (model(tokens, None, None, p) for p in (torch.arange(12)[None], torch.arange(12)[None] % 5))
        torch.testing.assert_close(plain, model(tokens), rtol=0, atol=1e-5)
        assert not torch.allclose(reset[:, 6:, :120], plain[:, 6:, :120], atol=1e-3)


def test_a_prefix_sees_itself_both_ways() -> None:
    model, tokens = build(small()), some_tokens(2)
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 120
    ends = torch.tensor([[4] * 12, [2] * 12], dtype=torch.int32)
    with torch.no_grad():
        before, after = (model(t, None, ends) for t in (tokens, changed))
    assert not torch.allclose(before[0, 0, :120], after[0, 0, :120], atol=1e-3)  # inside the prefix of 4
    torch.testing.assert_close(before[1, :3], after[1, :3])  # outside the prefix of 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=2, max_size=9))
def test_the_dense_mask_is_visible_pair_by_pair(places: list[tuple[int, int]]) -> None:
    """Against the rule in words, for any documents and any prefix end of any token."""
    documents, ends = (list(column) for column in zip(*places, strict=True))
    mask = dense_mask(torch.arange(len(places)), torch.tensor([documents]), torch.tensor([ends]))
    assert mask is not None
    for q in range(len(places)):
        for k in range(len(places)):
            allowed = (k <= q or k < ends[q]) and documents[q] == documents[k]
            assert bool(mask[0, q, k]) is allowed
    assert bool(visible(torch.tensor(1), torch.tensor(0), None, None))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=2, max_size=9), st.booleans())
def test_the_mask_of_branches_pair_by_pair(places: list[tuple[int, int]], has_documents: bool) -> None:
    """A place sees those before it, of its own branch and of the trunk, and of its own document."""
    branches, documents = (list(column) for column in zip(*places, strict=True))
    ids = torch.tensor([documents]) if has_documents else None
    mask = dense_mask(torch.arange(len(places)), ids, None, torch.tensor([branches]))
    assert mask is not None
    for q in range(len(places)):
        for k in range(len(places)):
            allowed = k <= q and branches[k] in (0, branches[q]) and (not has_documents or documents[q] == documents[k])
            assert bool(mask[0, q, k]) is allowed


@pytest.mark.parametrize("choices", CHOICES)
def test_a_branch_sees_the_trunk_and_itself(choices: dict[str, Any]) -> None:
    """Each is as if it were alone behind the trunk, and what another says changes nothing."""
    model, tokens = build(small(**choices)), some_tokens()
    branches = torch.tensor([[0] * 5 + [1] * 4 + [2] * 3]).expand(2, -1)
    places = torch.tensor([[*range(5), *range(5, 9), *range(5, 8)]]).expand(2, -1)
    changed = tokens.clone()
    changed[:, 5:9] = (changed[:, 5:9] + 1) % 120
    with torch.no_grad():
        together, other = (model(t, None, None, places, branches) for t in (tokens, changed))
        first, second = model(tokens[:, :9]), model(torch.cat((tokens[:, :5], tokens[:, 9:]), dim=1))
    torch.testing.assert_close(together[:, :9], first, rtol=0, atol=1e-5)
    torch.testing.assert_close(together[:, 9:], second[:, 5:], rtol=0, atol=1e-5)
    assert torch.equal(together[:, :5], other[:, :5]) and torch.equal(together[:, 9:], other[:, 9:])
    assert not torch.allclose(together[:, 5:9, :120], other[:, 5:9, :120], atol=1e-2)


@pytest.mark.parametrize("document_mask", [False, True])
@pytest.mark.parametrize("choices", CHOICES)
def test_a_prefix_model_never_sees_a_target(choices: dict[str, Any], document_mask: bool) -> None:
    """What a logit that counts depends on, by its gradient: nothing to its right; inside a prefix, the right too."""
    batch = tiny_loader(12, document_mask=document_mask, prefix_lm=True).batch(0, 6)
    model = build(small(**choices, vocab_size=250, padded_vocab_size=256))
    ids = torch.from_numpy(batch.document_ids) if document_mask else None
    assert batch.prefix_ends is not None and model.embedding is not None
    inputs = model.embedding(torch.from_numpy(batch.tokens)).detach().requires_grad_()
    model.embedding = None
    logits = model(inputs, ids, torch.from_numpy(batch.prefix_ends))[..., :250]
    num_counted = num_inside = 0
    for row, place in np.ndindex(6, 11):
        (gradient,) = torch.autograd.grad(logits[row, place].square().sum(), inputs, retain_graph=True)
        looks_ahead = bool(gradient[row, place + 1 :].any())
        if batch.targets[row, place] >= 0:
            assert not looks_ahead
            num_counted += 1
        elif not document_mask or batch.document_ids[row, place] == batch.document_ids[row, place + 1]:
            assert bool(gradient[row, place + 1].any())
            num_inside += 1
        assert not gradient[np.arange(6) != row].any()
    assert num_counted > 5 and num_inside > 5


def reference_attention(layer: Attention, x: Tensor, config: ModelConfig) -> Tensor:
    """Loops over samples, heads and positions; qkv rows are (kv head, group queries then key then value, channel)."""
    size, group = config.head_size, config.num_heads // config.kv_heads
    rows = layer.qkv.weight.view(config.kv_heads, group + 2, size, -1)
    outputs = []
    for sample in x:
        heads = []
        for head in range(config.num_heads):
            kv = rows[head // group]
            q, k, v = (sample @ matrix.T for matrix in (kv[head % group], kv[-2], kv[-1]))
            q, k = (_turn(t, config) for t in (q, k))
            mixed = []
            for position in range(len(sample)):
                weights = torch.softmax(k[: position + 1] @ q[position] / math.sqrt(size), dim=0)
                mixed.append(weights @ v[: position + 1])
            heads.append(torch.stack(mixed))
        outputs.append(torch.cat(heads, dim=1) @ layer.out.weight.T)
    return torch.stack(outputs)


def _turn(x: Tensor, config: ModelConfig) -> Tensor:
    """Multiply channel i + j (i + K/2) of position t, as a complex number, by exp(j t base^(-2 i / K))."""
    half = config.head_size // 2
    positions = torch.arange(len(x), dtype=torch.float64)[:, None]
    angle = positions * config.rope_base ** (-torch.arange(half, dtype=torch.float64) * 2 / config.head_size)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=1).float()


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_attention_is_the_formula(num_kv_heads: int) -> None:
    config = small(num_kv_heads=num_kv_heads)
    layer = build(config).layers["0"].attention
    assert isinstance(layer, Attention)
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = reference_attention(layer, x, config)
        found = layer(x, rotary_angles(torch.arange(7)[None], config), None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert expected.abs().max() > 1e-2


def test_padding_entries_have_no_probability_and_no_gradient() -> None:
    model, tokens = build(small(tied=False)), some_tokens()
    logits = model(tokens)
    assert torch.isneginf(logits[..., 120:]).all()
    assert torch.isfinite(logits[..., :120]).all()
    ALONE.loss_sum(logits, tokens).backward()  # type: ignore[no-untyped-call]
    assert model.head is not None and model.head.weight.grad is not None
    assert not model.head.weight.grad[120:].any()
    assert model.head.weight.grad[:120].any()


def test_the_loss_is_a_sum_over_targets_that_count() -> None:
    logits = torch.zeros(1, 3, 128)
    targets = torch.tensor([[5, IGNORED_TARGET, 9]])
    assert ALONE.loss_sum(logits, targets).item() == pytest.approx(2 * math.log(128), rel=1e-6)


def test_tied_weights_are_one_parameter() -> None:
    model = build(small(tied=True))
    assert model.head is not None and model.embedding is not None
    assert model.head.weight is model.embedding.weight
    assert "head.weight" not in dict(model.named_parameters())


def test_more_tokens_than_learned_positions_are_refused() -> None:
    model = build(small(positions="learned"))
    with pytest.raises(ValueError, match="positions are learned for 12"):
        model(some_tokens(1, 13))
    assert build(small())(some_tokens(1, 13)).shape == (1, 13, 128)


@pytest.mark.parametrize("choices", CHOICES)
def test_double_precision_is_double_throughout(choices: dict[str, Any]) -> None:
    """fp64 serves to compare layouts: were a step on the way rounded to fp32, this would differ in the eighth digit."""
    config = small(**choices)
    exact, tokens = build(config).double(), some_tokens()
    exact.tie()
    logits = exact(tokens)
    loss = ALONE.loss_sum(logits, tokens)
    assert (logits.dtype, loss.dtype) == (torch.float64, torch.float64)
    loss.backward()  # type: ignore[no-untyped-call]
    step = 1e-6  # against the difference quotient, which rounding to fp32 would drown
    parameter = dict(exact.named_parameters())["layers.0.attention.qkv.weight"]
    assert parameter.grad is not None
    moved = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter[3, 5] += sign * step
            moved.append(ALONE.loss_sum(exact(tokens), tokens).item())
            parameter[3, 5] -= sign * step
    assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(parameter.grad[3, 5].item(), rel=1e-6, abs=1e-7)


def test_angles_and_loss_have_fp32_at_least() -> None:
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        cosines, _ = rotary_angles(torch.arange(7)[None], small(), dtype)
        assert cosines.dtype == expected
        assert rotate(torch.ones(1, 7, 4, 8, dtype=dtype), (cosines, cosines)).dtype == dtype
        assert ALONE.loss_sum(torch.zeros(1, 2, 128, dtype=dtype), torch.tensor([[1, 2]])).dtype == expected


def test_the_models_loss_is_the_dense_one() -> None:
    model, tokens = build(small()), some_tokens()
    targets = tokens.masked_fill(torch.arange(12) % 3 == 0, IGNORED_TARGET)
    logits = model(tokens)
    torch.testing.assert_close(model.loss_sum(logits, targets), dense_loss(logits, targets), rtol=1e-6, atol=0)


@pytest.mark.parametrize("place", [0, 7, -1])
def test_logits_of_one_place_cost_one_product_with_the_head(place: int) -> None:
    model, tokens = build(small()), some_tokens()
    with torch.no_grad(), FlopCounterMode(display=False) as of_all:
        expected = model(tokens)[:, [place]]
    with torch.no_grad(), FlopCounterMode(display=False) as of_one:
        found = model(tokens, rows_N=torch.arange(len(tokens)) * 12 + place % 12)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    num_others = tokens.numel() - len(tokens)
    assert of_all.get_total_flops() - of_one.get_total_flops() == 2 * num_others * 32 * 128


@pytest.mark.parametrize("choices", CHOICES)
def test_losses_of_tokens_are_those_of_their_targets_and_cost_no_other_logits(choices: dict[str, Any]) -> None:
    model, tokens = build(small(**choices)), some_tokens()
    targets = tokens.roll(-1, dims=1).masked_fill(torch.arange(12) % 3 != 1, IGNORED_TARGET)
    batch = MicroBatch(tokens, targets, None, None, None, 8)
    with torch.no_grad(), FlopCounterMode(display=False) as of_all:
        logits = model(tokens)
    with torch.no_grad(), FlopCounterMode(display=False) as of_some:
        losses = model.token_losses(batch)
    dense = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_TARGET, reduction="none")
    assert losses.shape == targets.shape and losses.dtype == torch.float32
    torch.testing.assert_close(losses.flatten(), dense, rtol=1e-5, atol=1e-5)
    assert not losses[targets == IGNORED_TARGET].any()
    num_without = int((targets == IGNORED_TARGET).sum())
    assert of_all.get_total_flops() - of_some.get_total_flops() == 2 * num_without * 32 * 128


def test_a_batch_without_targets_costs_nothing() -> None:
    """Ranks that ask together ask for one, where another has questions left."""
    model, tokens = build(small()), some_tokens()
    losses = model.token_losses(MicroBatch(tokens, torch.full_like(tokens, IGNORED_TARGET), None, None, None, 0))
    assert losses.shape == tokens.shape and not losses.any()


def test_chosen_rows_are_numbered_sample_after_sample() -> None:
    model, tokens = build(small()), some_tokens(3)
    rows = torch.tensor([0, 11, 12, 30])
    with torch.no_grad():
        found, whole = model(tokens, rows_N=rows), model(tokens)
    assert found.shape == (4, 1, 128)
    torch.testing.assert_close(found[:, 0], whole.flatten(0, 1)[rows], rtol=1e-5, atol=1e-6)


def test_parts_removed_leave_names_and_the_rest() -> None:
    model = build(small())
    model.embedding = model.head = model.final_norm = None
    del model.layers["0"]
    assert {name.split(".")[1] for name, _ in model.named_parameters()} == {"1"}
    assert model(torch.randn(2, 12, 32)).shape == (2, 12, 32)
