"""What is reported: the FLOP formula by hand, speed only of training, JSON without NaN."""

from __future__ import annotations

import json
import math
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.config import MetricsConfig, load_config
from pretrain.monitor import metrics
from pretrain.monitor.metrics import Metrics, flops_per_token, memory_bytes, peak_flops
from pretrain.step import StepResult
from tests.pretrain.tiny import tiny_config

CPU = torch.device("cpu")
HARD_LIMIT = resource.getrlimit(resource.RLIMIT_FSIZE)[1]


def test_flops_of_gpt2_by_hand() -> None:
    model = load_config("gpt2-124m").model
    matrices = 12 * (3 + 1 + 4 + 4) * 768**2 + 50_304 * 768
    assert flops_per_token(model) == 6 * matrices + 12 * 12 * 768 * 1024
    assert flops_per_token(model, causal=True) == 6 * matrices + 6 * 12 * 768 * 1024


def test_yuan_takes_3071_petaflops_days_without_recomputation() -> None:
    """FACTS 1.1: 6 N D of 180 B tokens; the published 4,095 counts the recomputed forward too."""
    model = load_config("yuan-245b").model
    matmul_only = flops_per_token(model) - 12 * model.num_layers * model.hidden_size * model.sequence_length
    assert matmul_only * 180e9 / 8.64e19 == pytest.approx(3071, rel=2e-3)


class FakeGpu:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, device: Any) -> str:
        return self.name


def test_an_unknown_device_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peak_flops(CPU, "bf16") is None
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", FakeGpu("NVIDIA H200"))
    assert peak_flops(gpu, "bf16") == 989.4e12
    monkeypatch.setattr(torch.cuda, "get_device_name", FakeGpu("Voodoo 2"))
    assert peak_flops(gpu, "bf16") is None


def test_memory_is_this_process() -> None:
    block = bytearray(64 << 20)
    assert (64 << 20) < memory_bytes(CPU)["host_bytes"] < (64 << 30)
    assert len(block)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])  # type: ignore[attr-defined]
    return now


def new_metrics(out: Path, peak: float | None = None) -> Metrics:
    config = MetricsConfig(every_steps=2, tensorboard=False)
    return Metrics(out, config, tiny_config().model, num_steps=5, tokens_per_character=0.5, peak=peak, device=CPU)


def test_steps_are_reported_at_their_rate(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with new_metrics(tmp_path, peak=1e9) as found:
        for step in range(1, 6):
            clock[0] += 2.0
            found.step(step, StepResult(math.log(2), 0.25, 1e-3, num_tokens=100, batch_size=8, applied=True))
            if step == 3:
                clock[0] += 1000.0  # an evaluation
                found.restart_clock()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 4, 5]
    assert {line["tokens_per_second"] for line in lines} == {50.0}
    assert {line["batch_size"] for line in lines} == {8}
    assert lines[0]["bits_per_character"] == pytest.approx(0.5)
    assert lines[0]["mfu"] == pytest.approx(50 * flops_per_token(tiny_config().model) / 1e9)
    talk = capsys.readouterr()
    assert talk.out == ""
    assert talk.err.count("\n") == 4
    assert "loss 0.6931  0.500 bits/char  norm 0.25  lr 1.00e-03  50 tokens/s" in talk.err


def test_a_batch_size_that_changes_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = MetricsConfig(tensorboard=False)
    options = {"num_steps": 2, "tokens_per_character": 1.0, "peak": None, "device": CPU, "shows_batch_size": True}
    with Metrics(tmp_path, config, tiny_config().model, **options) as found:
        found.step(1, StepResult(1.0, 0.25, 1e-3, num_tokens=100, batch_size=448, applied=True))
    assert "  lr 1.00e-03  batch 448  " in capsys.readouterr().err


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    with new_metrics(tmp_path) as found:
        found.record("train", 1, {"loss": math.nan, "grad_norm": math.inf, "fine": 1.0})
    with new_metrics(tmp_path) as found:  # a resumed run adds to the file
        found.record("train", 2, {})
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first == {"kind": "train", "step": 1, "loss": None, "grad_norm": None, "fine": 1.0}
    assert second["step"] == 2


def test_a_full_disk_loses_lines_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FAULTS row 3."""
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    config = MetricsConfig(tensorboard=False)
    with Metrics(
        tmp_path, config, tiny_config().model, num_steps=1, tokens_per_character=1.0, peak=None, device=CPU
    ) as run:
        run.record("train", 1, {"loss": 1.0})
    assert "metrics.jsonl: a line is lost (No space left on device)" in capsys.readouterr().err


def test_a_line_the_disk_takes_in_part_is_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = MetricsConfig(tensorboard=False)
    with Metrics(
        tmp_path, config, tiny_config().model, num_steps=1, tokens_per_character=1.0, peak=None, device=CPU
    ) as run:
        run.record("train", 1, {"loss": 1.0})
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "metrics.jsonl").stat().st_size + 10, HARD_LIMIT))
        try:
            run.record("train", 2, {"loss": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (HARD_LIMIT, HARD_LIMIT))
        run.record("train", 3, {"loss": 1.0})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 3]
    assert "a line is lost" in capsys.readouterr().err


class FullBoard:
    """A TensorBoard writer whose thread met a full disk."""

    def add_scalar(self, *_: Any) -> None:
        raise OSError(28, "No space left on device")


def test_a_tensorboard_that_fails_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = MetricsConfig(tensorboard=False)
    with Metrics(
        tmp_path, config, tiny_config().model, num_steps=1, tokens_per_character=1.0, peak=None, device=CPU
    ) as run:
        run.tensorboard = FullBoard()
        run.record("train", 1, {"loss": 1.0, "norm": 2.0})
        run.record("train", 2, {"loss": 1.0})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert capsys.readouterr().err.count("no TensorBoard from step 1 on (No space left on device)") == 1
