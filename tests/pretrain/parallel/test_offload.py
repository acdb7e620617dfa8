"""Offload: parameters, gradients and optimizer state in host memory change where numbers lie, and none of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from pretrain.config import RunConfig
from pretrain.model import GPT
from pretrain.parallel.base.params import init_parameters, param_specs
from pretrain.parallel.engine import compose, fsdp
from pretrain.training.optim import create_state, new_optimizer
from tests.pretrain.checkpoints import assert_equal, contents, resume, save, train_and_save
from tests.pretrain.models import small
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

NUM_STEPS = 3


def trained(config: RunConfig, out: Path) -> dict[str, Any]:
    """Losses, norms and all that is kept after a few steps, of a run that saves, and reads it back before the last
    step.

    One rank in fp32 wraps nothing without offload, which alters no sum but one: a schedule that leaves gradients for
    later adds them to what others have left, and FSDP2 to what it has reduced. There the run without offload is wrapped
    too.
    """
    with (
        mock.patch.object(compose, "fsdp", SimpleNamespace(shard=wrapped, reshard=fsdp.reshard)),
        tiny_run(config) as run,
    ):
        losses, norms = train_steps(run, NUM_STEPS - 1)
        save(run, out)
        resume(run, out)
        more = train_steps(run, 1)
        return {"losses": losses + more[0], "norms": norms + more[1], "contents": contents(run)}


def wrapped(part: GPT, *args: Any, always: bool) -> None:
    """`fsdp.shard`, of each stage of a pipeline in any case."""
    fsdp.shard(part, *args, always=always or not (part.stage.is_first and part.stage.is_last))


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Bit for bit."""
    assert ours["losses"] == theirs["losses"]
    assert ours["norms"] == theirs["norms"]
    assert max(ours["norms"]) > 0.5, "clipping has something to do"
    assert_equal(ours["contents"], theirs["contents"])
    for name, copy in theirs["contents"]["copies"].items():
        np.testing.assert_array_equal(ours["contents"]["copies"][name], copy)


CASES: list[Any] = [
    (1, {}, "fp32"),
    (2, {"zero": 1}, "bf16"),
    (2, {"zero": 2}, "fp32"),
    pytest.param(2, {"dp_replicate": 2, "zero": 3, "recompute": "selective"}, "bf16", marks=pytest.mark.long),
    (2, {"tp": 2, "sequence_parallel": False}, "fp16"),
    (2, {"pp": 2, "schedule": "zero-bubble"}, "fp32"),
    (2, {"pp": 2, "schedule": "zbv", "zero": 3}, "fp32"),
]
SLOW_CASES: list[tuple[int, dict[str, Any], str]] = [
    (1, {"zero": 1}, "bf16"),
    (2, {"zero": 3}, "fp32"),
    (2, {"tp": 2, "zero": 1}, "fp32"),
    (2, {"pp": 2}, "fp32"),
    (2, {"pp": 2, "schedule": "zbv", "zero": 1}, "bf16"),
    *((4, {"pp": 2, "tp": 2, "schedule": "zero-bubble", "zero": zero}, "bf16") for zero in (1, 2, 3)),
    (4, {"pp": 2, "zero": 2}, "fp32"),
    (4, {"pp": 2, "dp_replicate": 2, "schedule": "zbv", "zero": 3}, "fp32"),
]


@pytest.mark.parametrize(
    ("num_ranks", "parallel", "precision"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES)],
)
def test_offload_changes_no_bit(num_ranks: int, parallel: dict[str, Any], precision: str, tmp_path: Path) -> None:
    """Clipping, both storages of a tied weight and a checkpoint on the way included."""
    configs = (
        tiny_config(
            model={"num_layers": 4 if parallel.get("schedule") == "zbv" else 2},
            training={"precision": precision, "loss_scale": {"initial": 1024.0}},
            parallel={**parallel, "offload": offload},
        )
        for offload in (False, True)
    )
    without, offloaded = (
        reused_ranks(trained, num_ranks, config, tmp_path / str(number)) for number, config in enumerate(configs)
    )
    for ours, theirs in zip(offloaded, without, strict=True):
        assert_same(ours, theirs)


def test_a_checkpoint_is_the_same_with_and_without(tmp_path: Path) -> None:
    """Written with offload, it is read without, and the other way round."""
    plain, offloaded = (tiny_config(parallel={"offload": offload}) for offload in (False, True))
    for first, second, out in ((plain, offloaded, tmp_path / "a"), (offloaded, plain, tmp_path / "b")):
        written, loaded = reused_ranks(train_and_save, 2, first, out, 1), reused_ranks(train_and_save, 2, second, out)
        for ours, theirs in zip(loaded, written, strict=True):
            assert_equal(ours["loaded"], theirs["last"])


def where(config: RunConfig) -> dict[str, Any]:
    """Of every group of weights whether FSDP2 was told to offload it, and what the optimizer updates them with."""
    with tiny_run(config) as run:
        train_steps(run, 1)
        policies = []
        for part in run.model.parts.values():
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    policies.append(_group(module).offload_policy)
        held = [tensor for state in run.optimizer.state.values() for tensor in state.values()]
        return {
            "offloaded": [isinstance(policy, CPUOffloadPolicy) for policy in policies],
            "pinned": [getattr(policy, "pin_memory", None) for policy in policies],
            "fused": [group["fused"] for group in run.optimizer.param_groups],
            "devices": {_local(tensor).device.type for tensor in [*held, *run.parameters.values()]},
        }


def _group(module: FSDPModule) -> Any:
    state: Any = fully_shard.state(module)  # type: ignore[attr-defined]
    return (getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group])[0]


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def test_every_weight_is_offloaded_also_on_one_rank_and_updated_by_one_kernel() -> None:
    """Pinned memory is for copies to a GPU: without one there is none."""
    (result,) = reused_ranks(where, 1, tiny_config(parallel={"offload": True}))
    assert result == {"offloaded": [True] * 3, "pinned": [False] * 3, "fused": [True] * 2, "devices": {"cpu"}}


def on_a_mesh_of_gpus() -> dict[str, Any]:
    """First weights, optimizer state and an update of shards that lie in host memory while their mesh is one of
    GPUs."""
    config = small(num_layers=1)
    mesh = DeviceMesh("cuda", torch.tensor([dist.get_rank()]), _init_backend=False, _rank=dist.get_rank())
    parameters: dict[str, nn.Parameter] = {}
    for spec in param_specs(config):
        local = torch.empty(spec.shape)
        meta = TensorMeta(local.shape, local.stride(), local.dtype)
        placed = DTensorSpec(mesh, (Shard(0),), tensor_meta=meta)
        whole = DTensor(local, placed, requires_grad=False)  # type: ignore[call-arg]
        parameters[spec.name] = nn.Parameter(whole)
    init_parameters(parameters, config, seed=3)
    optimizer = new_optimizer(parameters, {}, config, tiny_config().optimizer)
    create_state(optimizer)
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad.to_local().fill_(0.5)
    before = {name: one.to_local().clone() for name, one in parameters.items()}  # type: ignore[attr-defined]
    optimizer.step()
    held = [tensor for state in optimizer.state.values() for tensor in state.values()]
    return {
        "devices": {_local(tensor).device.type for tensor in [*held, *parameters.values()]},
        "moved": all(not torch.equal(before[name], _local(parameter)) for name, parameter in parameters.items()),
    }


def test_what_a_step_does_with_offloaded_shards_needs_no_gpu() -> None:
    """With a GPU the mesh is one of GPUs and the shards are not there: nothing may move them or ask the mesh's
    groups."""
    assert reused_ranks(on_a_mesh_of_gpus, 1) == [{"devices": {"cpu"}, "moved": True}]
