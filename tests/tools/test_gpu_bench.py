"""The GPU script on tiny shapes: every row is made, and one that fails leaves the others. No figure is asserted."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.pretrain.ranks import reused_ranks
from tools.bench.pretrain import gpu

ARGUMENTS = argparse.Namespace(tiny=True, seconds=60.0)


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of a table's rows."""
    return [line[2:].removesuffix(" |").split(" | ") for line in lines if line.startswith("|")][2:]


def section(name: str) -> list[str]:
    made, cells, columns = gpu.SECTIONS[name]
    return list(gpu.table(columns.split("|"), made(ARGUMENTS), cells))


def here(work: Callable[..., gpu.Row], limit: float, /, **options: Any) -> gpu.Row:
    """A row in a reused process instead of a new one, without the minute that compiling takes, and as JSON."""
    if "seconds" in options:
        options["seconds"] = 0.0  # as few steps as there may be
    (found,) = reused_ranks(without_compiling, 1, work.__name__, options)
    row: gpu.Row = json.loads(json.dumps(found))
    return row


def without_compiling(name: str, options: dict[str, Any]) -> gpu.Row:
    compile_before = torch.compile
    torch.compile = lambda module, **_: module  # type: ignore[assignment]
    try:
        return gpu.WORK[name](**options)
    finally:
        torch.compile = compile_before


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "row", here)


def test_parity_on_the_same_device_is_exact(quick: None) -> None:
    found = rows(section("parity"))
    assert [row[0] for row in found] == list(gpu.PARITY)
    assert all(row[1:] == ["cpu", "0.0e+00 (limit 1e-05)", "0.0e+00 (limit 1e-04)", "yes"] for row in found[:2])


def test_a_difference_beyond_the_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "row", lambda *_, **__: {"device": "H100", "off": [2e-5, 0.0]})
    assert [row[-1] for row in rows(section("parity"))] == ["**no**", "**no**", "yes"]


def test_the_loss_in_chunks_stands_beside_others(quick: None) -> None:
    found = rows(section("loss"))
    names = [row[0] for row in found]
    assert names == [f"1,000 entries: {kind}" for kind in ("dense", "in chunks", "F.linear_cross_entropy")]
    for _, milliseconds, gib in found if hasattr(F, "linear_cross_entropy") else found[:2]:
        assert float(milliseconds.replace(",", "")) > 0 and float(gib) >= 0


def test_speed_has_ours_beside_the_plain_loop(quick: None) -> None:
    found = rows(section("speed"))
    assert len(found) == 2 * 2
    for row in found:
        assert len(row) == 9
        assert float(row[1].replace(",", "")) > 0
        assert row[3] == "n/a"  # of a CPU no peak is known
    assert [bool(row[8]) for row in found[:2]] == [True, False]  # a plan is of ours


def test_masks_have_the_choice_beside_a_dense_one(quick: None) -> None:
    found = rows(section("masks"))
    assert [row[0].partition(", ")[2] for row in found[:5]] == [
        "plainly causal",
        "documents: dense",
        "documents: chosen",
        "documents and prefixes: dense",
        "documents and prefixes: chosen",
    ]
    assert len(found) == 2 * 5 and all(float(row[2]) > 0 for row in found)
    chosen = "dense" if torch.cuda.is_available() else "parts"
    assert [row[1] for row in found[:5]] == ["causal", "dense", chosen, "dense", chosen]


def test_the_other_sections(quick: None) -> None:
    published, whole, offloaded = rows(section("asc22"))
    assert published[:3] == ["NCUSCC, four V100, offload (published)", "4,100", "67.75"]
    assert float(whole[2].replace(",", "")) > 0 and float(offloaded[2].replace(",", "")) > 0
    ((name, steps, *_),) = rows(section("host"))
    assert name == "1.7B, offload"
    assert steps.endswith(" of 5")
    assert [row[0] for row in rows(section("loader"))] == ["random tokens in memory", "token shards on disk"]


def test_the_shapes_are_what_they_are_called() -> None:
    """Megatron-LM's 1.7 B, and Llama 2 7 B but for its layers; their contexts and batches divide."""
    from pretrain.config import load_config
    from pretrain.parallel.base.params import num_parameters
    from tools.bench.pretrain.random_run import configuration

    small, large = (configuration(gpu.with_context(shape, 2048, tiny=False)) for shape in gpu.SHAPES.values())
    assert num_parameters(small.model) == pytest.approx(1.65e9, rel=0.01)
    llama = load_config("llama-2-7b").model
    for name in ("hidden_size", "num_heads", "ffn_hidden_size", "padded_vocab_size", "tied"):
        assert getattr(large.model, name) == getattr(llama, name)
    for context in gpu.MFU_TARGETS:
        training = configuration(gpu.with_context(gpu.SHAPES["1.7B"], context, tiny=False)).training
        assert training.global_batch_size * context == gpu.STEP_TOKENS
        assert (training.precision, training.compile) == ("bf16", True)


@pytest.mark.parametrize(
    ("code", "stderr", "told"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried", "OOM"),
        (-9, "", "OOM"),
        (1, "Traceback\nValueError: x", "exit code 1: ValueError: x"),
    ],
)
def test_a_row_that_fails_says_why(code: int, stderr: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], code, "", stderr))
    assert gpu.row(gpu.ours, 1.0) == {"failed": told}
    cells = rows(list(gpu.table(("run", "a", "b"), iter([("ours", {"failed": told})]), lambda _: [])))
    assert cells == [["ours", told, ""]]


def test_a_row_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, timeout: float, **__: Any) -> None:
        raise subprocess.TimeoutExpired([], timeout)

    monkeypatch.setattr(subprocess, "run", run)
    assert gpu.row(gpu.ours, 7.0) == {"failed": "not done in 7 s"}


def test_each_row_compiles_into_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a row that was ended left there, half a library, is no other row's."""
    caches = []

    def run(*_: Any, env: dict[str, str], **__: Any) -> subprocess.CompletedProcess[str]:
        caches.append(Path(env["TORCHINDUCTOR_CACHE_DIR"]))
        assert caches[-1].is_dir() and not list(caches[-1].iterdir())
        return subprocess.CompletedProcess([], 0, "{}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert gpu.row(gpu.ours, 7.0) == gpu.row(gpu.ours, 7.0) == {}
    assert len(set(caches)) == 2 and not any(cache.exists() for cache in caches)


def test_a_cpu_is_not_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SECTIONS", {"parity": (lambda _: iter([("a", {})]), lambda _: ["b"], "run|x")})
    gpu.main(["--tiny"])
    told = capsys.readouterr().out
    assert ("**CPU, tiny shapes: exercised, not measured.**" in told) is not torch.cuda.is_available()
    assert "### parity\n\n| run | x |\n|---|---|\n| a | b |" in told
    assert f"torch {torch.__version__}" in told
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            gpu.main([])
        assert "torch sees no GPU here" in capsys.readouterr().err


def test_a_child_prints_its_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.WORK, "ours", lambda **options: {"got": options})
    gpu.main(["--row", json.dumps(["ours", {"seconds": 1.0}])])
    assert json.loads(capsys.readouterr().out) == {"got": {"seconds": 1.0}}
