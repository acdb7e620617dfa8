"""A training run on random tokens in memory, and gloo ranks on this machine: one thread each, forked from a server that
has imported torch once."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from numpy.typing import NDArray

from corpus.engine.config import parse
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.parallel.base.mesh import World
from pretrain.training.step import Run, new_run

__all__ = ["configuration", "merge_sections", "on_ranks", "random_run", "random_tokens"]
PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "pretrain.training.step",
]
TIMEOUT = datetime.timedelta(minutes=2)  # for a rank that waits for another, and so the end of all where one fails


def configuration(*sections: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """A run of windows of 256 tokens; later sections change earlier ones."""
    values: dict[str, Any] = {
        "model": {"sequence_length": 256},
        "optimizer": {"learning_rate": 1e-3},
        "training": {"num_steps": 1000, "device": "cpu", "timeout_minutes": 1.0},
        "checkpoint": {"every_steps": 1000},
        "evaluation": {"every_steps": 1000},
    }
    return parse(RunConfig, merge_sections(values, *sections), "bench")


def merge_sections(*sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Later sections over earlier ones."""
    values: dict[str, dict[str, Any]] = {}
    for each in sections:
        for name, section in each.items():
            values[name] = {**values.get(name, {}), **section}
    return values


def random_run(config: RunConfig, world: World, tokens: NDArray[Any]) -> Run:
    """This rank's part of a run that reads these tokens."""
    return new_run(config, world, memory_loader(tokens, config), order_from(config))


def on_ranks(work: Callable[..., Any], num_ranks: int, *arguments: Any) -> list[Any]:
    """What `work(*arguments)` returns on each rank of a new process group, by rank."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(num_ranks, mp_context=context) as pool:
        futures = [
            pool.submit(_rank, f"file://{folder}/meeting", rank, num_ranks, work, arguments)
            for rank in range(num_ranks)
        ]
        return [future.result() for future in futures]


def _rank(meeting: str, rank: int, num_ranks: int, work: Callable[..., Any], arguments: Any) -> Any:
    import torch
    import torch.distributed as dist

    from pretrain.parallel.base.mesh import use_one_gloo_worker

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
    torch.set_num_threads(1)
    use_one_gloo_worker()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=num_ranks, timeout=TIMEOUT)
    try:
        return work(*arguments)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
