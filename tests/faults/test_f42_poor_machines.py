"""FAULTS row 42: what dead runs left, no inodes, a read-only disk, any umask, and no shared memory: swept or named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus.engine import durable, storage
from corpus.engine.errors import DiskError
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from corpus.report.status import status
from corpus.report.verify import verify
from tests.corpus.engine.toy import Joined, Lines, numbered_files, tree, undisturbed
from tests.faults.conftest import Disk

pytestmark = pytest.mark.timeout(600)
RUN = """
import sys
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from tests.corpus.engine.toy import Joined, Lines
from tests.faults.conftest import Disk
if __name__ == "__main__":
    run_stages([Lines(tuple(list_inputs([sys.argv[1]]))), Joined()], sys.argv[2], workers=2)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return numbered_files(tmp_path / "in", 4)


def run(files: tuple[File, ...], out: Path) -> None:
    run_stages([Lines(files), Joined()], str(out), workers=0)


def test_temporary_files_of_dead_runs_are_swept(files: tuple[File, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(files, out)
    reference = tree(out)
    folder = next(out.glob("lines-*"))
    for name in ("data/.00000.txt.4711.0a1b2c3d.tmp", "done/.00000.json.4712.0a1b2c3d.tmp"):
        (folder / name).write_bytes(bytes(1000))
    (folder / "data" / ".mine.tmp").touch()  # not of our making
    run(files, out)
    assert tree(out) == reference | {
        f"{folder.name}/data/.mine.tmp": next(iter({durable.sha256_file(folder / "data/.mine.tmp")}))
    }


def test_no_inodes_left(files: tuple[File, ...], tmp_path: Path, make_disk: Callable[[str], Disk]) -> None:
    disk = make_disk("size=4m,nr_inodes=40")
    for number in range(30):
        (disk.folder / f"{number}").touch()
    with pytest.raises(DiskError, match=r"inodes are free|No space left on device"):
        run(files, disk.folder / "out")
    disk.remount("nr_inodes=400")
    run(files, disk.folder / "out")
    assert tree(disk.folder / "out") == undisturbed(files, tmp_path)


def test_a_build_on_a_read_only_disk_can_be_read_and_not_be_written(
    files: tuple[File, ...], make_disk: Callable[[str], Disk]
) -> None:
    disk = make_disk("size=4m")
    out = disk.folder / "out"
    run(files, out)
    disk.remount("ro")
    assert verify(str(out)) == []
    assert {one.state for one in status(str(out))} == {"complete"}
    with pytest.raises(DiskError, match=r"cannot be written \(Read-only file system\)"):
        run(files, out)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_any_umask(files: tuple[File, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(mask)
    try:
        run(files, tmp_path / "out")
        assert durable.private_cache().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*.txt")}
    assert modes == {0o666 & ~mask}
    assert storage.read_json(str(next((tmp_path / "out").glob("joined-*/MANIFEST.json"))))["tasks"] == 1


def test_no_shared_memory(files: tuple[File, ...], tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    without = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro,size=4k tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*without, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    words = [sys.executable, str(script), str(tmp_path / "in"), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([*without, *words], env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "out") == undisturbed(files, tmp_path)
