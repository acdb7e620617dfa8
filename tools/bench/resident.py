"""The memory of this process, as the kernel counts it (Linux only); standard library alone, for the peers' scripts
too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def started(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What `work` returns; its seconds on the clock, RSS before, and the most memory it held beyond that."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, that of imports
    held, start = status("VmRSS"), time.perf_counter()
    made = work()
    seconds = time.perf_counter() - start
    return made, {"start_seconds": seconds, "held_bytes": held, "start_bytes": status("VmHWM") - held}


def watched(read: Callable[[int, int], Any], num_samples: int, num_points: int) -> dict[str, Any]:
    """Call `read(start, stop)` up to `num_samples`: its CPU seconds, and [samples read, RSS, PSS] at each point."""
    curve, spent, done = [(0, status("VmRSS"), proportional())], 0.0, 0
    for point in range(1, num_points + 1):
        stop = num_samples * point // num_points
        start = time.process_time()
        read(done, stop)
        spent += time.process_time() - start
        done = stop
        curve.append((done, status("VmRSS"), proportional()))
    return {"read_seconds": spent, "curve": curve}
