"""Saves that die, or meet a full disk: the checkpoint before is there, whole, and the next save is as if nothing had been.

What a kill leaves behind is what the disk shows at that moment. So one save is watched, and the folder copied before each
of its steps (every fsync of a file or folder, every removal of a file) on either rank; a real SIGKILL proves once that the other
ranks end, too. The slow test kills at every step.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.config import RunConfig
from tests.pretrain.checkpoints import newest_folder, resume, save, train_and_save
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

DATA = tiny_config()
PIPELINE = tiny_config(parallel={"pp": 2})
STEPS = (1, 1)  # of the run before: checkpoints at steps 1 and 2, as many as are kept
LAYOUTS = pytest.mark.parametrize("config", [DATA, PIPELINE], ids=["data", "pipeline"])


def before_each_step(act: Callable[[int], None]) -> ExitStack:
    """While it is entered, `act(n)` runs before the n-th step of a save on this rank, from 1."""
    steps = count(1)

    def acting(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            act(next(steps))
            return function(*args, **options)

        return wrapper

    stack = ExitStack()
    for name in ("fsync", "unlink"):
        stack.enter_context(mock.patch.object(os, name, acting(getattr(os, name))))
    return stack


def watched_save(config: RunConfig, out: Path, seen: Path) -> int:
    """Save step 3, and copy the run's folder before each step of it; returns their number."""
    with tiny_run(config) as run:
        resume(run, out)
        train_steps(run, 1)
        steps: list[int] = []

        def look(number: int) -> None:
            steps.append(number)
            _copy(out / "checkpoints", seen / f"rank {run.world.rank}, step {number}" / "checkpoints")

        with before_each_step(look):
            save(run, out)
        return len(steps)


def _copy(folder: Path, to: Path) -> None:
    """Also while another rank renames and removes files there."""
    for path in sorted(folder.glob("*/*")):
        with suppress(FileNotFoundError):
            (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / path.relative_to(folder))


@LAYOUTS
def test_whenever_a_save_dies_a_whole_checkpoint_remains(config: RunConfig, tmp_path: Path) -> None:
    """FAULTS row 2."""
    reused_ranks(train_and_save, 2, config, tmp_path / "run", *STEPS)
    num_steps = reused_ranks(watched_save, 2, config, tmp_path / "run", tmp_path / "seen")
    assert num_steps[0] >= 8 and num_steps[1] >= 1
    left: dict[str, int] = {}
    num_unfinished = 0
    for seen in sorted((tmp_path / "seen").iterdir()):
        newest = newest_folder(seen)
        left[newest.name] = left.get(newest.name, 0) + 1
        num_unfinished += len(checkpoint.sweep(seen))
        for folder in sorted((seen / "checkpoints").iterdir()):
            checkpoint.load_model(folder)
    assert left["step-00000002"] >= 6 and left["step-00000003"] >= 1 and len(left) == 2
    assert num_unfinished >= 6


def killed_save(config: RunConfig, out: Path, rank: int, at_step: int) -> None:
    """Save step 3; one rank dies before a step of it."""

    def die(number: int) -> None:
        if number == at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    with tiny_run(config) as run:
        resume(run, out)
        train_steps(run, 1)
        with before_each_step(die) if run.world.rank == rank else ExitStack():
            save(run, out)


def is_killed(num_ranks: int, config: RunConfig, out: Path, rank: int, at_step: int) -> bool:
    """Kill a save; the ranks end and a whole checkpoint is left. False if the save came through before."""
    try:
        run_ranks(killed_save, num_ranks, config, out, rank, at_step)
        return False
    except RanksFailed as failure:
        assert -signal.SIGKILL in failure.codes, failure
    newest = newest_folder(out)
    checkpoint.load_model(newest)
    if newest.name == "step-00000003":  # died after the commit: it counts
        return False
    assert newest.name == "step-00000002"
    checkpoint.sweep(out)
    assert checkpoint.committed(out) == sorted((out / "checkpoints").iterdir())
    return True


@LAYOUTS
def test_a_save_that_is_killed_is_made_again(config: RunConfig, tmp_path: Path) -> None:
    reused_ranks(train_and_save, 2, config, tmp_path, *STEPS)
    assert is_killed(2, config, tmp_path, rank=1, at_step=1)
    assert reused_ranks(train_and_save, 2, config, tmp_path, 1)[0]["step"] == 3
    checkpoint.load_model(checkpoint.step_folder(tmp_path, 3))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("num_ranks", "config"),
    [(2, DATA), (2, PIPELINE), (4, tiny_config(parallel={"pp": 2, "tp": 2}))],
    ids=["data", "pipeline", "pipeline x tensor"],
)
def test_a_save_killed_at_every_step(num_ranks: int, config: RunConfig, rank: int, tmp_path: Path) -> None:
    reused_ranks(train_and_save, num_ranks, config, tmp_path, *STEPS)
    num_killed = 0
    while is_killed(num_ranks, config, tmp_path, rank, at_step=num_killed + 1):
        num_killed += 1
    assert num_killed >= (5 if rank == 0 else 1)
    assert reused_ranks(train_and_save, num_ranks, config, tmp_path, 1)[0]["step"] >= 3


def full_disk(out: Path) -> tuple[str, list[str], bool]:
    """A save on rank 1 beyond the largest file it may write."""
    import resource

    with tiny_run(DATA) as run:
        resume(run, out)
        train_steps(run, 1)
        if run.world.rank == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        message = ""
        try:
            save(run, out)
        except WenhaiError as error:
            message = str(error)
        run.world.any_of(False)  # the ranks still talk
        folders = sorted(path.name for path in (out / "checkpoints").iterdir())
        return message, folders, bool(np.isfinite(train_steps(run, 1)[0][0]))


def test_a_full_disk_leaves_the_old_checkpoints_and_the_run(tmp_path: Path) -> None:
    """FAULTS row 3."""
    reused_ranks(train_and_save, 2, DATA, tmp_path, *STEPS)
    for message, folders, trains_on in run_ranks(full_disk, 2, tmp_path):
        assert "step-00000003: cannot be written (rank 1: " in message
        assert "File too large" in message
        assert folders == ["step-00000001", "step-00000002"]
        assert trains_on
