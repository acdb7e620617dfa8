"""Run calls as Ray core tasks on the machines of a cluster, with the local pool's promises.

Ray only places and starts tasks. Data stay in storage that every machine sees, a task's arguments and its answer are a
few hundred bytes that travel with Ray's own messages, and nothing is put into the object store; no actor holds state.
So a lost worker, machine or driver costs the tasks that were under way: a call whose worker or machine died is made
once more (elsewhere, if the machine is gone), then it is a failure of kind `killed`, as in the local pool; after a lost
driver the same command resumes from the records. Ray's own retries are off, they would hide deaths from the summary.

Each task checks first that its machine has this code, the driver's versions of other packages, and this output folder:
another version would write other bytes in silence, and a folder of the same name on another disk would take results
that nobody reads.

`ray.init` costs 22 CPU-seconds and 537 MB on a cold machine, so ray is imported in this file only, and by functions.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from corpus.engine import durable, storage
from corpus.engine.errors import UsageError
from corpus.engine.executor import DEATHS_BEFORE_GIVING_UP, SINGLE_THREADED, TRIES_OF_TRANSIENT, Call, Outcome, attempt
from corpus.engine.versions import differences, versions_here

CALLS_A_CPU = 2  # under way at a time: one that runs and one that is placed already when it ends
LOOK_SECONDS = 2.0  # how often the size of the cluster is asked for
CODE_SUFFIXES = {".py", ".table", ".model", ".toml", ".txt", ".hosts", ".html", ".css", ".js", ".md"}  # all we ship
PACKAGES = ("corpus", "tokenizer")


@dataclass(frozen=True)
class Witness:
    """What a machine must find: the digest of our code, the versions of what else decides bytes and, for a local output
    folder, the bytes of its lock file."""

    code: str
    lock: str = ""
    lock_bytes: bytes = b""
    versions: Mapping[str, str] = field(default_factory=versions_here)

    @classmethod
    def of(cls, out: str) -> Witness:
        """The witness of a run that holds the lock of `out`."""
        if storage.is_remote(out):
            return cls(code_digest())
        path = os.path.abspath(storage.local_path(out) / durable.LOCK_NAME)
        return cls(code_digest(), path, Path(path).read_bytes())

    def missing(self) -> str:
        """What is not as it should be on this machine, in words; empty when all is."""
        if code_digest() != self.code:
            return "has other code of corpus or tokenizer than the driver. Install the same version everywhere"
        if other := differences(versions_here(), self.versions):
            return f"has {other} as the driver has. Install the same versions everywhere"
        try:
            seen = not self.lock or Path(self.lock).read_bytes() == self.lock_bytes
        except OSError:
            seen = False
        if seen:
            return ""
        return f"does not see {os.path.dirname(self.lock)}. Give an output folder on shared storage, or s3://..."


@dataclass
class _Pending:
    call: Call
    attempt: int
    started: float  # when it was handed to Ray, in seconds of the monotonic clock


class RayExecutor:
    """Runs calls on the Ray cluster at `address` ("auto", or host:port of its head); use it as a context manager.

    The driver runs on a machine of the cluster (`ray job submit` puts it there). `out` is the folder that the run has
    locked.
    """

    def __init__(self, address: str, out: str) -> None:
        self.address, self.out = address, out

    def __enter__(self) -> RayExecutor:
        """Connect; raises `UsageError` when ray is not installed or no cluster answers."""
        if self.address.startswith("ray://"):
            raise UsageError(
                f"--address {self.address}: Ray clients are not supported. Start the run on a machine of the cluster "
                "with --address auto, for example by `ray job submit`."
            )
        try:
            import ray
        except ImportError:
            raise UsageError("--executor ray: Ray is not installed. Run: pip install 'wenhai[ray]'") from None
        self._ray: Any = ray
        threads = {name: os.environ.get(name, "1") for name in SINGLE_THREADED}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(
                address=self.address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": threads},
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UsageError(
                f"--address {self.address}: no Ray cluster to join ({reason}). Start one: ray start --head"
            ) from error
        with suppress(ValueError):  # outside of the main thread there are no handlers
            signal.signal(signal.SIGTERM, handler)  # Ray's own would leave without the way to resume
        self._task = ray.remote(max_retries=0)(_work)
        self._witness = Witness.of(self.out)
        self._possible: set[tuple[float, int]] = set()
        self._cpus, self._looked = 0.0, -math.inf
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    def run(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        """Yield one outcome a call, as they finish; a call whose worker or machine died is made once more.

        Raises:
            UsageError: no machine of the cluster is as large as a call asks for.
        """
        waiting = iter(calls)
        pending: dict[Any, _Pending] = {}
        try:
            while True:
                while len(pending) < self._window() and (call := next(waiting, None)):
                    self._start(pending, call, 1)
                if not pending:
                    return
                ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=LOOK_SECONDS)
                for reference in ready:
                    one = pending.pop(reference)
                    outcome = self._outcome(reference, one)
                    tries = {"killed": DEATHS_BEFORE_GIVING_UP, "transient": TRIES_OF_TRANSIENT}
                    if one.attempt < tries.get(outcome.kind, 0):
                        elsewhere = outcome.machine if one.attempt > 1 else ""
                        self._start(pending, one.call, one.attempt + 1, elsewhere)
                    else:
                        yield outcome
        finally:  # the caller has had enough: a full disk, Ctrl-C
            for reference in pending:
                with suppress(Exception):
                    self._ray.cancel(reference, force=True)

    def _start(self, pending: dict[Any, _Pending], call: Call, number: int, not_on: str = "") -> None:
        """Hand a call to Ray; `not_on`: the machine where it failed twice, if there is another."""
        self._require_machine(call)
        options: dict[str, Any] = {"name": call.label or call.name, "num_cpus": call.cpus}
        if call.memory_bytes:
            options["memory"] = call.memory_bytes
        strategy: Any = "SPREAD"
        nodes = self._ray.nodes() if not_on else []
        if others := [node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] != not_on]:
            affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            strategy = affinity(others[number % len(others)], soft=True)
        reference = self._task.options(scheduling_strategy=strategy, **options).remote(call, self._witness)
        pending[reference] = _Pending(call, number, time.monotonic())

    def _outcome(self, reference: Any, one: _Pending) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(reference)
            return outcome
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError):
            limit = one.call.timeout_seconds
            if limit is not None and time.monotonic() - one.started >= limit:
                return Outcome(one.call.name, kind="timeout", failure=f"ran longer than {limit:g} s and was stopped")
            return Outcome(one.call.name, kind="killed", failure="its worker or its machine died")
        except errors.OutOfMemoryError:
            words = "its worker was killed by Ray (out of memory: raise resources.STAGE.memory_gb)"
            return Outcome(one.call.name, kind="killed", failure=words)
        except errors.RayError as error:  # it never began: a module that is not installed there, a broken environment
            words = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
            return Outcome(one.call.name, kind="setup", failure=f"could not be started: {words}")

    def _window(self) -> int:
        """How many calls may be under way: it follows machines that come and go, and is never none."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._cpus, self._looked = float(self._ray.cluster_resources().get("CPU", 0)), time.monotonic()
        return max(2, int(CALLS_A_CPU * self._cpus))

    def _require_machine(self, call: Call) -> None:
        """Ray would wait for ever for a machine that does not exist."""
        wanted = (call.cpus, call.memory_bytes)
        if wanted in self._possible:
            return
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        sizes = [(float(one.get("CPU", 0)), int(one.get("memory", 0))) for one in machines]
        if not any(cpus >= call.cpus and memory >= call.memory_bytes for cpus, memory in sizes):
            cpus, memory = max(sizes, default=(0.0, 0))
            raise UsageError(
                f"{call.label or call.name}: asks for {call.cpus:g} CPUs and {call.memory_bytes / 1e9:,.1f} GB; the "
                f"largest of {len(sizes)} machines has {cpus:g} and {memory / 1e9:,.1f} GB. Lower resources.STAGE."
            )
        self._possible.add(wanted)


@cache
def code_digest() -> str:
    """SHA-256 (hex) of the sources and tables of our packages, as they are installed here."""
    hasher = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in CODE_SUFFIXES and path.is_file():
                data = path.read_bytes()
                hasher.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode() + data)
    return hasher.hexdigest()


def _work(call: Call, witness: Witness) -> Outcome:
    """What a worker does: see that it stands where it should, make the call, say where anything went wrong."""
    here = f"machine {socket.gethostname()}"
    missing = witness.missing()
    if missing:
        return Outcome(call.name, kind="setup", failure=f"{here} {missing}")
    with _time_limit(call.timeout_seconds):
        outcome = attempt(call)
    if outcome.kind == "done":
        return outcome
    print(
        f"{call.label or call.name}: {outcome.kind}: {outcome.failure}", file=sys.stderr, flush=True
    )  # Ray's task log
    if outcome.kind == "transient":
        import ray

        outcome = replace(outcome, machine=ray.get_runtime_context().get_node_id())
    return replace(outcome, failure=f"{outcome.failure} (on {here})")


@contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """End this process when the time is up: compiled code cannot be interrupted otherwise."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
