"""Many requests to a store at once: a task that reads ten thousand pieces waits for the slowest, not for their sum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from corpus.engine import storage
from corpus.engine.storage import File

IN_FLIGHT = 64  # requests
IN_FLIGHT_BYTES = 64 << 20  # of what they ask for, unless a single one asks for more

Item = TypeVar("Item")
Result = TypeVar("Result")


def overlapped(
    function: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], int]
) -> Iterator[Result]:
    """Yield `function(item)` of each item, in order; calls wait side by side, in threads, bounded as above.

    Args:
        size: bytes that a call holds.
    """
    waiting: deque[tuple[Future[Result], int]] = deque()
    held = 0
    with storage.request_threads(IN_FLIGHT) as pool:
        for item in items:
            while waiting and (len(waiting) == IN_FLIGHT or held + size(item) > IN_FLIGHT_BYTES):
                future, num_bytes = waiting.popleft()
                held -= num_bytes
                yield future.result()
            waiting.append((pool.submit(function, item), size(item)))
            held += size(item)
        while waiting:
            yield waiting.popleft()[0].result()


def read_files(files: Iterable[File]) -> Iterator[bytes]:
    """Yield the bytes of each file, in order: of a store many at once, of a disk one after another."""

    def read(file: File) -> bytes:
        data = bytearray(file.bytes)
        return bytes(memoryview(data)[: storage.read_into(file.url, 0, memoryview(data))])

    files = list(files)
    if not any(storage.is_remote(file.url) for file in files):
        return map(read, files)
    return overlapped(read, files, lambda file: file.bytes)
