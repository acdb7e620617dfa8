"""What the person at the terminal sees while a crawl runs: a bar on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import math
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


@contextmanager
def show_progress(quiet: bool) -> Iterator[Callable[[Pulse], None]]:
    """Yields a function that is told a pulse about once a second and draws what is to be drawn."""
    seen: deque[tuple[float, Pulse]] = deque()
    last = time.monotonic()

    def words(pulse: Pulse) -> str:
        now = time.monotonic()
        seen.append((now, pulse))
        while len(seen) > 2 and now - seen[1][0] >= WINDOW_SECONDS:
            seen.popleft()
        then, first = seen[0]
        elapsed = now - then or math.inf
        share = f", {pulse.chinese_bytes / pulse.text_bytes:.0%} Chinese" if pulse.text_bytes else ""
        return (
            f"{pulse.pages:,} pages, {(pulse.pages - first.pages) / elapsed:,.1f}/s, {pulse.pending:,} pending{share}, "
            f"{pulse.busy:,} hosts busy, {(pulse.fetched_bytes - first.fetched_bytes) / elapsed / 1e6:,.2f} MB/s"
        )

    def print_line(pulse: Pulse) -> None:
        nonlocal last
        text = words(pulse)
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            print(f"crawl        {text}", file=sys.stderr, flush=True)

    if quiet:
        yield lambda pulse: None
    elif not sys.stderr.isatty():
        yield print_line
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        text = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True))  # a narrow terminal cuts it
        columns = (TextColumn("crawl"), BarColumn(bar_width=12), text, TimeElapsedColumn())
        with Bars(*columns, console=Console(stderr=True), transient=True, expand=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda pulse: bars.update(
                task, total=pulse.done + pulse.pending, completed=pulse.done, description=words(pulse)
            )
