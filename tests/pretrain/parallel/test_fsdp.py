"""What of a step's gathers and reductions comes before and after the messages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group

from pretrain.config import RunConfig
from pretrain.parallel.engine import pipeline
from pretrain.parallel.engine.channels import Channels
from pretrain.parallel.engine.pipeline import Pipeline
from tests.pretrain.checkpoints import assert_equal, contents
from tests.pretrain.operations import Operations
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

RECORDED: list[tuple[Any, str, str]] = [
    (_fsdp_param_group, "foreach_all_gather", "gather"),  # begins
    (_fsdp_param_group, "foreach_reduce", "reduce"),  # begins
    (_fsdp_param_group.FSDPParamGroup, "finalize_backward", "wait"),  # for the reductions
    (Channels, "take", "take"),
    (Channels, "send", "send"),
    (torch.autograd, "backward", "backward"),  # ends
]


def order_of_a_step(parallel: dict[str, Any]) -> str:
    """What the second step of two micro-batches does, without repetitions."""
    done: list[str] = []

    def recorded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name != "backward":
                done.append(name)
            value = function(*args, **options)
            if name == "backward":
                done.append(name)
            return value

        return call

    with ExitStack() as patches:
        for owner, name, short in RECORDED:
            patches.enter_context(mock.patch.object(owner, name, recorded(getattr(owner, name), short)))
        run = patches.enter_context(tiny_run(tiny_config(model={"num_layers": 4}, parallel=parallel)))
        train_steps(run, 1)
        done.clear()
        train_steps(run, 1)
    return " ".join(name for name, _ in groupby(done))


@pytest.mark.parametrize(
    ("parallel", "first_rank", "last_rank"),
    [
        pytest.param(
            {"zero": 1},
            "gather send take backward take reduce wait backward",
            "gather take backward send take backward send reduce wait",
            id="zero 1",
        ),
        pytest.param(
            {"zero": 2},
            "gather send take reduce backward take reduce wait backward",
            "gather take reduce backward send take reduce backward send wait",
            id="zero 2",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"zero": 3},
            "gather send gather send take gather reduce backward take gather reduce wait backward",
            "take gather reduce backward send take gather reduce backward send wait",
            id="zero 3",
        ),
        pytest.param(
            {"zero": 1, "schedule": "interleaved"},
            "gather send gather send take send take send "
            "take backward send take backward send reduce wait take backward take reduce wait backward",
            "gather take send take send "
            "take backward send take backward send reduce wait take backward send take backward send reduce wait",
            id="interleaved",
        ),
    ],
)
def test_no_stage_waits_for_what_another_exchanges(parallel: dict[str, Any], first_rank: str, last_rank: str) -> None:
    """Weights that stay whole are gathered before the first message is taken; the last gradient is sent before a
    wait."""
    orders = reused_ranks(order_of_a_step, 4, {"pp": 2, **parallel})
    assert orders == [first_rank] * 2 + [last_rank] * 2


class Divisions(Operations):
    """Numbers divided one by one."""

    num = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.num += result.numel() if "aten.div" in str(func) else 0
        return result


def alone(parallel: dict[str, Any]) -> tuple[int, int, list[float], dict[str, Any]]:
    """How often a step of four micro-batches on one rank makes weights whole, and what its reductions divide; losses
    of two steps, and what these leave."""
    fsdp2: Any = _fsdp_param_group
    gather, reduce = fsdp2.FSDPParamGroup._to_unsharded, fsdp2.foreach_reduce
    divisions, gathered = Divisions(), []

    def reduced(*args: Any) -> Any:
        with divisions:
            return reduce(*args)

    def whole(group: Any) -> None:
        gathered.append(group)
        gather(group)

    with (
        mock.patch.object(fsdp2.FSDPParamGroup, "_to_unsharded", whole),
        mock.patch.object(fsdp2, "foreach_reduce", reduced),
        tiny_run(tiny_config(parallel=parallel, training={"precision": "bf16"})) as run,
    ):
        losses, _ = train_steps(run, 2)
        return len(gathered) // 2, divisions.num, losses, contents(run)


def test_one_rank_casts_its_weights_once_a_step() -> None:
    """Zero 2 too, and neither divides a gradient by one: to the bit what zero 1 trains."""
    (first, second, third) = (reused_ranks(alone, 1, {"zero": zero})[0] for zero in (1, 2, 3))
    groups = 3  # two blocks, and what is in none
    assert (first[0], second[0], third[0]) == (groups, groups, 4 * (2 * groups - 1))
    assert first[1] == second[1] == third[1] == 0
    assert first[2] == second[2]
    assert_equal(first[3], second[3])
    (offloaded,) = reused_ranks(alone, 1, {"zero": 2, "offload": True})
    assert offloaded[0] == 4 * groups, "whose memory on a GPU is what counts"


def trained(config: RunConfig, by_fsdp2: bool) -> dict[str, Any]:
    """What two steps leave; `by_fsdp2`: with gathers and reductions where FSDP2 has them."""
    with ExitStack() as patches:
        if by_fsdp2:
            patches.enter_context(mock.patch.object(Pipeline, "_gather", lambda _: None))
            patches.enter_context(mock.patch.object(pipeline, "_reduces_after_sending", lambda *_: False))
        run = patches.enter_context(tiny_run(config))
        losses, norms = train_steps(run, 2)
        return {"losses": losses, "norms": norms, **contents(run)}


@pytest.mark.parametrize(
    ("parallel", "precision", "micro_batch_size"),
    [
        ({"zero": 1, "schedule": "interleaved"}, "bf16", 2),
        ({"zero": 1}, "bf16", 4),  # one micro-batch, of which nothing else keeps the gradients
        ({"zero": 2, "offload": True}, "fp32", 2),
    ],
)
def test_the_order_changes_no_bit(parallel: dict[str, Any], precision: str, micro_batch_size: int) -> None:
    config = tiny_config(
        model={"num_layers": 4},
        parallel={"pp": 2, **parallel},
        training={"precision": precision, "micro_batch_size": micro_batch_size},
    )
    ours, theirs = (reused_ranks(trained, 4, config, by_fsdp2) for by_fsdp2 in (False, True))
    for own, their in zip(ours, theirs, strict=True):
        assert (own["losses"], own["norms"]) == (their["losses"], their["norms"])
        assert_equal(own, their)
