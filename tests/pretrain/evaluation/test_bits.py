"""Held-out bits: closed forms for models that can be computed by hand, and no token lost or scored twice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.data import IGNORED_TARGET
from pretrain.evaluation.bits import (
    Evaluation,
    HeldOut,
    evaluate,
    rank_batches,
    split_documents,
    together,
)
from pretrain.micro_batch import MicroBatch
from pretrain.parallel.tensor import ALONE
from pretrain.reading import Reading

EOD = 0
CPU = torch.device("cpu")


class Priced:
    """What a function from what `GPT.forward` takes to logits would lose."""

    def __init__(self, logits: Callable[..., torch.Tensor]) -> None:
        self.logits = logits

    def token_losses(self, batch: MicroBatch) -> torch.Tensor:
        return ALONE.losses(self.logits(*batch.inputs), batch.targets)


def reading(sequence_length: int = 4, **marks: bool) -> Reading:
    return Reading(sequence_length, EOD, **marks)


ANALECTS = ["学而时习之，不亦说乎？", "有朋自远方来，不亦乐乎？", "人不知而不愠，不亦君子乎？"]


def held_out_of(num_tokens: int, texts: list[str] | None = None) -> HeldOut:
    return HeldOut(np.arange(1, num_tokens + 1, dtype=np.uint16), texts or ["字" * num_tokens], EOD)


def uniform_over(vocabulary: int, model_size: int) -> torch.nn.Module:
    """Equal logits for `vocabulary` tokens, the padded rest masked."""

    class Uniform(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
            logits = torch.zeros(*tokens.shape, model_size)
            logits[..., vocabulary:] = float("-inf")
            return logits

    return Uniform()


@pytest.mark.parametrize(("sequence_length", "micro_batch_size"), [(1, 1), (4, 2), (7, 3), (64, 2)])
def test_a_uniform_model_costs_the_logarithm_of_its_vocabulary(sequence_length: int, micro_batch_size: int) -> None:
    held_out = held_out_of(23, texts=["四个字啊", "三个字"])
    result = evaluate(Priced(uniform_over(50, 64)), held_out, reading(sequence_length), micro_batch_size, CPU)
    assert result.num_tokens == 23
    assert result.num_characters == 7
    assert result.bits_per_character == pytest.approx(23 * math.log2(50) / 7, rel=1e-6)
    assert result.loss == pytest.approx(math.log(50), rel=1e-6)


def test_a_model_that_knows_the_next_token_pays_nothing_and_sees_what_comes_before() -> None:
    class Successor(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
            return 100.0 * torch.nn.functional.one_hot(tokens + 1, 64).float()

    assert evaluate(Priced(Successor()), held_out_of(30), reading(8), 2, CPU).bits < 1e-9


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_every_token_is_scored_once_after_its_predecessor_on_any_number_of_ranks(
    num_tokens: int, sequence_length: int, micro_batch_size: int, num_ranks: int
) -> None:
    held_out = held_out_of(num_tokens)
    batches = [
        list(rank_batches(held_out, sequence_length, micro_batch_size, rank, num_ranks)) for rank in range(num_ranks)
    ]
    assert len({len(of_rank) for of_rank in batches}) == 1, "a rank that stops early would hang the others"
    scored: list[int] = []
    for tokens, targets in (batch for of_rank in batches for batch in of_rank):
        assert tokens.shape == targets.shape == (micro_batch_size, sequence_length)
        real = targets != IGNORED_TARGET
        assert np.array_equal(tokens[real] + 1, targets[real])
        scored += targets[real].tolist()
    assert sorted(scored) == list(range(1, num_tokens + 1))


def test_shares_of_the_ranks_add_up_to_the_whole() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64))
    priced = Priced(lambda tokens, *_: model(tokens))
    held_out = held_out_of(45)
    shares = [
        priced.token_losses(reading().micro_batch(tokens, targets)).sum().item()
        for rank in range(3)
        for tokens, targets in rank_batches(held_out, 4, 2, rank, 3)
    ]
    assert math.fsum(shares) / math.log(2) == pytest.approx(
        evaluate(priced, held_out, reading(), 2, CPU).bits, rel=1e-6
    )


def test_positions_are_reset_where_they_were_in_training_and_attention_is_causal() -> None:
    seen: list[tuple[torch.Tensor | None, ...]] = []

    def model(tokens: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        seen.append(rest)
        return torch.zeros(*tokens.shape, 64)

    held_out = HeldOut(np.array([5, EOD, 6, EOD], dtype=np.uint16), ["五", "六"], EOD)
    evaluate(Priced(model), held_out, reading(), 1, CPU)
    evaluate(Priced(model), held_out, reading(reset_positions=True), 1, CPU)
    assert seen[0] == (None, None, None, None)
    ids, prefix_ends, positions, branches = seen[1]
    assert (ids, prefix_ends, branches) == (None, None, None)
    assert positions is not None and positions.tolist() == [[0, 0, 1, 0]], "tokens are EOD 5 EOD 6"


def test_texts_cost_together_what_they_cost_apart() -> None:
    whole = together([Evaluation(10.0, 4, 5), Evaluation(2.0, 1, 1)])
    assert (whole.bits_per_character, whole.num_tokens) == (2.0, 5)


@pytest.mark.parametrize("document_mask", [False, True])
def test_document_ids_reach_a_model_that_masks_by_them(document_mask: bool) -> None:
    seen: list[torch.Tensor | None] = []

    def model(tokens: torch.Tensor, ids: torch.Tensor | None, *_: torch.Tensor | None) -> torch.Tensor:
        seen.append(ids)
        return torch.zeros(*tokens.shape, 64)

    held_out = HeldOut(np.array([5, EOD, 6, EOD], dtype=np.uint16), ["五", "六"], EOD)
    evaluate(Priced(model), held_out, reading(document_mask=document_mask), 1, CPU)
    if document_mask:
        assert [ids.tolist() for ids in seen if ids is not None] == [[[0, 1, 1, 2]]], "tokens are EOD 5 EOD 6"
    else:
        assert seen == [None]


def test_units() -> None:
    result = Evaluation(bits=12.0, num_tokens=4, num_characters=6)
    assert result.bits_per_character == 2.0
    assert result.loss == pytest.approx(3 * math.log(2))


def test_documents_are_split_at_their_ends() -> None:
    parts = split_documents(np.array([5, 6, EOD, EOD, 7, EOD]), EOD)
    assert [part.tolist() for part in parts] == [[5, 6], [], [7]]
    assert split_documents(np.array([], dtype=np.uint16), EOD) == []
