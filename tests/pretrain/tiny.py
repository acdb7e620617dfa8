"""A run small enough for tests: two layers, a vocabulary of 250, and a stream of tokens with something to learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor

from corpus.engine.config import parse
from pretrain.checkpoint import Identity
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data import Loader, Stream
from pretrain.data.in_memory import MemoryShard
from pretrain.evaluation.held_out import HeldOut, split_documents
from pretrain.parallel.base import mesh
from pretrain.training.step import Run, new_run, train_step

EOD = 0
VOCAB_SIZE = 250
IDENTITY = Identity(data="d" * 64, tokenizer=Path(__file__), tokenizer_sha256="e" * 64)  # any file is copied alike


def tiny_loader(sequence_length: int = 16, **windows: Any) -> Loader:
    """Runs of counted numbers with end-of-document tokens between them."""
    random = np.random.default_rng(0)
    starts = random.integers(1, VOCAB_SIZE, size=400)
    documents = [
        np.append((start + np.arange(size)) % (VOCAB_SIZE - 1) + 1, EOD)
        for start, size in zip(starts, random.integers(3, 20, size=400), strict=True)
    ]
    return Loader([Stream([MemoryShard(np.concatenate(documents))], sequence_length, seed=7)], seed=7, **windows)


def tiny_held_out(num_tokens: int = 105) -> HeldOut:
    """Random documents of three sources, with texts that stand for theirs."""
    tokens = np.random.default_rng(1).integers(0, VOCAB_SIZE, num_tokens).astype(np.uint16)
    tokens[8::9] = tokens[-1] = EOD
    texts = ["字" * len(document) for document in split_documents(tokens, EOD)]
    return HeldOut(tokens, texts, EOD, [f"source {number % 3}" for number in range(len(texts))])


def tiny_config(**sections: Mapping[str, Any]) -> RunConfig:
    """The configuration of a tiny run; keyword arguments update its sections."""
    values: dict[str, Any] = {
        "model": {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "sequence_length": 16,
                  "vocab_size": VOCAB_SIZE, "padded_vocab_size": 256},
        "optimizer": {"learning_rate": 1e-2},
        "schedule": {"kind": "cosine", "warmup_steps": 2},
        "training": {"num_steps": 6, "global_batch_size": 8, "micro_batch_size": 2, "device": "cpu",
                     "timeout_minutes": 1.0, "max_grad_norm": 0.5},
        "checkpoint": {"every_steps": 2},
        "evaluation": {"every_steps": 100},
        "metrics": {"tensorboard": False},
    }  # fmt: skip
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    return parse(RunConfig, values, "tiny")


@contextmanager
def tiny_run(config: RunConfig) -> Iterator[Run]:
    """The run of this rank."""
    with mesh.start(config.parallel, config.training.device, config.training.timeout_minutes) as world:
        yield new_run(config, world, tiny_loader_of(config), order_from(config))


def tiny_loader_of(config: RunConfig) -> Loader:
    """The tiny loader with the windows of a configuration."""
    return tiny_loader(
        config.model.sequence_length,
        document_mask=config.model.document_mask,
        reset_positions=config.data.reset_positions,
        prefix_lm=config.data.prefix_lm,
    )


def train_steps(run: Run, num_steps: int) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of the next steps."""
    results = [train_step(run) for _ in range(num_steps)]
    return [result.loss for result in results], [result.grad_norm for result in results]


def whole_weights(run: Run) -> dict[str, NDArray[Any]]:
    """Every parameter in its logical shape, on every rank."""
    return _of_all_stages(run, {name: whole(parameter) for name, parameter in run.parameters.items()})


def whole_state(run: Run) -> dict[str, NDArray[Any]]:
    """Every tensor of the optimizer's state in its logical shape, on every rank."""
    held = {
        f"{name}.{key}": whole(value)
        for name, parameter in run.parameters.items()
        for key, value in run.optimizer.state[parameter].items()
    }
    return _of_all_stages(run, held)


def whole(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor that this rank holds a part of, in its logical shape."""
    tensor = tensor.detach()
    values: NDArray[Any] = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).numpy().copy()
    return values


def _of_all_stages(run: Run, held: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    by_rank: list[dict[str, NDArray[Any]]] = [{}] * run.world.pp_size
    dist.all_gather_object(by_rank, held, group=run.world.mesh.get_group("pp"))
    return {name: value for one in by_rank for name, value in one.items()}
