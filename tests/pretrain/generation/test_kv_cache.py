"""Cached keys and values: the logits of whole windows, for every kind of model and mask, and no more work than
needed."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import torch

from pretrain.generation.generate import Settings
from pretrain.generation.kv_cache import KVCachedModel, LayerKVCache
from pretrain.generation.sampling import Sampling
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.model import GPT
from tests.pretrain.generation.texts import EOD, Compared, texts_of
from tests.pretrain.models import CHOICES, build, small

MASKS = [
    {},
    {"document_mask": True},
    {"reset_positions": True},
    {"prefix_lm": True},
    {"document_mask": True, "reset_positions": True, "prefix_lm": True},
]


def some_prompts(lengths: tuple[int, ...]) -> list[list[int]]:
    generator = random.Random(1)
    return [[generator.randrange(1, 110) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("masks", MASKS)
def test_logits_are_those_of_whole_windows(choice: dict[str, Any], masks: dict[str, Any]) -> None:
    """Rows of other lengths, that end, join, outgrow the window, begin beyond it, or hold ends of documents."""
    model = build(small(document_mask="document_mask" in masks, **choice))
    batcher = EvaluationBatcher(12, EOD, **masks)
    prompts = some_prompts((0, 3, 11, 14, 5))
    prompts += [[5, EOD, 6, 7], [8, EOD]]
    compared = Compared(model, batcher)
    texts = texts_of(compared, prompts, Settings(Sampling(temperature=2.0), max_tokens=10, batch_size=4), batcher)
    assert compared.num_compared >= sum(map(len, texts)) > 35


def test_a_token_goes_through_the_model_once_and_equal_prompts_do() -> None:
    model, batcher = build(small(sequence_length=64)), EvaluationBatcher(64, EOD)
    shapes: list[tuple[int, ...]] = []
    extend = GPT.extend

    def counted(tokens_BT: torch.Tensor, *rest: Any) -> torch.Tensor:
        shapes.append(tuple(tokens_BT.shape))
        return extend(model, tokens_BT, *rest)

    model.extend = counted  # type: ignore[method-assign]
    settings = Settings(Sampling(temperature=3.0), max_tokens=5, num_samples=3, batch_size=4)
    texts = texts_of(KVCachedModel(model, batcher), [[1, 2, 3], [4]], settings, batcher)
    assert len(texts) == 6
    assert shapes[0] == (2, 4), "three samples of one prompt, and the first of the other"
    assert shapes[1] == (4, 1)
    assert sum(rows * tokens for rows, tokens in shapes) <= 8 + 2 * 2 + 6 * 4


def test_a_long_text_costs_its_length() -> None:
    model, batcher = build(small(sequence_length=16)), EvaluationBatcher(16, EOD)
    num_seen = 0
    extend = GPT.extend

    def counted(tokens_BT: torch.Tensor, *rest: Any) -> torch.Tensor:
        nonlocal num_seen
        num_seen += tokens_BT.numel()
        return extend(model, tokens_BT, *rest)

    model.extend = counted  # type: ignore[method-assign]
    cached = KVCachedModel(model, batcher)
    [tokens] = texts_of(cached, [[1]], Settings(Sampling(temperature=0, repetition_penalty=1.5), 100), batcher)
    assert num_seen <= 2 * len(tokens) + 16
    assert all(layer._held is not None and layer._held.shape[3] <= 2 * 16 for layer in cached._layers.values())


def test_room_is_made_rarely_and_what_is_not_read_is_forgotten() -> None:
    cache, rooms = LayerKVCache(), []
    for place in range(200):
        cache.width = min(place + 1, 10)
        k, v = cache.extend(torch.full((2, 1, 1, 4), float(place)), torch.full((2, 1, 1, 4), -float(place)))
        expected = list(range(place + 1 - cache.width, place + 1))
        assert k[0, 0, :, 0].tolist() == expected == (-v)[1, 0, :, 3].tolist()
        assert cache._held is not None
        rooms.append(cache._held.data_ptr())
    changes = sum(a != b for a, b in pairwise(rooms))
    assert changes <= 25
    assert cache._held is not None and cache._held.shape[3] <= 20


def test_rows_leave_and_join_aligned_at_their_end() -> None:
    def filled(rows: int, width: int, value: float) -> LayerKVCache:
        cache = LayerKVCache()
        cache.width = width
        cache.extend(*(torch.full((rows, 1, width, 2), value) for _ in range(2)))
        return cache

    for old, new in ((3, 5), (5, 3), (4, 4)):
        cache = filled(3, old, 1.0)
        cache.keep([2, 0])
        cache.join(filled(1, new, 2.0))
        assert cache.width == max(old, new)
        cache.width += 1
        k, _ = cache.extend(torch.full((3, 1, 1, 2), 9.0), torch.zeros(3, 1, 1, 2))
        rows = k[:, 0, :, 0].tolist()
        assert rows[0] == rows[1] == [0.0] * (max(old, new) - old) + [1.0] * old + [9.0]
        assert rows[2] == [0.0] * (max(old, new) - new) + [2.0] * new + [9.0]


def test_a_model_in_bf16_generates() -> None:
    model, batcher = build(small(num_kv_heads=2)).bfloat16(), EvaluationBatcher(12, EOD)
    logits = KVCachedModel(model, batcher)
    texts = texts_of(logits, [[1, 2], [3]], Settings(Sampling(temperature=0), 20), batcher)
    assert all(texts)
    assert all(layer._held is not None and layer._held.dtype == torch.bfloat16 for layer in logits._layers.values())
