"""The benchmark of training runs on tiny models; its peers compute what they should; no time is asserted."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch

from pretrain.config import RunConfig
from pretrain.model import GPT
from pretrain.parallel.base.params import init_parameters
from pretrain.workload.memory import estimate
from tests.pretrain.ranks import reused_ranks
from tools.bench.pretrain import offload, plain_gpt, pretrain, two_ranks
from tools.bench.pretrain.random_run import configuration, random_tokens
from tools.bench.timing import in_child, take_turns

TINY: dict[str, Any] = {
    "model": {"num_layers": 4, "hidden_size": 16, "num_heads": 2, "sequence_length": 8, "tied": False,
              "vocab_size": 100, "padded_vocab_size": 128},
    "training": {"global_batch_size": 4, "micro_batch_size": 1},
}  # fmt: skip
NUM_STEPS = 2


def test_the_plain_model_is_ours() -> None:
    """With the same weights, the same logits."""
    config = configuration(TINY).model
    ours, plain = GPT(config), plain_gpt.PlainGPT(config)
    init_parameters(dict(ours.named_parameters()), config, seed=1)
    weights = {name.replace("final_norm", "norm"): value for name, value in ours.state_dict().items()}
    plain.load_state_dict(weights)
    tokens = torch.arange(16).view(2, 8)
    torch.testing.assert_close(plain(tokens)[..., :100], ours(tokens)[..., :100])


def test_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    tied = {**TINY, "model": {**TINY["model"], "tied": True}}
    pretrain.tell_single("tiny", reused_ranks(pretrain.one_process, 1, tied, 1)[0])
    rows = re.findall(r"^(.+?) +[\d,]+ +x ([\d.]+) +x ([\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    names = ["a plain loop", "our model, in a bare loop", "train_step", "train_step, wrapped by FSDP2"]
    assert [name for name, *_ in rows] == names
    assert rows[0][1] == rows[1][2] == "1.000"


def test_contenders_take_turns() -> None:
    turns: list[str] = []
    take_turns({name: partial(turns.append, name) for name in "ab"}, rounds=2)
    assert turns == ["a", "b"] * 3


def plain_losses(config: RunConfig) -> list[float]:
    """Of the plain loop on one process."""
    torch.manual_seed(0)
    run = pretrain.plain(config, random_tokens(config))
    return [run.step() for _ in range(NUM_STEPS)]


def peer_losses(config: RunConfig, names: list[str]) -> list[list[float]]:
    """Of each peer, on one rank of two."""
    losses = []
    for name in names:
        step: Any = two_ranks.PEERS[name][1](config)
        losses.append([step() for _ in range(NUM_STEPS)])
    return losses


@pytest.mark.long
def test_torchs_runtimes_train_as_one_process_does() -> None:
    config = configuration(TINY)
    expected = plain_losses(config)
    assert expected[0] != expected[1]
    names = list(two_ranks.PEERS)
    first, second = reused_ranks(peer_losses, 2, config, names)
    for name, losses, others in zip(names, first, second, strict=True):
        assert losses == pytest.approx(expected, rel=1e-4), name
        assert others == pytest.approx(losses, rel=1e-6), name


@pytest.mark.parametrize("layout", two_ranks.LAYOUTS.values(), ids=list(two_ranks.LAYOUTS))
def test_the_benchs_own_model_can_be_laid_out(layout: dict[str, Any]) -> None:
    configuration(two_ranks.SECTIONS, {"parallel": layout})


@pytest.mark.long
def test_two_ranks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_ranks, "on_ranks", reused_ranks)
    monkeypatch.setattr(two_ranks, "SECTIONS", TINY)
    layouts = {name: two_ranks.LAYOUTS[name] for name in ("dp 2, zero 1", "tp 2, sequence parallel", "pp 2, zbv")}
    monkeypatch.setattr(two_ranks, "LAYOUTS", layouts)
    two_ranks.run()
    told = capsys.readouterr().out
    rows = re.findall(r"^(.+?) +[\d,]+ +x [\d.]+ +x [\d.]+( +x [\d.]+)?$", told, re.MULTILINE)
    peers = ["torch parallelize_module, sequence parallel", "torch ScheduleZBVZeroBubble"]
    assert [name for name, _ in rows] == ["one rank", *layouts, *peers]
    assert [name for name, to_ours in rows if to_ours] == peers


# ------------------------------------------------------------------------------------------ offload
STEPS = 12


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    return {row: in_child(offload.measure, row, STEPS) for row in ("offload", "foreach")}


@pytest.mark.long
def test_what_is_in_use_does_not_grow(measured: dict[str, dict[str, Any]]) -> None:
    """From one step to another; a leak of one gradient a step would be megabytes."""
    in_use = [bytes_in_use for bytes_in_use, _ in measured["offload"]["curve"]]
    assert len(in_use) == STEPS
    assert max(in_use[2:]) - min(in_use[2:]) < 100_000


@pytest.mark.long
def test_the_peak_in_use_is_what_was_predicted(measured: dict[str, dict[str, Any]]) -> None:
    (predicted,) = estimate(offload.config_of("offload"), 1, "cpu")
    assert measured["offload"]["peak_bytes"] == pytest.approx(offload.predicted_bytes(predicted), rel=0.2)


@pytest.mark.long
def test_a_fused_update_has_no_intermediate_results(measured: dict[str, dict[str, Any]]) -> None:
    """Of `foreach` they are as large as the larger of AdamW's two groups, that of the embedding."""
    model = offload.config_of("offload").model
    embedding = 4 * model.padded_vocab_size * model.hidden_size
    assert measured["offload"]["update_bytes"] < 0.02 * embedding
    assert measured["foreach"]["update_bytes"] > 0.9 * embedding


def test_bytes_in_use_are_seen_to_grow_and_to_be_given_back() -> None:
    before = offload.bytes_in_use()
    block = bytearray(50_000_000)
    during = offload.bytes_in_use()
    del block
    assert 40e6 < during - before < 60e6
    assert offload.bytes_in_use() - before < 10e6
