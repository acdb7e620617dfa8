"""What all benchmarks share: seconds of work, memory of this process as the kernel counts it (Linux only), lines of a
table. At the top only the standard library is imported, for the peers' scripts too."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")
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


def timed(work: Callable[[], Made], clock: Callable[[], float] = time.process_time) -> tuple[float, Made]:
    """Seconds of one call, of CPU or by another clock, and what it returns."""
    start = clock()
    made = work()
    return clock() - start, made


def seconds_of(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """The median time of several runs after one that is not counted: of CPU, or by another clock."""
    work()
    return statistics.median(timed(work, clock)[0] for _ in range(RUNS))


def take_turns(contenders: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median CPU seconds of each, one after the other in every round; the first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    for _ in range(rounds + 1):
        for name, work in contenders.items():
            seconds[name].append(timed(work)[0])
    return {name: statistics.median(turns[1:]) for name, turns in seconds.items()}


def show(what: str, rate: float, other: float | None = None, note: str = "") -> None:
    """One line of the table: MB/s, the ratio to `other`, and a note."""
    ratio = f"x {rate / other:,.2f}" if other else ""
    digits = 1 if rate >= 1 else 3
    print(f"{what:<46}{rate:>10,.{digits}f} MB/s {ratio:>11}   {note}".rstrip(), flush=True)


def status(field: str) -> int:
    """Bytes of a line of /proc/self/status: VmRSS (held now, mapped files included), VmHWM (at most)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def proportional() -> int:
    """Bytes held, each page that other processes hold too counted in part (PSS)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def run_measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What `work` returns; its seconds on the clock, RSS before, and the most memory it held beyond that."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, that of imports
    held = status("VmRSS")
    seconds, made = timed(work, time.perf_counter)
    return made, {"start_seconds": seconds, "held_bytes": held, "start_bytes": status("VmHWM") - held}


def watch_reads(read: Callable[[int, int], Any], num_samples: int, num_points: int) -> dict[str, Any]:
    """Call `read(start, stop)` up to `num_samples`: its CPU seconds, and [samples read, RSS, PSS] at each point."""
    curve, spent, done = [(0, status("VmRSS"), proportional())], 0.0, 0
    for point in range(1, num_points + 1):
        stop = num_samples * point // num_points
        spent += timed(partial(read, done, stop))[0]
        done = stop
        curve.append((done, status("VmRSS"), proportional()))
    return {"read_seconds": spent, "curve": curve}
