"""Records: a range a thousand tasks, nothing a task; whatever dies, what is done stays done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable, records, stage, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.records import Record, Records
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Task
from corpus.engine.storage import File
from tests.corpus.engine.toy import Lines, text_files, tree


@pytest.fixture(autouse=True)
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE_TASKS", 4)


def tasks(count: int = 10) -> list[Task]:
    return [Task(f"{number:02d}") for number in range(count)]


def record_of(task: Task, out: Path | None = None) -> Record:
    """A task's record, and with `out` its file."""
    name = f"data/{task.name}.x"
    if out is not None:
        (out / "data").mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"x")
    counts = asdict(Counts(documents_in=1, documents_out=1))
    return {
        "task": task.name,
        "digest": task.digest,
        "counts": counts,
        "files": {name: {"bytes": 1, "rows": 1, "sha256": "0" * 64}},
    }


def finish(out: Path, held: Records, numbers: list[int]) -> None:
    for number in numbers:
        record = record_of(held.tasks[number], out)
        records.write_record(str(out), record)
        held.add(record)


def in_done(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "done").glob("*"))


def loaded(out: Path, count: int = 10) -> Records:
    held = Records(str(out), tasks(count))
    list(held.load())
    return held


def test_a_range_is_closed_when_its_last_task_is_done_and_is_the_same_in_any_order(tmp_path: Path) -> None:
    held = Records(str(tmp_path / "a"), tasks())
    finish(tmp_path / "a", held, [0, 5, 3, 2])
    assert in_done(tmp_path / "a") == ["00.json", "02.json", "03.json", "05.json"]
    finish(tmp_path / "a", held, [1])
    assert in_done(tmp_path / "a") == ["00000.jsonl", "05.json"]
    finish(tmp_path / "a", held, [9, 8, 7, 6, 4])
    assert in_done(tmp_path / "a") == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]
    finish(tmp_path / "b", Records(str(tmp_path / "b"), tasks()), list(range(10)))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert held.num_done == held.counts.documents_in == 10 and list(held.todo()) == []


def test_a_driver_that_died_finds_all_that_was_done(tmp_path: Path) -> None:
    finish(tmp_path, Records(str(tmp_path), tasks()), [0, 1, 2, 3, 5, 9])
    held = loaded(tmp_path)
    assert [task.name for task in held.todo()] == ["04", "06", "07", "08"]
    assert held.counts.documents_out == 6
    finish(tmp_path, held, [4, 6, 7, 8])
    assert in_done(tmp_path) == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]
    assert loaded(tmp_path).num_done == 10


def test_one_that_died_between_a_range_and_the_removal_of_its_records_leaves_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "remove_many", lambda _: None)
    finish(tmp_path, Records(str(tmp_path), tasks()), [0, 1, 2, 3])
    assert len(in_done(tmp_path)) == 5
    monkeypatch.undo()
    monkeypatch.setattr(records, "RANGE_TASKS", 4)
    before = (tmp_path / "done/00000.jsonl").stat().st_mtime_ns
    assert loaded(tmp_path).num_done == 4
    assert in_done(tmp_path) == ["00000.jsonl"]
    assert (tmp_path / "done/00000.jsonl").stat().st_mtime_ns == before  # nothing to write again


def test_one_that_died_before_its_last_range_was_written_writes_it(tmp_path: Path) -> None:
    for task in tasks():
        records.write_record(str(tmp_path), record_of(task, tmp_path))
    assert loaded(tmp_path).num_done == 10
    assert in_done(tmp_path) == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]


@pytest.mark.parametrize("damage", ["file gone", "file cut", "other inputs"])
def test_of_a_closed_range_only_what_no_longer_fits_is_repeated(tmp_path: Path, damage: str) -> None:
    finish(tmp_path, Records(str(tmp_path), tasks()), list(range(10)))
    before = tree(tmp_path)
    planned = tasks()
    if damage == "file gone":
        (tmp_path / "data/06.x").unlink()
    elif damage == "file cut":
        (tmp_path / "data/06.x").write_bytes(b"")
    else:
        planned[6] = Task("06", params={"seed": 1})
    held = Records(str(tmp_path), planned)
    list(held.load())
    assert [task.name for task in held.todo()] == ["06"]
    finish(tmp_path, held, [6])
    assert in_done(tmp_path) == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]
    assert (tree(tmp_path) == before) is (damage != "other inputs")


def test_a_range_that_is_not_seen_costs_its_tasks_and_nothing_else(tmp_path: Path) -> None:
    """A store may list an object late: its tasks are done again, with the same bytes."""
    finish(tmp_path, Records(str(tmp_path), tasks()), list(range(10)))
    before = tree(tmp_path)
    (tmp_path / "done/00001.jsonl").unlink()
    held = loaded(tmp_path)
    assert [task.name for task in held.todo()] == ["04", "05", "06", "07"]
    finish(tmp_path, held, [4, 5, 6, 7])
    assert tree(tmp_path) == before


@pytest.mark.parametrize("limit", [0, 300, 1 << 20])
def test_what_is_not_held_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    finish(tmp_path / "whole", Records(str(tmp_path / "whole"), tasks()), list(range(10)))
    monkeypatch.setattr(records, "MAX_HELD_BYTES", limit)
    held = Records(str(tmp_path / "some"), tasks())
    finish(tmp_path / "some", held, [0, 4, 8, 1, 5, 9, 2, 6, 3, 7])
    assert tree(tmp_path / "some") == tree(tmp_path / "whole")
    assert held._held_bytes == 0  # of no open range


def test_a_record_that_is_no_json_is_named(tmp_path: Path) -> None:
    finish(tmp_path, Records(str(tmp_path), tasks()), [0, 1, 2, 3, 5])
    (tmp_path / "done/05.json").write_text("{")
    with pytest.raises(WenhaiError, match=r"done/05\.json: not valid JSON"):
        loaded(tmp_path)


# --------------------------------------------------------------------------------------------- what a run asks a store


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """What is asked of the memory store outside of tasks, by verb."""
    from fsspec.implementations.memory import MemoryFileSystem

    from corpus.engine import run as engine_run

    counted, inside = Counter[str](), [0]

    def counting(verb: str) -> Callable[..., Any]:
        real = getattr(MemoryFileSystem, verb)

        def ask(*args: Any, **options: Any) -> Any:
            counted[verb] += not inside[0]
            inside[0] += 1
            try:
                return real(*args, **options)
            finally:
                inside[0] -= 1

        return ask

    for verb in (
        "_open",
        "cat_file",
        "exists",
        "pipe_file",
        "put_file",
        "info",
        "find",
        "ls",
        "rm",
        "rm_file",
        "cp_file",
    ):
        monkeypatch.setattr(MemoryFileSystem, verb, counting(verb))
    real_task = engine_run.run_task

    def unseen(*args: Any) -> Any:
        inside[0] += 1
        try:
            return real_task(*args)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(engine_run, "run_task", unseen)
    yield counted
    MemoryFileSystem.store.clear()


def test_the_driver_asks_a_store_for_nothing_a_task(
    tmp_path: Path, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RANGE_TASKS", 1000)
    totals = []
    for count in (10, 40):
        files: tuple[File, ...] = text_files(tmp_path / str(count), [f"第{n}卷之文也\n" for n in range(count)])
        requests.clear()
        run_stages([Lines(files)], f"memory://asked{count}", workers=0)
        totals.append(sum(requests.values()))
        store = f"memory://asked{count}"
        folder = next(name for name in storage.names(store, "") if name.startswith("lines-"))
        storage.remove(f"{store}/{folder}/MANIFEST.json")  # as if the driver had died before it
        requests.clear()
        run_stages([Lines(files)], store, workers=0)
        totals.append(sum(requests.values()))
        assert storage.names(f"{store}/{folder}/done", "") == ["00000.jsonl"]
    assert totals[:2] == totals[2:]


def test_a_store_copies_what_is_taken_over(
    tmp_path: Path, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte of it passes through the driver."""
    monkeypatch.setattr(records, "RANGE_TASKS", 1000)
    files = text_files(tmp_path / "in", [f"第{n}卷之文也\n" for n in range(6)])
    run_stages([Lines(files[:5])], "memory://taken", workers=0)
    requests.clear()
    run_stages([Lines(files)], "memory://taken", workers=0)
    assert requests["cp_file"] == 5
    before = requests["cat_file"]
    requests.clear()
    run_stages([Lines(files[:1])], "memory://taken2", workers=0)
    requests.clear()
    run_stages([Lines(files[:2])], "memory://taken2", workers=0)
    assert requests["cp_file"] == 1 and requests["cat_file"] == before and requests["_open"] == 0


def test_what_was_taken_over_is_recorded_though_the_run_fails(tmp_path: Path) -> None:
    files = text_files(tmp_path / "in", [f"第{n}卷之文也\n" for n in range(7)])
    out = tmp_path / "out"
    run_stages([Lines(files[:5])], str(out), workers=0)
    with pytest.raises(WenhaiError, match="1 of 7 tasks failed"):
        run_stages([Lines(files, fault="00006:error")], str(out), workers=0)
    incomplete = next(path for path in out.glob("lines-*") if not (path / "MANIFEST.json").exists())
    assert in_done(incomplete) == ["00000.jsonl", "00004.json", "00005.json"]
    assert json.loads((incomplete / "done/00004.json").read_bytes())["task"] == "00004"
    assert (
        durable.json_bytes(json.loads((incomplete / "done/00004.json").read_bytes()))
        == (incomplete / "done/00004.json").read_bytes()
    )


def test_a_record_that_another_run_puts_into_its_range_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that lost its lock may still close a range while the one that took it looks at what is done."""
    finish(tmp_path, Records(str(tmp_path), tasks()), [0, 1, 2])
    real = storage.sizes

    def sizes(folder: str) -> dict[str, int]:
        found = real(folder)
        monkeypatch.undo()
        monkeypatch.setattr(records, "RANGE_TASKS", 4)
        other = Records(str(tmp_path), tasks())
        list(other.load())
        finish(tmp_path, other, [3])
        return found

    monkeypatch.setattr(storage, "sizes", sizes)
    held = loaded(tmp_path)
    assert held.num_done == 0 and in_done(tmp_path) == ["00000.jsonl"]
    finish(tmp_path, held, list(range(10)))
    assert loaded(tmp_path).num_done == 10


def test_very_many_inputs_are_told_by_what_they_add_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = text_files(tmp_path / "in", [f"第{n}卷之文也\n" for n in range(6)])
    whole = stage.fingerprint(Lines(files), {})["inputs"]
    monkeypatch.setattr(stage, "MOST_INPUTS_LISTED", 5)
    [[label, total, digest]] = stage.fingerprint(Lines(files), {})["inputs"]
    assert label == "6 files" and total == sum(size for _, size, _ in whole) and digest == durable.digest(whole)
    assert stage.fingerprint(Lines(files[::-1]), {})["inputs"] != [[label, total, digest]]
    assert len(stage.fingerprint(Lines(files[:5]), {})["inputs"]) == 5
