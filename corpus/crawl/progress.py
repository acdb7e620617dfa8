"""What the person at the terminal sees while a crawl runs: a bar on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from corpus.engine.progress import PLAIN_SECONDS

WINDOW_SECONDS = 15.0  # over which speeds are told


@dataclass(frozen=True)
class Pulse:
    """How a crawl is at a moment. Bytes of text are UTF-8."""

    pages: int  # answers in this run
    fetched_bytes: int  # of their bodies, over the wire, in this run
    busy: int  # hosts that are being asked
    done: int  # URLs with a fate
    pending: int
    chinese_bytes: int
    text_bytes: int


class Speed:
    """Pages and bytes a second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def note(self, now: float, pulse: Pulse) -> tuple[float, float]:
        """Add a moment; returns (pages/s, bytes/s) over the window."""
        self._seen.append((now, pulse.pages, pulse.fetched_bytes))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()
        then, pages, num_bytes = self._seen[0]
        elapsed = now - then
        if elapsed <= 0:
            return 0.0, 0.0
        return (pulse.pages - pages) / elapsed, (pulse.fetched_bytes - num_bytes) / elapsed


def line(pulse: Pulse, pages_per_second: float, bytes_per_second: float) -> str:
    """One moment in words."""
    share = f", {pulse.chinese_bytes / pulse.text_bytes:.0%} Chinese" if pulse.text_bytes else ""
    return (
        f"{pulse.pages:,} pages, {pages_per_second:,.1f}/s, {pulse.pending:,} pending{share}, "
        f"{pulse.busy:,} hosts busy, {bytes_per_second / 1e6:,.2f} MB/s"
    )


@contextmanager
def shown(quiet: bool) -> Iterator[Callable[[Pulse], None]]:
    """Yields a function that is told a pulse about once a second and draws what is to be drawn."""
    speed = Speed()
    if quiet:
        yield lambda pulse: None
    elif sys.stderr.isatty():
        with _bar(speed) as draw:
            yield draw
    else:
        last = time.monotonic()

        def lines(pulse: Pulse) -> None:
            nonlocal last
            now = time.monotonic()
            speeds = speed.note(now, pulse)
            if now - last >= PLAIN_SECONDS:
                last = now
                print(f"crawl        {line(pulse, *speeds)}", file=sys.stderr, flush=True)

        yield lines


@contextmanager
def _bar(speed: Speed) -> Iterator[Callable[[Pulse], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    text = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True))  # a narrow terminal cuts it
    columns = (TextColumn("crawl"), BarColumn(bar_width=12), text, TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True, expand=True) as bars:
        task = bars.add_task("", total=None)

        def draw(pulse: Pulse) -> None:
            text = line(pulse, *speed.note(time.monotonic(), pulse))
            bars.update(task, total=pulse.done + pulse.pending, completed=pulse.done, description=text)

        yield draw
