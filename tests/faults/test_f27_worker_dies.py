"""FAULTS row 27: a worker that the kernel kills costs its task one attempt; the second is made with no other beside it.

A task that dies twice is set aside with its input's name in `failed/`, all others are done, and the run exits with 1.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from corpus.engine.errors import WenhaiError
from corpus.engine.executor import Call, ProcessExecutor
from corpus.engine.run import run_stages
from corpus.engine.storage import File
from tests.corpus.engine.test_run import wait_for
from tests.corpus.engine.toy import Joined, Lines, numbered_files, tree, undisturbed


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return numbered_files(tmp_path / "in", 6)


def work(folder: str, name: str) -> list[str]:
    """Stand in a folder while at work and return who else is there; `needy` is killed the first time somebody is.

    The others stay until then, so that there is somebody, however slowly the workers come up.
    """
    mine, died = Path(folder, name), Path(folder).with_name("died")
    mine.touch()
    if name == "needy" and not died.exists():
        wait_for(lambda: len(list(Path(folder).iterdir())) > 1)
        mine.unlink()
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for(died.exists)
    others = sorted(path.name for path in Path(folder).iterdir() if path != mine)
    mine.unlink()
    return others


def test_what_died_among_others_is_tried_again_alone(tmp_path: Path) -> None:
    """Like a task that has enough memory only by itself."""
    folder = tmp_path / "at work"
    folder.mkdir()
    calls = [Call(name, work, (str(folder), name)) for name in ("a", "needy", "b", "c", "d", "e")]
    with ProcessExecutor(3) as executor:
        outcomes = list(executor.run(calls))
    assert {outcome.kind for outcome in outcomes} == {"done"} and len(outcomes) == 6
    assert outcomes[-1].name == "needy" and outcomes[-1].value == []


def test_a_task_that_always_dies_is_set_aside_by_name(files: tuple[File, ...], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(WenhaiError) as caught:
        run_stages([Lines(files, fault="00003:kill"), Joined()], str(out), workers=2)
    assert "1 of 6 tasks failed\n  00003  killed: its worker was killed by SIGKILL (out of memory?" in str(caught.value)
    assert "[3.txt]" in str(caught.value) and caught.value.exit_code == 1
    failure = json.loads(next(out.glob("lines-*/failed/00003.json")).read_text())
    assert (failure["kind"], failure["inputs"]) == ("killed", [files[3].url])
    assert len(list(out.glob("lines-*/done/*"))) == 5 and not list(out.glob("*/MANIFEST.json"))
    run_stages([Lines(files), Joined()], str(out), workers=2)
    assert tree(out) == undisturbed(files, tmp_path)
