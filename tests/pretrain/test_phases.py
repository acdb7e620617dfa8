"""The time of phases: on the host's clock, on that of a GPU that is made up here, and on ranks that talk to each
other."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import profile

from pretrain import phases as module
from pretrain.parallel.engine import fsdp
from pretrain.phases import PIPELINE, Path, Phases
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_phase_inside_another_pauses_it(clock: list[float]) -> None:
    phases = Phases()
    clock[0] += 1
    with phases("forward"):
        clock[0] += 2
        with phases("communication"):
            clock[0] += 4
            assert phases.current == "communication"
            assert phases.path == ("forward", "communication")
        clock[0] += 8
    assert phases.current == "other"
    assert phases.take() == {(): 1, ("forward",): 10, ("forward", "communication"): 4}
    clock[0] += 16
    assert phases.take() == {(): 16}


def test_time_is_taken_in_the_middle_of_a_phase(clock: list[float]) -> None:
    phases = Phases()
    with phases("data"):
        clock[0] += 1
        assert phases.take() == {(): 0, ("data",): 1}
        clock[0] += 2
    assert phases.take() == {("data",): 2, (): 0}


def test_a_profiler_sees_the_phases() -> None:
    phases = Phases()
    phases.are_traced = True
    with profile() as trace, phases("optimizer"):
        torch.ones(3).sum()
    assert "optimizer" in {event.key for event in trace.key_averages()}


class FakeGpu:
    """A stream of kernels, each of which begins when the one before it ends, and not before it is launched."""

    def __init__(self) -> None:
        self.now = self.end = 0.0  # of the host, in seconds; when the stream will be done
        self.num_events = 0

    def launch(self, seconds: float) -> None:
        self.end = max(self.end, self.now) + seconds

    def event(self, enable_timing: bool) -> Any:
        assert enable_timing
        self.num_events += 1
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            event.at = self.end = max(self.end, self.now)

        def synchronize() -> None:
            self.now = max(self.now, event.at)

        event.record, event.synchronize = record, synchronize
        event.query = lambda: event.at <= self.now
        event.elapsed_time = lambda later: (later.at - event.at) * 1000
        return event


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    return made


def test_on_a_gpu_the_stream_is_timed_not_the_launch(gpu: FakeGpu) -> None:
    phases = Phases(torch.device("cuda", 0))
    with phases("forward"):
        gpu.launch(5)
        with phases("communication"):
            gpu.launch(2)
    with phases("backward"):
        gpu.launch(10)
    assert gpu.now == 0  # nobody waited
    taken = phases.take()
    assert gpu.now == 17
    assert {path: seconds for path, seconds in taken.items() if seconds} == {
        ("forward",): 5,
        ("forward", "communication"): 2,
        ("backward",): 10,
    }


def test_on_a_gpu_a_host_that_is_late_costs_what_the_stream_idles(gpu: FakeGpu) -> None:
    phases = Phases(torch.device("cuda", 0))
    with phases("forward"):
        gpu.launch(5)
    with phases("data"):
        gpu.now += 3  # hidden behind the kernel
    with phases("backward"):
        gpu.launch(1)
    with phases("data"):
        gpu.now += 10  # of which the GPU idles 7
    assert phases.take()["data",] == 7


def test_events_of_a_gpu_are_read_as_they_pass(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_READ_AT", 10)
    phases = Phases(torch.device("cuda", 0))
    for _ in range(100):
        with phases("forward"):
            gpu.launch(1)
        gpu.now = gpu.end - 0.5  # the host is ahead of the last kernel only
    assert gpu.num_events < 20
    assert phases.take()["forward",] == pytest.approx(100)


def spent(parallel: dict[str, Any], micro_batches: int = 2) -> dict[Path, float]:
    """Seconds by path of two steps on this rank."""
    config = tiny_config(parallel=parallel, training={"micro_batch_size": 8 // micro_batches})
    with tiny_run(config) as run:
        run.world.phases.take()
        train_steps(run, 2)
        assert run.world.phases.step == 2
        return run.world.phases.take()


@pytest.mark.parametrize(
    ("parallel", "where"),
    [
        ({"zero": 3}, {("forward",), ("backward",)}),
        ({"tp": 2}, {("forward",), ("backward",)}),
        ({"pp": 2}, {()}),
    ],
)
def test_exchanges_are_communication(parallel: dict[str, Any], where: set[Path]) -> None:
    for taken in reused_ranks(spent, 2, parallel):
        exchanges = {path[1:-1] for path in taken if path[0:1] == (PIPELINE,) and path[-1] == "communication"}
        assert exchanges == where | {()}  # and the sum of the loss
        assert {("data",), ("optimizer",), (PIPELINE, "forward"), (PIPELINE, "backward")} <= set(taken)
        assert all(seconds >= 0 for seconds in taken.values())


@pytest.mark.parametrize(
    ("method", "reduces", "counts"),
    [("post_backward", True, True), ("post_backward", False, False), ("unshard", False, True)],
)
def test_gradients_that_are_only_added_up_are_no_communication(method: str, reduces: bool, counts: bool) -> None:
    phases, seen = Phases(), list[str]()

    def called(phases: Phases = phases) -> None:
        seen.append(phases.current)

    function: Callable[..., None] = called
    function.__name__ = method
    fsdp._counted(phases, SimpleNamespace(reduce_grads=reduces), function)
    assert seen == ["communication" if counts else "other"]
