"""FAULTS row 4: a run sees a full disk coming, stops before it with the numbers, and goes on when there is room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.disk_budget import free_space
from corpus.engine.errors import DiskError
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.engine.toy import Joined, Lines, text_files, tree, undisturbed


class FakeDisk:
    """`os.statvfs` of a disk of 1 MB of which `size` bytes can be used, less what stands below `folder`."""

    def __init__(self, folder: Path, size: int, inodes: int = 1000) -> None:
        self.folder, self.size, self.inodes = folder, size, inodes

    def __call__(self, path: object) -> Any:
        used = sum(file.stat().st_size for file in self.folder.rglob("*.txt"))
        fields = {"f_bavail": self.size - used, "f_frsize": 1, "f_blocks": 1_000_000, "f_files": 1000}
        return type("Status", (), fields | {"f_favail": self.inodes})()


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return text_files(tmp_path / "in", ["0123456789\n" * 1000] * 6)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_stops_before_the_disk_is_full(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(os, "statvfs", FakeDisk(out, 11_000 * 3 + 10_000 + 500))
    with pytest.raises(DiskError) as caught:
        run_stages([Lines(files), Joined()], str(out), workers=workers)
    message = str(caught.value)
    assert "stage lines stopped before the disk is full" in message
    assert "10.0 kB stay in reserve. 3 of 6 tasks are left. Free space" in message
    assert len(list(out.glob("lines-*/done/*"))) == 3 and not list(out.glob("lines-*/failed/*"))
    monkeypatch.undo()
    run_stages([Lines(files), Joined()], str(out), workers=workers)
    assert tree(out) == undisturbed(files, tmp_path)


def test_the_forecast_learns_what_a_stage_writes(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(
        os, "statvfs", FakeDisk(out, 25_000)
    )  # room for one task as large as its input, or six empty ones
    run_stages([Lines(files, min_chars=100)], str(out), workers=0)
    assert len(list(out.glob("lines-*/data/*"))) == 6


def test_a_file_system_without_inodes_is_named(
    files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", FakeDisk(tmp_path / "out", 900_000, inodes=3))
    with pytest.raises(DiskError, match="only 3 inodes are free"):
        run_stages([Lines(files)], str(tmp_path / "out"), workers=0)


def test_a_folder_that_is_still_to_be_made_is_on_the_disk_above_it(tmp_path: Path) -> None:
    assert free_space(tmp_path / "a" / "b").reserve_bytes == free_space(tmp_path).reserve_bytes
