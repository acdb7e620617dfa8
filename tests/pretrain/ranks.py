"""Gloo ranks for tests: children forked from a server that has torch imported, a file as meeting place, a hard deadline.

A wrong size in gloo ends the process, not with an exception: so ranks are never this process.
"""

from __future__ import annotations

import datetime
import multiprocessing as mp
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PRELOADED = ["torch", "torch._dynamo", "torch.distributed.fsdp", "pretrain.train", "pretrain.checkpoint"]


class RanksFailed(AssertionError):
    """A rank raised, died or did not end in time; `codes` are the exit codes of those that ended."""

    def __init__(self, message: str, codes: Sequence[int | None]) -> None:
        super().__init__(message)
        self.codes = codes


def run_ranks(function: Callable[..., Any], num_ranks: int, *args: Any, deadline_seconds: float = 200) -> list[Any]:
    """`function(*args)` on every rank of a process group; their results by rank."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(num_ranks)]
        processes = [
            context.Process(target=_rank, args=(rank, num_ranks, folder, writer, function, args), daemon=True)
            for rank, (_, writer) in enumerate(pipes)
        ]
        for process, (_, writer) in zip(processes, pipes, strict=True):
            process.start()
            writer.close()
        try:
            return _collect(processes, [reader for reader, _ in pipes], time.monotonic() + deadline_seconds)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _collect(processes: Sequence[Any], readers: Sequence[Connection], deadline: float) -> list[Any]:
    results: dict[int, Any] = {}
    problems: list[str] = []
    pending = dict(enumerate(readers))
    while pending and time.monotonic() < deadline:
        ready = wait(list(pending.values()), timeout=0.2)
        for rank in [rank for rank, reader in pending.items() if reader in ready]:
            try:
                ok, value = pending.pop(rank).recv()
            except EOFError:
                processes[rank].join(60)
                ok, value = False, f"died with exit code {processes[rank].exitcode}"
            if ok:
                results[rank] = value
            else:
                problems.append(f"rank {rank}: {value}")
        if problems and len(problems) + len(results) < len(processes):
            deadline = min(deadline, time.monotonic() + 10)
    if problems or pending:
        for rank, process in enumerate(processes):
            process.join(0 if rank in pending else 60)
        problems += [f"rank {rank}: still running at the deadline" for rank in pending]
        raise RanksFailed("\n".join(sorted(problems)), [process.exitcode for process in processes])
    return [results[rank] for rank in range(len(processes))]


def _rank(
    rank: int, num_ranks: int, folder: str, writer: Connection, function: Callable[..., Any], args: Sequence[Any]
) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(num_ranks), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{Path(folder, 'meeting')}",
            rank=rank,
            world_size=num_ranks,
            timeout=datetime.timedelta(seconds=60),
        )
        writer.send((True, function(*args)))
    except BaseException:
        writer.send((False, traceback.format_exc()))
    finally:
        writer.close()
        os._exit(0)
