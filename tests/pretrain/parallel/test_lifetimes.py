"""What is handed to a collective holds no part of autograd's graph: gloo's threads let go of it when they like.

A work item keeps its tensors beyond `wait`: the worker tells that it is done before it drops them. A tensor with a
`grad_fn`, or a view of one, would take its graph with it: nodes would be destroyed there, beside the main thread's
backward.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pretrain.config import RunConfig
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

COLLECTIVES = ("_c10d_functional::", "c10d::")


class Handed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the tensors that collectives are called with, and those of them that hold a graph, by operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.all: Counter[str] = Counter()
        self.with_graph: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().startswith(COLLECTIVES):
            for x in tree_leaves((args, kwargs)):
                if isinstance(x, Tensor):
                    self.all[func.name()] += 1
                    self.with_graph[func.name()] += holds_graph(x)
        return func(*args, **(kwargs or {}))


def holds_graph(x: Tensor) -> bool:
    return x.grad_fn is not None or (x._base is not None and x._base.grad_fn is not None)


def handed(config: RunConfig) -> tuple[int, dict[str, int]]:
    """Of a step: how many tensors, and by operator how many with a graph."""
    with tiny_run(config) as run, Handed() as seen:
        train_steps(run, 1)
    return seen.all.total(), dict(+seen.with_graph)


@pytest.mark.parametrize(
    "parallel",
    [{}, {"sequence_parallel": False}, {"schedule": "zero-bubble", "recompute": "selective"}],
    ids=["1f1b", "whole tokens", "zero-bubble, recompute"],
)
def test_no_collective_of_a_step_is_handed_a_graph(parallel: dict[str, Any]) -> None:
    """A micro-batch of one sample is exchanged without a copy."""
    config = tiny_config(training={"micro_batch_size": 1}, parallel={"tp": 2, "pp": 2, **parallel})
    for num_handed, with_graph in reused_ranks(handed, 4, config):
        assert num_handed > 50 and with_graph == {}


def threads_of_a_group(interface: str) -> int:
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    before = len(os.listdir("/proc/self/task"))
    dist.new_group()
    return len(os.listdir("/proc/self/task")) - before


def test_a_gloo_group_has_one_worker() -> None:
    """And one thread that waits for its peers. Two workers write into one string (`use_one_gloo_worker`)."""
    assert run_ranks(threads_of_a_group, 2, "") == run_ranks(threads_of_a_group, 2, "lo") == [2, 2]


def test_an_interface_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RanksFailed, match="nowhere0"):
        run_ranks(threads_of_a_group, 1, "nowhere0")
