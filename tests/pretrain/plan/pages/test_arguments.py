"""What a command line asks: configurations in outline, other programs, devices and tokens that follow from what is
said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pretrain.__main__ import main
from pretrain.batch_size import num_tokens
from pretrain.config import load_config
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.pages import arguments

HELD = (
    *("plan", "--config", "demo", "--cluster", "selene-a100-80", "--gpus", "4"),
    *("--only", "recompute=none,zero=2,offload=off"),
)


OUTLINE = """
[model]
num_layers = 24
hidden_size = 2304
num_heads = 24
sequence_length = 2048
vocab_size = 51_199
norm = "layernorm"
activation = "gelu"
positions = "learned"
bias = true
"""
ON_NODES = ("--cluster", "selene-a100-80", "--gpus", "32", "--json")


def test_a_model_and_a_batch_are_enough(ask: Any, refuse: Any, tmp_path: Path) -> None:
    outline, words = tmp_path / "outline.toml", "tp=2,pp=2,mbs=4,recompute=full"
    outline.write_text(OUTLINE)
    asked = ("plan", "--config", str(outline), *ON_NODES, "--layout")
    answer = json.loads(ask(*asked, f"{words},gbs=512"))
    [layout] = answer["layouts"]
    h = 2304  # blocks with biases and norms; 51,200 entries, positions, the last norm
    assert answer["num_parameters"] == 24 * (12 * h * h + 13 * h) + (51_200 + 2048) * h + 2 * h
    assert (answer["precision"], answer["tokens_per_step"], layout["data_parallel"]) == ("bf16", 512 * 2048, 8)
    assert layout["micro_batches"] == 16 and layout["zero"] == 1
    outline.write_text(f"{OUTLINE}[training]\nglobal_batch_size = 512\n[parallel]\nrecompute = 'full'")
    assert json.loads(ask(*asked, "tp=2,pp=2,mbs=4"))["layouts"] == answer["layouts"]
    assert "must be a multiple of training.micro_batch_size 5" in refuse(*asked, "tp=2,mbs=5")
    outline.write_text(OUTLINE)
    assert "Add global_batch_size = 1536 below [training], or gbs=1536 to --layout" in refuse(*asked, words)


def test_an_outline_may_not_be_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outline = tmp_path / "outline.toml"
    outline.write_text(f"optimizer = 3\n{OUTLINE}layers = 3\n")
    assert main(["plan", "--config", str(outline), *ON_NODES, "--layout", "tp=2,gbs=512"]) == 2
    said = capsys.readouterr().err
    assert "model.layers: unknown key" in said and "optimizer: " in said


def test_a_whole_configuration_is_planned_as_it_trains(ask: Any) -> None:
    """demo says no precision, and trains in fp32."""
    assert json.loads(ask(*HELD, "--layout", "tp=1", "--json"))["precision"] == "fp32"


def test_other_programs_do_what_they_can(ask: Any, tmp_path: Path) -> None:
    """Megatron-LM of 2021 knew no sequence parallelism, and each rank had the whole optimizer."""
    outline = tmp_path / "outline.toml"
    outline.write_text(OUTLINE)
    words = ("plan", "--config", str(outline), *ON_NODES, "--layout", "tp=2,mbs=4,gbs=512,recompute=full")
    ours = json.loads(ask(*words))
    theirs = json.loads(ask(*words, "--software", "megatron-2021"))
    assert ours["layouts"][0]["sequence_parallel"] and not theirs["layouts"][0]["sequence_parallel"]
    assert (ours["layouts"][0]["zero"], theirs["layouts"][0]["zero"]) == (2, 1)
    assert "megatron-2021" in ours["by_other_software"] and "ours" in theirs["by_other_software"]
    other = json.loads(ask(*words[:-1], f"{words[-1]},zero=1"))["by_other_software"]["megatron-2021"]
    assert other == {name: theirs["layouts"][0][name] for name in other}
    assert json.loads(ask(*words[:-1], f"{words[-1]},sp=on", "--software", "megatron-2021"))["layouts"][0][
        "sequence_parallel"
    ]
    said = ask(*(word for word in words if word != "--json"), "--only", "tp=2,recompute=full,zero=2,mbs=4")
    assert "All this is of ours." in said and "  megatron-2021 " in said


def test_the_devices_follow_from_a_layout_that_names_all(ask: Any) -> None:
    words = ("plan", "--config", "demo", "--cluster", "selene-a100-80", "--only", "tp=2,pp=1", "--json")
    assert json.loads(ask(*words, "--layout", "tp=2,pp=1,dp=1"))["devices"] == 2
    assert json.loads(ask(*words, "--layout", "tp=2,pp=1,gbs=8"))["devices"] == 8


def test_yuan_13b_counts_its_ramp_up() -> None:
    config = load_config("yuan-13b")
    assert config.training.rampup is not None
    full = config.training.num_steps * config.training.global_batch_size * config.model.sequence_length
    assert 0 < num_tokens(config.training, config.model.sequence_length) < full


def test_on_a_machine_with_gpus_the_cluster_is_theirs(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    monkeypatch.setattr(arguments.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(arguments.auto, "cluster_for", lambda config: load_cluster("selene-a100-80"))
    answer = json.loads(ask("plan", "--config", "demo", "--only", "tp=1,pp=1", "--gpus", "1", "--json"))
    assert answer["cluster"] == "selene-a100-80"


def test_an_auto_configuration_is_planned_for_its_cluster(ask: Any) -> None:
    words = ("plan", "--config", "demo", "--set", "parallel.auto=true", "--set", "parallel.cluster=cpu", "--gpus", "2")
    answer = json.loads(ask(*words, "--json"))
    assert answer["cluster"] == "cpu" and answer["layouts"]
    assert json.loads(ask(*words, "--layout", "tp=2", "--json"))["layouts"][0]["tensor_parallel"] == 2
