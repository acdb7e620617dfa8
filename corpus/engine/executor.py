"""Run N independent tasks: a local pool of processes that attributes a dead or hung worker to its task.

`multiprocessing.Pool` never returns the task of a killed worker and `ProcessPoolExecutor` fails 34 of 40 tasks for one
death (measured); pebble fails exactly the task that died. Workers are forked from a clean server process, ignore Ctrl-C
(the parent decides), and are killed by the kernel when their parent dies, so no orphan writes beside a new run.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, TimeoutError, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from corpus.engine.errors import WenhaiError

PR_SET_PDEATHSIG = 1
TASKS_IN_FLIGHT_PER_WORKER = 2
DEATHS_BEFORE_GIVING_UP = 2
SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Outcome:
    """What became of a call: `value`, or `failure` in words with its `kind` (error, killed, timeout)."""

    name: str
    value: Any = None
    kind: str = "done"
    failure: str = ""


@dataclass(frozen=True)
class Call:
    """A named call of a module-level function with picklable arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    timeout_seconds: float | None = None


class Executor(Protocol):
    """Runs calls in any order and yields an outcome for each; nothing else knows where they run."""

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, as they finish."""


class InlineExecutor:
    """Runs calls one after another in this process: for tests and for debugging with a debugger."""

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, in order."""
        for call in calls:
            try:
                yield Outcome(call.name, call.function(*call.arguments))
            except Exception as error:
                yield Outcome(call.name, kind="error", failure=describe(error))


class ProcessExecutor:
    """A pool of worker processes on this machine; use it as a context manager."""

    def __init__(self, workers: int) -> None:
        from pebble import ProcessPool

        for name in SINGLE_THREADED:
            os.environ.setdefault(name, "1")
        self.workers = workers
        context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        self._pool: Any = ProcessPool(max_workers=workers, initializer=_prepare_worker, context=context)

    def __enter__(self) -> ProcessExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._pool.close()
        else:
            self._pool.stop()
        self._pool.join()

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, as they finish; a call whose worker died is tried once more, alone in its slot."""
        waiting = iter(calls)
        running: dict[Future[Any], tuple[Call, int]] = {}
        try:
            while True:
                while len(running) < self.workers * TASKS_IN_FLIGHT_PER_WORKER and (call := next(waiting, None)):
                    running[self._schedule(call)] = (call, 1)
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    call, attempt = running.pop(future)
                    outcome = _outcome(call, future)
                    if outcome.kind == "killed" and attempt < DEATHS_BEFORE_GIVING_UP:
                        running[self._schedule(call)] = (call, attempt + 1)
                    else:
                        yield outcome
        finally:
            for future in running:
                future.cancel()

    def _schedule(self, call: Call) -> Future[Any]:
        arguments = list(call.arguments)
        future: Future[Any] = self._pool.schedule(call.function, args=arguments, timeout=call.timeout_seconds)
        return future


def describe(error: BaseException) -> str:
    """One line for a person: our own errors speak for themselves, others are named."""
    text = str(error).strip()
    if isinstance(error, WenhaiError):
        return text
    first = text.splitlines()[0][:300] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _outcome(call: Call, future: Future[Any]) -> Outcome:
    from pebble import ProcessExpired

    try:
        return Outcome(call.name, future.result())
    except TimeoutError:
        return Outcome(call.name, kind="timeout", failure=f"ran longer than {call.timeout_seconds:g} s and was stopped")
    except ProcessExpired as error:
        return Outcome(call.name, kind="killed", failure=_death(error.exitcode))
    except Exception as error:
        return Outcome(call.name, kind="error", failure=describe(error))


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = " (out of memory? run with fewer workers)" if name == "SIGKILL" else ""
        return f"its worker was killed by {name}{hint}"
    return f"its worker exited with code {exitcode}"


def _prepare_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
