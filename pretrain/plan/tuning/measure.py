"""Some real steps of a configuration on this machine, in processes of their own: how long they take, how much memory,
or why not.

Each rank is a new process, started as `train` starts its own, which trains on random tokens (the speed of a step does
not depend on them) and writes what it found into a folder. The caller survives whatever they do, and none of them
outlives the call. What ends a rank is told apart, because a tuner must: what needs too much memory is an answer, a bug
is none.

| out of memory | |
|---|---|
| CUDA's or the host allocator's | `torch.OutOfMemoryError`, `MemoryError`, or an allocator's words in another error |
| refused before it began | `monitor.memory.check`: less is there than is certain to be needed |
| killed | SIGKILL that was not ours: the kernel's, when memory runs out |
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError

from corpus.engine.config import Strict
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.batch_size import check_batch_sizes
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.errors import FailedRank, LostRank
from pretrain.launch import start_ranks
from pretrain.monitor import memory
from pretrain.monitor.memory import process_bytes
from pretrain.parallel.base import mesh
from pretrain.training.step import new_run
from pretrain.training.timing import timed_steps

Outcome = Literal["done", "out of memory", "failed"]

GRACE_SECONDS = 10.0  # for the other ranks to say what they know, once one has failed
POLL_SECONDS = 0.02
MOST_MESSAGE = 400  # characters of an error that are kept
OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc|not enough memory", re.I
)


@dataclass(frozen=True)
class Measurement:
    """What came of it. Of a run that did not end there are no seconds."""

    outcome: Outcome
    seconds: tuple[float, ...] = ()  # of each measured step, on its slowest rank
    rank_peak_bytes: tuple[int, ...] = ()  # see `peak_bytes`; of the ranks that could tell
    message: str = ""  # why it is not done

    @property
    def step_seconds(self) -> float | None:
        """The median step."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def peak_bytes(self) -> int | None:
        """The most that any rank took: what a GPU's allocator held, or on a CPU what the process held beyond its
        start."""
        return max(self.rank_peak_bytes, default=None)


class RankReport(Strict):
    """What one rank writes."""

    outcome: Outcome
    seconds: list[float] = []
    peak_bytes: int = 0
    message: str = ""
    is_of_another: bool = False  # it failed because another rank did


class Order(Strict):
    """What a rank is told."""

    config: RunConfig
    steps: int
    warm_up: int


def measure(
    config: RunConfig, num_ranks: int, *, steps: int = 5, warm_up: int = 2, timeout: float = 600.0
) -> Measurement:
    """Train `warm_up` + `steps` steps on `num_ranks` ranks here; on a CPU with one thread each, unless OMP_NUM_THREADS
    says more.

    Args:
        timeout: seconds after which all ranks are killed; what they were about is then "failed".

    Raises:
        ValueError: there is nothing to measure.
    """
    if num_ranks < 1 or steps < 1 or warm_up < 0:
        raise ValueError(f"{num_ranks} ranks, {steps} steps after {warm_up}: there must be one to measure")
    training = config.training.model_copy(update={"rampup": None})
    order = Order(config=config.model_copy(update={"training": training}), steps=steps, warm_up=warm_up)
    with tempfile.TemporaryDirectory(prefix="measure-") as name:
        folder = Path(name)
        (folder / "order.json").write_text(order.model_dump_json(exclude_none=True), encoding="utf-8")
        command = [sys.executable, "-m", "pretrain.plan.tuning.measure", name]
        return run(command, num_ranks, folder, timeout)


def run(command: Sequence[str], num_ranks: int, folder: Path, timeout: float) -> Measurement:
    """Start a command on `num_ranks` ranks, which write their reports into a folder, and see what becomes of them."""
    outputs = [folder / f"rank-{rank}.log" for rank in range(num_ranks)]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}  # or fewer ranks would have more threads each
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for process in start_ranks(command, num_ranks, variables=threads, outputs=outputs):
            ranks.append(process)
        codes = _wait(ranks, time.monotonic() + timeout)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    reports = [_report(folder, rank, code) for rank, code in enumerate(codes)]
    return _verdict(reports, timeout)


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: float) -> list[int | None]:
    """Exit codes by rank; None: it had to be killed."""
    failed = False
    while True:
        codes = [process.poll() for process in ranks]
        if None not in codes or time.monotonic() > deadline:
            return codes
        if not failed and any(codes):
            failed, deadline = True, min(deadline, time.monotonic() + GRACE_SECONDS)
        time.sleep(POLL_SECONDS)


def _report(folder: Path, rank: int, code: int | None) -> RankReport | None:
    """What became of a rank; None where it never ended, and was killed for that."""
    with suppress(OSError, ValidationError):  # it died before, or in the middle
        return RankReport.model_validate_json((folder / f"rank-{rank}.json").read_bytes())
    if code is None:
        return None
    if code == -signal.SIGKILL:
        killed = f"rank {rank} was killed, as the kernel does when memory runs out"
        return RankReport(outcome="out of memory", message=killed)
    said = (folder / f"rank-{rank}.log").read_text(encoding="utf-8", errors="replace").strip()
    last = (said.splitlines() or [""])[-1]
    reason = f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    outcome: Outcome = "out of memory" if OUT_OF_MEMORY.search(last) else "failed"
    return RankReport(outcome=outcome, message=_short(f"rank {rank} {reason}: {last}".rstrip(": ")))


def _verdict(reports: Sequence[RankReport | None], timeout: float) -> Measurement:
    """One rank without memory explains what the others say; else one that failed does."""
    told = sorted((report for report in reports if report is not None), key=lambda report: report.is_of_another)
    peaks = tuple(report.peak_bytes for report in told if report.peak_bytes)
    for outcome in ("out of memory", "failed"):
        for report in told:
            if report.outcome == outcome:
                return Measurement(report.outcome, rank_peak_bytes=peaks, message=report.message)
    if len(told) < len(reports):
        silent = ", ".join(str(rank) for rank, report in enumerate(reports) if report is None)
        return Measurement("failed", rank_peak_bytes=peaks, message=f"not done after {timeout:g} s (ranks {silent})")
    return Measurement("done", tuple(told[0].seconds), peaks)


def outcome_of(error: BaseException) -> Outcome:
    """Whether an error says that there was too little memory; torch has no type of its own for the host's."""
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
        return "out of memory"
    return "failed"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MOST_MESSAGE else line[: MOST_MESSAGE - 3] + "..."


def rank_main(folder: Path) -> int:
    """On a rank: train, and leave a report; returns the exit code."""
    rank = int(os.environ["RANK"])
    order = Order.model_validate_json((folder / "order.json").read_bytes(), strict=False)
    report = train_rank(order.config, order.steps, order.warm_up)
    scratch = folder / f"rank-{rank}.tmp"
    scratch.write_text(report.model_dump_json(), encoding="utf-8")
    scratch.rename(folder / f"rank-{rank}.json")
    return int(report.outcome != "done")


def train_rank(config: RunConfig, steps: int, warm_up: int) -> RankReport:
    """On a rank of a job: join it, train, and tell what came of it; only a bug raises."""
    before = 0
    try:
        with mesh.start(config.parallel, config.training.device, config.training.timeout_minutes) as world:
            before = _start_counting()
            check_batch_sizes(config.training, world.dp_size)
            try:
                memory.check(config, world)
            except UsageError as error:
                return RankReport(outcome="out of memory", message=_short(str(error).partition(" Estimated")[0]))
            run = new_run(config, world, memory_loader(random_tokens(config), config), order_from(config))
            seconds = timed_steps(run, warm_up, steps)
            return RankReport(outcome="done", seconds=seconds, peak_bytes=_peak(before))
    except (WenhaiError, RuntimeError, MemoryError) as error:
        is_of_another = isinstance(error, LostRank | FailedRank)
        outcome: Outcome = "failed" if is_of_another else outcome_of(error)
        message = _short(f"rank {os.environ['RANK']}: {error}")
        return RankReport(outcome=outcome, peak_bytes=_peak(before), message=message, is_of_another=is_of_another)


def _start_counting() -> int:
    """Bytes that the process holds before it has a model; the highest mark is set back to them."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return process_bytes()


def _peak(before: int) -> int:
    """What the model and its training took at the most, on the device that computes."""
    if on_gpu := torch.cuda.max_memory_allocated():
        return on_gpu
    numbers = dict(re.findall(r"^(VmHWM|RssFile):\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M))
    return max(0, (int(numbers["VmHWM"]) - int(numbers["RssFile"])) * 1024 - before)


if __name__ == "__main__":
    code = rank_main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # as `pretrain.__main__` does: a gloo thread may keep a process from ending
