"""Every schedule computes what one process does, holds no more than the simulator says, and fails with a name."""

from __future__ import annotations

import datetime
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.config import ModelConfig, ParallelConfig
from pretrain.errors import LostPeer
from pretrain.model import GPT
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.parallel.base.params import init_parameters
from pretrain.parallel.base.simulate import simulate
from pretrain.parallel.base.stages import cut
from pretrain.parallel.engine.pipeline import Pipeline
from pretrain.schedules import actions, stage_ranks
from tests.pretrain.parallel.test_simulate import in_flight
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks

MODEL = ModelConfig(
    num_layers=6, hidden_size=16, num_heads=2, sequence_length=8, vocab_size=60, padded_vocab_size=128, tied=False,
    bias=True, document_mask=True,
)  # fmt: skip
LAYOUTS: list[dict[str, Any]] = [
    {"schedule": "gpipe"},
    {"schedule": "1f1b"},
    {"schedule": "interleaved"},
    {"schedule": "zero-bubble", "zero": 1},
    {"schedule": "zero-bubble", "stages_per_rank": 2, "zero": 1},
    {"schedule": "zbv", "zero": 1},
]


class Case(NamedTuple):
    """A pipeline, its parts, and the same weights in one process."""

    world: World
    pipeline: Pipeline
    parts: dict[int, GPT]
    whole: GPT


@contextmanager
def pipelines(
    layouts: Sequence[dict[str, Any]], num_ranks: int, model: ModelConfig = MODEL
) -> Iterator[Iterator[Case]]:
    """This rank's part of a pipeline for each layout, one after the other."""
    with mesh.start(ParallelConfig(pp=num_ranks), "cpu", timeout_minutes=1.0) as world:
        yield (case(world, ParallelConfig(pp=num_ranks, **layout), model) for layout in layouts)


def case(world: World, parallel: ParallelConfig, model: ModelConfig, recompute: Any = "none") -> Case:
    ranks = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    stages = cut(model, parallel.num_stages)
    parts = {
        stage.index: filled(GPT(model, stage, recompute=recompute))
        for stage in stages
        if ranks[stage.index] == world.pp_rank
    }
    return Case(world, Pipeline(parts, world, parallel, model, "fp64"), parts, filled(GPT(model)))


def filled(part: GPT) -> GPT:
    part.double()
    init_parameters(dict(part.named_parameters()), part.config, seed=1)
    return part


def micro_batches(num: int, sizes: Sequence[int] = (2,), seed: int = 0) -> list[MicroBatch]:
    """Random tokens in two documents, a prefix in the second; now and then a target that does not count."""
    random = torch.Generator().manual_seed(seed)
    result = []
    for index in range(num):
        shape = (sizes[index % len(sizes)], MODEL.sequence_length)
        tokens, targets = (torch.randint(0, 60, shape, generator=random) for _ in range(2))
        targets[torch.rand(shape, generator=random) < 0.2] = -1
        documents = (torch.arange(shape[1]) >= 3).long().expand(shape).contiguous()
        prefixes = torch.where(documents == 1, 6, 2)
        positions = torch.arange(shape[1]) - 3 * documents
        result.append(MicroBatch(tokens, targets, documents, prefixes, positions, int((targets >= 0).sum())))
    return result


def expected(whole: GPT, batches: Sequence[MicroBatch], num_tokens: int) -> float:
    """Loss of one process, whose gradients are then in the model."""
    whole.zero_grad()
    total = 0.0
    for batch in batches:
        logits = whole(batch.tokens, batch.document_ids, batch.prefix_ends, batch.positions)
        loss = whole.cross_entropy_sum(logits, batch.targets) / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def assert_same(case: Case, batches: Sequence[MicroBatch]) -> None:
    """A step gives the loss and the gradients of one process."""
    num_tokens = sum(batch.num_targets for batch in batches)
    loss = expected(case.whole, batches, num_tokens)
    for part in case.parts.values():
        part.zero_grad()
    own = case.pipeline.step(batches, num_tokens)
    assert own.shape == (len(batches),)
    assert own.dtype == torch.float64 or case.pipeline._num_stages - 1 not in case.parts
    assert case.world.sum_over(("pp",), own.sum())[0] == pytest.approx(loss, rel=1e-12)
    gradients = dict(case.whole.named_parameters())
    for part in case.parts.values():
        for name, parameter in part.named_parameters():
            torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-10, atol=1e-14, msg=name)


def every_schedule(num_ranks: int, layouts: Sequence[dict[str, Any]], numbers: Sequence[int]) -> int:
    done = 0
    with pipelines(layouts, num_ranks) as cases:
        for each in cases:
            for number in numbers:
                assert_same(each, micro_batches(number, sizes=(2, 1, 3), seed=number))
                done += 1
            batch = micro_batches(1, seed=9)[0]
            branches = (3 * torch.arange(batch.tokens.shape[1]) // batch.tokens.shape[1]).expand_as(batch.tokens)
            branched = replace(batch, branches=branches)
            logits = each.whole(batch.tokens, batch.document_ids, batch.prefix_ends, batch.positions).detach()
            with torch.no_grad():
                losses, of_branches = (each.whole.token_losses(asked) for asked in (batch, branched))
            assert not torch.equal(losses, of_branches)
            torch.testing.assert_close(losses.sum(), each.whole.cross_entropy_sum(logits, batch.targets).detach())
            torch.testing.assert_close(each.pipeline.token_losses(batch), losses)
            torch.testing.assert_close(each.pipeline.token_losses(branched), of_branches)
            window = (batch.tokens, batch.document_ids, batch.prefix_ends, batch.positions)
            torch.testing.assert_close(each.pipeline.last_logits(*window), logits[:, -1:])
            assert len(each.pipeline._channels._sent) == 0
    return done


def test_two_ranks_compute_what_one_does() -> None:
    numbers = [1, 2, 5]  # fewer than ranks, as many, more that do not divide
    assert reused_ranks(every_schedule, 2, 2, LAYOUTS, numbers) == [18, 18]


def test_one_rank_is_a_pipeline_of_one_stage() -> None:
    assert reused_ranks(every_schedule, 1, 1, [{}, {"schedule": "zbv", "zero": 1}], [1, 3]) == [4]


def test_three_ranks() -> None:
    assert reused_ranks(every_schedule, 3, 3, [LAYOUTS[2], LAYOUTS[5]], [2, 4]) == [4, 4, 4]


def held_and_under_way(layouts: Sequence[dict[str, Any]], number: int) -> list[tuple[dict[int, int], int]]:
    """For each layout the most micro-batches whose activations were alive, by stage, and the most sends under way."""
    result = []
    with pipelines(layouts, 2) as cases:
        for each in cases:
            alive: dict[int, weakref.WeakSet[Tensor]] = {stage: weakref.WeakSet() for stage in each.parts}
            most = dict.fromkeys(each.parts, 0)
            under_way = 0

            def note(stage: int, output: Tensor, alive: Any = alive, most: Any = most, each: Case = each) -> None:
                nonlocal under_way
                alive[stage].add(output)
                most[stage] = max(most[stage], len(alive[stage]))
                under_way = max(under_way, len(each.pipeline._channels._sent))

            for stage, part in each.parts.items():
                first = next(iter(part.layers.values()))  # a norm's output is kept by the product that takes it
                first.get_submodule("attention_norm").register_forward_hook(
                    lambda _, __, output, stage=stage: note(stage, output)
                )
            each.pipeline.step(micro_batches(number), 10)
            assert not any(alive.values())
            result.append((most, under_way))
    return result


def test_no_more_is_held_than_the_simulator_says() -> None:
    number = 6
    ranks = reused_ranks(held_and_under_way, 2, LAYOUTS, number)
    for layout, results in zip(LAYOUTS, zip(*ranks, strict=True), strict=True):
        parallel = ParallelConfig(pp=2, **layout)
        arguments = parallel.schedule, 2, parallel.chunks
        timeline = simulate(actions(*arguments, number), stage_ranks(*arguments), lambda action: 1.0)
        held = dict(enumerate(in_flight(timeline)))
        assert results[0][0] | results[1][0] == held, layout
        if parallel.schedule != "gpipe":  # which holds everything
            assert max(result[1] for result in results) <= 4 * parallel.chunks, layout


@contextmanager
def failing(in_forward: int = 0) -> Iterator[tuple[Case, Any]]:
    """A pipeline of two ranks, of which rank 1 fails in some forward, and the store that ranks can wait at."""

    def fail(*_: Any) -> None:
        if next(calls) == in_forward:
            raise ValueError("no such weights")

    calls = iter(range(100))
    with pipelines([{"schedule": "gpipe"}], 2) as cases:
        each = next(cases)
        if each.world.rank == 1:
            each.parts[1].register_forward_pre_hook(fail)
        yield each, dist.distributed_c10d._get_default_store()


def dies() -> None:
    with failing(in_forward=2) as (each, _):
        try:
            each.pipeline.step(micro_batches(4), 10)
        except ValueError:
            os._exit(9)


def test_a_rank_names_the_peer_that_died() -> None:
    with pytest.raises(RanksFailed, match="rank 1: died with exit code 9") as caught:
        run_ranks(dies, 2)
    assert re.search(
        r"LostRank: rank 1 \(.*\) has ended; rank 0 waited in the [a-z]+ of the start "
        r"\(rank 0 \(stage 0\) waited for the backward of micro-batch 0 from rank 1: .* peer",
        str(caught.value),
    )


class Impatient(NamedTuple):
    """Something to wait for, which times out at once."""

    work: Any

    def wait(self) -> None:
        self.work.wait(datetime.timedelta(seconds=0.2))


def hangs() -> str:
    with failing() as (each, store):
        if each.world.rank == 1:
            store.wait(["rank 0 is done"])
            return ""
        for group in each.pipeline._channels._groups.values():
            assert group._get_backend(torch.device("cpu")).options._timeout == each.world.timeout
        with pytest.raises(LostPeer) as caught, pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "irecv", lambda *args, receive=dist.irecv, **more: Impatient(receive(*args, **more)))
            each.pipeline.step(micro_batches(2), 10)
        store.set("rank 0 is done", "")
        return str(caught.value)


def test_a_rank_waits_no_longer_than_the_timeout() -> None:
    message = run_ranks(hangs, 2)[0]
    assert message.startswith("rank 0 (stage 0) waited for the backward of micro-batch 0 from rank 1: ")
    assert "Timed out waiting 200ms" in message


def raises() -> str:
    with (
        failing(in_forward=1) as (each, _),
        pytest.raises((ValueError, LostPeer)) as caught,
        pytest.MonkeyPatch.context() as patch,
    ):
        if each.world.rank == 0:  # the other rank lives on here, and would be waited for until the timeout
            patch.setattr(dist, "irecv", lambda *args, receive=dist.irecv, **more: Impatient(receive(*args, **more)))
        each.pipeline.step(micro_batches(2), 10)
    assert len(each.pipeline._channels._sent) == 0
    return str(caught.value)


def test_an_error_in_a_forward_is_raised_as_it_is() -> None:
    error_0, error_1 = run_ranks(raises, 2)
    assert error_1 == "no such weights"
    assert error_0.startswith("rank 0 (stage 0) waited for the backward of micro-batch 0 from rank 1: ")
