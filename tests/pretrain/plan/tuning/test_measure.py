"""Measured runs: real steps on two ranks, and what becomes of ranks that run out of memory, fail, or never end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.errors import LostRank
from pretrain.plan.tuning import measure
from pretrain.plan.tuning.measure import Measurement, outcome_of, run, train_rank
from tests.pretrain.ranks import reused_ranks

TINY = {
    "model": {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "sequence_length": 16, "padded_vocab_size": 256},
    "optimizer": {"learning_rate": 1e-2},
    "training": {
        "num_steps": 100,
        "global_batch_size": 8,
        "micro_batch_size": 2,
        "device": "cpu",
        "timeout_minutes": 1.0,
    },
    "checkpoint": {"every_steps": 100},
    "evaluation": {"every_steps": 100},
}


def tiny(**training: object) -> RunConfig:
    return parse(RunConfig, TINY | {"training": TINY["training"] | training}, "tiny")


def fake(folder: Path, num_ranks: int, code: str, timeout: float = 60.0) -> Measurement:
    """What comes of ranks that run this code instead of training; `rank` and `folder` are set, `report(...)` writes
    one."""
    begin = (
        "import os, signal, sys, time; rank, folder = int(os.environ['RANK']), sys.argv[1]\n"
        "def report(text): open(f'{folder}/rank-{rank}.json', 'w').write(text)\n"
        "open(f'{folder}/pid-{rank}', 'w').write(str(os.getpid()))\n"
    )
    return run([sys.executable, "-S", "-c", begin + code, str(folder)], num_ranks, folder, timeout)


def test_steps_are_timed_and_memory_is_counted() -> None:
    reports = reused_ranks(train_rank, 2, tiny(), 3, 1)
    assert [(report.outcome, len(report.seconds)) for report in reports] == [("done", 3), ("done", 3)]
    assert reports[0].seconds == reports[1].seconds  # of the slowest rank
    assert all(report.peak_bytes > 0 for report in reports)


def test_a_run_refused_before_it_began_is_out_of_memory() -> None:
    reports = reused_ranks(train_rank, 2, tiny(host_memory_gib=1e-4), 1, 0)
    assert [report.outcome for report in reports] == ["out of memory"] * 2
    assert "of host memory at least" in reports[0].message


def test_a_layout_that_does_not_divide_failed() -> None:
    reports = reused_ranks(train_rank, 2, tiny(global_batch_size=3, micro_batch_size=1), 1, 0)
    assert [report.outcome for report in reports] == ["failed"] * 2
    assert "does not divide" in reports[0].message


def allocate_too_much() -> None:
    torch.empty(1 << 58)


def test_what_allocators_say_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as too_much:
        allocate_too_much()
    assert outcome_of(too_much.value) == "out of memory"
    assert outcome_of(MemoryError()) == "out of memory"
    assert outcome_of(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")) == "out of memory"
    assert outcome_of(RuntimeError("NCCL error: Failed to CUDA calloc: out of memory")) == "out of memory"
    assert outcome_of(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) == "failed"
    assert outcome_of(UsageError("no such layout")) == "failed"


def _raise_too_much(*args: object) -> object:
    allocate_too_much()
    raise AssertionError


def train_without_memory(config: RunConfig) -> measure.RankReport:
    """An allocation that fails on rank 1, in the middle of the steps; rank 0 hears that its peer is gone."""
    steps = measure.timed_steps
    try:
        if os.environ["RANK"] == "1":
            measure.timed_steps = _raise_too_much  # type: ignore[assignment]
        else:
            measure.timed_steps = _lose_the_other  # type: ignore[assignment]
        return train_rank(config, 1, 0)
    finally:
        measure.timed_steps = steps


def _lose_the_other(*args: object) -> object:
    raise LostRank("rank 0 waited for another rank")


def test_an_allocation_that_fails_is_out_of_memory_and_its_peer_says_whose_fault_it_was() -> None:
    reports = reused_ranks(train_without_memory, 2, tiny())
    assert [report.outcome for report in reports] == ["failed", "out of memory"]
    assert [report.is_of_another for report in reports] == [True, False]
    assert reports[1].peak_bytes > 0


def test_a_killed_rank_is_out_of_memory_whatever_the_others_say(tmp_path: Path) -> None:
    """The kernel's killer leaves no word."""
    code = "os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else (print('lost a peer'), sys.exit(1))"
    found = fake(tmp_path, 2, code)
    assert (found.outcome, found.step_seconds) == ("out of memory", None)
    assert found.message.startswith("rank 1 was killed")


def test_an_error_is_told_by_its_last_line(tmp_path: Path) -> None:
    found = fake(tmp_path, 1, "print('on the way'); sys.exit('KeyError: no such thing')")
    assert found == Measurement("failed", message="rank 0 ended with exit code 1: KeyError: no such thing")


def test_an_allocator_without_an_exception_is_known_by_its_words(tmp_path: Path) -> None:
    code = 'print("terminate called: what(): std::bad_alloc", flush=True); os.abort()'
    found = fake(tmp_path, 1, code)
    assert found.outcome == "out of memory" and "SIGABRT" in found.message


def test_a_failure_is_told_before_those_that_it_caused(tmp_path: Path) -> None:
    code = """
if rank == 0: report('{"outcome": "failed", "message": "lost rank 1", "is_of_another": true}')
else: report('{"outcome": "failed", "message": "rank 1: a bug", "peak_bytes": 7}')
sys.exit(1)
"""
    found = fake(tmp_path, 2, code)
    assert (found.message, found.rank_peak_bytes) == ("rank 1: a bug", (7,))


def test_ranks_that_never_end_are_killed(tmp_path: Path) -> None:
    """Rank 0 is done; rank 1 ignores the question and is no measurement."""
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 0: report('{"outcome": "done", "seconds": [1.0]}')
else: time.sleep(600)
"""
    found = fake(tmp_path, 2, code, timeout=1.0)
    assert found == Measurement("failed", message="not done after 1 s (ranks 1)")
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / f"pid-{rank}").read_text()), 0)


def test_after_a_failure_the_others_have_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "GRACE_SECONDS", 0.2)
    found = fake(tmp_path, 2, "sys.exit('a bug') if rank == 0 else time.sleep(600)")
    assert found.outcome == "failed" and found.message.endswith("a bug")


def test_a_torn_report_is_none(tmp_path: Path) -> None:
    found = fake(tmp_path, 1, 'report(\'{"outcome": "do\')')
    assert (found.outcome, found.message) == ("failed", "rank 0 ended with exit code 0")


def test_nothing_to_measure_is_refused() -> None:
    for ranks, steps, warm_up in ((0, 1, 0), (1, 0, 0), (1, 1, -1)):
        with pytest.raises(ValueError, match="must be one to measure"):
            measure.measure(tiny(), ranks, steps=steps, warm_up=warm_up)


def test_the_median_step_and_the_fullest_rank_count() -> None:
    found = Measurement("done", (0.3, 0.1, 0.2), (5, 9, 7))
    assert (found.step_seconds, found.peak_bytes) == (0.2, 9)
    assert (Measurement("failed").step_seconds, Measurement("failed").peak_bytes) == (None, None)


def test_ranks_get_a_thread_each_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code = 'report(\'{"outcome": "done", "seconds": [%s]}\' % os.environ[\'OMP_NUM_THREADS\'])'
    assert fake(tmp_path, 1, code).seconds == (1.0,)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert fake(tmp_path, 1, code).seconds == (3.0,)


@pytest.mark.long
def test_real_processes_train_and_are_gone() -> None:
    """From the configuration to the measurement, through new processes; a ramp-up is left out."""
    config = tiny(rampup={"start": 4, "increment": 4, "num_samples": 1000})
    found = measure.measure(config, 2, steps=2, warm_up=1, timeout=120)
    assert found.outcome == "done", found.message
    assert len(found.seconds) == 2 and len(found.rank_peak_bytes) == 2
    assert (found.step_seconds or 0) > 0
