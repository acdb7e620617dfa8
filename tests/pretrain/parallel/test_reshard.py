"""Checkpoints between meshes: bit-exact on the same one, the same tensors and the same curve on any other.

Pipelines, tensor parallelism, sharded and replicated data, both storages of a tied weight, uneven shards.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpus.engine import durable
from pretrain import checkpoint
from pretrain.config import RunConfig
from tests.pretrain.checkpoints import (
    Result,
    assert_equal,
    newest_folder,
    refusals,
    train_and_save,
)
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import tiny_config, tiny_loader

ZBV = {"pp": 2, "schedule": "zbv", "zero": 1}
CUBE = {"pp": 2, "tp": 2, "dp_shard": 2, "zero": 1}
BATCH = 12  # divides over 1, 2, 3 and 4 data-parallel ranks


def exact(parallel: Mapping[str, Any], **model: Any) -> RunConfig:
    """In float64, with layers enough for four stages."""
    model = {"num_layers": 4, **model}
    training = {"precision": "fp64", "global_batch_size": BATCH, "micro_batch_size": 1}
    return tiny_config(model=model, parallel=parallel, training=training, checkpoint={"every_steps": 2, "keep_last": 9})


def assert_copies_equal(results: list[Result], num_holders: int) -> None:
    """Of `num_holders` ranks the second storage of the embedding, and its state, is the first's."""
    holders = [one["copies"] for one in results if one["copies"]]
    assert len(holders) == num_holders
    for copies in holders:
        assert copies.keys() == {"embedding.weight"} | {
            f"embedding.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step")
        }
        originals = results[0]["weights"] | results[0]["state"]
        for name, values in copies.items():
            np.testing.assert_array_equal(values, originals[name], err_msg=name)


GROWING = {
    "training": {"rampup": {"start": 2, "increment": 2, "num_samples": 12}, "micro_batch_size": 1},
    "model": {"document_mask": True},
    "data": {"prefix_lm": True, "reset_positions": True},
}


def check_resumed_run(num_ranks: int, config: RunConfig, out: Path, num_holders: int = 0) -> None:
    """Steps 3 and 4 of a run that was resumed from garbage are those of one that was not interrupted."""
    whole = reused_ranks(train_and_save, num_ranks, config, out / "whole", 2, 2)
    shutil.copytree(
        checkpoint.step_folder(out / "whole", 2), checkpoint.step_folder(out / "resumed", 2), dirs_exist_ok=True
    )
    resumed = reused_ranks(train_and_save, num_ranks, config, out / "resumed", 2)
    for ours, theirs in zip(resumed, whole, strict=True):
        assert (ours["losses"], ours["norms"]) == (theirs["losses"][2:], theirs["norms"][2:])
        assert_equal(ours["last"], theirs["last"])
    assert_copies_equal([one["loaded"] for one in resumed], num_holders)
    assert_copies_equal([one["last"] for one in resumed], num_holders)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sections", "num_holders"),
    [
        pytest.param({"parallel": {"zero": 3}}, 0, id="dp2, zero 3"),
        pytest.param({"parallel": {"tp": 2}, "model": {"bias": True, "norm": "layernorm"}}, 0, id="tp2"),
        pytest.param({"parallel": ZBV, "model": {"num_layers": 4}}, 1, id="pp2, both ends of the V tied on one rank"),
        pytest.param({"parallel": {"pp": 2}}, 1, id="pp2, the ends tied on two ranks"),
        pytest.param(GROWING, 0, id="dp2, a batch that grows from 2 to 4 at that step, prefixes, positions reset"),
    ],
)
def test_resuming_on_the_same_mesh_is_exact_to_the_bit(
    sections: dict[str, Any], num_holders: int, tmp_path: Path
) -> None:
    check_resumed_run(2, tiny_config(**sections), tmp_path, num_holders)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parallel", "tied", "num_holders"),
    [
        pytest.param(CUBE, True, 4, id="2x2x2"),
        pytest.param(CUBE, False, 0, id="2x2x2, untied"),
        pytest.param(CUBE | {"schedule": "zbv"}, True, 4, id="2x2x2, zbv"),
        pytest.param(CUBE | {"schedule": "interleaved", "zero": 3}, True, 4, id="2x2x2, interleaved, zero 3"),
        pytest.param({"dp_replicate": 2, "tp": 2, "pp": 2}, True, 4, id="2 replicas"),
    ],
)
def test_resuming_on_eight_ranks_is_exact_to_the_bit(
    parallel: dict[str, Any], tied: bool, num_holders: int, tmp_path: Path
) -> None:
    config = tiny_config(model={"num_layers": 4, "tied": tied}, parallel=parallel)
    check_resumed_run(8, config, tmp_path, num_holders)


def check_chain(meshes: list[tuple[int, dict[str, Any]]], out: Path, **model: Any) -> None:
    """One step on each mesh: the curve of one process, and between two meshes not a bit changes."""
    alone = reused_ranks(train_and_save, 1, exact({}, **model), out / "alone", len(meshes))[0]
    chain = out / "chain"
    before: Result | None = None
    for index, (num_ranks, parallel) in enumerate(meshes):
        config = exact(parallel, **model)
        results = reused_ranks(train_and_save, num_ranks, config, chain, 1)
        if before is not None:
            for result in results:
                assert_equal(result["loaded"], before)
        for result in results:
            np.testing.assert_allclose(result["losses"], alone["losses"][index], rtol=1e-9)
            np.testing.assert_allclose(result["norms"], alone["norms"][index], rtol=1e-9)
        before = results[0]["last"]
        assert_copies_equal([one["loaded"] for one in results], _num_holders(config, num_ranks))
        assert_whole_model(newest_folder(chain), before, index + 1, alone["losses"])
    for name, values in alone["last"]["weights"].items():
        np.testing.assert_allclose(before["weights"][name], values, rtol=1e-8, atol=1e-10, err_msg=name)


def _num_holders(config: RunConfig, num_ranks: int) -> int:
    return num_ranks // config.parallel.pp if config.model.tied and config.parallel.pp > 1 else 0


def assert_whole_model(folder: Path, expected: Result, num_steps: int, losses: list[float]) -> None:
    """One process that loads it alone has these weights, and predicts what the run predicts in its next step."""
    model = checkpoint.load_model(folder)[0]
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), expected["weights"][name], err_msg=name)
    if num_steps < len(losses):
        batch = tiny_loader().batch(num_steps * BATCH, BATCH)
        tokens, targets = (torch.from_numpy(array.copy()).long() for array in (batch.tokens, batch.targets))
        with torch.no_grad():
            loss = model.cross_entropy_sum(model(tokens), targets) / (targets >= 0).sum()
        assert loss.item() == pytest.approx(losses[num_steps], rel=1e-9)


@pytest.mark.long
def test_a_run_moves_from_mesh_to_mesh(tmp_path: Path) -> None:
    meshes: list[tuple[int, dict[str, Any]]] = [
        (1, {}), (2, {"zero": 3}), (4, {"pp": 2, "tp": 2}), (8, CUBE), (1, {})
    ]  # fmt: skip
    check_chain(meshes, tmp_path)


@pytest.mark.long
def test_an_untied_model_moves_between_uneven_shards(tmp_path: Path) -> None:
    """128 rows of a cut vocabulary over 3 ranks: 43, 43, 42; and a layer more on the first stage."""
    meshes: list[tuple[int, dict[str, Any]]] = [
        (3, {"dp_shard": 3}),
        (2, {"pp": 2, "layers_per_stage": [3, 1]}),
        (2, {"tp": 2, "sequence_parallel": False}),
        (1, {}),
    ]
    check_chain(meshes, tmp_path, tied=False)


@pytest.mark.slow
def test_a_run_moves_between_meshes_of_six_and_eight_ranks(tmp_path: Path) -> None:
    meshes: list[tuple[int, dict[str, Any]]] = [
        (6, {"dp_shard": 3, "tp": 2}), (8, CUBE | {"schedule": "zbv"}), (4, ZBV | {"dp_replicate": 2}),
        (8, {"dp_replicate": 2, "dp_shard": 2, "tp": 2, "zero": 3}), (8, {"pp": 4, "tp": 2}), (1, {}),
    ]  # fmt: skip
    check_chain(meshes, tmp_path, hidden_size=96, num_heads=6, num_kv_heads=2)


@pytest.mark.long
@pytest.mark.parametrize("parallel", [{"dp_replicate": 2}, {"pp": 2, "tp": 2}], ids=["2 replicas of 2", "pp2 x tp2"])
def test_every_number_is_written_once(parallel: dict[str, Any], tmp_path: Path) -> None:
    """By any of the ranks that hold it: replicas and the copies of tensor parallelism write nothing twice."""
    reused_ranks(train_and_save, 4, tiny_config(parallel=parallel), tmp_path, 1)
    folder = newest_folder(tmp_path)
    num_bytes = [_tensor_bytes(path) for path in sorted(folder.glob("*.safetensors"))]
    tensors = checkpoint.read_commit(folder).tensors
    sizes = {
        name: math.prod(one.shape) * getattr(torch, one.dtype.removeprefix("torch.")).itemsize
        for name, one in tensors.items()
    }
    assert sum(num_bytes) == sum(sizes.values())
    assert len(num_bytes) == 4 and max(num_bytes) < 0.5 * sum(num_bytes), num_bytes
    assert {name.partition(".")[0] for name in sizes} == {"model", "optimizer"}
    assert sum(size for name, size in sizes.items() if name.startswith("model.")) == pytest.approx(
        sum(num_bytes) / 3, rel=0.01
    )


def _tensor_bytes(path: Path) -> int:
    """What a safetensors file holds besides its header."""
    data = path.read_bytes()
    return len(data) - 8 - int.from_bytes(data[:8], "little")


def damaged(folder: Path, to: Path) -> dict[Path, str]:
    """Copies of a checkpoint, each with one file missing, altered, cut short or added; and that file's name."""
    copies: dict[Path, str] = {}

    def copy(kind: str, name: str) -> Path:
        copied = to / f"{name}-{kind}" / folder.name
        shutil.copytree(folder, copied)
        copies[copied] = name
        return copied / name

    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        copy("missing", path.name).unlink()
        at = -2 if path.name == checkpoint.COMMIT else -1  # the last newline of JSON to a space: only a hash sees that
        copy("altered", path.name).write_bytes(data[:at] + bytes([data[at] ^ 0x2A]) + data[len(data) + at + 1 :])
        copy("cut short", path.name).write_bytes(data[:-2])  # the last byte of JSON says nothing
    copy("added", "shard-00009-model-00001-of-00001.safetensors").write_bytes(data)
    return copies


def test_any_damaged_file_is_refused_by_name_on_every_rank(tmp_path: Path) -> None:
    """FAULTS row 7, on a mesh of pipeline and tensor-parallel ranks; then the whole one is loaded."""
    config = tiny_config(parallel={"pp": 2, "tp": 2})
    reused_ranks(train_and_save, 4, config, tmp_path / "run", 1)
    folder = newest_folder(tmp_path / "run")
    copies = damaged(folder, tmp_path)
    assert len(copies) == 3 * (4 + len(["COMMIT.json", "config.json", "state.json", "tokenizer.model"])) + 1
    other = json.loads((folder / "COMMIT.json").read_bytes()) | {"format": 1}
    copies[tmp_path / "format" / folder.name] = "is a checkpoint of format 1"
    shutil.copytree(folder, tmp_path / "format" / folder.name)
    durable.write_json(tmp_path / "format" / folder.name / "COMMIT.json", other)

    said = reused_ranks(refusals, 4, config, [*copies, folder])
    for messages in zip(*said, strict=True):
        plain = {message.partition(": ")[2] if message.startswith("rank ") else message for message in messages}
        assert len(plain) == 1, messages
    for (copied, name), message in zip(copies.items(), said[0], strict=False):
        assert str(copied) in message and name in message, (copied, message)
    assert said[0][-1] == ""

    wider = tiny_config(parallel={"pp": 2, "tp": 2}, model={"ffn_hidden_size": 256})
    for (message,) in reused_ranks(refusals, 4, wider, [folder]):
        assert "is of another model (ffn_hidden_size None there and 256 here)" in message
