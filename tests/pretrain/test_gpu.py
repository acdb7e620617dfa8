"""What only a GPU can show. `-s` prints the figures."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data import Loader, Stream
from pretrain.data.in_memory import EOD, MemoryShard
from pretrain.model import gpt
from pretrain.model.attention import Attend, Dense, Flex, Parts, Varlen, attention_for, runs_of
from pretrain.model.attention_mask import Visibility
from pretrain.parallel.base import mesh
from pretrain.training.step import new_run, train_step
from tests.pretrain.tiny import VOCAB_SIZE, tiny_config

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # of drivers and compilers
]

# ---------------------------------------------------------------------------------------------- back-ends of attention

ROUNDING = 6e-3  # of bf16 outputs and gradients beside fp32, relative norms; measured on one H100: 1.9e-3 to 3.0e-3
MARKED = {"documents": Varlen, "documents and prefixes": Flex}


def documents(num_samples: int, num_tokens: int, has_prefixes: bool) -> Visibility:
    """Documents of 300 tokens on average, on the host; the prefix of each is its first half."""
    ids_BT = (torch.rand(num_samples, num_tokens, generator=torch.Generator().manual_seed(1)) < 1 / 300).cumsum(1).int()
    if not has_prefixes:
        return Visibility(ids_BT)
    firsts = [np.searchsorted(ids, ids) for ids in ids_BT.numpy()]
    lengths = [np.bincount(ids)[ids] for ids in ids_BT.numpy()]
    ends = [first + length // 2 for first, length in zip(firsts, lengths, strict=True)]
    return Visibility(ids_BT, torch.from_numpy(np.stack(ends)).int())


def with_gradients(attend: Attend, inputs: list[Tensor], weights: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = attend(*leaves)
    return [y, *torch.autograd.grad(y, leaves, weights.to(y.dtype))]


@pytest.mark.parametrize("shape", [(1, 4096, 32, 8, 128), (2, 3000, 6, 6, 96)])
@pytest.mark.parametrize("marked", MARKED)
def test_a_back_end_agrees_with_fp32_document_by_document(marked: str, shape: tuple[int, ...]) -> None:
    num_samples, num_tokens, heads, groups, size = shape
    visibility = documents(num_samples, num_tokens, "prefixes" in marked)
    generator = torch.Generator("cuda").manual_seed(2)
    draw = partial(torch.randn, generator=generator, device="cuda")
    inputs = [draw(num_samples, num_tokens, n, size).bfloat16().transpose(1, 2) for n in (heads, groups, groups)]
    weights = draw(num_samples, num_tokens, heads, size).bfloat16().transpose(1, 2)
    attend = attention_for(visibility, inputs[0], size, is_compiled=False)
    assert isinstance(attend, MARKED[marked])
    runs = runs_of(visibility)
    assert runs is not None
    expected = with_gradients(Parts(tuple(runs)), [x.float() for x in inputs], weights)
    found = with_gradients(attend, inputs, weights)
    off = [float((one - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True)]
    print(f"{marked}, {shape}: y, q, k, v off by {', '.join(f'{x:.1e}' for x in off)}")
    assert max(off) <= ROUNDING


def steps(config: RunConfig) -> list[tuple[float, float]]:
    """Losses and gradient norms of two steps, whose documents are not alike."""
    random = np.random.default_rng(3)
    tokens = random.integers(EOD + 1, VOCAB_SIZE, size=1 << 16)
    tokens[random.random(len(tokens)) < 1 / 300] = EOD
    with mesh.start(config.parallel, config.training.device, config.training.timeout_minutes) as world:
        stream = Stream([MemoryShard(tokens)], config.model.sequence_length, seed=0)
        run = new_run(config, world, Loader.of([stream], None, config, seed=0), order_from(config))
        return [(result.loss, result.grad_norm) for result in (train_step(run) for _ in range(2))]


def dense(visibility: Visibility, x_BTD: Tensor, *_: Any) -> Attend:
    shape = visibility.shape
    assert shape is not None
    return Dense(visibility.to(x_BTD.device).mask(range(shape[0]), range(shape[1]), range(shape[1])))


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("marked", MARKED)
def test_a_step_has_the_loss_and_gradient_of_the_dense_mask(marked: str, is_compiled: bool) -> None:
    sections: dict[str, Any] = {
        "model": {
            "hidden_size": 256,
            "num_heads": 4,
            "num_kv_heads": 2,
            "sequence_length": 2560,
            "document_mask": True,
        },
        "data": {"prefix_lm": "prefixes" in marked},
    }
    training = {"precision": "bf16", "device": "cuda", "global_batch_size": 2, "micro_batch_size": 2}
    taken: list[type] = []

    def noting(*arguments: Any) -> Attend:
        attend = attention_for(*arguments)
        taken.append(type(attend))
        return attend

    with mock.patch.object(gpt, "attention_for", noting):
        found = steps(tiny_config(**sections, training={**training, "compile": is_compiled}))
    assert set(taken) == {MARKED[marked]}
    with mock.patch.object(gpt, "attention_for", dense):
        expected = steps(tiny_config(**sections, training=training))
    print(f"{marked}, compiled {is_compiled}: loss and gradient norm {found}, with a dense mask {expected}")
    for (loss, norm), (other_loss, other_norm) in zip(found, expected, strict=True):
        assert abs(loss / other_loss - 1) <= 2e-3
        assert abs(norm / other_norm - 1) <= 2e-2
