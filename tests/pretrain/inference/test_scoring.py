"""Scores of continuations against each one alone in a plain forward: any request, any model, any way to read."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.data import IGNORED_TARGET
from pretrain.inference import scoring
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.inference.scoring import Continuation, Request, Score, score
from pretrain.model import GPT
from pretrain.model.micro_batch import MicroBatch
from tests.pretrain.models import CHOICES, build, small

EOD = 0
LENGTH = 12  # of a window

tokens = st.integers(0, 119)
continuations = st.lists(tokens, min_size=1, max_size=5).flatmap(
    lambda ids: st.builds(Continuation, st.just(ids), st.integers(0, len(ids) - 1))
)
a_request = st.builds(Request, st.lists(tokens, max_size=16), st.lists(continuations, min_size=1, max_size=5))
EVERY_READING = [
    {"document_mask": mask, "reset_positions": reset, "prefix_lm": prefix}
    for mask, reset, prefix in itertools.product((False, True), repeat=3)
]


@functools.cache
def model_of(choice: int, dtype: torch.dtype = torch.float64) -> GPT:
    model = build(small(**CHOICES[choice])).to(dtype)
    model.tie()
    return model


def batcher(**marks: bool) -> EvaluationBatcher:
    return EvaluationBatcher(LENGTH, EOD, **marks)


def scores_of(
    model: Any, requests: Sequence[Request], how: EvaluationBatcher, max_tokens: int = 16384
) -> list[list[Score]]:
    """In the order of the requests; each comes once."""
    found = list(score(model, requests, how, "cpu", max_tokens=max_tokens))
    assert sorted(number for number, _ in found) == list(range(len(requests)))
    return [scores for _, scores in sorted(found)]


@torch.no_grad()
def alone(model: GPT, request: Request, continuation: Continuation, how: EvaluationBatcher) -> float:
    """One sample, one plain forward, one softmax of each row of logits."""
    longest = max(len(ids) for ids, _ in request.continuations)
    seen = [EOD, *request.context][-(LENGTH + 1 - longest) :]
    inputs = np.array([[*seen, *continuation.tokens][:-1]])
    batch = how.micro_batch(inputs, inputs, prefix_lengths_B=np.array([len(seen)]))
    p_TV = model(*batch.inputs)[0].log_softmax(-1)
    first = len(seen) - 1
    return math.fsum(
        p_TV[first + place, token].item()
        for place, token in enumerate(continuation.tokens)
        if place >= continuation.first_scored
    )


def check(model: GPT, requests: Sequence[Request], how: EvaluationBatcher, max_tokens: int, tolerance: float) -> None:
    for request, scores in zip(requests, scores_of(model, requests, how, max_tokens), strict=True):
        for continuation, (log_likelihood, num_tokens) in zip(request.continuations, scores, strict=True):
            assert num_tokens == len(continuation.tokens) - continuation.first_scored
            expected = alone(model, request, continuation, how)
            assert log_likelihood == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("marks", EVERY_READING)
@settings(max_examples=6)
@given(requests=st.lists(a_request, min_size=1, max_size=3), max_tokens=st.integers(1, 60))
def test_continuations_are_scored_as_if_each_were_alone(
    marks: dict[str, bool], requests: list[Request], max_tokens: int
) -> None:
    """Contexts that are empty, hold ends of documents, or are too long; rows and batches of any size."""
    for choice in (1, 3):  # rotary and learned positions, both with fewer heads of keys and values
        check(model_of(choice), requests, batcher(**marks), max_tokens, 1e-10)


@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_in_single_precision_too(choice: int) -> None:
    requests = [
        Request([5, 6, 7], [Continuation([8]), Continuation([9, 10]), Continuation([8, 11, 12], 1)]),
        Request([], [Continuation([3]), Continuation([4, 5])]),
    ]
    check(model_of(choice, torch.float32), requests, batcher(), 100, 1e-5)


class Recorder:
    """A model that believes in nothing, and keeps what it is asked."""

    def __init__(self) -> None:
        self.batches: list[MicroBatch] = []

    def token_losses(self, batch: MicroBatch) -> torch.Tensor:
        self.batches.append(batch)
        return (batch.targets != IGNORED_TARGET).float()


def rows_of(model: Recorder) -> list[int]:
    """The length of each row, without its padding: the last token of all has a target."""
    return [
        len(row) - int(row.flip(0).argmax())
        for batch in model.batches
        for row in (batch.targets != IGNORED_TARGET).int()
    ]


def test_all_continuations_of_a_context_share_one_row() -> None:
    model = Recorder()
    request = Request([1, 2, 3], [Continuation([4, 5]), Continuation([6]), Continuation([4, 7, 8], 1)])
    ((first, second, third),) = scores_of(model, [request], batcher())
    assert (first, second, third) == (Score(-2.0, 2), Score(-1.0, 1), Score(-2.0, 2))
    (batch,) = model.batches
    nothing = IGNORED_TARGET
    assert batch.tokens.tolist() == [[EOD, 1, 2, 3, 4, 3, 3, 4, 7]]
    assert batch.targets.tolist() == [[nothing, nothing, nothing, 4, 5, 6, nothing, 7, 8]]
    assert batch.branches is not None and batch.branches.tolist() == [[0, 0, 0, 1, 1, 2, 3, 3, 3]]
    assert batch.positions is not None and batch.positions.tolist() == [[0, 1, 2, 3, 4, 3, 3, 4, 5]]
    assert (batch.document_ids, batch.prefix_ends, batch.num_targets) == (None, None, 5)


def test_a_prefix_model_has_a_row_for_each_continuation() -> None:
    model = Recorder()
    scores_of(model, [Request([1, 2], [Continuation([4, 5]), Continuation([6])])], batcher(prefix_lm=True))
    (batch,) = model.batches
    assert batch.tokens.tolist() == [[EOD, 1, 2, 4], [EOD, 1, 2, EOD]]
    assert batch.prefix_ends is not None and batch.prefix_ends.tolist() == [[3] * 4] * 2
    assert batch.branches is None, "nothing is masked for branches that are not there"


@settings(max_examples=20)
@given(st.lists(a_request, min_size=1, max_size=8), st.integers(1, 80))
def test_batches_are_of_similar_lengths_and_within_their_limits(requests: list[Request], max_tokens: int) -> None:
    model = Recorder()
    scores_of(model, requests, batcher(), max_tokens)
    for batch in model.batches:
        num_rows, length = batch.tokens.shape
        assert num_rows * length <= max_tokens or (num_rows == 1 and batch.branches is None)
    lengths = rows_of(model)
    assert lengths == sorted(lengths, reverse=True)
    firsts = np.cumsum([0, *(len(batch.tokens) for batch in model.batches)])[:-1]
    assert [lengths[first] for first in firsts] == [batch.tokens.shape[1] for batch in model.batches], "none is wasted"


@pytest.mark.parametrize(("limit", "number"), [("MAX_PAIRS", 2 * 8**2), ("MAX_TARGETS", 2 * 5)])
def test_memory_that_grows_with_pairs_or_targets_is_bounded_too(
    limit: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [Request([1, 2, 3], [Continuation([4, 5, 6, 7, 8])])] * 7
    for value, most in ((number, 2), (number - 1, 1), (1, 1)):
        monkeypatch.setattr(scoring, limit, value)
        model = Recorder()
        scores_of(model, requests, batcher())
        assert max(len(batch.tokens) for batch in model.batches) == most


def test_a_batch_is_filled_up_to_its_limit() -> None:
    model = Recorder()
    scores_of(model, [Request([1, 2, 3], [Continuation([4, 5, 6, 7, 8])])] * 7, batcher(), max_tokens=2 * 8)
    assert [len(batch.tokens) for batch in model.batches] == [2, 2, 2, 1]


def test_a_row_holds_branches_up_to_its_limit_or_twice_its_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "ROW_TOKENS", 8)
    model = Recorder()
    (scores,) = scores_of(model, [Request([1, 2, 3], [Continuation([n, n]) for n in range(4, 9)])], batcher())
    assert scores == [Score(-2.0, 2)] * 5
    assert rows_of(model) == [7, 7, 5]
    model = Recorder()
    scores_of(model, [Request([1] * 9, [Continuation([n, n]) for n in range(4, 9)])], batcher())
    assert rows_of(model) == [17, 11]


def test_scores_come_when_their_last_row_is_done() -> None:
    model = Recorder()
    requests = [Request([1], [Continuation([n])]) for n in range(5)]
    asked = [len(model.batches) for _ in score(model, requests, batcher(), "cpu", max_tokens=2)]
    assert asked == [1, 2, 3, 4, 5]
    assert list(score(model, [], batcher(), "cpu")) == []


def test_a_long_context_loses_its_beginning() -> None:
    model, ends = model_of(0), [Continuation([7]), Continuation([8, 9, 10])]
    long = Request(list(range(1, 30)), ends)
    twin = long._replace(context=[99, 98, *long.context[2:]])
    kept = scores_of(
        model, [long], batcher()
    )  # apart: rows of one product may differ in their last bit, by the processor
    assert kept == scores_of(model, [twin], batcher())
    other = scores_of(model, [long._replace(context=[*long.context[:-10], 99, *long.context[-9:]])], batcher())
    assert other[0] != kept[0], "the first of the ten tokens that remain"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request([1], []), "request 1: nothing follows"),
        (Request([1], [Continuation([2]), Continuation([])]), "request 1, continuation 1: of 0 tokens none"),
        (Request([1], [Continuation([2, 3], 2)]), "request 1, continuation 0: of 2 tokens none is scored \\(from 2 on"),
        (Request([1], [Continuation([2], -1)]), "none is scored"),
        (Request([1], [Continuation([2] * 13)]), "continuation 0: has 13 tokens, and the model room for 12"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_asked(request_: Request, message: str) -> None:
    model = Recorder()
    with pytest.raises(UsageError, match=message):
        score(model, [Request([1], [Continuation([2])]), request_], batcher(), "cpu")
    assert not model.batches


def test_a_continuation_may_fill_the_window() -> None:
    check(model_of(2), [Request([1, 2], [Continuation(list(range(1, 13)))])], batcher(), 100, 1e-10)
