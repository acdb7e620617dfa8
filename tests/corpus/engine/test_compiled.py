"""Cached machine code is never older than the sources it came from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import toyroom.outer as outer; print(outer.twice(4))"
OUTER = """
from corpus.engine.compiled import kernel
from toyroom.inner import FACTOR

@kernel("int64(int64)")
def twice(x):
    return x * FACTOR
"""


def run(folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), os.getcwd())),
        "XDG_CACHE_HOME": str(folder),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.long
def test_a_change_in_an_imported_module_is_seen(tmp_path: Path) -> None:
    room = tmp_path / "toyroom"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "outer.py").write_text(OUTER)
    (room / "inner.py").write_text("FACTOR = 2\n")
    assert run(tmp_path) == "8"
    first = set((tmp_path / "wenhai/numba").iterdir())
    assert run(tmp_path) == "8"
    assert set((tmp_path / "wenhai/numba").iterdir()) == first  # and what has not changed is not compiled again
    (room / "inner.py").write_text("FACTOR = 3\n")
    assert run(tmp_path) == "12"


def test_a_cache_that_cannot_be_written_costs_a_line_and_no_run(tmp_path: Path) -> None:
    room = tmp_path / "toyroom"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "outer.py").write_text(OUTER)
    (room / "inner.py").write_text("FACTOR = 2\n")
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), os.getcwd()))
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1 and str(tmp_path / "file") in done.stderr
    assert not list((tmp_path / "tmp").iterdir())
