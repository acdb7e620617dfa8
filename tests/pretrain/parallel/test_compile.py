"""Blocks by torch.compile train as they do without it: within rounding, on every layout that the configuration accepts.

Tracing alone, without the C++ that takes a compiler seconds, is the quick test.
"""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import torch

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.parallel.engine import compose
from tests.pretrain.ranks import reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps, whole_weights

Arrays = dict[str, Any]

# of losses, gradient norms and weights after four steps, relative to the largest; AdamW makes whole steps of gradients
# that are little but rounding. Measured: 3e-7, 1e-5, 1e-3; in bf16, where compiled code rounds less often, 3e-5, 2e-4,
# 4e-2
FP32 = (1e-5, 1e-4, 1e-2)
BF16 = (5e-4, 5e-3, 2e-1)
COMPILE_SECONDS = 800  # at most, on a machine that does other things

CASES: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {
    "one rank": (1, {}),
    "selective": (1, {"parallel": {"recompute": "selective"}}),
    "full": (1, {"parallel": {"recompute": "full"}}),
    "bf16": (1, {"training": {"precision": "bf16"}, "optimizer": {"learning_rate": 1e-3}}),
    "document mask, learned positions": (
        1,
        {
            "model": {
                "document_mask": True,
                "norm": "layernorm",
                "activation": "gelu",
                "positions": "learned",
                "bias": True,
            }
        },
    ),
    "dp 2, zero 2": (2, {"parallel": {"zero": 2}}),
    "dp 2, zero 3": (2, {"parallel": {"zero": 3}}),
    "tp 2 sp": (2, {"parallel": {"tp": 2}}),
    "tp 2": (2, {"parallel": {"tp": 2, "sequence_parallel": False}}),
    "tp 2 sp, selective": (2, {"parallel": {"tp": 2, "recompute": "selective"}}),
    "tp 2 sp, full": (2, {"parallel": {"tp": 2, "recompute": "full"}}),
    "pp 2, 1f1b": (2, {"parallel": {"pp": 2}}),
}


def trained(
    config: RunConfig, backend: str, cache: str = ""
) -> tuple[list[float], list[float], Arrays, dict[str, int], int]:
    """Losses, norms and weights of four steps; what broke a graph, and how many graphs there are.

    `cache`: a folder of the test's own; a process killed while it compiles leaves half a library in everybody's.
    """
    from torch._dynamo.utils import counters

    if cache:
        from torch._inductor import config as inductor

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        inductor.compile_threads = 1  # none of its many processes
    with mock.patch.object(torch, "compile", partial(torch.compile, backend=backend)), tiny_run(config) as run:
        losses, norms = train_steps(run, 4)
        weights = whole_weights(run)
    return losses, norms, weights, dict(counters["graph_break"]), counters["stats"]["unique_graphs"]


def assert_as_eager(num_ranks: int, sections: dict[str, dict[str, Any]], *backend: str) -> None:
    parts = {**sections, "training": {**sections.get("training", {}), "compile": True}}
    compiled = run_ranks(trained, num_ranks, tiny_config(**parts), *backend, deadline_seconds=COMPILE_SECONDS)
    eager = reused_ranks(trained, num_ranks, tiny_config(**sections), *backend)
    limits = BF16 if parts["training"].get("precision") == "bf16" else FP32
    for (losses, norms, weights, broken, num_graphs), (*expected, _, no_graphs) in zip(compiled, eager, strict=True):
        assert (broken, num_graphs, no_graphs) == ({}, 1, 0)
        assert relative(losses, expected[0]) <= limits[0]
        assert relative(norms, expected[1]) <= limits[1]
        for name, values in weights.items():
            assert relative(values, expected[2][name]) <= limits[2], name


def relative(value: Any, reference: Any) -> float:
    value, reference = np.asarray(value), np.asarray(reference)
    return float(np.abs(value - reference).max() / np.abs(reference).max())


@pytest.mark.long
def test_one_graph_of_all_blocks() -> None:
    """Forward and backward traced whole, what is cheap dropped."""
    assert_as_eager(*CASES["selective"], "aot_eager")


@pytest.mark.slow
@pytest.mark.timeout(2 * COMPILE_SECONDS)
@pytest.mark.parametrize("name", CASES)
def test_compiled_blocks_train_as_eager_ones(name: str, cache: str) -> None:
    assert_as_eager(*CASES[name], "inductor", cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("inductor"))


def evaluated(config: RunConfig) -> int:
    """The number of graphs after forwards without a gradient, of two lengths."""
    from torch._dynamo.utils import counters

    with tiny_run(config) as run, torch.no_grad():
        for length in (4, 7):
            run.model.last_logits(torch.ones(1, length, dtype=torch.int64))
    return counters["stats"]["unique_graphs"]


@pytest.mark.long
def test_what_has_no_gradient_is_not_compiled() -> None:
    """Windows of generation have another length each."""
    assert run_ranks(evaluated, 1, tiny_config(training={"compile": True})) == [0]


def test_blocks_are_compiled_by_default_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the schedule and what is installed allow it; what is asked for is done, or fails."""

    def compiles(device: str, **sections: dict[str, Any]) -> bool:
        world = SimpleNamespace(device=torch.device(device))
        return compose.compiles_blocks(tiny_config(**sections), cast(Any, world))

    monkeypatch.setattr(compose, "compiler_missing", lambda on_gpu: "")
    pipeline: dict[str, dict[str, Any]] = {"model": {"num_layers": 4}, "parallel": {"pp": 2, "schedule": "zbv"}}
    assert (compiles("cuda"), compiles("cpu"), compiles("cuda", **pipeline)) == (True, False, False)
    monkeypatch.setattr(compose, "compiler_missing", lambda on_gpu: "no compiler")
    assert not compiles("cuda")
    for choice in (True, False):
        assert compiles("cuda", training={"compile": choice}) is compiles("cpu", training={"compile": choice}) is choice


@pytest.mark.parametrize("schedule", ["zero-bubble", "zbv"])
def test_gradients_left_for_later_are_refused(schedule: str) -> None:
    parts: dict[str, dict[str, Any]] = {"model": {"num_layers": 4}, "training": {"compile": True}}
    with pytest.raises(UsageError, match=r"leaves gradients of weights for later.* Use 1f1b or interleaved"):
        tiny_config(**parts, parallel={"pp": 2, "schedule": schedule})
    tiny_config(**parts, parallel={"schedule": schedule})  # of one stage there is nothing to schedule
