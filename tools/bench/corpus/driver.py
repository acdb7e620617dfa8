"""What a run's driver costs a task: dispatch, records, manifest and resume of tasks that do nothing, in a slow store.

    python -m tools.bench.corpus.driver                            100,000 tasks, 30 ms a request
    python -m tools.bench.corpus.driver --tasks 1_000_000
    python -m tools.bench.corpus.driver --profile                  and the functions that the time goes to

No worker runs: a simulated executor puts an empty output and the task's record into the store, behind its weather, and
answers at once. So what is timed is the driver and its requests, and what the executor does, which is told. The run is
stopped half way, resumed, and asked for again when all is done. `tools.weather` counts the requests and slows them.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import fsspec

from corpus.engine import durable, run
from corpus.engine.errors import Stopped
from corpus.engine.executor import Call, Outcome
from corpus.engine.retries import RequestCounts
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from tools.bench.timing import status
from tools.weather import faults
from tools.weather.faults import Weather
from tools.weather.filesystem import WeatherFileSystem

OUT = "weather://bench/out"
ROWS_SHOWN = 14


@dataclass(frozen=True)
class Nothing(Stage):
    """Tasks that do nothing."""

    name: ClassVar[str] = "nothing"
    version: ClassVar[int] = 1

    tasks: int

    def config(self) -> dict[str, Any]:
        """How many."""
        return {"tasks": self.tasks}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """So many."""
        return [Task(f"{number:07d}") for number in range(self.tasks)]

    def run(self, task: Task, out: Output) -> Counts:
        """Never called."""
        raise NotImplementedError


class SimulatedExecutor:
    """Does every call at once, and is stopped after some of them; `seconds` is its own time."""

    def __init__(self, root: str, stops_after: int) -> None:
        self.root, self.left, self.seconds = Path(root), stops_after, 0.0

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """One outcome a call."""
        counts, entry = asdict(Counts(1, 1, 9, 9)), {"bytes": 0, "rows": 1, "sha256": "0" * 64}
        for call in calls:
            if not self.left:
                raise KeyboardInterrupt
            start = time.perf_counter()
            self.left -= 1
            task: Task = call.arguments[1]
            folder, name = self.root / call.arguments[2].removeprefix("weather://"), f"data/{task.name}.parquet"
            if not (folder / "data").exists():
                (folder / "data").mkdir(parents=True)
                (folder / "done").mkdir()
            record = {"task": task.name, "digest": task.digest, "counts": counts, "files": {name: entry}}
            (folder / name).touch()
            (folder / f"done/{task.name}.json").write_bytes(durable.json_bytes(record))
            self.seconds += time.perf_counter() - start
            yield Outcome(call.name, (0.0, 0, RequestCounts(), record))


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line a run, and the driver's own functions by time."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.corpus.driver",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", type=lambda text: int(text.replace("_", "")), default=100_000)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds a request (default 0.03)")
    parser.add_argument("--profile", action="store_true", help="the functions that the driver spends its time in")
    args = parser.parse_args(argv)
    fsspec.register_implementation("weather", WeatherFileSystem, clobber=True)
    with tempfile.TemporaryDirectory() as folder:
        weather = Weather(root=f"{folder}/store", log=f"{folder}/log", latency=args.latency)
        os.environ |= faults.environment(weather, Path(folder))
        profile = cProfile.Profile()
        if args.profile:
            profile.enable()
        whole = own = 0.0
        known = Counter[str]()
        for name, stops_after in (("first half", args.tasks // 2 + 1), ("resumed", args.tasks), ("again", 0)):
            cpu, start = time.process_time(), time.perf_counter()
            executor = SimulatedExecutor(weather.root, stops_after)
            with mock.patch.object(run, "_executor", lambda *_, it=executor: it), suppress(Stopped):
                run.run_stages([Nothing(args.tasks)], OUT)
            spent, cpu = time.perf_counter() - start, time.process_time() - cpu
            asked = Counter(one.kind for one in faults.made(weather.log)) - known
            known += asked
            requests = ", ".join(f"{count:,} {kind}" for kind, count in sorted(asked.items()))
            print(
                f"{name:<12}{spent:8.1f} s  {cpu:8.1f} s CPU, {executor.seconds:.1f} s of them the executor's  "
                f"{asked.total():,} requests ({requests})  peak {status('VmHWM') / 1e6:,.0f} MB",
                flush=True,
            )
            whole, own = whole + spent, own + executor.seconds
        profile.disable()
        rate = args.tasks / (whole - own)
        print(f"{args.tasks:,} tasks: {whole:.1f} s in all, {rate:,.0f} tasks a second without the executor's time")
        if args.profile:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(ROWS_SHOWN)


if __name__ == "__main__":
    main()
