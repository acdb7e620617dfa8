"""Input files are found through links, each once, and what is left out is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus.engine.inputs import LeftOut, common_labels, list_inputs


def found(pattern: Path, left_out: LeftOut | None = None) -> list[str]:
    return [file.name for file in list_inputs([str(pattern)], left_out)]


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def test_every_file_has_a_label_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "one/a/x.txt", "one/b/x.txt", "two/a/x.txt", "two/a/y.txt")
    files = list_inputs([str(tmp_path / folder) for folder in ("one/a", "one/b", "two")])
    labels = common_labels(files)
    assert [labels[file.url] for file in files] == ["one/a/x.txt", "b/x.txt", "two/a/x.txt", "a/y.txt"]
    labels = common_labels(files, {"a/y.txt", "b/x.txt", "one/b/x.txt"})
    assert labels[files[1].url].endswith("/one/b/x.txt") and labels[files[3].url] == "two/a/y.txt"


def test_links_to_folders_are_followed_and_loops_end(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "a.txt", "own/b.txt", "own/deep/c.txt")
    write(tmp_path / "elsewhere", "d.txt", "more/e.txt")
    (data / "away").symlink_to(tmp_path / "elsewhere")
    (data / "again").symlink_to(data / "own")  # sorts before it
    (data / "own" / "up").symlink_to(data)
    (tmp_path / "elsewhere" / "top").symlink_to(tmp_path)
    for number in range(20):  # 20 ** 40 ways to walk
        (data / "own" / f"loop{number}").symlink_to("..")
    for pattern, names in (
        (data, ["a.txt", "away/d.txt", "away/more/e.txt", "own/b.txt", "own/deep/c.txt"]),
        (data / "**" / "[de].txt", ["away/d.txt", "away/more/e.txt"]),
        (data / "away" / "**" / "more" / "*", ["more/e.txt"]),
        (data / "**" / "deep" / "**" / "*.txt", ["own/deep/c.txt"]),
    ):
        assert found(pattern) == names, pattern
    left_out: LeftOut = {}
    found(data, left_out)
    assert len(left_out["links to folders that are read already"]) == 23


def test_what_is_no_input_is_told(tmp_path: Path) -> None:
    data = write(tmp_path, "a.txt", ".hidden.txt", "deep/.DS_Store", "b.txt")
    (data / "gone").symlink_to(data / "nowhere")
    (data / "self").symlink_to(data / "self")
    os.mkfifo(data / "pipe")
    left_out: LeftOut = {}
    assert found(data, left_out) == ["a.txt", "b.txt"]
    assert {reason: sorted(Path(path).name for path in paths) for reason, paths in left_out.items()} == {
        "hidden files": [".DS_Store", ".hidden.txt"],
        "broken links": ["gone", "self"],
        "pipes, sockets and devices": ["pipe"],
    }
    left_out.clear()
    assert found(data / "*", left_out) == ["a.txt", "b.txt"]
    assert sorted(left_out) == ["broken links", "hidden files", "pipes, sockets and devices"]


def test_a_run_tells_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from corpus.__main__ import main

    data = write(tmp_path / "in", "a.txt", ".b.txt", ".c.txt")
    assert main(["plan", "--recipe", "web_zh", "--input", str(data), "--out", str(tmp_path / "out")]) == 0
    assert "left out of the inputs: 2 hidden files" in capsys.readouterr().err
