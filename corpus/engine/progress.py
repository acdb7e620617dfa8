"""What the person at the terminal sees while stages run: bars on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from corpus.engine.stage import Counts

PLAIN_SECONDS = 15.0
Advance = Callable[[dict[str, Any] | None], None]


class Progress:
    """Draws the progress of stages; `quiet` draws nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def skipped(self, name: str, counts: Counts) -> None:
        """Say that a stage was complete already."""
        self._line(f"{name:<12} up to date: {_flow(counts)}")

    def repeated(self, name: str, kinds: dict[str, int]) -> None:
        """Say what a store refused, and was asked for again."""
        if kinds:
            listed = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(kinds.items()))
            self._line(f"{name:<12} {sum(kinds.values()):,} requests to the store were repeated ({listed})")

    @contextmanager
    def stage(self, name: str, tasks: int, done: int) -> Iterator[Advance]:
        """Show a stage of `tasks` tasks, `done` of them finished earlier; yields `advance(counts or None)`."""
        start = time.monotonic()
        drawn = (_bar if not self.quiet and sys.stderr.isatty() else self._lines)(name, tasks, done)
        total = Counts()
        finished = done
        with drawn as draw:

            def advance(counts: dict[str, Any] | None) -> None:
                nonlocal finished
                finished += 1
                if counts is not None:
                    total.add(Counts(**counts))
                draw(finished, total)

            yield advance
        elapsed = time.monotonic() - start
        resumed = f", {done} of {tasks} tasks from an earlier run" if done else ""
        rate = f", {total.bytes_in / 1e6 / elapsed:,.1f} MB/s" if total.bytes_in and elapsed > 0.05 else ""
        self._line(f"{name:<12} {elapsed:6.1f} s  {_flow(total)}{rate}{resumed}")

    @contextmanager
    def reading(self, name: str, files: int, num_bytes: int) -> Iterator[Callable[[int], None]]:
        """Show how far `files` files of `num_bytes` bytes in all are read; yields `advance(bytes of one file)`."""
        start = last = time.monotonic()
        done_files = done_bytes = 0

        def advance(of_one: int) -> None:
            nonlocal last, done_files, done_bytes
            done_files, done_bytes = done_files + 1, done_bytes + of_one
            if time.monotonic() - last >= PLAIN_SECONDS:
                last = time.monotonic()
                rate = done_bytes / (last - start)
                left = f", about {(num_bytes - done_bytes) / rate:,.0f} s left" if rate else ""
                share = f"{done_bytes / 1e9:,.1f} of {num_bytes / 1e9:,.1f} GB"
                self._line(f"{name:<12} {done_files:,}/{files:,} files, {share}{left}")

        yield advance
        elapsed = time.monotonic() - start
        rate = f", {done_bytes / 1e6 / elapsed:,.1f} MB/s" if elapsed > 0.05 else ""
        self._line(f"{name:<12} {elapsed:6.1f} s  {done_files:,} files, {done_bytes / 1e6:,.1f} MB read{rate}")

    @contextmanager
    def _lines(self, name: str, tasks: int, done: int) -> Iterator[Callable[[int, Counts], None]]:
        last = time.monotonic()

        def draw(finished: int, total: Counts) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_SECONDS:
                last = time.monotonic()
                self._line(f"{name:<12} {finished}/{tasks} tasks, {total.documents_in:,} documents")

        yield draw

    def _line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def _bar(name: str, tasks: int, done: int) -> Iterator[Callable[[int, Counts], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[documents]:,} documents"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        identifier = bars.add_task(name, total=tasks, completed=done, documents=0)
        yield lambda finished, total: bars.update(identifier, completed=finished, documents=total.documents_in)


def _flow(counts: Counts) -> str:
    if not counts.documents_in and counts.extra:  # a stage of records about documents
        return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sorted(counts.extra.items()))
    flow = f"{counts.documents_in:,} documents in, {counts.documents_out:,} out"
    dropped, errors = sum(counts.dropped.values()), sum(counts.errors.values())
    if dropped:
        flow += f", {dropped:,} dropped"
    if errors:
        flow += f", {errors:,} errors"
    return flow
