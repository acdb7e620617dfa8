"""Ranks that are kept for the next test: the same ones, until anything goes wrong; then new ones, and nothing is
left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest

from tests.pretrain import ranks
from tests.pretrain.ranks import RanksFailed, end_reused_ranks, reused_ranks, run_ranks


def process() -> int:
    return os.getpid()


def fails_on_one() -> None:
    if os.environ["RANK"] == "1":
        raise ValueError("no such luck")


def is_killed() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def hides_in_its_answer() -> Any:
    return lambda: None


def all_gone(processes: Iterable[int]) -> bool:
    return not any(os.path.exists(f"/proc/{process}") for process in processes)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fails_on_one, "rank 1: Traceback.*ValueError: no such luck"),
        (is_killed, "rank 1: died with exit code -9"),
        (hides_in_its_answer, "rank 0: Traceback.*pickle"),
    ],
)
def test_ranks_are_kept_until_one_fails(function: Callable[[], Any], message: str) -> None:
    first = reused_ranks(process, 2)
    assert reused_ranks(process, 2) == first
    with pytest.raises(RanksFailed, match=f"(?s){message}"):
        reused_ranks(function, 2)
    assert all_gone(first)
    assert not set(reused_ranks(process, 2)) & set(first)


def test_no_more_are_kept_than_the_limit_and_none_after_the_end() -> None:
    first = reused_ranks(process, 2)
    with mock.patch.object(ranks, "MOST_REUSED_RANKS", 2):
        (alone,) = reused_ranks(process, 1)
    assert all_gone(first)
    end_reused_ranks()
    assert all_gone([alone])


def test_ranks_have_torch_whoever_started_a_server_before() -> None:
    """That of multiprocessing, which builds use, has imported what its first user wanted."""
    worker = multiprocessing.get_context("forkserver").Process(target=process)
    worker.start()
    worker.join()
    assert max(run_ranks(time.process_time, 2)) < 1
