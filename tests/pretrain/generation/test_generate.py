"""Generation: the choice of a token, whole characters, and the same text for the same seed."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.generation.generate import Sampling, generate, next_token, stream_text
from pretrain.reading import Reading

EOD = 0


def draws(logits: list[float], sampling: Sampling, count: int = 2000) -> Counter[int]:
    generator = torch.Generator().manual_seed(sampling.seed)
    return Counter(next_token(torch.tensor(logits), sampling, generator) for _ in range(count))


class Wheel(torch.nn.Module):
    """The next token is 1 more than the last, round `size`; what it was shown is kept."""

    def __init__(self, size: int, noise: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.noise = noise
        self.seen: list[list[int]] = []
        self.shown: list[list[int] | None] = []  # document ids, prefix ends and positions of the last

    def forward(self, tokens: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        self.seen.append(tokens[0].tolist())
        self.shown = [None if tensor is None else tensor[0].tolist() for tensor in rest]
        following = torch.nn.functional.one_hot((tokens + 1) % self.size, self.size).float()
        return following if self.noise else 50.0 * following


def test_greedy_takes_the_most_probable_and_of_equals_the_first() -> None:
    assert draws([0.0, 3.0, 1.0, 3.0], Sampling(temperature=0), 5) == {1: 5}


def test_draws_follow_the_probabilities() -> None:
    counts = draws([math.log(1), math.log(2), -math.inf, math.log(5)], Sampling(temperature=1))
    assert counts[2] == 0, "padding of the vocabulary"
    for token, share in {0: 1 / 8, 1: 2 / 8, 3: 5 / 8}.items():
        assert abs(counts[token] / 2000 - share) < 4 * math.sqrt(share * (1 - share) / 2000)


def test_temperature_sharpens_and_flattens() -> None:
    logits = [0.0, 1.0]
    shares = [draws(logits, Sampling(temperature=temperature))[1] / 2000 for temperature in (0.25, 1, 4)]
    for share, temperature in zip(shares, (0.25, 1, 4), strict=True):
        assert abs(share - 1 / (1 + math.exp(-1 / temperature))) < 0.03


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(temperature=1, top_k=1), {3}),
        (Sampling(temperature=1, top_k=2), {3, 2}),
        (Sampling(temperature=1, top_k=9), {0, 1, 2, 3}),
        (Sampling(temperature=1, top_p=0.05), {3}),
        (Sampling(temperature=1, top_p=0.39), {3}),
        (Sampling(temperature=1, top_p=0.41), {3, 2}),
        (Sampling(temperature=1, top_p=0.71), {3, 2, 1}),
        (Sampling(temperature=1, top_p=1.0), {0, 1, 2, 3}),
        (Sampling(temperature=1, top_k=2, top_p=0.6), {3, 2}),  # among the two, 3 has 4/7
        (Sampling(temperature=1, top_k=2, top_p=0.5), {3}),
    ],
)
def test_top_k_and_top_p_leave_the_most_probable(sampling: Sampling, possible: set[int]) -> None:
    logits = [math.log(share) for share in (0.1, 0.2, 0.3, 0.4)]
    assert set(draws(logits, sampling, 600)) == possible


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Sampling(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_model_that_diverged_is_an_error(bad: float) -> None:
    with pytest.raises(WenhaiError, match="not finite"):
        draws([bad, bad], Sampling(), 1)


def test_a_text_starts_after_an_end_of_document_and_stops_at_one() -> None:
    model = Wheel(6)
    greedy = Sampling(temperature=0)
    assert list(generate(model, [2, 3], 10, greedy, Reading(8, EOD))) == [4, 5]
    assert model.seen == [[0, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 5]]
    assert list(generate(model, [], 3, greedy, Reading(8, EOD))) == [1, 2, 3]
    assert list(generate(model, [2], 0, greedy, Reading(8, EOD))) == []


def test_the_window_slides_and_is_never_longer_than_the_model() -> None:
    model = Wheel(50)
    tokens = list(generate(model, [1, 2], 20, Sampling(temperature=0), Reading(5, EOD)))
    assert tokens == list(range(3, 23))
    assert max(map(len, model.seen)) == 5
    assert model.seen[-1] == [17, 18, 19, 20, 21], "the last five before 22"


def test_a_model_that_masks_by_document_is_told_where_the_prompt_begins() -> None:
    model = Wheel(9)
    next(generate(model, [2, 3], 1, Sampling(temperature=0), Reading(8, EOD, document_mask=True)))
    assert model.seen == [[0, 2, 3]]
    assert model.shown == [[0, 1, 1], None, None]


def test_positions_begin_anew_with_the_text_where_they_did_in_training() -> None:
    model = Wheel(9)
    list(generate(model, [2, 3], 2, Sampling(temperature=0), Reading(8, EOD, reset_positions=True)))
    assert model.shown == [None, None, [0, 0, 1, 2]]


def test_the_prompt_is_the_prefix_also_when_the_window_slides() -> None:
    model, ends = Wheel(50), []
    for _ in generate(model, [2, 3], 6, Sampling(temperature=0), Reading(5, EOD, prefix_lm=True)):
        ends.append(model.shown[1])
    assert ends == [[3] * 3, [3] * 4, [3] * 5, [2] * 5, [1] * 5, [0] * 5]


def test_a_seed_is_a_text() -> None:
    def text(seed: int) -> list[int]:
        sampling = Sampling(temperature=2.0, seed=seed)
        return list(generate(Wheel(300, noise=1.0), [1], 40, sampling, Reading(8, EOD)))

    assert text(1) == text(1)
    assert text(1) != text(2)


PIECES = [bytes([value]) for value in range(256)] + ["海".encode(), "文海".encode(), "。\n".encode(), b""]


@given(st.text(max_size=20), st.data())
def test_streams_hold_whole_characters_and_add_up(text: str, data: st.DataObject) -> None:
    """Any way to cut the bytes of a text into tokens: no U+FFFD that the text has not, nothing lost."""
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    pieces = [raw[start:stop] for start, stop in pairwise(cuts)]
    parts = list(stream_text(range(len(pieces)), pieces.__getitem__))
    assert "".join(parts) == text
    assert all(parts), "nothing is printed for a token that completes no character"
    assert all(part in text for part in parts)


def test_a_character_comes_with_its_last_byte() -> None:
    tokens = [256, *"😀".encode(), 259, 257, *"海".encode(), 258]
    assert list(stream_text(tokens, PIECES.__getitem__)) == ["海", "😀", "文海", "海", "。\n"]


def test_bytes_that_are_no_character_are_replaced_once_it_is_certain() -> None:
    assert list(stream_text([0xE6, 0xB5], PIECES.__getitem__)) == ["\ufffd"], "the text ended inside a character"
    assert list(stream_text([0xE6, 256], PIECES.__getitem__)) == ["\ufffd海"]
    assert list(stream_text([0xFF, 256], PIECES.__getitem__)) == ["\ufffd", "海"]
