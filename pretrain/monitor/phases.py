"""What a process is doing, and the seconds that each of it took: the time split of metrics, the phase of an error.

The names are data, forward, backward, communication, optimizer, save, evaluate; "other" is what has none. A phase inside
another pauses it, so that the seconds add up to the time that went by.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """The phases of one process; of its main thread only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack = ["other"]
        self._since = time.perf_counter()

    @property
    def current(self) -> str:
        """The innermost phase under way."""
        return self._stack[-1]

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a block as that of a phase."""
        self._count()
        self._stack.append(name)
        try:
            yield
        finally:
            self._count()
            self._stack.pop()

    def take(self) -> dict[str, float]:
        """Seconds of each phase since the last call."""
        self._count()
        taken = dict(self.seconds)
        self.seconds.clear()
        return taken

    def _count(self) -> None:
        now = time.perf_counter()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now
