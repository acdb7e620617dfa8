"""Seconds of work and lines of a table: what all benchmarks share."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

RUNS = 3


@contextmanager
def one_core() -> Iterator[int]:
    """Keep this process to one core in the block, which gets the number that there were."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield len(cores)
    finally:
        os.sched_setaffinity(0, cores)


def num_bytes(texts: Any) -> int:
    """UTF-8 bytes of an Arrow string array."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def speed(size: int, work: Callable[[], Any]) -> float:
    """MB of `size` bytes for each CPU second of `work`."""
    return size / 1e6 / seconds_of(work)


def in_child(work: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """What a call returns in a process of its own: what that loads, holds and remembers is its own too."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *values, **named).result()


def seconds_of(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """The median time of several runs after one that is not counted: of CPU, or by another clock."""
    work()
    times = []
    for _ in range(RUNS):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def show(what: str, rate: float, other: float | None = None, note: str = "") -> None:
    """One line of the table: MB/s, the ratio to `other`, and a note."""
    ratio = f"x {rate / other:,.2f}" if other else ""
    digits = 1 if rate >= 1 else 3
    print(f"{what:<46}{rate:>10,.{digits}f} MB/s {ratio:>11}   {note}".rstrip(), flush=True)
