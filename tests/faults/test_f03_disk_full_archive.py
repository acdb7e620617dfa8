"""FAULTS row 3 for the crawler's archive: a full disk stops it with a message; what was recorded is whole, and it goes
on.

Also row 42's limit on file sizes, which is how a quota or an old file system refuses.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corpus.crawl.archive.archive import Archive, ArchiveFile
from corpus.engine.errors import DiskError
from tests.corpus.crawl.archive.test_archive import LARGE, make, urls, write
from tests.faults.conftest import Disk


def fill(archive: Archive) -> tuple[int, tuple[ArchiveFile, ...]]:
    """Write until the disk refuses: how many pages were synced, and the files recorded last."""
    files: tuple[ArchiveFile, ...] = ()
    for index in range(10_000):
        try:
            write(archive, index)
            files = archive.sync()
        except DiskError as error:
            assert "data/.00000.warc.gz.open: cannot be written" in str(error)
            assert "same command again" in str(error)
            return index, files
    raise AssertionError("the disk never filled")


def go_on(folder: Path, recorded: int, files: tuple[ArchiveFile, ...]) -> None:
    assert files[0].bytes == (folder / "data" / ".00000.warc.gz.open").stat().st_size  # no half record takes space
    archive = make(folder, LARGE, files)
    for index in range(recorded, recorded + 3):
        write(archive, index)
    (closed,) = archive.close()
    assert urls(folder) == [str(index) for index in range(recorded + 3)]
    assert closed.records == 1 + 2 * (recorded + 3)


def test_a_full_disk_and_space_freed_later(make_disk: Callable[[str], Disk]) -> None:
    disk = make_disk("size=64k")
    recorded, files = fill(make(disk.folder))
    assert recorded > 20
    disk.remount("size=1m")
    go_on(disk.folder, recorded, files)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 20,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_file_that_may_not_grow(tmp_path: Path, small_files: None) -> None:
    recorded, files = fill(make(tmp_path))
    assert recorded > 5
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    go_on(tmp_path, recorded, files)
