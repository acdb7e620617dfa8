"""The models of published systems: exactly their numbers of parameters, and layouts that hold them."""

from __future__ import annotations

import math

import pytest
import torch

from pretrain.batch_size import check_batch_sizes
from pretrain.config import load_config, named_configs
from pretrain.model import GPT
from pretrain.parallel.base.params import num_parameters

# name: (vocabulary that is counted, parameters, the digits that are published)
PUBLISHED = {
    "yuan-13b": (53_248, 12_868_700_160, "12.87 B"),
    "yuan-245b": (53_248, 245_735_325_696, "245.7 B"),
    "asc22-4.7b": (53_248, 4_701_321_216, "4.7013 B"),
    "firefly-3.8b": (50_264, 3_782_719_488, "3.783 B"),
    "frontier-1.4b": (51_200, 1_397_759_616, "1.4 B"),
    "frontier-22b": (51_200, 22_074_273_792, "22 B"),
    "frontier-175b": (51_200, 174_615_846_912, "175 B"),
    "frontier-1t": (51_200, 1_008_038_758_400, "1008 B"),
    "gpt2-124m": (50_257, 124_439_808, "0.124439808 B"),
    "llama-2-7b": (32_000, 6_738_415_616, "6.738415616 B"),
    "llama-2-13b": (32_000, 13_015_864_320, "13.015864320 B"),
    "llama-2-70b": (32_000, 68_976_648_192, "68.976648192 B"),
    "llama-3-8b": (128_256, 8_030_261_248, "8.030261248 B"),
    "llama-3.2-1b": (128_256, 1_235_814_400, "1.235814400 B"),
}

# name: (ranks of a published layout, their data-parallel ranks)
LAYOUTS = {
    "yuan-13b": (1792, 112),
    "yuan-245b": (2128, 7),
    "asc22-4.7b": (4, 4),
    "firefly-3.8b": (128, 32),
    "frontier-175b": (1024, 16),
}


def test_every_configuration_but_the_demo_is_published() -> None:
    assert set(named_configs()) == PUBLISHED.keys() | {"demo"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name: str) -> None:
    vocab_size, expected, published = PUBLISHED[name]
    model = load_config(name).model
    assert num_parameters(model, vocab_size) == expected
    digits = published.removesuffix(" B")
    assert f"{expected / 1e9:.{len(digits.partition('.')[2])}f}" == digits
    padding = (model.padded_vocab_size - vocab_size) * model.hidden_size
    assert num_parameters(model) == expected + padding * (1 if model.tied else 2)
    with torch.device("meta"):
        built = GPT(model)
    assert sum(parameter.numel() for parameter in built.parameters()) == num_parameters(model)


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layouts(name: str) -> None:
    num_ranks, num_replicas = LAYOUTS[name]
    config = load_config(name)
    assert config.parallel.tp * config.parallel.pp * num_replicas == num_ranks
    check_batch_sizes(config.training, num_replicas)


def test_published_lengths_of_runs() -> None:
    """Tokens: of the ASC22 task, Llama 2 and Llama 3."""
    for name, tokens in [("asc22-4.7b", 1e9), ("yuan-245b", 180e9), ("llama-2-7b", 2e12), ("llama-3-8b", 15e12)]:
        config = load_config(name)
        run = math.prod((config.training.num_steps, config.training.global_batch_size, config.model.sequence_length))
        assert run == pytest.approx(tokens, rel=5e-4)
