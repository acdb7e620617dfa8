"""Another shell sees how far a run is, and whether it still lives."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.engine import durable, running
from corpus.engine.errors import WenhaiError
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.engine.test_run import start, wait_for
from tests.corpus.engine.toy import Lines, text_files

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return text_files(tmp_path / "in", ["学而时习之\n" * 20] * 6)


def test_a_run_is_seen_from_outside_and_its_end_too(files: tuple[File, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert running.pace(str(out)) is None
    process = start(tmp_path, out, "00005:hang")
    wait_for(lambda: (pace := running.pace(str(out))) is not None and pace.done >= 5)
    pace = running.pace(str(out))
    assert pace is not None and pace.is_alive and (pace.running.stage, pace.running.tasks, pace.done) == ("lines", 6, 5)
    assert pace.seconds_left is not None and pace.seconds_left > 0
    shown = running.render(pace)
    assert "running: lines, 5 of 6 tasks, about" in shown and f"process {process.pid}" in shown
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    wait_for(lambda: durable.lock_holder(out) is None)
    dead = running.pace(str(out))
    assert dead is not None and not dead.is_alive
    assert running.render(dead).startswith("stopped in lines (5 of 6 tasks): its process is gone.")
    run_stages([Lines(files)], str(out), workers=0)
    assert running.pace(str(out)) is None


def test_a_failed_run_is_not_running(files: tuple[File, ...], tmp_path: Path) -> None:
    with pytest.raises(WenhaiError):
        run_stages([Lines(files, fault="00001:error")], str(tmp_path / "out"), workers=0)
    assert running.pace(str(tmp_path / "out")) is None


def test_the_pace_is_of_this_run_only(tmp_path: Path) -> None:
    one = running.Running("lines", "lines-0", 8, 4, 1000.0, "process 1 on host", done=6, bytes_in=60, at=1010.0)
    running.mark(str(tmp_path), one)
    pace = running.pace(str(tmp_path))
    assert pace is not None and pace.done == 6
    assert pace.seconds_left == 10  # two tasks took 10 s, two are left
    assert pace.mb_per_second == pytest.approx(20 / 1e6 / 10)  # a third of the text was read by this run


def test_it_is_told_again_while_tasks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MARK_SECONDS", 0.01)
    at = running.Running("lines", "lines-0", 8, 4, 1000.0, "process 1 on host", done=4, bytes_in=0, at=1000.0)
    with running.marked(str(tmp_path), lambda: at):
        at = replace(at, done=7)
        wait_for(lambda: (pace := running.pace(str(tmp_path))) is not None and pace.done == 7)
