"""One wrong byte, a lost file, a foreign one: `verify` finds each, and nothing on a sound build."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.engine import durable, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import read_run, run_stages
from corpus.report.status import render_status, status
from corpus.report.verify import verify
from tests.corpus.engine.toy import Joined, Lines, tree


def one(folder: Path, pattern: str) -> Path:
    """The first file of a pattern."""
    return sorted(folder.glob(pattern))[0]


def kinds(folder: Path) -> list[tuple[str, str]]:
    """(kind, name) of all problems."""
    return [(problem.kind, Path(problem.path).name) for problem in verify(str(folder))]


def test_a_sound_build_has_no_problem(out: str) -> None:
    assert verify(out) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("pattern", "damage", "kind"),
    [
        ("extract-*/data/*.parquet", flip, "sha256"),
        ("tokens-*/data/*.bin", flip, "sha256"),
        ("filter-*/statistics/*", flip, "sha256"),
        ("text-*/data/*", lambda path: os.truncate(path, path.stat().st_size - 1), "size"),
        ("filter-*/MANIFEST.json", Path.unlink, "missing"),
    ],
)
def test_a_damaged_file(copy: Path, pattern: str, damage: Callable[[Path], None], kind: str) -> None:
    path = one(copy, pattern)
    damage(path)
    assert kinds(copy) == [(kind, path.name)]


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


def test_records_and_recipe_must_agree_with_the_manifest(copy: Path) -> None:
    record = one(copy, "filter-*/done/*.jsonl")
    record.write_text(record.read_text().replace('"rows":', '"rows":1', 1))
    recipe = one(copy, "text-*/stage.json")
    recipe.write_text(recipe.read_text().replace("0.8", "0.7"))
    one(copy, "extract-*/done/*.jsonl").unlink()
    told = [(problem.kind, problem.path.removeprefix(f"{copy}/")) for problem in verify(str(copy))]
    assert [(kind, path.split("-")[0], Path(path).name) for kind, path in told] == [
        ("record", "extract", "MANIFEST.json"),
        ("record", "filter", "MANIFEST.json"),
        ("record", "text", "stage.json"),
    ]


def positions(path: Path, most: int) -> list[int]:
    """Where to flip a byte: all over the file, but for the one field that says nothing about outputs."""
    data = path.read_bytes()
    step = max(7, len(data) // most) if path.suffix.startswith(".json") else max(1, len(data) // 3)
    every = range(path.name.encode()[0] % 7, len(data), step)
    if path.parent.name != "done":
        return list(every)
    starts = [found.start() for found in re.finditer(rb'"digest":"', data)]
    return [position for position in every if not any(start <= position < start + 75 for start in starts)]


@pytest.mark.parametrize("most", [9, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_flipped_byte_in_any_kind_of_file_is_told_with_its_path_and_what_to_do(copy: Path, most: int) -> None:
    folders = [entry["folder"] for entry in read_run(str(copy))["stages"].values()]
    by_kind = {
        (path.relative_to(copy).parts[0].split("-")[0], path.name if path.suffix == ".json" else path.parent.name): path
        for folder in folders
        for path in sorted((copy / folder).rglob("*"))
        if path.is_file()
    }
    assert len(by_kind) > 15
    for path in by_kind.values():
        data = path.read_bytes()
        for position in positions(path, most):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            problems = verify(str(copy))
            names = [path.name, *(["the records below done/"] if path.parent.name == "done" else [])]
            assert len(problems) == 1 and any(name in str(problems[0]) for name in names), (position, problems)
            assert str(path.parents[path.parent.name == "done"]) in str(problems[0])
            assert "un the same command again" in problems[0].detail
        path.write_bytes(data)
    assert verify(str(copy)) == []


def test_a_flipped_byte_in_the_index_of_the_build(copy: Path) -> None:
    path = copy / "run.json"
    data = path.read_bytes()
    for position in range(0, len(data), 3):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            told = " ".join(map(str, verify(str(copy))))
        except WenhaiError as error:
            told = str(error)
        assert "run.json" in told or "MANIFEST.json" in told, position


DAMAGES = {
    "data": lambda folder: flip(one(folder, "data/*")),
    "cut": lambda folder: os.truncate(one(folder, "data/*"), 3),
    "gone": lambda folder: one(folder, "data/*").unlink(),
    "manifest": lambda folder: flip(folder / "MANIFEST.json"),
    "piece": lambda folder: flip(one(folder, "manifest/*")),
    "no piece": lambda folder: one(folder, "manifest/*").unlink(),
    "no manifest": lambda folder: (folder / "MANIFEST.json").unlink(),
    "recipe": lambda folder: flip(folder / "stage.json"),
    "record": lambda folder: flip(one(folder, "done/*")),
    "no record": lambda folder: one(folder, "done/*").unlink(),
    "other manifest": lambda folder: rewrite(folder / "MANIFEST.json", ("counts", "documents_in")),
    "other record": lambda folder: rewrite(one(folder, "done/*"), ("counts", "documents_in")),
    "other rows": lambda folder: rewrite(one(folder, "done/*"), ("files", next(iter(names(folder))), "rows")),
}


def rewrite(path: Path, keys: tuple[str, ...]) -> None:
    """Raise a number in a file of ours, in its first line if it has several, by one, in the spelling that we use."""
    first, *rest = path.read_bytes().splitlines(True) if path.suffix == ".jsonl" else [path.read_bytes()]
    value = inner = json.loads(first)
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] += 1
    spelled = durable.canonical_json(value) + b"\n" if path.suffix == ".jsonl" else durable.json_bytes(value)
    path.write_bytes(b"".join([spelled, *rest]))


def names(folder: Path) -> list[str]:
    return sorted(json.loads(one(folder, "done/*").read_bytes().splitlines()[0])["files"])


@pytest.mark.parametrize("stage", ["lines", "joined"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_to_do_what_a_problem_says_mends_it(tmp_path: Path, stage: str, damage: str) -> None:
    (tmp_path / "in").mkdir()
    for index in range(3):
        (tmp_path / "in" / f"{index}.txt").write_text("学而时习之\n" * (index + 2))
    stages = [Lines(tuple(list_inputs([str(tmp_path / "in")]))), Joined()]
    out = tmp_path / "out"
    run_stages(stages, str(out), workers=0)
    before = tree(out)
    DAMAGES[damage](one(out, f"{stage}-*"))
    for _ in range(3):
        problems = verify(str(out))
        if not problems:
            break
        for problem in problems:
            path = Path(problem.path)
            if "Remove the stage folder" in problem.detail:
                shutil.rmtree(out / path.relative_to(out).parts[0])
            else:
                assert "un the same command again" in problem.detail
                if "Remove" in problem.detail:
                    path.unlink(missing_ok=True)
                if "MANIFEST.json of its folder" in problem.detail:
                    (path.parents[1] / "MANIFEST.json").unlink()
                if found := re.search(r"it and (done/\S+) .* Remove both", problem.detail):
                    (path.parent / found[1]).unlink()
        run_stages(stages, str(out), workers=0)
    assert verify(str(out)) == []
    assert tree(out) == before


def test_an_object_store_is_read_as_a_disk_is(copy: Path) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.put(str(copy) + "/", "/verified/", recursive=True)
    assert verify("memory://verified", workers=3) == []
    flip(one(copy, "text-*/data/*"))
    one(copy, "tokens-*/data/*.bin").unlink()
    (one(copy, "filter-*/data") / "foreign").touch()
    store.rm("/verified", recursive=True)
    store.put(str(copy) + "/", "/verified/", recursive=True)
    local = [(one.kind, one.path.removeprefix(str(copy)), one.detail) for one in verify(str(copy))]
    remote = [(one.kind, one.path.removeprefix("memory://verified"), one.detail) for one in verify("memory://verified")]
    assert remote == local and sorted(kind for kind, _, _ in local) == ["extra", "missing", "sha256"]
    store.rm("/verified", recursive=True)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_command_sums_up_and_its_exit_code_tells(
    copy: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    words = ["verify", str(copy), "--workers", str(workers)]
    assert main(words) == 0
    sound = capsys.readouterr()
    assert sound.out == "" and f"{copy}: every file matches its manifest" in sound.err
    assert re.search(r"^verify +\d+\.\d s  \d+ files, \d+\.\d MB read", sound.err)
    paths = [one(copy, "text-*/data/*"), one(copy, "extract-*/data/*")]
    for path in paths:
        flip(path)
    assert main(words) == 1
    told = capsys.readouterr()
    assert [line.split()[1].rstrip(":") for line in told.out.splitlines()] == [str(path) for path in reversed(paths)]
    assert "2 problems (2 sha256); each line above says what to do" in told.err
    assert main([*words, "--json"]) == 1
    assert [problem["path"] for problem in json.loads(capsys.readouterr().out)] == [
        str(path) for path in reversed(paths)
    ]
    assert main(["verify", str(copy), "--workers", "0"]) == 2


def test_a_reader_that_stops_does_not_wait_for_the_rest(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    cancelled, real = threading.Event(), ThreadPoolExecutor.shutdown

    def interrupted(url: str) -> str:
        read.append(url)
        if len(read) > 1:
            cancelled.wait()
        raise KeyboardInterrupt

    def shutdown(self: ThreadPoolExecutor, **options: bool) -> None:
        real(self, wait=False, **options)
        cancelled.set()
        real(self)

    monkeypatch.setattr(storage, "sha256", interrupted)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    with pytest.raises(KeyboardInterrupt):
        verify(str(copy), workers=1)
    assert len(read) <= 2


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
    assert "missing in filter: 1 of its files; the same command" in text and "missing in extract" not in text
    assert "belong to earlier recipes" in text and max(map(len, text.splitlines())) <= 80
