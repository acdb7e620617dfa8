"""A child process for work that may crash, hang or eat memory: one bad item costs itself only.

Signals cannot interrupt C code, so a limit that holds needs a process that can be killed. `Sandbox.map` sends a batch
of items through a socket and gets one result each; before every item the child writes its number into a page of shared
memory, so that a batch costs two messages and the guilty item is still known. When the child dies, that item becomes a
`Death`, the items before it whose results were lost are done again, and a new child goes on behind it. An item that
died in a child that had done others before is first tried alone in a fresh one: what is recorded does not depend on its
neighbours. An item that reached a limit, or a fault in the code that reads it, costs itself, however many such items
follow each other; three in a row that were killed from outside, or ended, are taken for a fault of the machine.

Limits: seconds of CPU per item, read by the parent from the child's clock (ten times as many of wall time, for a child
that waits); address space beyond the child's size at its start (RLIMIT_AS), so that an allocation fails there and then.
The kernel's out-of-memory killer is pointed at the child. It dies with its parent, and leaves after some idle seconds.

Messages are lists of bytes as MessagePack, nothing is unpickled.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec

from corpus.engine.errors import WenhaiError

DEATHS_IN_A_ROW = 3
SECONDS_TO_START = 120.0
SECONDS_TO_DIE = 10.0
IDLE_SECONDS = 20.0  # after which a child without work leaves
WAIT_RATIO = 10  # wall time that an item may take, over its CPU time
RECYCLE_RATIO = 0.25  # share of the memory limit by which a child may have grown between batches
FLUSH_BYTES = 256 << 10
OWN_FAULTS = {
    "time",
    "memory",
    "signal SIGSEGV",
    "signal SIGABRT",
    "signal SIGFPE",
    "signal SIGILL",
    "signal SIGTRAP",
}  # of an item
MEMORY_EXIT = 77  # how a child says that an allocation failed
_INDEX = struct.Struct("<Q")
_encode = msgspec.msgpack.Encoder().encode
_items = msgspec.msgpack.Decoder(list[bytes])
_results: msgspec.msgpack.Decoder[list[bytes] | str] = msgspec.msgpack.Decoder(list[bytes] | str)  # a string: an error
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one item may cost."""

    seconds: float
    megabytes: int


@dataclass(frozen=True, slots=True)
class Death:
    """An item that killed its process: `reason` is time, memory, signal NAME or exit CODE."""

    reason: str


class Sandbox:
    """A restartable child that applies one function (`module:name`, bytes to bytes) to items, until it is closed."""

    def __init__(self, function: str, limits: Limits) -> None:
        self.function, self.limits = function, limits
        self._child: _Child | None = None
        self._deaths_before = 0  # at the end of the last batch
        self._idle_deaths = 0  # one after another, of children that had no item

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def map(self, items: Sequence[bytes]) -> list[bytes | Death]:
        """One result an item, in order.

        Raises:
            WenhaiError: the process was killed from outside at three items in a row, or does not start.
            RuntimeError: the function raised an exception: a fault of the code, not of the item.
        """
        results: list[bytes | Death | None] = [None] * len(items)
        segments = [(0, len(items), False)] if items else []
        while segments:
            first, last, is_retry = segments.pop()
            if is_retry:
                self.close()
            child = self._started()
            was_fresh = child.num_done == 0
            done, reason = child.run(items[first:last])
            results[first : first + len(done)] = done
            if reason is None:
                continue
            self.close()
            if child.index < 0:  # it had left, or was killed while it waited
                self._idle_deaths += 1
                if self._idle_deaths >= DEATHS_IN_A_ROW:
                    raise WenhaiError(f"the process that reads pages ends before it reads one ({reason}). Run again.")
                segments.append((first, last, False))
                continue
            self._idle_deaths = 0
            guilty = first + max(child.index, len(done))
            segments.append((guilty + 1, last, False))
            if reason == "time" or (was_fresh and guilty == first):
                results[guilty] = Death(reason)
                if _deaths_at_end(results[: guilty + 1], self._deaths_before) >= DEATHS_IN_A_ROW:
                    raise WenhaiError(
                        f"{DEATHS_IN_A_ROW} pages in a row ended the process that reads them, and not by a limit "
                        f"({reason}). The machine may be out of memory: run with fewer workers."
                    )
            else:
                segments.append((guilty, guilty + 1, True))
            segments.append((first + len(done), guilty, False))
            segments = [segment for segment in segments if segment[0] < segment[1]]
        done_all = [result for result in results if result is not None]
        assert len(done_all) == len(items)
        self._deaths_before = _deaths_at_end(done_all, self._deaths_before)
        return done_all

    def _started(self) -> _Child:
        if self._child is not None and not self._child.is_usable():
            self.close()
        if self._child is None:
            self._child = _Child(self.function, self.limits)
        return self._child


def _deaths_at_end(results: Sequence[bytes | Death | None], before: int) -> int:
    """Items in a row, up to the last, at which the machine may be at fault; `before` of them in earlier batches."""
    count = 0
    for result in reversed(results):
        if not isinstance(result, Death):
            return count
        count += result.reason not in OWN_FAULTS
    return before + count


_shared: dict[tuple[int, str], Sandbox] = {}  # by process and function


def shared_sandbox(function: str, limits: Limits) -> Sandbox:
    """This process's sandbox for a function, kept from one call to the next: starting a child costs half a second."""
    mine = _shared.get((os.getpid(), function))
    if mine is None or mine.limits != limits:
        if mine is not None:
            mine.close()
        mine = _shared[os.getpid(), function] = Sandbox(function, limits)
    return mine


@atexit.register
def _close_shared() -> None:
    for pid, function in list(_shared):
        if pid == os.getpid():
            _shared.pop((pid, function)).close()


class _Child:
    """The parent's side of one process: a socket and a page of shared memory."""

    def __init__(self, function: str, limits: Limits) -> None:
        self.num_done = 0
        self.index = -1  # of the item in the batch that was worked on last; -1: none yet
        self._limits = limits
        self._shared_file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self._shared_file.truncate(mmap.PAGESIZE)
        self._progress = mmap.mmap(self._shared_file.fileno(), mmap.PAGESIZE)
        self._pipe, theirs = Pipe()
        fds = (theirs.fileno(), self._shared_file.fileno())
        command = [sys.executable, "-m", "corpus.sandbox", function, str(limits.megabytes), *map(str, fds)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=fds, env=environment)
        except OSError as error:
            self._close_files()
            raise WenhaiError(
                f"the process that reads pages cannot be started: {os.strerror(error.errno or 0)}. Run with fewer "
                "workers, or raise the limit of processes (ulimit -u) or of memory."
            ) from error
        finally:
            theirs.close()
        if not self._pipe.poll(SECONDS_TO_START) or self._received() is None:
            self.end()
            raise WenhaiError("the process that reads pages did not start; its own message stands above.")

    def is_usable(self) -> bool:
        """Whether the child waits for work; False when it left after idle time."""
        return self._process.poll() is None

    def run(self, items: Sequence[bytes]) -> tuple[list[bytes], str | None]:
        """The results that came, and why the child died if it did."""
        _INDEX.pack_into(self._progress, 0, 0)
        self.index = -1
        results: list[bytes] = []
        with suppress(OSError):  # it has died; below is found out of what
            self._pipe.send_bytes(_encode(items))
        reason = self._collect(len(items), results)
        self.num_done += len(results)
        return results, reason

    def end(self) -> None:
        """Kill the process, if it lives, and close everything."""
        self._process.kill()
        self._process.wait(SECONDS_TO_DIE)
        self._close_files()

    def _close_files(self) -> None:
        self._pipe.close()
        self._progress.close()
        self._shared_file.close()

    def _collect(self, wanted: int, results: list[bytes]) -> str | None:
        clock = _ItemClock(self._process.pid, self._limits.seconds)
        while len(results) < wanted:
            has_come = self._pipe.poll(clock.interval)
            self.index = _INDEX.unpack_from(self._progress, 0)[0] - 1
            if has_come:
                if (found := self._received()) is None:
                    return _reason(self._process.wait(SECONDS_TO_DIE))
                results += found
            elif clock.is_over(self.index):
                self._process.kill()
                return "time"
        return None

    def _received(self) -> list[bytes] | None:
        """The next message of the child; None when it has died."""
        try:
            found = _results.decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        if isinstance(found, str):
            raise RuntimeError(f"in the process that reads pages: {found}")
        return found


class _ItemClock:
    """How long the child has been at one item, in seconds of its CPU and of the wall."""

    interval: float

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self.interval = min(1.0, seconds / 4)
        self._index = -1
        self._cpu = self._wall = 0.0

    def is_over(self, index: int) -> bool:
        cpu, wall = _cpu_seconds(self._pid), time.monotonic()
        if index != self._index:
            self._index, self._cpu, self._wall = index, cpu, wall
        return cpu - self._cpu > self._seconds or wall - self._wall > WAIT_RATIO * self._seconds


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, by its clock (clock_getcpuclockid(3)); wall time on systems without such clocks."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return time.monotonic()


def _reason(exit_code: int) -> str:
    if exit_code == MEMORY_EXIT:
        return "memory"
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit {exit_code}"


# ----------------------------------------------------------------------------------------------------- the child's side
def main(argv: Sequence[str]) -> None:
    """The child: `function megabytes socket-fd progress-fd`; reads batches until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = argv[0].partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    warm_up = getattr(importlib.import_module(module), "warm_up", None)
    if warm_up is not None:
        warm_up()
    megabytes, fd, fd_progress = map(int, argv[1:4])
    limit = megabytes << 20
    start_bytes = _address_space()
    if start_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (start_bytes + limit, start_bytes + limit))
    progress = mmap.mmap(fd_progress, mmap.PAGESIZE)
    with suppress(OSError, EOFError), Connection(fd) as pipe:
        pipe.send_bytes(_encode([]))  # it is ready
        while pipe.poll(IDLE_SECONDS):
            _serve(function, pipe, progress)
            if _address_space() > start_bytes + RECYCLE_RATIO * limit:
                return


def _serve(function: Callable[[bytes], bytes], pipe: Connection, progress: mmap.mmap) -> None:
    results: list[bytes] = []
    for index, item in enumerate(_items.decode(pipe.recv_bytes()), 1):
        _INDEX.pack_into(progress, 0, index)
        try:
            results.append(function(item))
        except MemoryError:
            os._exit(MEMORY_EXIT)
        except Exception as error:
            pipe.send_bytes(_encode(f"{type(error).__name__}: {error}".encode(errors="replace").decode()))
            return
        if sum(map(len, results)) >= FLUSH_BYTES:
            pipe.send_bytes(_encode(results))
            results = []
    pipe.send_bytes(_encode(results))


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1:])
