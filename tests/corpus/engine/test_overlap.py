"""Calls side by side: in order, so many at once, so many bytes at once; files of a store and of a disk."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from corpus.engine import overlap, storage
from corpus.engine.overlap import overlapped, read_files
from corpus.engine.storage import File


@pytest.mark.parametrize(("sizes", "most"), [([1] * 9, 3), ([60] * 9, 1), ([40, 200, 40, 40, 60], 2)])
def test_calls_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch, sizes: list[int], most: int) -> None:
    """Each call waits for as many others as there may be."""
    monkeypatch.setattr(overlap, "IN_FLIGHT", 3)
    monkeypatch.setattr(overlap, "IN_FLIGHT_BYTES", 100)
    lock, held, peak = threading.Condition(), [0, 0], [0, 0]

    def call(size: int) -> int:
        with lock:
            held[0] += 1
            held[1] += size
            peak[:] = max(peak[0], held[0]), max(peak[1], held[1])
            lock.notify_all()
            lock.wait_for(lambda: peak[0] >= most, timeout=10)
            held[0] -= 1
            held[1] -= size
        return size

    assert list(overlapped(call, sizes, int)) == sizes
    assert peak[0] == most and peak[1] <= max(100, *sizes)


def test_an_error_is_raised_where_its_call_is_due() -> None:
    found = overlapped(lambda x: 1 // x, [1, 1, 0, 1], lambda _: 1)
    assert [next(found), next(found)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(found)


@pytest.mark.parametrize("where", ["disk", "store"])
def test_files_are_read_in_order(tmp_path: Path, where: str) -> None:
    contents = [bytes([i]) * i for i in range(100)]
    folder = str(tmp_path) if where == "disk" else "memory://files"
    for i, content in enumerate(contents):
        with storage.create(f"{folder}/{i}") as path:
            path.write_bytes(content)
    files = [File(f"{folder}/{i}", len(content), "") for i, content in enumerate(contents)]
    assert list(read_files(files)) == contents


def test_all_threads_ask_one_file_system() -> None:
    found = overlapped(
        lambda _: id(storage.open_filesystem("memory://bucket/x")[0]._filesystem), range(200), lambda _: 1
    )
    assert len(set(found)) == 1
