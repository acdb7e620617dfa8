"""What is handed to a collective holds no part of autograd's graph: gloo's threads let go of it when they like.

A work item keeps its tensors beyond `wait`: the worker tells that it is done before it drops them. A tensor with a
`grad_fn`, or a view of one, would take its graph with it: nodes would be destroyed there, beside the main thread's
backward.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pretrain.config import RunConfig
from pretrain.parallel.base.products import Matrix, products
from pretrain.parallel.base.tensor import TensorAxis
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

NUM_ROUNDS = 300
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
    [{}, {"sequence_parallel": False}, {"schedule": "zero-bubble"}, {"recompute": "selective"}],
    ids=["1f1b", "whole tokens", "zero-bubble", "recompute"],
)
def test_no_collective_of_a_step_is_handed_a_graph(parallel: dict[str, Any]) -> None:
    """A micro-batch of one sample is exchanged without a copy."""
    config = tiny_config(training={"micro_batch_size": 1}, parallel={"tp": 2, "pp": 2, **parallel})
    for num_handed, with_graph in reused_ranks(handed, 4, config):
        assert num_handed > 50 and with_graph == {}


deaths: Counter[bool] = Counter()  # of nodes: whether on the main thread


class Marker:
    """Dies with the node that holds it."""

    def __del__(self) -> None:
        deaths[threading.current_thread() is threading.main_thread()] += 1


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.marker = Marker()
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def slow_down_other_threads() -> None:
    """One core, and every other thread of this process comes last there: gloo's let go late, as on a loaded machine."""
    (core, *_) = os.sched_getaffinity(0)
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {core})
        if thread != threading.get_native_id():
            os.setpriority(os.PRIO_PROCESS, thread, 19)


def count_deaths() -> Counter[bool]:
    axis = TensorAxis.of(init_device_mesh("cpu", (dist.get_world_size(),)), sequence_parallel=True)
    weight = nn.Parameter(torch.randn(32, 32))
    dist.all_reduce(torch.ones(1))  # now there are threads
    slow_down_other_threads()
    marked: Any = Marked.apply
    for _ in range(NUM_ROUNDS):
        x = torch.randn(2, 8, 32, requires_grad=True)
        (y,) = products(marked(x), [Matrix(weight, weight, None)], axis)
        y.sum().backward()
        del x, y
    return deaths


def test_nodes_die_on_the_thread_that_made_them() -> None:
    """Where gathers take the input as it is, some sixth of them die on gloo's threads."""
    assert run_ranks(count_deaths, 2) == [{True: NUM_ROUNDS}] * 2


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
