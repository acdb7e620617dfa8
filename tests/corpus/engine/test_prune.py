"""Pruning removes what no recipe needs and nothing else, and frees what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus.engine import durable, storage
from corpus.engine.errors import LockHeld, WenhaiError
from corpus.engine.run import read_run, run_stages
from corpus.engine.storage import File
from corpus.prune import prune, unneeded_folders
from tests.corpus.engine.toy import Joined, Lines, text_files, tree


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return text_files(tmp_path / "in", ("\n".join("文" * n for n in range(1, 9 + index)) for index in range(3)))


def folders(out: str) -> set[str]:
    return {entry["folder"] for entry in read_run(out)["stages"].values()}


def test_folders_of_other_recipes_go_and_those_of_given_ones_stay(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    made = {}
    for min_chars in (2, 4, 6):
        run_stages([Lines(files, min_chars=min_chars), Joined()], out, workers=0)
        made[min_chars] = folders(out)
    before = tree(Path(out))
    assert unneeded_folders(out, [[Lines(()), Joined()]]) == unneeded_folders(
        out, []
    )  # a recipe that was never run needs nothing
    gone = unneeded_folders(out, [[Lines((), min_chars=2), Joined()]])  # inputs are not asked for
    assert {one.folder for one in gone} == made[4]
    assert tree(Path(out)) == before  # listing removes nothing
    assert prune(out, [[Lines((), min_chars=2), Joined()]]) == gone
    assert tree(Path(out)) == {name: digest for name, digest in before.items() if name.split("/")[0] not in made[4]}
    run_stages([Lines(files, min_chars=2, fault="00000:error"), Joined()], out, workers=0)  # nothing to do again


def test_a_stage_of_another_package_stays_with_what_it_was_built_on(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run_stages([Lines(files, min_chars=2), Joined()], out, workers=0)
    first = folders(out)
    run_stages([Lines(files, min_chars=4)], out, workers=0)  # `joined` is of no recipe here, and no longer current
    assert {one.folder for one in unneeded_folders(out, [[Lines((), min_chars=4)]])} == first
    assert unneeded_folders(out, [[Lines((), min_chars=2)]]) == []


def test_bytes_with_another_name_are_not_freed(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run_stages([Lines(files[:2], min_chars=2)], out, workers=0)
    run_stages([Lines(files, min_chars=2)], out, workers=0)  # takes two files over by links
    [one] = unneeded_folders(out, [[Lines((), min_chars=9)]])
    data = sum(path.stat().st_size for path in (Path(out) / one.folder / "data").iterdir())
    assert one.file_bytes - one.freed_bytes == data > 0
    free = sum(path.stat().st_size for path in (Path(out) / one.folder).rglob("*.json*"))
    assert one.freed_bytes == free


def test_a_run_under_way_is_left_alone(files: tuple[File, ...], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run_stages([Lines(files)], out, workers=0)
    with durable.RunLock(Path(out)), pytest.raises(LockHeld, match=f"process {os.getpid()}"):
        prune(out, [])
    with pytest.raises(WenhaiError, match=r"holds no run\.json"):
        prune(str(tmp_path / "in"), [])


def test_an_object_store_is_pruned_too(files: tuple[File, ...]) -> None:
    for min_chars in (2, 4):
        run_stages([Lines(files, min_chars=min_chars), Joined()], "memory://prune", workers=0)
    [one, other] = prune("memory://prune", [])
    assert storage.sizes(f"memory://prune/{one.folder}") == {} and one.freed_bytes > 0
    assert unneeded_folders("memory://prune", []) == [] and other.folder.startswith("lines-")
