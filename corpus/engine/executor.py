"""Run N independent tasks: a local pool of processes that attributes a dead or hung worker to its task.

`multiprocessing.Pool` never returns the task of a killed worker and `ProcessPoolExecutor` fails 34 of 40 tasks for one
death (measured). pebble fails only the task that died, but its workers share one locked queue: a worker killed while it
was idle broke the whole pool, and one that left with exit code 0 hung it. Here every worker has a pipe of its own and
holds one task at a time, so nothing is shared that a death could take along; the price is one round trip of 0.1 ms a
task. Workers are forked from a clean server process, ignore Ctrl-C (the parent decides), and end themselves when their
parent dies, so no orphan writes beside a new run.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from corpus.engine.errors import DiskError, SetupError, TransientError, WenhaiError

DEATHS_BEFORE_GIVING_UP = 2  # the first may be another task's fault: the kernel's victim is whoever is large just then
TRIES_OF_TRANSIENT = 3  # by any worker, by any again, by another
SECONDS_TO_DIE = 5.0
MEMBERSHIP, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS")


def available_cpus() -> int:
    """How many CPUs this process may use: those of its affinity, and no more than the quotas of its cgroups (v1 and
    v2) grant, the last part of one counted whole."""
    quotas: list[float] = [len(os.sched_getaffinity(0))]
    with suppress(OSError):
        for line in MEMBERSHIP.read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if not controllers:
                quotas += _quotas(CGROUPS, place, "cpu.max")
            elif "cpu" in controllers.split(","):
                quotas += _quotas(CGROUPS / "cpu", place, "cpu.cfs_quota_us", "cpu.cfs_period_us")
    return max(1, math.ceil(min(quotas)))


def _quotas(mount: Path, place: str, *names: str) -> Iterator[float]:
    """CPUs that a group and those above it grant; a container sees its own group as the mount itself."""
    folder = mount / place.lstrip("/")
    for group in (folder, *folder.parents):
        with suppress(OSError, ValueError):  # no such file, "max"
            quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
            if quota > 0 and period > 0:  # -1: none
                yield quota / period
        if group == mount:
            return


@dataclass(frozen=True)
class Outcome:
    """What became of a call: `value`, or `failure` in words with its `kind`.

    Kinds: done; error; disk (it takes no more); transient (a store refused too often, `retries`); killed and timeout
    (the worker died, or had to); setup (this machine of a cluster cannot do the work at all: other code, or another
    disk; or a server that all tasks need is gone).
    """

    name: str
    value: Any = None
    kind: str = "done"
    failure: str = ""
    machine: str = ""  # of a cluster, where it was transient


@dataclass(frozen=True)
class Call:
    """A named call of a module-level function with picklable arguments.

    `label` names it where calls of all stages are shown together; a cluster places it where `cpus` and `memory_bytes`
    are free (0: no request).
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    timeout_seconds: float | None = None
    label: str = ""
    cpus: float = 1.0
    memory_bytes: int = 0


class Executor(Protocol):
    """Runs calls in any order and yields an outcome for each; nothing else knows where they run."""

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, as they finish."""


class InlineExecutor:
    """Runs calls one after another in this process: for tests and for debugging with a debugger."""

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, in order."""
        for number in range(1, TRIES_OF_TRANSIENT + 1):
            again: list[Call] = []
            for call in calls:
                outcome = attempt(call)
                if outcome.kind == "transient" and number < TRIES_OF_TRANSIENT:
                    again.append(call)
                else:
                    yield outcome
            calls = again


class ProcessExecutor:
    """A pool of worker processes on this machine, started as they are needed; use it as a context manager."""

    def __init__(self, workers: int) -> None:
        for name in SINGLE_THREADED:
            os.environ.setdefault(name, "1")
        self.workers = workers
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def __enter__(self) -> ProcessExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._busy:
            worker.kill()
        for worker in self._idle:
            worker.close()

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, as they finish; a call whose worker died is tried once more.

        That is done last, in a fresh worker and with no other beside it: what took too much memory among others may
        have enough of it alone. What a store refused is tried again behind all others, and then in other workers.
        """
        died: list[Call] = []
        for number in range(1, TRIES_OF_TRANSIENT + 1):
            again: list[Call] = []
            for call, outcome in self._run(calls, self.workers):
                if outcome.kind == "killed":
                    died.append(call)
                elif outcome.kind == "transient" and number < TRIES_OF_TRANSIENT:
                    again.append(call)
                else:
                    yield outcome
            calls = again
            while number > 1 and again and self._idle:
                self._idle.pop().close()
        for call in died:
            while self._idle:
                self._idle.pop().close()
            yield from (outcome for _, outcome in self._run([call], workers=1))

    def _run(self, calls: Iterable[Call], workers: int) -> Iterator[tuple[Call, Outcome]]:
        waiting = iter(calls)
        while True:
            while len(self._busy) < workers and (call := next(waiting, None)):
                worker = self._idle.pop() if self._idle else _Worker()
                self._busy.append(worker)
                worker.start(call)
            if not self._busy:
                return
            first = min(worker.deadline for worker in self._busy)
            seconds = None if first == math.inf else max(0.0, first - time.monotonic())
            wait([end for worker in self._busy for end in worker.ends], seconds)
            for worker in list(self._busy):
                if (outcome := worker.outcome()) is None:
                    continue
                self._busy.remove(worker)
                if worker.is_alive:
                    self._idle.append(worker)
                yield worker.call, outcome


class _Worker:
    """A process and our end of its pipe; `call` is what it works on, or worked on last."""

    call: Call

    def __init__(self) -> None:
        context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        try:
            self._process.start()
        except OSError as error:
            if "AF_UNIX" not in str(error):  # the fork server's socket lies in the folder for temporary files
                raise
            folder = tempfile.gettempdir()
            raise WenhaiError(
                f"{folder}: too long a path for a socket (Unix allows about 100 bytes). Set TMPDIR to a shorter one."
            ) from error
        theirs.close()
        self.is_alive = True
        self.deadline = math.inf

    @property
    def ends(self) -> tuple[Connection, int]:
        """What becomes readable when the worker answers or dies."""
        return self._pipe, self._process.sentinel

    def start(self, call: Call) -> None:
        """Send a call; a worker that has died meanwhile is found out by `outcome`."""
        self.call = call
        self.deadline = time.monotonic() + (math.inf if call.timeout_seconds is None else call.timeout_seconds)
        with suppress(BrokenPipeError):
            self._pipe.send(call)

    def outcome(self) -> Outcome | None:
        """The outcome of the call, or None while it runs."""
        try:
            if self._pipe.poll():
                outcome: Outcome = self._pipe.recv()
                return outcome
            if self._process.is_alive():
                if time.monotonic() < self.deadline:
                    return None
                self.kill()
                failure = f"ran longer than {self.call.timeout_seconds:g} s and was stopped"
                return Outcome(self.call.name, kind="timeout", failure=failure)
        except (EOFError, OSError):  # it died, perhaps in the middle of its answer
            self._process.join(SECONDS_TO_DIE)  # a closed pipe comes before the exit code
        self.kill()
        return Outcome(self.call.name, kind="killed", failure=_death(self._process.exitcode))

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Hang up: a worker without a task then leaves by itself, unless a library's thread holds it."""
        self.is_alive = False
        self._pipe.close()
        self._process.join(SECONDS_TO_DIE)
        self._process.kill()
        self._process.join()


def describe(error: BaseException) -> str:
    """One line for a person: our own errors speak for themselves, others are named."""
    text = str(error).strip()
    if isinstance(error, WenhaiError):
        return text
    first = text.splitlines()[0][:300] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def attempt(call: Call) -> Outcome:
    """Make a call; its errors become words here, because not every exception survives the way to another process."""
    try:
        return Outcome(call.name, call.function(*call.arguments))
    except (Exception, SystemExit) as error:
        kinds = {DiskError: "disk", SetupError: "setup", TransientError: "transient"}
        kind = next((kind for each, kind in kinds.items() if isinstance(error, each)), "error")
        return Outcome(call.name, kind=kind, failure=describe(error))


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = " (out of memory? run with fewer workers)" if name == "SIGKILL" else ""
        return f"its worker was killed by {name}{hint}"
    return f"its worker exited with code {exitcode}"


def _work(pipe: Connection) -> None:
    """What a worker does: calls from the pipe, one after another, until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            call = pipe.recv()
        except EOFError:
            return
        outcome = attempt(call)
        try:
            pipe.send(outcome)
        except Exception as error:  # a value that cannot be pickled; nothing of it was sent
            pipe.send(Outcome(call.name, kind="error", failure=describe(error)))


def _die_with_parent() -> None:
    """The kernel's own PR_SET_PDEATHSIG does not do: a worker's parent there is the fork server, which outlives us."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
