"""What is reported: where the time went, speed of training alone, JSON without NaN."""

from __future__ import annotations

import json
import math
import resource
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from pretrain.config import RunConfig
from pretrain.monitor import metrics
from pretrain.monitor.metrics import Interval, Metrics, busy_and_whole, by_phase, is_reported, measure, memory_bytes
from pretrain.phases import PHASES, PIPELINE
from pretrain.phases import Path as PhasePath
from pretrain.training.step import StepResult
from pretrain.workload.flops import flops_per_token, hardware_flops_per_token
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

CPU = torch.device("cpu")
HARD_LIMIT = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
RESULT = StepResult(math.log(2), 0.25, 1e-3, num_tokens=100, batch_size=8, applied=True)


def config(**sections: Any) -> RunConfig:
    return tiny_config(**{"metrics": {"every_steps": 2, "tensorboard": False}, "training": {"num_steps": 5}} | sections)


def new_metrics(out: Path, **sections: Any) -> Metrics:
    return Metrics(out, config(**sections), tokens_per_character=0.5, device=CPU)


def interval(bubble: float | None = None, **seconds: float) -> Interval:
    return Interval(dict.fromkeys(PHASES, 0.0) | seconds, bubble)


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_memory_is_this_process() -> None:
    block = bytearray(64 << 20)
    assert (64 << 20) < memory_bytes(CPU)["host_bytes"] < (64 << 30)
    assert len(block)


def test_memory_of_a_gpu_is_its_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    found = memory_bytes(torch.device("cuda", 0))
    assert (found["device_bytes"], found["device_peak_bytes"]) == (5, 7)


def test_the_first_step_each_nth_and_the_last_are_reported() -> None:
    assert [step for step in range(1, 6) if is_reported(step, config().metrics, 5)] == [1, 2, 4, 5]


STEP: dict[PhasePath, float] = {
    (): 1,
    ("data",): 2,
    ("data", "communication"): 4,
    (PIPELINE,): 8,
    (PIPELINE, "communication"): 16,
    (PIPELINE, "forward"): 32,
    (PIPELINE, "backward"): 64,
    (PIPELINE, "backward", "communication"): 128,
    ("save", "communication"): 256,
    ("evaluate",): 512,
    ("evaluate", "forward"): 1024,
}


def test_time_is_that_of_the_innermost_phase_or_of_what_is_no_training() -> None:
    assert by_phase(STEP) == {
        "data": 2,
        "forward": 32,
        "backward": 64,
        "communication": 4 + 16 + 128,
        "optimizer": 0,
        "evaluate": 512 + 1024,
        "save": 256,
        "other": 1 + 8,
    }


def test_a_pipeline_is_busy_in_its_forwards_and_backwards() -> None:
    assert busy_and_whole(STEP) == (32 + 64 + 128, 8 + 16 + 32 + 64 + 128)


def measured(parallel: dict[str, Any]) -> Interval:
    with tiny_run(tiny_config(parallel=parallel)) as run:
        measure(run.world)
        train_steps(run, 2)
        return measure(run.world)


def test_all_ranks_report_the_mean_of_all() -> None:
    found, other = reused_ranks(measured, 2, {"pp": 2})
    assert found == other
    assert sum(found.shares.values()) == pytest.approx(1)
    assert list(found.shares) == list(PHASES)
    assert min(found.seconds[name] for name in ("data", "forward", "backward", "communication", "optimizer")) > 0
    assert 0 < found.bubble < 1
    assert reused_ranks(measured, 2, {})[0].bubble is None


def test_a_bubble_is_of_all_ranks() -> None:
    """Two ranks, of which one computes for 6 of 8 seconds and the other for 4."""

    class World:
        size = pp_size = 2

        class phases:
            @staticmethod
            def take() -> dict[PhasePath, float]:
                return {(PIPELINE, "forward"): 6.0, (PIPELINE, "communication"): 2.0}

        @staticmethod
        def sum_over(axes: Any, *values: float) -> list[float]:
            other = {"forward": 4.0, "communication": 4.0}
            return [a + b for a, b in zip(values, [*(other.get(name, 0.0) for name in PHASES), 4.0, 8.0], strict=True)]

    found = measure(World())  # type: ignore[arg-type]
    assert found.bubble == 1 - 10 / 16
    assert (found.seconds["forward"], found.seconds["communication"]) == (5, 3)


def test_steps_are_reported_at_their_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "peak_flops", lambda device, precision: 1e9)
    sections = {"parallel": {"recompute": "full"}}
    with Metrics(tmp_path, config(**sections), tokens_per_character=0.5, device=CPU, num_ranks=4) as found:
        found.step(1, RESULT, interval(forward=1.0, backward=1.0))
        found.step(2, RESULT, interval(forward=1.0, other=1.0))
        found.step(3, RESULT, None)
        found.step(4, RESULT, interval(forward=1.0, backward=2.5, data=0.5, evaluate=900.0, save=100.0))
        found.end(4)
    first, _, third, end = records(tmp_path)
    assert [record["step"] for record in records(tmp_path)] == [1, 2, 4, 4]
    assert {record["tokens_per_second"] for record in (first, third)} == {50.0}
    assert {record["seconds_per_step"] for record in (first, third)} == {2.0}
    assert first["bits_per_character"] == pytest.approx(0.5)
    assert first["phases"] == dict.fromkeys(PHASES, 0.0) | {"forward": 0.5, "backward": 0.5}
    assert third["phases"]["evaluate"] == pytest.approx(900 / 1004)
    run = config(**sections)
    assert first["flops_per_second"] == 50 * flops_per_token(run.model)
    assert first["mfu"] == pytest.approx(50 * flops_per_token(run.model) / 4e9)
    assert first["hfu"] == pytest.approx(50 * hardware_flops_per_token(run.model, run.parallel) / 4e9)
    assert first["hfu"] > first["mfu"] * 1.1
    assert first["bubble"] is None and "loss_scale" not in first
    assert abs(first["at"] - time.time()) < 600
    assert end["kind"] == "end" and 0 <= end["seconds"] < 600
    talk = capsys.readouterr()
    assert talk.out == ""
    assert talk.err.splitlines()[0] == (
        "step 1/5  loss 0.6931  0.500 bits/char  norm 0.25  lr 1.00e-03  50 tokens/s  0.0 TFLOP/s a rank  "
        f"mfu {first['mfu']:.1%}  hfu {first['hfu']:.1%}  {first['host_bytes'] / 2**30:.2f} GiB  fwd 50%  bwd 50%"
    )
    assert talk.err.count("\n") == 3


def test_a_report_holds_what_a_step_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = {"host_bytes": 1 << 30, "device_bytes": 2 << 30, "device_peak_bytes": 3 << 30}
    monkeypatch.setattr(metrics, "memory_bytes", lambda device: memory)
    result = StepResult(1.0, 0.5, 1e-3, 100, 448, True, grad_norms={"mlp": 0.3, "head": 0.4}, loss_scale=1024.0)
    rampup = {"start": 4, "increment": 4, "num_samples": 8}
    with new_metrics(tmp_path, training={"num_steps": 5, "rampup": rampup}) as found:
        found.step(1, result, interval(bubble=0.25, forward=1.0))
    (record,) = records(tmp_path)
    assert record["grad_norms"] == {"mlp": 0.3, "head": 0.4}
    assert record["loss_scale"] == 1024.0
    assert record["bubble"] == 0.25
    assert record.items() >= memory.items()
    talk = capsys.readouterr().err
    assert "  lr 1.00e-03  batch 448  " in talk
    assert talk.endswith("  mfu n/a  1.00 GiB  3.0 GiB on the device  fwd 100%  bubble 25%\n")


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    with new_metrics(tmp_path) as found:
        found.record("train", 1, {"loss": math.nan, "fine": 1.0, "norms": {"mlp": math.inf, "head": 2.0}})
    with new_metrics(tmp_path) as found:  # a resumed run adds to the file
        found.record("train", 2, {})
    first, second = records(tmp_path)
    del first["at"]
    assert first == {"kind": "train", "step": 1, "loss": None, "fine": 1.0, "norms": {"mlp": None, "head": 2.0}}
    assert second["step"] == 2


def test_a_tensorboard_has_a_curve_for_each_number(tmp_path: Path) -> None:
    with new_metrics(tmp_path) as found:
        found.tensorboard = board = mock.Mock()
        found.record("train", 3, {"loss": 1.5, "mfu": None, "phases": {"data": 0.25, "save": math.nan}, "file": "x"})
    scalars = [call.args for call in board.add_scalar.call_args_list]
    assert scalars == [("train/loss", 1.5, 3), ("train/phases/data", 0.25, 3)]


def test_a_full_disk_loses_lines_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FAULTS row 3."""
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with new_metrics(tmp_path) as run:
        run.record("train", 1, {"loss": 1.0})
    assert "metrics.jsonl: a line is lost (No space left on device)" in capsys.readouterr().err


def test_a_line_the_disk_takes_in_part_is_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new_metrics(tmp_path) as run:
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


def test_a_tensorboard_that_fails_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new_metrics(tmp_path) as run:
        run.tensorboard = mock.Mock()  # whose thread met a full disk
        run.tensorboard.add_scalar.side_effect = OSError(28, "No space left on device")
        run.record("train", 1, {"loss": 1.0, "norm": 2.0})
        run.record("train", 2, {"loss": 1.0})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert capsys.readouterr().err.count("no TensorBoard from step 1 on (No space left on device)") == 1
