"""What the person at the terminal sees while items are scored: one live line on a terminal, plain lines elsewhere;
stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PLAIN_SECONDS = 15.0
LIVE_SECONDS = 0.5
CLEAR = "\r\x1b[K"


@dataclass
class Progress:
    """Of one task after the other. `quiet` shows nothing, as on all ranks but the first."""

    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    is_live: bool = field(default_factory=sys.stderr.isatty)

    def begin(self, name: str, num: int, num_done: int) -> None:
        """A task with `num` prompts, `num_done` of them scored earlier."""
        self._name, self._num, self._first, self._done = name, num, num_done, num_done
        self._start = self._last = self.clock()

    def advance(self, num: int) -> None:
        """So many more are scored."""
        self._done += num
        now = self.clock()
        if now - self._last < (LIVE_SECONDS if self.is_live else PLAIN_SECONDS):
            return
        self._last = now
        rate = (self._done - self._first) / max(1e-9, now - self._start)
        left = (self._num - self._done) / rate if rate else 0.0
        self._say(
            f"{self._name:<10} {self._done:,}/{self._num:,} prompts  {rate:,.1f}/s  {_clock(left)} left", self.is_live
        )

    def end(self) -> None:
        """Say what the task took."""
        seconds, num = self.clock() - self._start, self._done - self._first
        rate = f" in {_clock(seconds)}: {num / max(1e-9, seconds):,.1f}/s" if num else ""
        earlier = f" ({self._first:,} scored earlier)" if self._first else ""
        self._say(f"{self._name:<10} {self._num:,} prompts{rate}{earlier}", False)

    def _say(self, text: str, stays: bool) -> None:
        if not self.quiet:
            print(f"{CLEAR if self.is_live else ''}{text}", file=sys.stderr, end="" if stays else "\n", flush=True)


def _clock(seconds: float) -> str:
    """Hours, minutes, seconds.

    >>> _clock(3725.4)
    '1:02:05'
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
