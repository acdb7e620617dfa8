"""FAULTS row 3: a disk that takes no more stops the run with a message, leaves no half file, and costs no finished
work.

Two ways to a full disk: a limit on file sizes (EFBIG, everywhere) and a file system of 64 KiB (ENOSPC, where the tests
may mount one).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus.engine import durable
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.engine.toy import Joined, Lines, text_files, tree
from tests.faults.conftest import Disk

pytestmark = pytest.mark.timeout(600)
RUN = """
import resource, sys
from unittest import mock
from corpus.engine.inputs import list_inputs
from corpus.engine.errors import WenhaiError
from corpus.engine.run import run_stages
from tests.corpus.engine.toy import Joined, Lines
if __name__ == "__main__":
    limit = int(sys.argv[3])
    mock.patch("corpus.engine.disk_budget.FIRST_GUESS", 0.0).start()  # the forecast must not come first
    mock.patch("corpus.engine.disk_budget.RESERVE_RATIO", -1.0).start()
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        run_stages([Lines(tuple(list_inputs([sys.argv[1]]))), Joined()], sys.argv[2], workers=2)
    except WenhaiError as error:
        print(error)
        sys.exit(error.exit_code)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    texts = ("\n".join(f"第{index}卷第{line}行之文" for line in range(300 * index + 10)) for index in range(6))
    return text_files(tmp_path / "in", texts)


def run_toy(tmp_path: Path, out: Path, limit: int = 0) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    return subprocess.run(
        [sys.executable, str(script), str(tmp_path / "in"), str(out), str(limit)],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def check_and_resume(files: tuple[File, ...], out: Path, tmp_path: Path) -> None:
    assert not list(out.rglob("*.tmp"))
    reference = tmp_path / "reference"
    run_stages([Lines(files), Joined()], str(reference), workers=0)
    whole = tree(reference)
    alone = [path for path in out.rglob("*.json") if path.parent.name == "done"]  # which the next run gathers
    own = {str(path.relative_to(out)) for path in alone}
    written = {name: digest for name, digest in tree(out).items() if "/failed/" not in name and name not in own}
    assert written.items() <= whole.items()  # what stands under a final name is whole
    gathered = {line for path in reference.rglob("done/*.jsonl") for line in path.read_bytes().splitlines()}
    assert {durable.canonical_json(durable.read_json(path)) for path in alone} <= gathered
    run_stages([Lines(files), Joined()], str(out), workers=0)
    assert tree(out) == whole


def test_a_file_that_grows_too_large(files: tuple[File, ...], tmp_path: Path) -> None:
    done = run_toy(tmp_path, tmp_path / "out", limit=16_000)
    assert done.returncode == 1, done.stderr
    assert "disk: " in done.stdout and "cannot be written (File too large)" in done.stdout
    assert "same command again" in done.stdout and "Traceback" not in done.stderr
    check_and_resume(files, tmp_path / "out", tmp_path)


def test_a_full_disk_and_space_freed_later(
    files: tuple[File, ...], tmp_path: Path, make_disk: Callable[[str], Disk]
) -> None:
    disk = make_disk("size=64k")
    done = run_toy(tmp_path, disk.folder / "out")
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stdout and "Traceback" not in done.stderr
    disk.remount("size=4m")
    check_and_resume(files, disk.folder / "out", tmp_path)
