"""Traces of the steps that were asked for, on the ranks that were asked, and never at the price of the run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.config import MetricsConfig
from pretrain.monitor.profile import Profiler
from pretrain.phases import Phases

CPU = torch.device("cpu")


def steps(profiler: Profiler, phases: Phases, first: int, last: int) -> None:
    for step in range(first, last + 1):
        profiler.before(step)
        with phases("forward"):
            torch.ones(2, 3) @ torch.ones(3, 4)
        profiler.after()


def new_profiler(out: Path, rank: int = 0, **config: Any) -> tuple[Profiler, Phases]:
    phases = Phases()
    return Profiler(out, MetricsConfig(**config), rank, phases, CPU), phases


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def test_the_steps_that_the_configuration_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler, phases = new_profiler(tmp_path, profile_step=3, profile_steps=2)
    steps(profiler, phases, 1, 6)
    (path,) = (tmp_path / "profile").iterdir()
    assert path.name == "step-00000003-rank-00000.json.gz"
    found = events(path)
    assert sum(event["name"] == "forward" for event in found) == 2
    (product, _) = (event for event in found if event["name"] == "aten::mm")
    assert product["args"]["Input Dims"][:2] == [[2, 3], [3, 4]]
    assert f"profiled 2 steps from step 3: {path}; open it at" in capsys.readouterr().err
    assert not phases.are_traced


def test_steps_that_somebody_asks_for(tmp_path: Path) -> None:
    profiler, phases = new_profiler(tmp_path, profile_steps=1)
    assert not profiler.finds_request()
    (tmp_path / "profile.now").touch()
    assert profiler.finds_request() and not profiler.finds_request()
    steps(profiler, phases, 1, 1)
    profiler.request()
    steps(profiler, phases, 2, 4)
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["step-00000002-rank-00000.json.gz"]


def test_ranks_that_are_not_named_trace_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        profiler, phases = new_profiler(tmp_path, rank, profile_step=1, profile_steps=1, profile_ranks=(1, 3))
        steps(profiler, phases, 1, 2)
    names = sorted(path.name for path in (tmp_path / "profile").iterdir())
    assert names == ["step-00000001-rank-00001.json.gz", "step-00000001-rank-00003.json.gz"]
    assert capsys.readouterr().err.count("profiled 1 steps") == 1


def test_a_run_that_ends_leaves_what_there_is(tmp_path: Path) -> None:
    profiler, phases = new_profiler(tmp_path, profile_step=1, profile_steps=5)
    steps(profiler, phases, 1, 2)
    profiler.close()
    profiler.close()
    (path,) = (tmp_path / "profile").iterdir()
    assert sum(event["name"] == "forward" for event in events(path)) == 2


def test_a_trace_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profile").write_text("in the way")
    profiler, phases = new_profiler(tmp_path, profile_step=1, profile_steps=1)
    steps(profiler, phases, 1, 2)
    assert "step-00000001-rank-00000.json.gz: the trace cannot be written" in capsys.readouterr().err
