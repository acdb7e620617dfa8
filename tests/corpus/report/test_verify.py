"""One wrong byte, a lost file, a foreign one: `verify` finds each, and nothing on a sound build."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from corpus.engine.errors import WenhaiError
from corpus.report.verify import render_status, status, verify


def one(folder: Path, pattern: str) -> Path:
    """The first file of a pattern."""
    return sorted(folder.glob(pattern))[0]


def kinds(folder: Path) -> list[tuple[str, str]]:
    """(kind, name) of all problems."""
    return [(problem.kind, Path(problem.path).name) for problem in verify(str(folder))]


def test_a_sound_build_has_no_problem(out: str) -> None:
    assert verify(out) == []


@pytest.mark.parametrize("pattern", ["extract-*/data/*.parquet", "tokens-*/data/*.bin", "filter-*/statistics/*"])
def test_a_flipped_byte(copy: Path, pattern: str) -> None:
    path = one(copy, pattern)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert kinds(copy) == [("sha256", path.name)]


def test_a_truncated_file(copy: Path) -> None:
    path = one(copy, "text-*/data/*")
    os.truncate(path, path.stat().st_size - 1)
    assert kinds(copy) == [("size", path.name)]


def test_a_missing_file_and_one_renamed(copy: Path) -> None:
    path = one(copy, "text-*/data/*")
    path.rename(path.with_name("00009-00.parquet"))
    assert kinds(copy) == [("missing", path.name), ("extra", "00009-00.parquet")]


def test_foreign_files_and_links(copy: Path) -> None:
    folder = one(copy, "tokens-*/data")
    (folder / "foreign.bin").write_bytes(b"x")
    (folder.parent / "notes.txt").write_bytes(b"x")
    (folder / "link.bin").symlink_to("/dev/null")
    assert sorted(kinds(copy)) == [("extra", "foreign.bin"), ("extra", "link.bin"), ("extra", "notes.txt")]


def test_stale_temporary_files(copy: Path) -> None:
    stale = one(copy, "text-*/data") / ".00000-00.parquet.999999999.0123abcd.tmp"
    stale.write_bytes(b"half a file")
    assert kinds(copy) == [("temporary", stale.name)]


def test_a_missing_manifest(copy: Path) -> None:
    one(copy, "filter-*/MANIFEST.json").unlink()
    assert kinds(copy) == [("missing", "MANIFEST.json")]


def test_records_and_recipe_must_agree_with_the_manifest(copy: Path) -> None:
    record = one(copy, "filter-*/done/*.json")
    value = json.loads(record.read_text())
    next(iter(value["files"].values()))["rows"] += 1
    record.write_text(json.dumps(value))
    recipe = one(copy, "text-*/stage.json")
    recipe.write_text(recipe.read_text().replace("0.8", "0.7"))
    one(copy, "extract-*/done/*.json").unlink()
    assert sorted(kinds(copy)) == [("record", record.name), ("record", "done"), ("record", "stage.json")]


def test_every_problem_says_what_to_do(copy: Path) -> None:
    one(copy, "text-*/data/*").unlink()
    (problem,) = verify(str(copy))
    assert "Remove this file and run the same command again" in str(problem)


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match=r"run\.json"):
        verify(str(tmp_path))
    assert render_status(status(str(tmp_path))) == "no stage has been started here"


def test_status_tells_complete_incomplete_and_unreferenced(copy: Path) -> None:
    one(copy, "tokens-*/MANIFEST.json").unlink()
    failed = one(copy, "tokens-*") / "failed"
    failed.mkdir()
    (failed / "00000-00.json").write_text('{"task": "00000-00", "kind": "error", "failure": "no disk"}')
    run = json.loads((copy / "run.json").read_text())
    del run["stages"]["text"], run["stages"]["tokens"]
    (copy / "run.json").write_text(json.dumps(run))
    one(copy, "filter-*/data/*").unlink()
    found = {one.stage: one for one in status(str(copy))}
    assert {name: stage.state for name, stage in found.items()} == {
        "extract": "complete",
        "filter": "complete",
        "tokens": "incomplete",
        "text": "unreferenced",
    }
    assert (found["filter"].missing, found["extract"].missing) == (1, 0)
    assert (found["tokens"].done, found["tokens"].failed, found["tokens"].tasks) == (2, 1, None)
    text = render_status(list(found.values()))
    assert "failed in tokens: task 00000-00: error: no disk" in text
    assert "belong to earlier recipes" in text and max(map(len, text.splitlines())) <= 80
