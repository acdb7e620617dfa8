"""The model against a slow reference written from the formulas, and the promises of its masks and its table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pretrain.data import IGNORED_TARGET
from pretrain.model.attention_mask import Visibility
from pretrain.model.gpt import (
    GPT,
    rotary_angles,
    rotate,
)
from pretrain.model.layers import ColumnParallelLinear
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.params import num_matmul_parameters, num_parameters, param_specs
from pretrain.parallel.base.tensor import ALONE
from tests.pretrain.models import CHOICES, build, small, some_tokens
from tests.pretrain.tiny import tiny_loader


@pytest.mark.parametrize("choices", CHOICES)
def test_the_table_is_the_models_parameters(choices: dict[str, Any]) -> None:
    config = small(**choices)
    with torch.device("meta"):
        model = GPT(config)
    table = {spec.name: spec.shape for spec in param_specs(config)}
    assert table == {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert num_parameters(config) == sum(parameter.numel() for parameter in model.parameters())
    matrices = sum(m.weight.numel() for m in model.modules() if isinstance(m, ColumnParallelLinear))
    assert num_matmul_parameters(config) == matrices  # the head is a Linear, tied or not
    assert not list(model.buffers())


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 3)), min_size=2, max_size=9),
    st.sets(st.sampled_from(range(3)), min_size=1),
)
def test_the_dense_mask_is_visible_pair_by_pair(places: list[tuple[int, int, int]], given: set[int]) -> None:
    """Against the rule in words, for any documents, any prefix end of any token and any branches, and any of these."""
    columns = [list(column) for column in zip(*places, strict=True)]
    documents, ends, branches = columns
    visibility = Visibility(*(torch.tensor([c]) if n in given else None for n, c in enumerate(columns)))
    mask = visibility.mask(range(1), range(len(places)), range(len(places)))
    for q in range(len(places)):
        for k in range(len(places)):
            allowed = k <= q or (1 in given and k < ends[q])
            allowed &= 0 not in given or documents[q] == documents[k]
            allowed &= 2 not in given or branches[k] in (0, branches[q])
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


def test_padding_entries_have_no_probability_and_no_gradient() -> None:
    model, tokens = build(small(tied=False)), some_tokens()
    logits = model(tokens)
    assert torch.isneginf(logits[..., 120:]).all()
    assert torch.isfinite(logits[..., :120]).all()
    ALONE.cross_entropy_sum(logits, tokens).backward()  # type: ignore[no-untyped-call]
    assert model.head is not None and model.head.weight.grad is not None
    assert not model.head.weight.grad[120:].any()
    assert model.head.weight.grad[:120].any()


def test_more_tokens_than_learned_positions_are_refused() -> None:
    model = build(small(positions="learned"))
    with pytest.raises(ValueError, match="positions are learned for 12"):
        model(some_tokens(1, 13))
    assert build(small())(some_tokens(1, 13)).shape == (1, 13, 128)


def test_angles_and_loss_have_fp32_at_least() -> None:
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        cosines, _ = rotary_angles(torch.arange(7)[None], small(), dtype)
        assert cosines.dtype == expected
        assert rotate(torch.ones(1, 7, 4, 8, dtype=dtype), (cosines, cosines)).dtype == dtype
        assert ALONE.cross_entropy_sum(torch.zeros(1, 2, 128, dtype=dtype), torch.tensor([[1, 2]])).dtype == expected


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
