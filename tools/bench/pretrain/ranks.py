"""Gloo ranks on this machine, for benchmarks: one thread each, forked from a server that has imported torch once."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "pretrain.training.step",
]
TIMEOUT = datetime.timedelta(minutes=2)  # for a rank that waits for another, and so the end of all where one fails


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
