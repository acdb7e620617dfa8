"""Small disks: file systems in memory that a test may fill, shrink or make read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A mounted tmpfs."""

    folder: Path

    def remount(self, options: str) -> None:
        """Change what it allows: `size=4m`, `nr_inodes=400`, `ro`."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """Mount a disk with given options (`size=64k`); the test is skipped where none can be mounted."""
    mounted: list[Path] = []

    def make(options: str) -> Disk:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("no file system can be mounted here")
        mounted.append(folder)
        return Disk(folder)

    yield make
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # also where a mapped file is still open
