"""Ranks that do not meet say so, and a restart of torchrun that cannot work is refused before it hangs."""

from __future__ import annotations

import datetime
import io
import os
import socket
import sys
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from corpus.engine.errors import UsageError
from pretrain.config import ParallelConfig
from pretrain.errors import LostRank
from pretrain.parallel.base import mesh
from pretrain.parallel.base.hang_report import _own_address

MINUTE = datetime.timedelta(minutes=1)


def test_a_rank_that_meets_nobody_says_where_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(LostRank, match=rf"rank 0: the 2 ranks did not meet at 127.0.0.1:{port} within 0.6 s \(.*1/2"),
        mesh.start(ParallelConfig(), "cpu", timeout_minutes=0.01),
    ):
        pass
    assert not dist.is_initialized()


def test_the_store_of_an_earlier_attempt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agents.port))
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        mesh._check_agent_store(MINUTE)
    with pytest.raises(UsageError, match=r"rank 1: .* Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        mesh._check_agent_store(MINUTE)


@pytest.mark.parametrize("meeting", ["127.0.0.1", "localhost", "no-such-host.invalid"])
def test_a_rank_is_reached_where_all_meet(meeting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", meeting)
    assert _own_address() == meeting


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "expected"),
    [(8, 3, 8, 3), (8, 0, 1, 0), (1, 5, 8, 0), (1, 0, 1, 0), (4, 5, 8, None), (4, 0, 8, None), (4, 4, None, None)],
)
def test_a_rank_takes_the_gpu_of_its_local_number_or_the_only_one_that_it_sees(
    num_gpus: int, local_rank: int, local_size: int | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local_size is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_size))
    if expected is None:
        with pytest.raises(UsageError, match=rf"ranks on {socket.gethostname()}, where torch sees 4 GPUs"):
            mesh.choose_device("auto")
        return
    assert mesh.choose_device("auto") == torch.device("cuda", expected)
    assert taken == [torch.device("cuda", expected)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        ({"PYTORCH_ALLOC_CONF": "backend:native"}, {"PYTORCH_ALLOC_CONF": "backend:native"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}),
    ],
)
def test_segments_of_gpu_memory_grow_unless_the_environment_says_otherwise(
    given: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    with mock.patch.dict(os.environ, given, clear=True):
        mesh.choose_device("cpu")
        assert dict(os.environ) == given
        mesh.choose_device("auto")
        assert dict(os.environ) == expected


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_a_run_starts_where_standard_error_is_no_file(
    stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    with mesh.start(ParallelConfig(), "cpu", timeout_minutes=1) as world:
        assert world.size == 1
