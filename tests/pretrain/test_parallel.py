"""Ranks of a run: the layouts that they may have, and what all raise when one of them fails."""

from __future__ import annotations

import socket
import traceback
from unittest import mock

import pytest
import torch

from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain.config import ParallelConfig
from pretrain.errors import LostPeer
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World, layout
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run


def test_a_layout_that_is_not_the_number_of_ranks_is_refused() -> None:
    assert layout(ParallelConfig(dp_replicate=2, dp_shard=3), 6) == (1, 2, 3, 1)
    assert layout(ParallelConfig(tp=2, pp=2), 8) == (2, 1, 2, 2)
    for parallel, size, message in (
        (
            ParallelConfig(dp_replicate=2),
            5,
            "dp_shard 2 x tp 1 is not the number of ranks, 5: start a multiple of 2, for example 4 ",
        ),
        (
            ParallelConfig(pp=2, tp=2),
            2,
            "pp 2 .*tp 2 is not the number of ranks, 2: start a multiple of 4, for example 4 of them",
        ),
        (ParallelConfig(tp=2, dp_shard=3), 8, "ranks, 8: leave dp_shard out to use all of them, or start 6 of them"),
        (ParallelConfig(tp=2, dp_shard=3), 9, "ranks, 9: start 6 of them"),
    ):
        with pytest.raises(UsageError, match=message):
            layout(parallel, size)


def ranks_fail(errors: dict[int, Exception]) -> tuple[str, str]:
    """What this rank raises, and the function that it came from."""
    with tiny_run(tiny_config(training={"global_batch_size": 6})) as run:
        try:
            with run.world.propagate_errors():
                if error := errors.get(run.world.rank):
                    fail(error, run.world)
        except Exception as raised:
            where = traceback.extract_tb(raised.__traceback__)[-1].name
            return f"{type(raised).__name__}: {raised}", where
    return "nothing", ""


def fail(error: Exception, world: World) -> None:
    if not isinstance(error, OSError | WenhaiError):  # then the device may have failed, and its clock with it
        world.phases._clock.count = mock.Mock(side_effect=RuntimeError("no clock"))  # type: ignore[method-assign]
    raise error


def test_an_error_on_one_rank_is_raised_on_all() -> None:
    for error, kind in ((OSError("no such shard"), "WenhaiError"), (Stopped("no such shard"), "Stopped")):
        messages = [message for message, _ in reused_ranks(ranks_fail, 3, {1: error})]
        assert messages == [f"{kind}: {rank}no such shard" for rank in ("rank 1: ", "", "rank 1: ")]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyError("weight"), "KeyError: 'weight'"),
        (MemoryError(), "MemoryError"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "OutOfMemoryError: CUDA out of memory. Tried"),
        (
            RuntimeError("CUDA error: an illegal access\nCUDA kernel errors might"),
            "RuntimeError: CUDA error: an illegal access",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_bug_on_one_rank_keeps_its_traceback_and_is_told_to_all(error: Exception, cause: str) -> None:
    first, failing, last = reused_ranks(ranks_fail, 3, {1: error, 0: WenhaiError("a refusal, which some go on from")})
    assert failing == (f"{type(error).__name__}: {error}", "fail")
    told = f"rank 1: {cause} (on {socket.gethostname()}). What that rank said last has the traceback."
    assert first[0] == last[0] == f"FailedRank: {told}"


def test_of_a_lost_peer_nobody_is_told() -> None:
    with (
        mesh.start(ParallelConfig(), "cpu", timeout_minutes=1) as world,
        mock.patch.object(World, "any_of", side_effect=AssertionError("asked")),
        pytest.raises(LostPeer),
        world.propagate_errors(),
    ):
        raise LostPeer("gone")
