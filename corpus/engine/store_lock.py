"""One run at a time on an object store: `OUT/lock.json`, put only where there is none, with a sign of life a minute.

A store drops no lock when a process dies, so the object tells who holds it and since when it was last heard of. It is
free when its process is known to be dead (it ran on this machine), or has not been heard of for ten minutes; whoever
finds it free removes it, takes it, and looks a moment later whether it still is the holder: another may have seen the
same free lock, and its removal hits the new one. What is promised, then:

- Two runs that start together: one of them goes on, where the store knows conditional writes (S3 since 2024, GCS,
  Azure, MinIO). Elsewhere both may begin.
- A holder that has lost its lock (it was asleep, cut off, or one of two that began) sees another's name at its next
  sign of life and stops after the task that ends next, and in any case before it writes `run.json`. Until then both
  waste work, and neither can harm the other: their objects appear whole, under the same names, with the same bytes.
- Machines whose clocks differ by minutes see a lock as younger or older than it is.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from corpus.engine import durable, retries, storage
from corpus.engine.errors import LockHeld, SetupError, TransientError, WenhaiError

LOCK_NAME = "lock.json"
BEAT_SECONDS = 60.0
STALE_SECONDS = 600.0
CONFIRM_SECONDS = 300.0  # of patience with the store; well below the above: a late sign must not hit another's lock
SETTLE_SECONDS = 2.0  # between reading a free lock and removing it, of whoever else is at it
ATTEMPTS = 5  # a free lock is removed, taken and looked at again; more often others are at it, too


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: in words, and so that its machine can tell whether it still lives."""

    words: str  # "process 12 on host since 2026-11-21 22:24:32 UTC"
    token: str  # of this one taking of the lock
    machine: str
    process: int
    born: str  # of the process: numbers are used again
    heard: float  # seconds of the epoch

    @classmethod
    def this_process(cls) -> Holder:
        """A new holder, heard of now."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        words = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        return cls(words, secrets.token_hex(16), _machine(), os.getpid(), _born(os.getpid()) or "", time.time())

    @property
    def is_free(self) -> bool:
        """Whether the process is dead, or has been silent for so long that it counts as dead."""
        is_here = bool(self.machine) and self.machine == _machine()
        return self.silent_seconds > STALE_SECONDS or (is_here and _is_dead(self.process, self.born))

    @property
    def silent_seconds(self) -> float:
        """Since its last sign of life."""
        return time.time() - self.heard


class StoreLock:
    """The lock of an output folder in an object store; use it as a context manager."""

    def __init__(self, out: str) -> None:
        self.out, self.url = out, storage.join(out, LOCK_NAME)
        self._holder = Holder.this_process()
        self._taken_by: Holder | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)

    def __enter__(self) -> StoreLock:
        """Take the lock or raise `LockHeld`, which names its holder and how to break it."""
        try:
            self._take()
        except BaseException:
            self._give_back()  # ours may stand there, though the answer was lost
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._give_back()

    def check(self) -> None:
        """Raise `LockHeld` when another run has taken the lock meanwhile."""
        if self._taken_by is not None:
            raise LockHeld(
                f"{self.out}: {self._taken_by.words} works here now: this run was not heard of for "
                f"{STALE_SECONDS / 60:.0f} minutes, or its {LOCK_NAME} was removed. Finished work is kept."
            )

    def confirm(self) -> None:
        """Ask the store who holds the lock; raise `LockHeld` when it is another run."""
        with retries.within(CONFIRM_SECONDS):
            self.beat()
        self.check()

    def beat(self) -> None:
        """Give a sign of life, or find that another run has taken the lock."""
        if (found := read(self.out)) is None:
            storage.put_new(self.url, self._data())
            found = read(self.out)
        if found is not None and found.token != self._holder.token:
            self._taken_by = found
        else:
            storage.put(self.url, self._data())

    def _take(self) -> None:
        has_settled = True
        for _ in range(ATTEMPTS):
            if read(self.out) is None:
                storage.put_new(self.url, self._data())
            found = read(self.out)  # where a request was made twice, "there is one" may mean our own
            if found is None:
                continue
            if found.token == self._holder.token:
                if has_settled:
                    return
                has_settled = True
                time.sleep(SETTLE_SECONDS)
            elif found.is_free:
                has_settled = False
                storage.remove(self.url)
            else:
                raise self._held(found)
        raise LockHeld(f"{self.url}: other runs are starting at this moment, or it is no lock of ours. Look at it.")

    def _give_back(self) -> None:
        with suppress(Exception), retries.within(SETTLE_SECONDS):  # the store is gone: the lock grows old
            found = read(self.out)
            if found is not None and found.token == self._holder.token:
                storage.remove(self.url)

    def _keep_beating(self) -> None:
        while self._taken_by is None and not self._ends.wait(BEAT_SECONDS):
            with suppress(Exception), retries.within(BEAT_SECONDS, self._ends):  # the next one may come through
                self.beat()

    def _data(self) -> bytes:
        return durable.canonical_json(asdict(self._holder) | {"heard": round(time.time(), 3)}) + b"\n"

    def _held(self, holder: Holder) -> LockHeld:
        return LockHeld(
            f"{self.out}: in use by {holder.words}, last heard of {max(0.0, holder.silent_seconds):.0f} s ago. Wait "
            f"for it, stop it, or choose another output folder. If you know that it is dead, remove {self.url}; "
            f"{STALE_SECONDS / 60:.0f} minutes after its last sign of life the lock counts as free by itself."
        )


def run_lock(out: str) -> durable.RunLock | StoreLock:
    """The lock of an output folder, wherever it lies."""
    return StoreLock(out) if storage.is_remote(out) else durable.RunLock(storage.local_path(out))


def holder(out: str) -> str | None:
    """Who works on an output folder, in words; None when nobody does. Changes nothing."""
    if not storage.is_remote(out):
        return durable.lock_holder(storage.local_path(out))
    found = read(out)
    return None if found is None or found.is_free else found.words


def read(out: str) -> Holder | None:
    """What a store's lock says; None when there is none, or none that we can read."""
    try:
        value = storage.read_json(storage.join(out, LOCK_NAME))
        return Holder(**value | {"process": int(value["process"]), "heard": float(value["heard"])})
    except (TransientError, SetupError):  # whether there is one is not known
        raise
    except (WenhaiError, KeyError, TypeError, ValueError):
        return None


def _machine() -> str:
    """This boot of this machine and this space of process numbers; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _is_dead(process: int, born: str) -> bool:
    """Whether a process of this machine has ended; one of another person, which `/proc` may hide, counts as alive."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    now = _born(process)
    return now is not None and now != born


def _born(process: int) -> str | None:
    """When a process was started, in the kernel's ticks: empty when it is dead, None when that cannot be read."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return "" if state in "ZX" else fields[18]  # field 22 of the line: starttime
