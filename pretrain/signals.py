"""Signals that ask a run to stop and go on later: SIGTERM and SIGINT, and SIGUSR1, which Slurm sends ahead of time.

Until the first step there is nothing to save: the process ends at once, with 75, also while it waits for other machines
in C code, where Python runs no handler. From then on a signal is a question that the training loop asks after each
step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from corpus.engine.errors import Stopped

Handler = Callable[[int, FrameType | None], object]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@contextmanager
def exit_on_signal() -> Iterator[None]:
    """Within it a signal ends the process with exit code 75. Main thread only."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def end() -> None:
        for number in iter(lambda: os.read(reader, 1), b""):
            if number[0] in STOP_SIGNALS:
                if os.environ.get("RANK", "0") == "0":
                    os.write(2, b"pretrain: stopped before the first step. Run the same command again.\n")
                os._exit(Stopped.exit_code)
        os.close(reader)

    thread = threading.Thread(target=end, name="signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with _handlers(lambda number, frame: None):
            yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the thread
        thread.join()


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Within it a signal only makes the answer to a question true; a second one changes nothing, so no save is torn."""
    received: list[int] = []
    with signal_handler(lambda number, frame: received.append(number)):
        yield lambda: bool(received)


@contextmanager
def signal_handler(handler: Handler) -> Iterator[None]:
    """Within it a signal does what the handler does, and nothing else."""
    with _handlers(handler):
        before = signal.set_wakeup_fd(-1)  # of `exit_on_signal`
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


@contextmanager
def _handlers(handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
