"""Cutting: every layer once and in order, the slowest stage as fast as any cut allows, and stages in sequence are the
model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.config import ModelConfig, load_config
from pretrain.model import GPT
from pretrain.parallel.base.params import part_specs
from pretrain.parallel.base.stages import cut, head_flops, layer_flops
from pretrain.workload.flops import flops_per_token
from tests.pretrain.models import CHOICES, small


def counts(config: ModelConfig, num_stages: int) -> list[int]:
    return [len(stage.layers) for stage in cut(config, num_stages)]


def all_cuts(num_layers: int, num_stages: int) -> Iterator[list[int]]:
    for ends in combinations(range(1, num_layers), num_stages - 1):
        bounds = [0, *ends, num_layers]
        yield [stop - start for start, stop in pairwise(bounds)]


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([128, 1024, 8192]))
def test_no_cut_is_faster_and_none_as_fast_is_more_even(num_layers: int, num_stages: int, vocabulary: int) -> None:
    config = small(num_layers=num_layers, padded_vocab_size=vocabulary)
    num_stages = min(num_stages, num_layers)
    stages = cut(config, num_stages)
    assert [layer for stage in stages for layer in stage.layers] == list(range(num_layers))
    assert all(len(stage.layers) for stage in stages)
    assert [stage.index for stage in stages] == list(range(num_stages))
    assert [stage.is_first for stage in stages] == [True] + [False] * (num_stages - 1)
    assert [stage.is_last for stage in stages] == [False] * (num_stages - 1) + [True]

    def cost(cut_counts: list[int]) -> tuple[int, int]:
        work = [count * layer_flops(config) for count in cut_counts]
        work[-1] += head_flops(config)
        return max(work), sum(flops**2 for flops in work)

    found = counts(config, num_stages)
    assert cost(found) == min(map(cost, all_cuts(num_layers, num_stages)))
    assert found == max(one for one in all_cuts(num_layers, num_stages) if cost(one) == cost(found))  # earliest


def test_cuts_of_published_models() -> None:
    assert counts(load_config("yuan-245b").model, 38) == [2] * 38
    assert counts(load_config("yuan-13b").model, 2) == [20, 20]
    assert counts(load_config("gpt2-124m").model, 4) == [4, 4, 3, 1]  # its head works as much as four layers


def test_layers_per_stage_are_taken_as_given() -> None:
    assert [stage.layers for stage in cut(small(num_layers=6), 3, (1, 4, 1))] == [range(1), range(1, 5), range(5, 6)]
    with pytest.raises(AssertionError):
        cut(small(num_layers=6), 3, (1, 4))
    with pytest.raises(AssertionError):
        cut(small(num_layers=6), 3, (1, 4, 2))


@pytest.mark.parametrize("choices", CHOICES)
def test_the_flops_are_those_that_are_reported(choices: dict[str, Any]) -> None:
    config = small(**choices)
    forward = config.num_layers * layer_flops(config) + head_flops(config)
    assert 3 * forward == flops_per_token(config)


@pytest.mark.parametrize("choices", CHOICES)
def test_a_parts_parameters_are_rows_of_the_table(choices: dict[str, Any]) -> None:
    config = small(num_layers=3, **choices)
    table = {spec.name: spec.shape for spec in part_specs(config)}
    found: dict[str, tuple[int, ...]] = {}
    for stage in cut(config, 3):
        with torch.device("meta"):
            part = GPT(config, stage)
        shapes = {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
        assert not shapes.keys() & found.keys()
        assert (part.embedding is None) is not stage.is_first and (part.head is None) is not stage.is_last
        found |= shapes
    assert found == table
