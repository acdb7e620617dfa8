"""FAULTS row 30: one of four ranks dies or hangs; all end with an error within the timeout, which says who and where.

The victim gets its signal as it enters a phase of step 2, or never comes out of its loader. A rank that hangs is ended
by what started it, as a launcher does with ranks that outlive the first failure.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pretrain.config import RunConfig
from pretrain.errors import LostRank
from pretrain.phases import Phases
from pretrain.run.train import train
from tests.pretrain.ranks import RanksFailed, run_ranks
from tests.pretrain.texts import small_corpus
from tests.pretrain.tiny import tiny_config

NUM_RANKS, VICTIM, AT_STEP = 4, 2, 2
TIMEOUT_SECONDS = 12.0  # ranks that share a loaded machine are seconds apart
SLOW = {
    (signal.SIGKILL, "forward"),
    *((signal.SIGSTOP, phase) for phase in ("forward", "optimizer", "save", "evaluate")),
}
LONG = {(signal.SIGKILL, "evaluate"), (signal.SIGSTOP, "backward")}
MARKS = ((pytest.mark.slow, SLOW), (pytest.mark.long, LONG))
IN_STEP = "(reading|forward|backward|exchange|optimizer step)"  # the others go on until they need the victim


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_corpus(tmp_path_factory.mktemp("data"))


def config(phase: str, parallel: dict[str, Any]) -> RunConfig:
    return tiny_config(
        model={"vocab_size": None, "padded_vocab_size": 512},
        training={"num_steps": 4, "timeout_minutes": TIMEOUT_SECONDS / 60},
        checkpoint={"every_steps": AT_STEP if phase == "save" else 100},
        evaluation={"every_steps": AT_STEP if phase == "evaluate" else 100, "sample_tokens": 1, "prompt": "学"},
        parallel=parallel,
    )


def hang() -> None:
    while True:
        time.sleep(0.01)


def lost(settings: RunConfig, data: Path, out: Path, phase: str, number: int | None) -> None:
    """Train; the victim gets the signal as it enters a phase, or hangs there."""
    rank, pid_file, enter = int(os.environ["RANK"]), out / "victim", Phases.__call__

    @contextmanager
    def entering(phases: Phases, name: str) -> Iterator[None]:
        with enter(phases, name):
            if (phases.step, name) == (AT_STEP, phase):
                pid_file.write_text(str(os.getpid()))
                hang() if number is None else os.kill(os.getpid(), number)
            yield

    with mock.patch.object(Phases, "__call__", entering) if rank == VICTIM else nullcontext():
        try:
            train(settings, data / "tokens", out, data / "tokenizer.model")
        except LostRank:
            with suppress(ProcessLookupError):
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
            raise


@pytest.mark.parametrize(
    ("phase", "number", "parallel", "waited_in"),
    [
        pytest.param(phase, number, parallel, waited_in, id=f"{number.name} in {phase}", marks=marks)
        for number in (signal.SIGKILL, signal.SIGSTOP)
        for phase, parallel, waited_in in [
            ("forward", {"pp": 2}, IN_STEP),
            ("backward", {}, IN_STEP),
            ("optimizer", {"tp": 2}, IN_STEP),
            ("save", {}, "(save|reading|forward|exchange)"),  # who has nothing to write goes on
            ("evaluate", {"pp": 2}, "evaluation"),
        ]
        for marks in [[mark for mark, cases in MARKS if (number, phase) in cases]]
    ],
)
def test_all_end_and_say_who_is_lost_and_where_they_waited(
    phase: str, number: signal.Signals, parallel: dict[str, Any], waited_in: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RanksFailed) as caught:
        run_ranks(lost, NUM_RANKS, config(phase, parallel), data, tmp_path, phase, number, deadline_seconds=150)
    gone = "has ended" if number == signal.SIGKILL else "does not answer: it is stopped, [^;]* cannot be reached"
    assert caught.value.codes[VICTIM] == -signal.SIGKILL
    told = re.findall(r"LostRank: (.*)", str(caught.value))
    assert len(told) == NUM_RANKS - 1, caught.value
    for line in told:
        expected = (
            rf"rank {VICTIM} \({socket.gethostname()}\) {gone}; "
            rf"rank [013] waited in the {waited_in} of step [{AT_STEP}{AT_STEP + 1}]"
        )
        assert re.match(expected, line), line
        assert f"Stacks: {tmp_path / 'stacks'}" in line
    assert len(list((tmp_path / "stacks").iterdir())) == NUM_RANKS - 1


@pytest.mark.long
def test_a_rank_that_never_comes_out_of_its_loader_is_named_with_its_phase(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RanksFailed) as caught:
        run_ranks(lost, NUM_RANKS, config("data", {}), data, tmp_path, "data", None, deadline_seconds=150)
    assert caught.value.codes[VICTIM] == -signal.SIGKILL
    told = re.findall(r"LostRank: (.*)", str(caught.value))
    assert len(told) == NUM_RANKS - 1, caught.value
    for line in told:
        hangs = rf"rank {VICTIM} \({socket.gethostname()}\) is still in the reading of step {AT_STEP}"
        assert re.match(
            rf"every rank answers, but {hangs}; rank [013] waited in the {IN_STEP} of step {AT_STEP}, ", line
        ), line
    stacks = (tmp_path / "stacks" / f"rank-{VICTIM:05}.txt").read_text()
    assert f"in the reading of step {AT_STEP}\n" in stacks and "in hang\n" in stacks
