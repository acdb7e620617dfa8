"""Checkpoints: resumed bit for bit, refused when altered, free of pickle. Kills: `test_checkpoint_killed`."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import loading
from pretrain.config import RunConfig
from tests.pretrain.checkpoints import (
    assert_equal,
    newest_folder,
    refusals,
    save,
    train_and_save,
)
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.tiny import IDENTITY, tiny_config, tiny_run, train_steps

CONFIG = tiny_config()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with checkpoints at steps 2 and 4."""
    out = tmp_path_factory.mktemp("saved")
    reused_ranks(train_and_save, 2, CONFIG, out, 2, 2)
    return out


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def test_resuming_on_as_many_ranks_is_exact_to_the_bit(copied: Path, tmp_path: Path) -> None:
    whole = reused_ranks(train_and_save, 2, CONFIG, tmp_path / "whole", 2, 4)[0]
    resumed = reused_ranks(train_and_save, 2, CONFIG, copied, 2)[0]
    assert resumed["step"] == 6
    assert resumed["losses"] == whole["losses"][4:]
    assert_equal(resumed["last"], whole["last"])


def test_the_commit_lists_every_file_with_its_hash(saved: Path) -> None:
    folder = newest_folder(saved)
    commit = checkpoint.read_commit(folder)
    names = {path.name for path in folder.iterdir()}
    assert set(commit.files) == names - {"COMMIT.json"}
    assert {name for name in names if name.endswith(".safetensors")} == {
        f"shard-0000{rank}-model-00001-of-00001.safetensors" for rank in (1, 2)
    }
    for name, described in commit.files.items():
        assert described.model_dump() == {
            "bytes": (folder / name).stat().st_size,
            "sha256": durable.sha256_file(folder / name),
        }
    assert commit.tensors["model.embedding.weight"].model_dump() == {"dtype": "torch.float32", "shape": [256, 32]}


@pytest.mark.parametrize("position", [0.0, 0.3, 0.9999])
@pytest.mark.parametrize("name", ["shard-00001-model-00001-of-00001.safetensors", "state.json", "COMMIT.json"])
def test_one_flipped_bit_is_refused_by_name(name: str, position: float, copied: Path) -> None:
    """FAULTS row 7, without a process group: what `generate` does."""
    path = newest_folder(copied) / name
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 1
    path.write_bytes(data)
    with pytest.raises(WenhaiError, match=name):
        checkpoint.load_model(path.parent)


def load_as_a_file_goes(folder: Path) -> str:
    with tiny_run(CONFIG) as run:
        fill = loading._fill

        def fill_less(*args: Any) -> None:
            if run.world.rank == 0:
                (folder / "shard-00002-model-00001-of-00001.safetensors").unlink()
            run.world.any_of(False)
            fill(*args)

        with mock.patch.object(loading, "_fill", fill_less):
            try:
                checkpoint.load(folder, run.model, run.optimizer, run.config, IDENTITY, run.world)
            except WenhaiError as error:
                return str(error)
    return ""


def test_a_file_that_goes_while_it_is_loaded_is_told_on_every_rank(copied: Path) -> None:
    messages = reused_ranks(load_as_a_file_goes, 2, newest_folder(copied))
    assert messages[0] == messages[1]
    assert "step-00000004: cannot be read (rank 0: " in messages[0]
    assert "shard-00002-model-00001-of-00001.safetensors" in messages[0]


def test_a_load_reads_every_header_once(saved: Path) -> None:
    read = HuggingFaceStorageReader.read_metadata
    with mock.patch.object(HuggingFaceStorageReader, "read_metadata", autospec=True, side_effect=read) as reading:
        checkpoint.load_model(newest_folder(saved))
    assert reading.call_count == 1


def test_what_nfs_leaves_of_an_open_file_is_told_and_ignored(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = newest_folder(copied)
    (folder / ".nfs000000000f3a5c1200000001").write_bytes(b"removed, and still open")
    checkpoint.load_model(folder)
    assert f"{folder}: .nfs000000000f3a5c1200000001 ignored: NFS keeps" in capsys.readouterr().err
    (folder / ".hidden").touch()
    with pytest.raises(WenhaiError, match=r"\.hidden: does not belong"):
        checkpoint.load_model(folder)


def test_a_shard_left_out_of_the_commit_too_is_refused(copied: Path) -> None:
    """Rows that no file holds: torch's reader alone would leave them uninitialised."""
    folder = newest_folder(copied)
    name = "shard-00002-model-00001-of-00001.safetensors"
    (folder / name).unlink()
    commit = json.loads((folder / "COMMIT.json").read_bytes())
    del commit["files"][name], commit["digest"]
    durable.write_json(folder / "COMMIT.json", commit | {"digest": durable.digest(commit)})
    with pytest.raises(WenhaiError, match=r"hold only a part of model\.embedding\.weight"):
        checkpoint.load_model(folder)


def test_another_model_or_other_data_are_refused(saved: Path) -> None:
    ((message,),) = reused_ranks(refusals, 1, tiny_config(model={"num_heads": 2}), [newest_folder(saved)])
    assert "is of another model (num_heads 4 there and 2 here)" in message
    ((message,),) = reused_ranks(refusals, 1, tiny_config(training={"precision": "fp64"}), [newest_folder(saved)])
    assert "is float32 [256, 32], this run needs float64 [256, 32]. Use the model and the training.precision" in message
    (message,) = reused_ranks(_load_with_other_data, 1, saved)
    assert "was trained on other token shards" in message


def _load_with_other_data(out: Path) -> str:
    with tiny_run(CONFIG) as run:
        other = dataclasses.replace(IDENTITY, data="other")
        try:
            checkpoint.load(newest_folder(out), run.model, run.optimizer, run.config, other, run.world)
        except WenhaiError as error:
            return str(error)
    return ""


def save_and_remove_no_file(config: RunConfig, out: Path) -> None:
    with mock.patch.object(shutil, "rmtree"):
        train_and_save(config, out, 1, 1, 1)


def test_what_is_removed_ceases_to_be_a_checkpoint_first(tmp_path: Path) -> None:
    """A removal that dies leaves files, but none that would be loaded."""
    reused_ranks(save_and_remove_no_file, 1, tiny_config(checkpoint={"keep_last": 1}), tmp_path)
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == ["step-00000003"]
    assert checkpoint.place_of(tmp_path, CONFIG.checkpoint).sweep(is_first=True) == ["step-00000001", "step-00000002"]


def save_twice(out: Path) -> str:
    with tiny_run(CONFIG) as run:
        save(run, out)
        try:
            save(run, out)
        except WenhaiError as error:
            return str(error)
    return ""


def test_a_committed_step_is_never_written_into(tmp_path: Path) -> None:
    (message,) = reused_ranks(save_twice, 1, tmp_path)
    assert "is committed already" in message
    checkpoint.load_model(newest_folder(tmp_path))


def test_a_folder_without_commit_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoint.step_folder(tmp_path, 3).mkdir(parents=True)
    assert checkpoint.newest(tmp_path) is None
    with pytest.raises(WenhaiError, match=r"is not a checkpoint \(it has no COMMIT\.json\)"):
        checkpoint.load_model(checkpoint.step_folder(tmp_path, 3))
    assert checkpoint.place_of(tmp_path, CONFIG.checkpoint).sweep(is_first=True) == ["step-00000003"]


def test_no_file_of_a_checkpoint_is_a_pickle(saved: Path) -> None:
    """FAULTS row 18: safetensors and JSON only, and none of torch's own `.metadata`."""
    for path in newest_folder(saved).iterdir():
        data = path.read_bytes()
        if path.suffix == ".json":
            json.loads(data)
        elif path.name == checkpoint.TOKENIZER:
            assert data == IDENTITY.tokenizer.read_bytes()
        else:
            assert path.suffix == ".safetensors"
            json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def random_state_unchanged() -> bool:
    with tiny_run(CONFIG) as run:
        before = torch.get_rng_state()
        train_steps(run, 2)
        return bool((torch.get_rng_state() == before).all())


def test_training_draws_no_random_number_so_none_is_saved() -> None:
    assert reused_ranks(random_state_unchanged, 1) == [True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {"../../secret": {"bytes": 1, "sha256": "0" * 64}}}, "pattern"),
        ({"files": {"state.json": {"bytes": -1, "sha256": "0" * 64}}}, "greater than or equal to 0"),
        ({"format": 1}, "is a checkpoint of format 1, and this version reads format 2. Use the version that wrote it"),
        ({"extra": 1}, "extra: unknown key"),
        ({"tensors": []}, "tensors"),
    ],
)
def test_a_commit_of_another_form_is_refused(change: dict[str, Any], message: str, copied: Path) -> None:
    """Even with a digest that fits: nothing outside the folder is read, nothing is taken on trust."""
    path = newest_folder(copied) / "COMMIT.json"
    commit = json.loads(path.read_bytes()) | change
    del commit["digest"]
    durable.write_json(path, commit | {"digest": durable.digest(commit)})
    with pytest.raises(WenhaiError, match=message):
        checkpoint.load_model(path.parent)
