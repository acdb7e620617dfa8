"""One run at a time on a URL of checkpoints, by the engine's lock: two would sweep each other's uploads.

A run that ends gives its lock back. One that is killed on another machine cannot: nobody sees that its process is dead,
only that it gives no sign of life any more. A job that is queued again after that must not fail, so it waits for the
next sign.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from corpus.engine import storage, store_lock
from corpus.engine.store_lock import BEAT_SECONDS, LOCK_NAME, StoreLock
from pretrain.console import say

SILENT_SECONDS = 2.5 * BEAT_SECONDS  # after which a process that gives a sign of life each `BEAT_SECONDS` is dead
LOOK_SECONDS = 5.0


@contextmanager
def claimed(url: str) -> Iterator[StoreLock]:
    """Hold the lock of a URL; on one rank of a run.

    Raises:
        LockHeld: a run that lives holds it; the message names process and host.
    """
    _wait_out_the_dead(url)
    with StoreLock(url) as lock:
        yield lock


def _wait_out_the_dead(url: str) -> None:
    """Remove a lock whose holder gives no sign of life, as this process's own clock says."""
    found = store_lock.read(url)
    if found is None or found.is_free:
        return
    say(f"{url}: in use by {found.words}; waiting up to {SILENT_SECONDS:.0f} s for a sign of life")
    end = time.monotonic() + SILENT_SECONDS
    while time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        if store_lock.read(url) != found:  # it lives, or gave the lock back: taking it will tell
            return
    storage.remove(storage.join(url, LOCK_NAME))
