"""Bits: closed forms for models that can be computed by hand, no token lost or scored twice, and sources that add
up."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from pretrain.data import IGNORED_TARGET
from pretrain.evaluation import bits
from pretrain.evaluation.bits import OTHER, Evaluation, batches, combine, evaluate, evaluate_documents, largest, rows
from pretrain.evaluation.held_out import Document, HeldOut, split_documents
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.mesh import World
from tests.pretrain.tiny import EOD, VOCAB_SIZE, tiny_held_out

CPU = torch.device("cpu")


class Priced:
    """What a function from what `GPT.forward` takes to logits would lose."""

    def __init__(self, logits: Callable[..., torch.Tensor]) -> None:
        self.logits = logits

    def token_losses(self, batch: MicroBatch) -> torch.Tensor:
        logits_BVT = self.logits(*batch.inputs).transpose(1, 2)
        return F.cross_entropy(logits_BVT, batch.targets, ignore_index=IGNORED_TARGET, reduction="none")


def batcher(sequence_length: int = 4, **marks: bool) -> EvaluationBatcher:
    return EvaluationBatcher(sequence_length, EOD, **marks)


def held_out_of(num_tokens: int) -> HeldOut:
    """Two documents of counted tokens."""
    tokens = np.arange(1, num_tokens + 1, dtype=np.uint16)
    tokens[num_tokens // 3] = tokens[-1] = EOD
    return HeldOut(tokens, ["四个字啊", "三个a"], EOD)


class Seeing(torch.nn.Module):
    """Random weights whose logits depend on all tokens up to each, and on their number."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.of_token = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator)

    def forward(self, tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
        return self.of_token[tokens].cumsum(dim=1) / 4


def uniform_over(vocabulary: int, model_size: int) -> torch.nn.Module:
    """Equal logits for `vocabulary` tokens, the padded rest masked."""

    class Uniform(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
            logits = torch.zeros(*tokens.shape, model_size)
            logits[..., vocabulary:] = float("-inf")
            return logits

    return Uniform()


@pytest.mark.parametrize("stride", [1, 3, None])
@pytest.mark.parametrize(("sequence_length", "micro_batch_size"), [(3, 1), (4, 2), (7, 3), (64, 2)])
def test_a_uniform_model_costs_the_logarithm_of_its_vocabulary(
    sequence_length: int, micro_batch_size: int, stride: int | None
) -> None:
    model = Priced(uniform_over(50, 64))
    result = evaluate(model, held_out_of(23), batcher(sequence_length), micro_batch_size, CPU, stride=stride)
    assert (result.num_tokens, result.num_characters, result.num_bytes) == (23, 7, 19)
    assert result.bits_per_character == pytest.approx(23 * math.log2(50) / 7, rel=1e-6)
    assert result.bits_per_byte == pytest.approx(23 * math.log2(50) / 19, rel=1e-6)
    assert result.loss == pytest.approx(math.log(50), rel=1e-6)
    assert math.exp(result.loss) == pytest.approx(50), "the perplexity of a token"


def test_a_model_that_knows_the_next_token_pays_nothing_and_sees_what_comes_before() -> None:
    held_out = HeldOut(np.append(np.arange(1, 31), EOD), ["字"], EOD)

    class Successor(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
            return 100.0 * torch.nn.functional.one_hot((tokens + 1) % 31, 64).float()

    assert evaluate(Priced(Successor()), held_out, batcher(8), 2, CPU).bits < 1e-9


def test_shares_of_the_ranks_add_up_to_the_whole() -> None:
    priced, held_out = Priced(Seeing()), tiny_held_out()
    shares = [
        priced.token_losses(batcher().micro_batch(batch.tokens, batch.targets)).sum().item()
        for rank in range(3)
        for batch in batches(rows(held_out.tokens, 0, EOD, 4, 4), 4, 2, EOD, rank, 3)
    ]
    whole = evaluate(priced, held_out, batcher(), 2, CPU)
    assert math.fsum(shares) / math.log(2) == pytest.approx(whole.bits, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 16), st.integers(1, 16), st.integers(1, 4))
def test_each_token_costs_the_source_of_its_document(seed: int, length: int, stride: int, batch_size: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 9, 6)
    documents = [random.integers(1, VOCAB_SIZE, size) for size in sizes]
    held_out = HeldOut(
        np.concatenate([np.append(ids, EOD) for ids in documents]),
        ["é" * size for size in sizes],
        EOD,
        random.choice(["a", "b", "c"], len(sizes)).tolist(),
    )
    stride = min(stride, length)
    model = Seeing()
    found = evaluate(Priced(model), held_out, batcher(length), batch_size, CPU, stride=stride)
    expected = dict.fromkeys(held_out.sources or [], 0.0)
    owners = np.repeat(held_out.sources or [], sizes + 1)
    for window in rows(held_out.tokens, np.arange(len(owners)), EOD, length, stride):
        costs = -torch.log_softmax(model(torch.from_numpy(window.tokens)[None])[0], dim=-1) / math.log(2)
        for place, target in enumerate(window.targets.tolist()):
            if target != IGNORED_TARGET:
                expected[str(owners[window.groups[place]])] += costs[place, target].item()
    assert {name: part.bits for name, part in found.by_source.items()} == pytest.approx(expected, rel=1e-4)
    assert found.bits == pytest.approx(math.fsum(expected.values()), rel=1e-4)
    for name, part in found.by_source.items():
        own = [size for size, source in zip(sizes, held_out.sources or [], strict=True) if source == name]
        sums = (sum(own) + len(own), sum(own), 2 * sum(own))
        assert (part.num_tokens, part.num_characters, part.num_bytes) == sums
    whole = combine(list(found.by_source.values()))
    assert (whole.bits, whole.num_tokens, whole.num_characters, whole.num_bytes) == (
        found.bits, found.num_tokens, found.num_characters, found.num_bytes)  # fmt: skip


@pytest.mark.parametrize("with_ends", [True, False])
@pytest.mark.parametrize("stride", [16, 5])
def test_documents_that_are_read_alone_cost_what_a_forward_over_each_does(with_ends: bool, stride: int) -> None:
    held_out, model = tiny_held_out(), Seeing()
    documents = [
        *held_out.documents(),
        Document(np.arange(1, 15), "字" * 14, "long"),
        Document(np.array([7]), "a", "a"),
    ]
    result = evaluate_documents(Priced(model), documents, batcher(16), 3, CPU, stride=stride, with_ends=with_ends)
    expected: dict[str, float] = dict.fromkeys((document.source for document in documents), 0.0)
    num_tokens = 0
    for document in documents:
        ids = [EOD, *document.tokens.tolist(), *([EOD] if with_ends else [])]
        logits = model(torch.tensor([ids[:-1]]))[0]
        costs = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")
        expected[document.source] += costs.item() / math.log(2)
        num_tokens += len(ids) - 1
    assert {name: part.bits for name, part in result.by_source.items()} == pytest.approx(expected, rel=1e-5)
    assert result.num_tokens == num_tokens and list(result.by_source) == list(expected)


def test_a_long_document_is_read_by_windows_that_slide() -> None:
    seen: list[tuple[int, ...]] = []

    def model(tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
        seen.extend(tuple(row) for row in tokens.tolist())
        return torch.zeros(*tokens.shape, VOCAB_SIZE)

    documents = [Document(np.arange(1, 20), "字" * 19, "a"), Document(np.arange(30, 32), "字字", "a")]
    result = evaluate_documents(Priced(model), documents, batcher(8), 9, CPU, stride=4)
    assert result.num_tokens == 20 + 3
    starts = [0, 4, 8, 12]
    assert seen == [
        *(tuple(range(start, start + 8)) for start in starts),
        (EOD, 30, 31, *[EOD] * 5),
    ]


def test_documents_are_read_as_they_are_needed() -> None:
    taken = 0

    def documents() -> object:
        nonlocal taken
        for taken in range(1, 10_001):
            yield Document(np.arange(1, 8), "七", f"source {taken}")

    class Stopping(Priced):
        def token_losses(self, batch: MicroBatch) -> torch.Tensor:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        evaluate_documents(Stopping(Seeing()), documents(), batcher(8), 2, CPU)  # type: ignore[arg-type]
    assert taken <= 64 * 2


def test_sources_beyond_those_that_are_told_apart_are_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "MOST_SOURCES", 2)
    documents = [Document(np.array([5, 6]), "两字", source) for source in ("a", "b", "c", "a", "d")]
    found = evaluate_documents(Priced(uniform_over(50, 64)), documents, batcher(8), 2, CPU).by_source
    assert {name: part.num_characters for name, part in found.items()} == {"a": 4, "b": 2, OTHER: 4}
    assert found[OTHER].bits == pytest.approx(6 * math.log2(50))


def test_the_largest_sources_and_the_rest() -> None:
    by_source = {name: Evaluation(1.0, 1, size, size) for name, size in zip("abcde", (1, 5, 3, 4, 2), strict=True)}
    assert list(largest(by_source, 5)) == ["b", "d", "c", "e", "a"]
    few = largest(by_source, 3)
    assert {name: part.num_characters for name, part in few.items()} == {"b": 5, "d": 4, OTHER: 6}
    assert list(few) == ["b", "d", OTHER] and few[OTHER].bits == 3.0
    again = largest({OTHER: Evaluation(1.0, 1, 9, 9), **by_source}, 3)
    assert {name: part.num_characters for name, part in again.items()} == {"b": 5, "d": 4, OTHER: 15}


@pytest.mark.parametrize(
    ("marks", "ids", "positions"),
    [
        ({}, None, None),
        ({"reset_positions": True}, None, [[0, 0, 1, 0]]),
        ({"document_mask": True}, [[0, 1, 1, 2]], None),
    ],
)
def test_a_model_gets_the_marks_that_it_had_in_training_and_attention_is_causal(
    marks: dict[str, bool], ids: list[list[int]] | None, positions: list[list[int]] | None
) -> None:
    seen: list[list[list[list[int]] | None]] = []

    def model(tokens: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        seen.append([None if each is None else each.tolist() for each in rest])
        return torch.zeros(*tokens.shape, 64)

    held_out = HeldOut(np.array([5, EOD, 6, EOD], dtype=np.uint16), ["五", "六"], EOD)
    evaluate(Priced(model), held_out, batcher(**marks), 1, CPU)
    assert seen == [[ids, None, positions, None]], "tokens are EOD 5 EOD 6; neither prefixes nor branches"


def test_texts_cost_together_what_they_cost_apart() -> None:
    a, b, c = Evaluation(8.0, 3, 3, 9), Evaluation(2.0, 1, 2, 2), Evaluation(2.0, 1, 1, 1)
    both = combine([combine([Evaluation(10.0, 4, 5, 11, {"a": a, "b": b})]), Evaluation(2.0, 1, 1, 1, {"b": c})])
    assert (both.bits_per_character, both.bits_per_byte, both.num_tokens) == (2.0, 1.0, 5)
    assert both.by_source == {"a": a, "b": Evaluation(4.0, 2, 3, 3)}


def test_windows_have_lengths_that_the_ranks_of_a_matrix_can_share() -> None:
    lengths: list[int] = []

    def model(tokens: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
        lengths.append(tokens.shape[1])
        return torch.zeros(*tokens.shape, VOCAB_SIZE)

    world = SimpleNamespace(dp_rank=0, dp_size=1, tp_size=3, sum_over=lambda axes, *numbers: list(numbers))
    documents = [Document(np.arange(1, 1 + size), "字" * size, "a") for size in (2, 40, 70)]
    found = evaluate_documents(Priced(model), documents, batcher(48), 1, CPU, cast(World, world))
    assert found.num_tokens == 2 + 40 + 70 + 3
    assert lengths == [48, 48, 48, 24], "of eight tokens for each of three"


def test_documents_are_split_at_their_ends() -> None:
    parts = split_documents(np.array([5, 6, EOD, EOD, 7, EOD]), EOD)
    assert [part.tolist() for part in parts] == [[5, 6], [], [7]]
    assert split_documents(np.array([], dtype=np.uint16), EOD) == []
