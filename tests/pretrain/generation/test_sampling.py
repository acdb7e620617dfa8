"""The choice of a token: what each setting leaves, how often what is left is drawn, and what transformers makes of the
same."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.generation.sampling import Draws, Sampling, choose


def drawn(logits: list[float], sampling: Sampling, count: int = 2000) -> Counter[int]:
    """Tokens of many rows with the same logits."""
    rows = torch.tensor([logits]).expand(count, -1)
    return Counter(choose(rows, sampling, [Draws(sampling, 0, sample, []) for sample in range(count)]))


def test_greedy_takes_the_most_probable_and_of_equals_the_first() -> None:
    assert drawn([0.0, 3.0, 1.0, 3.0], Sampling(temperature=0), 5) == {1: 5}
    assert drawn([0.0, 3.0, 1.0, 3.0], Sampling(temperature=0, repetition_penalty=2), 5) == {1: 5}


def test_draws_follow_the_probabilities() -> None:
    counts = drawn([math.log(1), math.log(2), -math.inf, math.log(5)], Sampling(temperature=1))
    assert counts[2] == 0, "padding of the vocabulary"
    for token, share in {0: 1 / 8, 1: 2 / 8, 3: 5 / 8}.items():
        assert abs(counts[token] / 2000 - share) < 4 * math.sqrt(share * (1 - share) / 2000)


@pytest.mark.parametrize("sampling", [Sampling(temperature=1, top_k=3), Sampling(temperature=1, top_p=0.7)])
def test_of_equals_at_the_edge_the_smaller_tokens_stay(sampling: Sampling) -> None:
    assert set(drawn([0.0, -5.0, 0.0, 1.0, 0.0, 0.0], sampling, 600)) == {0, 2, 3}


def test_each_row_has_settings_of_its_own_logits() -> None:
    rows = torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 8.9], [0.0, 0.0, 0.0]])
    for sampling in (Sampling(top_p=0.4), Sampling(top_k=1), Sampling(temperature=0)):
        assert choose(rows, sampling, [Draws(sampling, 0, row, []) for row in range(3)])[:2] == [1, 0]


def test_a_text_draws_by_its_numbers_alone() -> None:
    sampling, rows = Sampling(temperature=1, seed=7), torch.zeros(3, 1000)
    together = choose(rows, sampling, [Draws(sampling, prompt, 1, []) for prompt in range(3)])
    alone = [choose(rows[:1], sampling, [Draws(sampling, prompt, 1, [])])[0] for prompt in range(3)]
    assert together == alone
    assert len(set(together)) == 3
    others = [Draws(sampling, 0, 2, []), Draws(Sampling(seed=8), 0, 1, []), Draws(sampling, 1, 0, [])]
    assert together[0] not in choose(rows, sampling, others)


@given(
    st.lists(st.integers(-40, 40), min_size=9, max_size=9, unique=True),
    st.lists(st.integers(0, 8), max_size=12),
    st.sampled_from([0.53, 1.0, 1.37]),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.integers(0, 10),
    st.sampled_from([0.2, 0.7, 0.95, 1.0]),
)
def test_the_same_tokens_stay_as_in_transformers(
    logits: list[int], text: list[int], penalty: float, temperature: float, top_k: int, top_p: float
) -> None:
    """What is drawn has, after the processors of transformers in their order, a probability there, and as often."""
    from transformers.generation import logits_process as theirs

    values = torch.tensor([logits], dtype=torch.float64) / 4
    sampling = Sampling(temperature, top_k, top_p, penalty)
    rows = values.expand(200, -1)
    tokens = Counter(choose(rows, sampling, [Draws(sampling, 0, row, text) for row in range(len(rows))]))
    context = torch.tensor([text], dtype=torch.int64)
    processors = [theirs.RepetitionPenaltyLogitsProcessor(penalty), theirs.TemperatureLogitsWarper(temperature)]
    processors += [theirs.TopKLogitsWarper(top_k)] if top_k else []
    processors += [theirs.TopPLogitsWarper(top_p)] if top_p < 1 else []
    for process in processors:
        values = process(context, values)
    for token, share in enumerate(values.softmax(-1)[0].tolist()):
        assert abs(tokens[token] / 200 - share) <= 5 * math.sqrt(share * (1 - share) / 200), (token, share)


def test_what_was_there_is_made_less_probable_whatever_its_sign() -> None:
    sampling = Sampling(temperature=0, repetition_penalty=2.0)
    assert choose(torch.tensor([[3.0, 2.0, -9.0]]), sampling, [Draws(sampling, 0, 0, [0])]) == [1]
    assert choose(torch.tensor([[-3.0, -4.0, -9.0]]), sampling, [Draws(sampling, 0, 0, [0])]) == [1]
    draws = [Draws(sampling, 0, 0, [])]
    rows = torch.tensor([[3.0, 2.5, 2.0]])
    assert [choose(rows, sampling, draws)[0] for _ in range(4)] == [0, 1, 2, 0], "what is generated counts too"


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": math.nan}, "repetition_penalty"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Sampling(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(repetition_penalty=2)])
def test_a_model_that_diverged_is_an_error(bad: float, sampling: Sampling) -> None:
    rows = torch.tensor([[0.0, 1.0], [bad, bad]])
    with pytest.raises(WenhaiError, match="not finite"):
        choose(rows, sampling, [Draws(sampling, 0, row, []) for row in range(2)])
