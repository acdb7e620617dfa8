"""The engine: where texts begin and end, what their windows are, and that a text is the same whatever is beside it."""

from __future__ import annotations

import pytest

from pretrain.generation.generate import Piece, Settings, generate, in_order
from pretrain.generation.kv_cache import KVCachedModel
from pretrain.generation.sampling import Sampling
from pretrain.inference.batcher import EvaluationBatcher
from tests.pretrain.generation.texts import EOD, Wheel, letters, texts_of
from tests.pretrain.models import build, small

GREEDY = Sampling(temperature=0)


def wheel(
    model: Wheel, prompt: list[int], max_tokens: int, batcher: EvaluationBatcher, sampling: Sampling = GREEDY
) -> list[int]:
    [tokens] = texts_of(model.next_logits(batcher), [prompt], Settings(sampling, max_tokens), batcher)
    return tokens


def test_a_text_starts_after_an_end_of_document_and_stops_at_one() -> None:
    model = Wheel(6)
    assert wheel(model, [2, 3], 10, EvaluationBatcher(8, EOD)) == [4, 5]
    assert model.seen == [[0, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 5]]
    assert wheel(model, [], 3, EvaluationBatcher(8, EOD)) == [1, 2, 3]
    assert wheel(model, [2], 0, EvaluationBatcher(8, EOD)) == []


@pytest.mark.parametrize(
    ("prompt", "length", "windows"),
    [
        ([1, 2], 5, [(0, 3), (0, 4), (0, 5), (4, 6), (4, 7), (4, 8), (4, 9), (8, 10), (8, 11)]),
        ([1, 2, 3, 4], 5, [(0, 5), (4, 6)]),
        ([1, 2, 3, 4, 5], 5, [(4, 6), (4, 7)]),
        ([1, 2], 2, [(2, 3), (2, 4), (4, 5), (4, 6)]),
        ([1, 2], 1, [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_a_window_that_is_full_begins_anew_with_its_last_half(
    prompt: list[int], length: int, windows: list[tuple[int, int]]
) -> None:
    model = Wheel(50)
    assert wheel(model, prompt, len(windows), EvaluationBatcher(length, EOD))[-1] == len(prompt) + len(windows)
    assert [(seen[0], seen[-1] + 1) for seen in model.seen] == windows


def test_a_model_that_masks_by_document_is_told_where_the_prompt_begins() -> None:
    model = Wheel(9)
    wheel(model, [2, 3], 1, EvaluationBatcher(8, EOD, document_mask=True))
    assert model.seen == [[0, 2, 3]]
    assert model.shown == [[0, 1, 1], None, None]


def test_positions_begin_anew_with_the_text_where_they_did_in_training() -> None:
    model = Wheel(9)
    wheel(model, [2, 3], 2, EvaluationBatcher(8, EOD, reset_positions=True))
    assert model.shown == [None, None, [0, 0, 1, 2]]


def test_the_prompt_is_the_prefix_also_when_the_window_begins_anew() -> None:
    model, ends = Wheel(50), []
    batcher = EvaluationBatcher(5, EOD, prefix_lm=True)
    for _ in generate(model.next_logits(batcher), [[2, 3, 4]], Settings(GREEDY, 4), batcher, letters):
        ends.append(model.shown[1])
    assert ends == [[4] * 4, [4] * 5, [0] * 2, [0] * 3]
    wheel(model, [2, 3, 4, 5, 6], 1, batcher)
    assert model.shown[1] == [2] * 2


def test_a_seed_is_a_text() -> None:
    def text(seed: int) -> list[int]:
        return wheel(Wheel(300, noise=1.0), [1], 40, EvaluationBatcher(8, EOD), Sampling(temperature=2.0, seed=seed))

    assert text(1) == text(1)
    assert text(1) != text(2)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.2)])
def test_a_text_does_not_depend_on_its_batch(sampling: Sampling) -> None:
    model, batcher = build(small()), EvaluationBatcher(12, EOD)
    prompts = [[5, 6, 7], [8], [], [9] * 20, [10, 11]]
    alone, *others = (
        texts_of(KVCachedModel(model, batcher), prompts, Settings(sampling, 9, num_samples=2, batch_size=size), batcher)
        for size in (1, 3, 16)
    )
    assert others == [alone, alone]
    if sampling is not GREEDY:
        assert len({tuple(tokens) for tokens in alone}) == 10
    longer = texts_of(KVCachedModel(model, batcher), prompts, Settings(sampling, 16, num_samples=2), batcher)
    assert [tokens[:9] for tokens in longer] == alone, "more tokens go on with the same text"


def test_pieces_come_at_once_and_texts_in_the_order_of_prompts() -> None:
    batcher = EvaluationBatcher(50, EOD)
    settings = Settings(GREEDY, 30, num_samples=2, batch_size=3)
    prompts = [[15], [17], [11], [18]]
    pieces = list(generate(Wheel(20).next_logits(batcher), prompts, settings, batcher, letters))
    assert [(piece.of.prompt, piece.of.sample, piece.text) for piece in pieces[:6]] == [
        (0, 0, "q"),
        (0, 1, "q"),
        (1, 0, "s"),
        (0, 0, "r"),
        (0, 1, "r"),
        (1, 0, "t"),
    ]
    found = [(text.prompt, text.sample, words) for text, words in in_order(pieces, 2)]
    expected = ["qrst", "st", "mnopqrst", "t"]
    assert found == [(prompt, sample, expected[prompt]) for prompt in range(4) for sample in range(2)]


def test_a_text_says_why_it_ended() -> None:
    batcher = EvaluationBatcher(50, EOD)

    def last(prompt: list[int], **changes: object) -> Piece:
        settings = Settings(GREEDY, **{"max_tokens": 4, **changes})  # type: ignore[arg-type]
        return list(generate(Wheel(20).next_logits(batcher), [prompt], settings, batcher, letters))[-1]

    assert last([3]).end == "length"
    assert last([18]).end == "eod"
    assert last([15]).end == "length", "the end of the document would have been the fifth token"
    stopped = last([3], stops=("fg",))
    assert (stopped.end, stopped.text, stopped.of.generated) == ("stop", "", [4, 5, 6])
    assert last([3], stops=("gh",), max_tokens=3).text == "g", "held back, and no token follows"
    nothing = last([3], max_tokens=0)
    assert (nothing.end, nothing.text) == ("length", "")
