"""Files are complete or absent; locks hold; broken JSON is refused."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from corpus.dedup.contamination import built_in
from corpus.engine import durable
from corpus.engine.errors import DiskError, LockHeld, WenhaiError
from corpus.filters import url_rules
from corpus.filters.quality import variety


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=Path.cwd())


def test_commit_leaves_the_whole_file_and_no_temporary_one(tmp_path: Path) -> None:
    durable.write_bytes(tmp_path / "a", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"text"


def test_an_exception_keeps_the_old_file_and_removes_the_temporary_one(tmp_path: Path) -> None:
    durable.write_bytes(tmp_path / "a", b"old")
    with pytest.raises(ValueError, match="no"), durable.commit(tmp_path / "a") as temporary:
        temporary.write_bytes(b"half")
        raise ValueError("no")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_kill_before_the_rename_keeps_the_old_file_and_sweep_removes_the_rest(tmp_path: Path) -> None:
    durable.write_bytes(tmp_path / "a", b"old")
    code = """
        import os, signal, sys
        from pathlib import Path
        from corpus.engine import durable
        with durable.commit(Path(sys.argv[1])) as temporary:
            temporary.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_python(code, tmp_path / "a").returncode == -9
    assert (tmp_path / "a").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "b.tmp").touch()  # not a name of ours
    durable.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.tmp"]


def test_a_full_disk_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    code = """
        import resource, signal, sys
        from pathlib import Path
        from corpus.engine import durable
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            durable.write_bytes(Path(sys.argv[1]), bytes(5000))
        except Exception as error:
            print(type(error).__name__, error)
    """
    result = run_python(code, tmp_path / "big")
    assert result.stdout.startswith("DiskError") and "big" in result.stdout and "same command" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_missing_input_is_not_called_a_disk_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), durable.commit(tmp_path / "a"):
        (tmp_path / "missing").read_bytes()
    denied = PermissionError(errno.EACCES, "Permission denied", "/elsewhere/input.jsonl")
    with pytest.raises(PermissionError), durable.commit(tmp_path / "a"):
        raise denied
    with pytest.raises(DiskError, match="a: cannot be written"), durable.commit(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_second_run_on_a_folder_is_told_who_holds_it(tmp_path: Path) -> None:
    with durable.RunLock(tmp_path), pytest.raises(LockHeld, match=f"process {os.getpid()} on .* since 20") as caught:
        durable.RunLock(tmp_path).__enter__()
    assert caught.value.exit_code == 3
    with durable.RunLock(tmp_path):  # free again
        pass


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", "[" * 100_000, '{"a": 1e999}x'])
def test_json_is_strict(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(WenhaiError, match=r"a\.json"):
        durable.read_json(tmp_path / "a.json")


def test_json_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('"' + "a" * 200 + '"')
    with pytest.raises(WenhaiError, match="larger than 100 bytes"):
        durable.read_json(tmp_path / "a.json", max_bytes=100)


def test_json_round_trip_is_sorted_and_keeps_chinese(tmp_path: Path) -> None:
    durable.write_json(tmp_path / "a.json", {"乙": [1, 2.5, None], "甲": "文海"})
    assert durable.read_json(tmp_path / "a.json") == {"乙": [1, 2.5, None], "甲": "文海"}
    assert (tmp_path / "a.json").read_text().index("乙") < (tmp_path / "a.json").read_text().index("甲")
    assert durable.digest({"a": 1, "b": 2}) == durable.digest({"b": 2, "a": 1}) != durable.digest({"a": 1, "b": 3})
    with pytest.raises(ValueError, match="not JSON compliant"):
        durable.write_json(tmp_path / "b.json", float("nan"))


SHIPPED = {
    **{url_rules.FOLDER / f"{name}.hosts": sha256 for name, sha256 in url_rules.SHIPPED.items()},
    **variety.SHIPPED,
    built_in.PATH: built_in.SHA256,
}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_file_is_the_one_that_was_shipped(path: Path, tmp_path: Path) -> None:
    whole = durable.read_shipped(path, SHIPPED[path])
    flipped = whole[:111] + bytes([whole[111] ^ 16]) + whole[112:]
    for damaged in (whole[:-1], whole + b"\0", flipped, b""):
        (tmp_path / path.name).write_bytes(damaged)
        with pytest.raises(WenhaiError, match=f"{path.name}: not the file that was shipped. Install the package again"):
            durable.read_shipped(tmp_path / path.name, SHIPPED[path])
