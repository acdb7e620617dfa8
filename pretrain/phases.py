"""What a process is doing, and the seconds that each of it took: the time split of metrics, the phase of an error.

The names are data, forward, backward, communication, optimizer, save, evaluate; "other" is what has none. A phase
inside another pauses it, so that the seconds add up to the time that went by. Communication is what arithmetic waits
for: what is sent while a rank computes takes none of its time.

On a GPU kernels run later than the calls that start them. There the clock is the GPU's: each change of phase puts an
event into the stream, and the time between two events is what the stream did, or waited for, between them: also for
another rank, whose message the stream waits for, or for this process, where that is late with the next kernel. Events
are read when they have passed, without waiting. (Written for CUDA, and not yet run there.)
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.profiler import record_function

PHASES = ("data", "forward", "backward", "communication", "optimizer", "evaluate", "save", "other")
PIPELINE = "pipeline"  # around a pipeline's step: what of it lies in no forward or backward is its bubble
EVENTS_READ_AT = 1000  # pending ones

Path = tuple[str, ...]  # the phases under way, the outermost first


class Phases:
    """The phases of one process: of its main thread, and of autograd's while the main thread waits for those."""

    def __init__(self, device: torch.device | None = None) -> None:
        """`device`: the one that computes; default: the CPU."""
        self.step = 0  # under way, from 1; 0 before the first
        self.are_traced = False  # as spans in the trace of a profiler
        self.path: Path = ()  # all phases under way, the outermost first, as in ("optimizer", "communication")
        self._clock = _StreamClock() if device is not None and device.type == "cuda" else _HostClock()

    @property
    def current(self) -> str:
        """The innermost phase under way."""
        return self.path[-1] if self.path else "other"

    def path_of(self, error: BaseException) -> Path:
        """The phases that were under way where an error came up; they have been left since."""
        path: Path = vars(error).get("phases", self.path)
        return path

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a block as that of a phase."""
        before = self.path
        self._clock.count(before)
        self.path = (*before, name)
        try:
            with record_function(name) if self.are_traced else nullcontext():
                yield
        except BaseException as error:
            vars(error).setdefault("phases", self.path)
            raise
        finally:
            self._clock.count(self.path)
            self.path = before

    def take(self) -> dict[Path, float]:
        """Seconds of each path since the last call, without those of the paths below it; together all the time."""
        self._clock.count(self.path)
        return self._clock.take()


class _HostClock:
    """The time of this process."""

    def __init__(self) -> None:
        self._seconds: dict[Path, float] = defaultdict(float)
        self._since = time.perf_counter()

    def count(self, path: Path) -> None:
        """The time since the last call was this path's."""
        now = time.perf_counter()
        self._seconds[path] += now - self._since
        self._since = now

    def take(self) -> dict[Path, float]:
        taken = dict(self._seconds)
        self._seconds.clear()
        return taken


class _StreamClock(_HostClock):
    """The time of the GPU's current stream."""

    def __init__(self) -> None:
        super().__init__()
        self._free: list[torch.cuda.Event] = []
        self._pending: deque[tuple[Path, torch.cuda.Event]] = deque()
        self._last = self._event()  # that was read

    def count(self, path: Path) -> None:
        """What the stream does between the event of the last call and this one's is this path's."""
        self._pending.append((path, self._event()))
        if len(self._pending) >= EVENTS_READ_AT:
            self._read_passed()

    def take(self) -> dict[Path, float]:
        self._pending[-1][1].synchronize()
        self._read_passed()
        return super().take()

    def _event(self) -> torch.cuda.Event:
        new: Callable[..., torch.cuda.Event] = torch.cuda.Event  # torch has no types for it
        event = self._free.pop() if self._free else new(enable_timing=True)
        event.record()
        return event

    def _read_passed(self) -> None:
        while self._pending and self._pending[0][1].query():  # type: ignore[no-untyped-call]
            path, event = self._pending.popleft()
            self._seconds[path] += self._last.elapsed_time(event) / 1000
            self._free.append(self._last)
            self._last = event
