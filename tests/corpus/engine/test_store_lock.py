"""On an object store one run at a time, as far as a store can promise it, and a dead run's lock is no dead end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from corpus import prune
from corpus.engine import durable, records, running, storage, store_lock
from corpus.engine.errors import LockHeld
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import File
from corpus.engine.store_lock import Holder, StoreLock
from tests.corpus.engine.toy import Joined, Lines, text_files

OUT = "memory://locked"
URL = f"{OUT}/{store_lock.LOCK_NAME}"


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(store_lock, "SETTLE_SECONDS", 0)
    storage.remove_tree(OUT)
    yield
    storage.remove_tree(OUT)


def lay(**changes: Any) -> Holder:
    """A lock that a living process of another machine holds, but for `changes`."""
    holder = replace(
        Holder.this_process(), machine="another", words="process 7 on elsewhere since yesterday", **changes
    )
    storage.put(URL, durable.canonical_json(asdict(holder)))
    return holder


def test_the_lock_is_held_and_given_back() -> None:
    assert store_lock.holder(OUT) is None
    with StoreLock(OUT) as lock:
        assert str(store_lock.holder(OUT)).startswith(f"process {os.getpid()} on ")
        with pytest.raises(LockHeld, match=f"in use by process {os.getpid()} .* s ago.*remove {URL}; 10 minutes"):
            StoreLock(OUT).__enter__()
        lock.check()
    assert not storage.exists(URL)
    with StoreLock(OUT):
        pass


def test_of_two_that_saw_no_lock_the_store_chooses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real, looks = store_lock.read, iter([None])
    with StoreLock(OUT) as first:
        monkeypatch.setattr(store_lock, "read", lambda out: next(looks, real(out)))
        with pytest.raises(LockHeld, match="in use by"):
            StoreLock(OUT).__enter__()
        first.beat()
        first.check()


def test_of_two_that_break_one_lock_the_later_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lay(heard=0)
    monkeypatch.setattr(
        store_lock.time, "sleep", lambda seconds: lay()
    )  # who saw the dead one's lock, too, removes ours
    with pytest.raises(LockHeld, match="in use by process 7 on elsewhere"):
        StoreLock(OUT).__enter__()
    assert "elsewhere" in str(store_lock.holder(OUT))


def test_a_start_that_fails_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    real = storage.put_new

    def lost_answer(url: str, data: bytes) -> None:
        real(url, data)
        raise OSError("connection reset")

    monkeypatch.setattr(storage, "put_new", lost_answer)
    with pytest.raises(OSError, match="connection reset"):
        StoreLock(OUT).__enter__()
    assert not storage.exists(URL)


def test_a_store_that_refuses_conditions_is_locked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    real = MemoryFileSystem.pipe_file

    def pipe_file(self: Any, path: str, data: bytes, mode: str = "overwrite") -> None:
        if mode == "create":
            raise OSError("A header you provided implies functionality that is not implemented")
        real(self, path, data)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    with StoreLock(OUT), pytest.raises(LockHeld, match="in use by"):
        StoreLock(OUT).__enter__()
    assert not storage.exists(URL)


@pytest.mark.parametrize("silent", [0, 500, 700])
def test_a_lock_not_heard_of_for_ten_minutes_is_free(silent: float) -> None:
    lay(heard=time.time() - silent)
    if silent < store_lock.STALE_SECONDS:
        with pytest.raises(LockHeld, match="process 7 on elsewhere"):
            StoreLock(OUT).__enter__()
        return
    assert store_lock.holder(OUT) is None
    with StoreLock(OUT):
        assert str(store_lock.holder(OUT)).startswith(f"process {os.getpid()}")


def test_the_lock_of_a_process_that_died_on_this_machine_is_free_at_once() -> None:
    code = "from corpus.engine.store_lock import *; import json; print(json.dumps(asdict(Holder.this_process())))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    storage.put(URL, ended.stdout.encode())
    found = store_lock.read(OUT)
    assert found is not None and found.is_free and found.silent_seconds < store_lock.STALE_SECONDS
    assert not replace(found, machine="another").is_free  # of another machine nothing is known
    reused = replace(found, process=os.getpid())  # the number lives, the process does not
    assert reused.is_free and not Holder.this_process().is_free
    with StoreLock(OUT):
        pass


def test_a_process_that_cannot_be_looked_at_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Holder.this_process()
    monkeypatch.setattr(store_lock, "_born", lambda process: None)  # hidepid
    assert not mine.is_free

    def refused(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert not mine.is_free
    monkeypatch.undo()
    assert not mine.is_free and replace(mine, born="1").is_free and replace(mine, process=2**22 + 1).is_free


def test_signs_of_life_are_given_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT_SECONDS", 0.01)
    with StoreLock(OUT):
        first = store_lock.read(OUT)
        assert first is not None
        deadline = time.monotonic() + 300
        while (now := store_lock.read(OUT)) is None or now.heard <= first.heard:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert now == replace(first, heard=now.heard)


def test_a_run_that_lost_its_lock_stops_and_leaves_the_others_alone() -> None:
    with StoreLock(OUT) as lock:
        storage.remove(URL)
        lock.beat()  # put back: nobody else came
        lock.check()
        other = lay()
        lock.check()  # not asked yet
        with pytest.raises(LockHeld, match=r"process 7 on elsewhere .* works here now.*Finished work is kept"):
            lock.confirm()
        with pytest.raises(LockHeld):
            lock.check()
    assert store_lock.read(OUT) == other


def test_a_store_out_of_reach_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT_SECONDS", 0.01)
    tries: list[int] = []

    def beat(self: StoreLock) -> None:
        tries.append(1)
        raise OSError("no route")

    monkeypatch.setattr(StoreLock, "beat", beat)
    with StoreLock(OUT) as lock:
        deadline = time.monotonic() + 300
        while len(tries) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        lock.check()


@pytest.mark.parametrize("data", [b"hello\n", b'{"heard": "yesterday"}', b"[]"])
def test_what_is_no_lock_is_not_taken_for_one(data: bytes) -> None:
    storage.put(URL, data)
    with pytest.raises(LockHeld, match=f"{URL}: .*no lock of ours. Look at it"):
        StoreLock(OUT).__enter__()


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return text_files(tmp_path / "in", ["学而时习之\n" * 20] * 4)


def test_runs_and_prune_keep_to_the_lock(files: tuple[File, ...]) -> None:
    holder = lay()
    with pytest.raises(LockHeld):
        run_stages([Lines(files)], OUT, workers=0)
    with pytest.raises(LockHeld):
        prune.prune(OUT, [])
    assert storage.names(OUT, "") == [store_lock.LOCK_NAME] and store_lock.read(OUT) == holder
    storage.remove(URL)
    run_stages([Lines(files)], OUT, workers=0)
    assert not storage.exists(URL)


def test_a_run_whose_lock_is_taken_stops_after_the_task_under_way(
    files: tuple[File, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, real = StoreLock(OUT), Lines.run

    def run(self: Lines, task: Task, out: Output) -> Counts:
        lay()
        lock.beat()
        return real(self, task, out)

    monkeypatch.setattr(store_lock, "run_lock", lambda out: lock)
    monkeypatch.setattr(Lines, "run", run)
    with pytest.raises(LockHeld, match="works here now"):
        run_stages([Lines(files), Joined()], OUT, workers=0)
    folder = next(name for name in storage.names(OUT, "") if name.startswith("lines-"))
    assert storage.names(f"{OUT}/{folder}/done", "") == ["00000.json"]
    assert storage.exists(URL)
    storage.remove(URL)
    monkeypatch.undo()
    run_stages([Lines(files), Joined()], OUT, workers=0)


def test_a_run_whose_lock_is_taken_at_the_end_of_a_stage_names_no_folder(
    files: tuple[File, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = records.Records.commit

    def commit(*arguments: Any) -> Any:
        lay()  # nobody has given a sign of life since
        return real(*arguments)

    monkeypatch.setattr(records.Records, "commit", commit)
    with pytest.raises(LockHeld, match="works here now"):
        run_stages([Lines(files)], OUT, workers=0)
    assert not storage.exists(f"{OUT}/run.json") and storage.exists(URL)


def test_status_tells_a_living_run_from_a_dead_one(files: tuple[File, ...]) -> None:
    run_stages([Lines(files)], OUT, workers=0)
    folder = next(name for name in storage.names(OUT, "") if name.startswith("lines-"))
    running.mark(OUT, running.Running("lines", folder, 8, 0, 1000.0, "process 1 on host", 0, 0, 1000.0))
    for silent, alive in ((1, True), (10_000, False)):
        lay(heard=time.time() - silent)
        pace = running.pace(OUT)
        assert pace is not None and pace.is_alive is alive
