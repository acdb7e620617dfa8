"""FAULTS row 1: a run killed at any durable operation, run again, gives the bytes of an undisturbed run.

Two models of death. Process death: a forked child runs the stages and kills itself before its N-th fsync or rename,
for every N until it survives. Power loss: the operations of one commit are recorded, and every state a disk may be left
in (what was not synced may be missing or torn) is checked for the promise «a file under its final name is complete».
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corpus.engine import durable
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.engine.toy import Joined, Lines, numbered_files, tree, undisturbed


def in_child(action: Callable[[], None], kill_at: int) -> bool:
    """Run `action` in a fork that dies before its `kill_at`-th fsync or rename; True when it finished."""
    pid = os.fork()
    if pid == 0:
        counter = itertools.count(1)
        for name in ("fsync", "replace"):
            setattr(os, name, counted(getattr(os, name), counter, kill_at))
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def counted(function: Callable[..., object], counter: Iterator[int], kill_at: int) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        if next(counter) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return call


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return numbered_files(tmp_path / "in", 3)


@pytest.mark.long
def test_killed_before_every_durable_operation(files: tuple[File, ...], tmp_path: Path) -> None:
    def run(out: Path) -> None:
        run_stages([Lines(files), Joined()], str(out), workers=0)

    run(tmp_path / "reference")
    reference = tree(tmp_path / "reference")
    for kill_at in itertools.count(1):
        out = tmp_path / f"out-{kill_at}"
        finished = in_child(lambda out=out: run(out), kill_at)  # type: ignore[misc]
        run(out)
        assert tree(out) == reference, f"killed before operation {kill_at}"
        if finished:
            break
    assert kill_at > 40  # the loop did reach into the run


def test_killed_again_and_again_while_it_resumes(files: tuple[File, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"

    def run() -> None:
        run_stages([Lines(files), Joined()], str(out), workers=0)

    deaths = 0
    while not in_child(run, kill_at=12):
        deaths += 1
    assert tree(out) == undisturbed(files, tmp_path)
    assert deaths > 1


# ------------------------------------------------------------------------------------------------------- power loss

Event = tuple[str, str, str]  # operation, path, target


def record_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The durable operations of replacing `a` (holding «old») by «new», in order."""
    durable.write_bytes(folder / "a", b"old")
    events: list[Event] = []
    names: dict[int, str] = {}
    real_open, real_fsync, real_replace = os.open, os.fsync, os.replace

    def spy_open(path: str, *arguments: int) -> int:
        fd = real_open(path, *arguments)
        names[fd] = str(path)
        return fd

    def spy_fsync(fd: int) -> None:
        events.append(("fsync", names[fd], ""))
        real_fsync(fd)

    def spy_replace(source: str, target: str) -> None:
        events.append(("rename", str(source), str(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "open", spy_open)
    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    durable.write_bytes(folder / "a", b"new")
    monkeypatch.undo()
    return events


def states_after_power_loss(events: list[Event], final: str) -> Iterator[bytes]:
    """Every content `final` may have after a crash: unsynced data may be torn, an unsynced rename may be lost."""
    for length in range(len(events) + 1):
        done = events[:length]
        synced = {path for operation, path, _ in done if operation == "fsync"}
        visible: list[bytes] = [b"old"]
        for index, (operation, path, target) in enumerate(done):
            if operation != "rename" or target != final:
                continue
            data_is_safe = any(event == ("fsync", path, "") for event in done[:index])
            renamed = [b"new"] if data_is_safe else [b"new", b"ne", b""]
            is_durable = str(Path(final).parent) in synced
            visible = renamed if is_durable else visible + renamed
        yield from visible


def test_after_power_loss_the_final_name_holds_the_old_or_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = record_commit(tmp_path, monkeypatch)
    assert [operation for operation, _, _ in events] == ["fsync", "rename", "fsync"]
    assert set(states_after_power_loss(events, str(tmp_path / "a"))) == {b"old", b"new"}
    without_first_sync = events[1:]
    assert b"" in set(states_after_power_loss(without_first_sync, str(tmp_path / "a")))  # the checker can fail
