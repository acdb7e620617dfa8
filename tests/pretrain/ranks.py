"""Gloo ranks for tests: children forked from a server that has torch imported, a file as meeting place, a hard
deadline.

A wrong size in gloo ends the process, not with an exception: so ranks are never this process.

| | processes | for |
|---|---|---|
| `run_ranks` | new ones each time | what kills, signals or patches its process, or counts what happens in it |
| `reused_ranks` | stay for the next call of as many ranks | everything else: a case costs a quarter as much CPU |

What a reused rank saves is the fork, and the first use of each operation of DTensor, whose placements torch works out
once a process. Its groups stay, too: a mesh of the same shape is the same mesh. A thread of each wakes a hundred times
a second, so few are kept: put cases of one shape one after another.
"""

from __future__ import annotations

import datetime
import functools
import multiprocessing as mp
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fork_server import ForkServer

PRELOADED = [
    *("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"),
    *("pretrain.run.train", "pretrain.checkpoint"),
    *("pytest", "hypothesis", "tests.pretrain.tiny", "tests.pretrain.texts"),  # which the modules of tests import
]
MOST_REUSED_RANKS = 8  # of all sizes together
MOST_GROUPS = 16  # of a reused rank; a mesh has four


class RanksFailed(AssertionError):
    """A rank raised, died or did not end in time; `codes` are the exit codes of those that ended."""

    def __init__(self, message: str, codes: Sequence[int | None]) -> None:
        super().__init__(message)
        self.codes = codes


class Ranks:
    """A process group of `num_ranks` children that run one function after another."""

    def __init__(self, num_ranks: int) -> None:
        context = mp.get_context("forkserver")
        self._folder = Path(tempfile.mkdtemp())
        pipes = [context.Pipe() for _ in range(num_ranks)]
        self.num_groups = 1  # that a rank holds after its last function
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_rank, args=(rank, num_ranks, self._folder, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            _server.start(process)
            theirs.close()

    def run(self, function: Callable[..., Any], *args: Any, keeps_groups: bool, deadline_seconds: float) -> list[Any]:
        """`function(*args)` on every rank; their results by rank.

        A rank does not end before all have answered: of a group that one rank has made and left, another may not have
        made its connections yet.
        """
        for pipe in self._pipes:
            with suppress(OSError):  # a rank that died as it started is told by its exit code
                pipe.send((keeps_groups, function, args))
        answers = _collect(self._processes, self._pipes, time.monotonic() + deadline_seconds)
        self.num_groups = max(num_groups for num_groups, _ in answers)
        return [value for _, value in answers]

    def end(self) -> None:
        """Kill what still runs."""
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.kill()
            process.join()
            pipe.close()
        shutil.rmtree(self._folder)


_server = ForkServer(*PRELOADED)
_reused: dict[int, Ranks] = {}  # by their number, the last used last


def run_ranks(function: Callable[..., Any], num_ranks: int, *args: Any, deadline_seconds: float = 200) -> list[Any]:
    """`function(*args)` on every rank of a new process group; their results by rank."""
    ranks = Ranks(num_ranks)
    try:
        return ranks.run(function, *args, keeps_groups=False, deadline_seconds=deadline_seconds)
    finally:
        ranks.end()


def reused_ranks(function: Callable[..., Any], num_ranks: int, *args: Any, deadline_seconds: float = 200) -> list[Any]:
    """As `run_ranks`, on processes that earlier calls have used; after any failure they are replaced."""
    ranks = _reused.pop(num_ranks, None)
    while num_ranks + sum(_reused) > MOST_REUSED_RANKS and _reused:
        _reused.pop(next(iter(_reused))).end()
    ranks = ranks or Ranks(num_ranks)
    try:
        values = ranks.run(function, *args, keeps_groups=True, deadline_seconds=deadline_seconds)
    except BaseException:
        ranks.end()
        raise
    if ranks.num_groups > MOST_GROUPS:
        ranks.end()
    else:
        _reused[num_ranks] = ranks
    return values


def end_reused_ranks() -> None:
    """At the end of the session."""
    while _reused:
        _reused.popitem()[1].end()


def _collect(processes: Sequence[Any], readers: Sequence[Connection], deadline: float) -> list[Any]:
    results: dict[int, Any] = {}
    problems: list[str] = []
    pending = dict(enumerate(readers))
    while pending and time.monotonic() < deadline:
        ready = wait(list(pending.values()), timeout=0.2)
        for rank in [rank for rank, reader in pending.items() if reader in ready]:
            try:
                ok, value = pending.pop(rank).recv()
            except (EOFError, OSError):
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
            if rank not in pending:
                readers[rank].close()  # those that wait for another function end
            process.join(0 if rank in pending else 60)
        problems += [f"rank {rank}: still running at the deadline" for rank in pending]
        raise RanksFailed("\n".join(sorted(problems)), [process.exitcode for process in processes])
    return [results[rank] for rank in range(len(processes))]


def _rank(rank: int, num_ranks: int, folder: Path, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _world

    from pretrain.parallel.base.mesh import use_one_gloo_worker

    environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(num_ranks), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    use_one_gloo_worker()
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'meeting'}",
            rank=rank,
            world_size=num_ranks,
            timeout=datetime.timedelta(seconds=60),
        )
        while True:
            keeps_groups, function, args = pipe.recv()
            if keeps_groups:
                _keep_groups()
            os.environ.clear()
            os.environ |= environment
            value = function(*args)
            pipe.send((True, (len(_world.pg_map), value)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)


def _keep_groups() -> None:
    """At the end of a run keep the groups of its mesh: the next run on a mesh of this shape uses them again.

    torch keeps placements by mesh, and takes meshes of the same ranks for equal: one whose groups were gone would be
    used in place of its living successor. Other groups (the channels of a pipeline) end with their run.
    """
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _world

    from pretrain.parallel.base import mesh

    if hasattr(mesh.init_device_mesh, "cache_clear"):
        return
    make_mesh, destroy, kept = mesh.init_device_mesh, dist.destroy_process_group, set[Any]()

    @functools.cache
    def kept_mesh(*args: Any, **options: Any) -> Any:
        made = make_mesh(*args, **options)
        kept.update(_world.pg_map)
        return made

    def leave(_: Any = None) -> None:
        for group in set(_world.pg_map) - kept:
            destroy(group)

    mesh.init_device_mesh, dist.destroy_process_group = kept_mesh, leave
