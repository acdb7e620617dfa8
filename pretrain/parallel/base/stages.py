"""How the layers of a model are cut into pipeline stages: consecutive, and of equal work.

A pipeline is as slow as its slowest stage. The head's product with the vocabulary is work too, as much as several
layers of a small model: the last stage has fewer layers than the others. A look-up in the embedding costs next to
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pretrain.config import ModelConfig
from pretrain.parallel.base.params import num_matmul_parameters


@dataclass(frozen=True)
class Stage:
    """A consecutive part of a model: the embedding belongs to the first stage, final norm and head to the last."""

    index: int
    layers: range
    is_first: bool
    is_last: bool


def whole(config: ModelConfig) -> Stage:
    """The whole model as one stage."""
    (stage,) = cut(config, 1)
    return stage


def cut(config: ModelConfig, num_stages: int, layers_per_stage: Sequence[int] | None = None) -> list[Stage]:
    """The stages of a model, in the order of its forward, each of one layer at least.

    >>> model = ModelConfig(num_layers=8, hidden_size=512, num_heads=8, sequence_length=512, padded_vocab_size=16384)
    >>> [len(stage.layers) for stage in cut(model, 4)]  # the head works more than two layers
    [3, 2, 2, 1]
    """
    counts = layers_per_stage or _balanced(config, num_stages)
    assert len(counts) == num_stages and sum(counts) == config.num_layers and min(counts) > 0, counts
    return [
        Stage(index, range(end - count, end), is_first=index == 0, is_last=index == num_stages - 1)
        for index, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True))
    ]


def layer_flops(config: ModelConfig) -> int:
    """Floating-point operations of one token's forward in one layer, its attention over the whole window."""
    matrices = (num_matmul_parameters(config) - config.padded_vocab_size * config.hidden_size) // config.num_layers
    return 2 * matrices + 4 * config.num_heads * config.head_size * config.sequence_length


def head_flops(config: ModelConfig) -> int:
    """Floating-point operations of one token's logits."""
    return 2 * config.padded_vocab_size * config.hidden_size


def _balanced(config: ModelConfig, num_stages: int) -> list[int]:
    """Layers of each stage for the least work of the slowest, then the most even work, then layers as early as can
    be."""
    if num_stages == 1:
        return [config.num_layers]
    layer, head = layer_flops(config), head_flops(config)

    def cost(counts: list[int]) -> tuple[int, int, int]:
        work = [count * layer for count in counts]
        work[-1] += head
        return max(work), sum(flops**2 for flops in work), counts[-1]

    most_in_last = config.num_layers - (num_stages - 1)
    return min(
        ([*_even(config.num_layers - last, num_stages - 1), last] for last in range(1, most_in_last + 1)), key=cost
    )


def _even(total: int, parts: int) -> list[int]:
    """`total` as `parts` numbers that differ by one at most, the larger ones first."""
    share, rest = divmod(total, parts)
    return [share + 1] * rest + [share] * (parts - rest)
