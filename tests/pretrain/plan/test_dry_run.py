"""The plan of a run without a GPU: every configuration, the published figures of Yuan 1.0, and what does not fit."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.__main__ import main
from pretrain.config import load_config, named_configs
from pretrain.parallel.base.params import num_parameters
from pretrain.parallel.base.stages import layer_flops
from pretrain.plan.dry_run import RANKS_PER_NODE, dry_run, lines
from pretrain.workload import memory
from tests.pretrain.tiny import tiny_config

WORLD_SIZES = {"yuan-245b": 2128, "yuan-13b": 1792, "frontier-175b": 1024, "frontier-1t": 2048, "firefly-3.8b": 128}


def plan_of(name: str, device: str | None = None) -> dict[str, Any]:
    config = load_config(name)
    return dry_run(config, WORLD_SIZES.get(name, config.parallel.tp * config.parallel.pp), device)


@pytest.mark.parametrize("name", named_configs())
def test_every_configuration_has_a_plan(name: str) -> None:
    config, plan = load_config(name), plan_of(name)
    assert math.prod(plan["mesh"].values()) == plan["world_size"]
    twice = (
        config.model.padded_vocab_size * config.model.hidden_size
        if config.model.tied and len(plan["stages"]) > 1
        else 0
    )
    assert sum(stage["parameters"] for stage in plan["stages"]) == num_parameters(config.model) + twice
    assert [stage["layers"][0] for stage in plan["stages"][1:]] == [
        stage["layers"][1] + 1 for stage in plan["stages"][:-1]
    ]
    assert plan["tokens"] <= plan["tokens_per_step"] * plan["num_steps"]
    told = list(lines(plan))
    assert max(map(len, told)) <= 80, max(told, key=len)
    assert any("time        n/a" in line for line in told)


def test_yuans_published_figures() -> None:
    plan = plan_of("yuan-245b", "NVIDIA A100-SXM4-80GB")
    assert plan["mesh"] == {"pp": 38, "dp_replicate": 1, "dp_shard": 7, "tp": 8}
    assert {stage["num_layers"] for stage in plan["stages"]} == {2}
    assert plan["micro_batches"] == 480
    compute_days = 8 * plan["parameters"] * plan["tokens"] / 1e15 / 86_400  # "4095 PFLOP/s-days"
    assert compute_days == pytest.approx(4095, rel=5e-4)
    assert f"{compute_days:,.1f}" in "\n".join(lines(plan))
    # fewer than 37 / 480: the last stage, which has the head, is busier than those that wait for it
    assert 0.9 * 37 / 480 < plan["bubble"] < 37 / 480
    assert plan["seconds_by_mfu"]["40%"] == pytest.approx(
        plan["flops_per_token"] * plan["tokens"] / (2128 * 312e12 * 0.4)
    )


@pytest.mark.parametrize(("schedule", "share"), [("gpipe", 3 / 8), ("1f1b", 3 / 8), ("interleaved", 3 / 16)])
def test_the_bubble_of_equal_stages_is_the_formula(schedule: str, share: float) -> None:
    """The vocabulary is small beside the layers; stages are the last one's head apart from equal."""
    model = {"num_layers": 32, "hidden_size": 512, "num_heads": 8}
    training = {"micro_batch_size": 1, "global_batch_size": 8}
    layers = (32 // (8 if schedule == "interleaved" else 4),) * (8 if schedule == "interleaved" else 4)
    parallel = {"pp": 4, "schedule": schedule, "layers_per_stage": layers}
    config = tiny_config(model=model, training=training, parallel=parallel)
    assert dry_run(config, 4)["bubble"] == pytest.approx(share, rel=0.01)


def test_attention_has_no_gradient_of_a_weight() -> None:
    """(p - 1)(F + I - W) is lost: the backward of attention is all in I, for which the stage before waits."""
    model = {"num_layers": 32, "hidden_size": 512, "num_heads": 8, "sequence_length": 512}
    parts = {"model": model, "training": {"micro_batch_size": 1, "global_batch_size": 8}}
    config = tiny_config(**parts, parallel={"pp": 4, "schedule": "zero-bubble", "layers_per_stage": (8,) * 4})
    attention = 4 * 512 * 512 / layer_flops(config.model)
    assert 0.1 < attention < 0.2
    assert dry_run(config, 4)["bubble"] == pytest.approx(3 * (1 + 2 * attention) / (8 * 3), rel=0.02)


def test_full_recompute_is_work_of_the_backward() -> None:
    """A bubble is (p - 1) / m whatever a backward takes; the head, which is not recomputed, weighs less beside it."""
    parts = {
        "model": {"num_layers": 4, "vocab_size": 60_000, "padded_vocab_size": 60_032},
        "training": {"micro_batch_size": 1},
    }
    parallel = {"pp": 2, "layers_per_stage": (2, 2)}
    plain, again = (
        dry_run(tiny_config(**parts, parallel={**parallel, "recompute": kind}), 2) for kind in ("none", "full")
    )
    assert again["bubble"] > plain["bubble"]
    assert again["hardware_flops_per_token"] > plain["hardware_flops_per_token"] == plain["flops_per_token"]


def test_who_holds_what() -> None:
    """pp is the outermost axis; a V has both ends on the first rank."""
    zbv = tiny_config(model={"num_layers": 4}, parallel={"pp": 2, "tp": 2, "schedule": "zbv"})
    stages = dry_run(zbv, 8)["stages"]
    assert [(stage["pp_rank"], tuple(stage["ranks"])) for stage in stages] == [
        (0, (0, 3)),
        (1, (4, 7)),
        (1, (4, 7)),
        (0, (0, 3)),
    ]
    assert [stage["holds"] for stage in stages] == ["embedding", "", "", "head"]
    (whole,) = dry_run(tiny_config(), 2)["stages"]
    assert whole["holds"] == "embedding and head"


def test_the_fullest_node_is_told() -> None:
    """Two stages of four ranks are on one node, of 16 ranks on two nodes."""
    config = tiny_config(parallel={"pp": 2}, training={"global_batch_size": 64})
    first, last = (estimate.host_bytes for estimate in memory.estimate(config, 8, "cpu"))
    assert first != last
    assert dry_run(config, 8)["host_bytes_per_node"] == 4 * (first + last)
    assert dry_run(config, 32)["host_bytes_per_node"] == RANKS_PER_NODE * max(
        estimate.host_bytes for estimate in memory.estimate(config, 32, "cpu")
    )


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--world-size", "2128", "--config", "yuan-245b", "--device", "A100"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("yuan-245b\n245,735,325,696 parameters on 2,128 ranks (266 nodes of 8), bf16\n")
    assert "at 40% of the peak of A100" in told
    words = ["train", "--dry-run", "--config", "demo", "--nproc", "2", "--json", "--set", "training.device=cpu"]
    assert main(words) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert plan["world_size"] == 2
    assert plan["memory"][0]["device"] == "cpu"
    assert plan["memory"][plan["worst_pp_rank"]]["host_bytes"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--world-size", "2000", "--config", "yuan-245b"], "start a multiple of 304, for example 1824 of them"),
        (["--world-size", "3", "--config", "demo"], "--set training.global_batch_size="),
        (["--world-size", "8", "--config", "llama-2-7b", "--device", "Abacus"], "Known are GB200, B200, "),
    ],
)
def test_what_does_not_fit_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_run_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "demo", "--data", "build/none"]) == 2
    assert "--out FOLDER" in capsys.readouterr().err
    with pytest.raises(UsageError):
        dry_run(load_config("demo"), 0)
