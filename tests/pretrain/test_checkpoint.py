"""Checkpoints: resumed bit for bit, resharded, complete or absent, refused when altered, free of pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.config import RunConfig
from pretrain.train import Run
from tests.pretrain.ranks import RanksFailed, run_ranks
from tests.pretrain.tiny import (
    IDENTITY,
    tiny_config,
    tiny_loader,
    tiny_run,
    train_steps,
    whole_state,
    whole_weights,
)

Result = dict[str, Any]
CONFIG = tiny_config()


def save(run: Run, out: Path) -> Path:
    return checkpoint.save(out, run.state, run.parameters, run.optimizer, run.config, IDENTITY, run.world)


def resume(run: Run, out: Path) -> None:
    folder = checkpoint.newest(out)
    assert folder is not None
    run.state = checkpoint.load(folder, run.parameters, run.optimizer, run.config, IDENTITY, run.world)


def train_and_save(config: RunConfig, out: Path, *step_counts: int) -> Result:
    """Resume if there is something to resume; then train each number of steps, saving after each."""
    with tiny_run(config) as run:
        if checkpoint.newest(out) is not None:
            with torch.no_grad():
                for parameter in run.parameters.values():
                    parameter.fill_(7.0)  # whatever is not loaded is seen
            resume(run, out)
        losses: list[float] = []
        for num_steps in step_counts:
            losses += train_steps(run, num_steps)[0]
            save(run, out)
        return {"losses": losses, "weights": whole_weights(run), "state": whole_state(run), "step": run.state.step}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with checkpoints at steps 2 and 4."""
    out = tmp_path_factory.mktemp("saved")
    run_ranks(train_and_save, 2, CONFIG, out, 2, 2)
    return out


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def test_resuming_on_as_many_ranks_is_exact_to_the_bit(copied: Path, tmp_path: Path) -> None:
    whole = run_ranks(train_and_save, 2, CONFIG, tmp_path / "whole", 2, 4)[0]
    resumed = run_ranks(train_and_save, 2, CONFIG, copied, 2)[0]
    assert resumed["step"] == 6
    assert resumed["losses"] == whole["losses"][4:]
    for kind in ("weights", "state"):
        for name, values in whole[kind].items():
            np.testing.assert_array_equal(resumed[kind][name], values, err_msg=name)


def test_a_run_moves_between_numbers_of_ranks(tmp_path: Path) -> None:
    alone = run_ranks(train_and_save, 1, CONFIG, tmp_path / "alone", 6)[0]
    losses: list[float] = []
    replicated = tiny_config(parallel={"dp_replicate": 2, "zero": 3})
    for num_ranks, config in [(1, CONFIG), (2, CONFIG), (4, replicated), (1, CONFIG)]:
        steps = 2 if len(losses) < 4 else 1
        result = run_ranks(train_and_save, num_ranks, config, tmp_path / "chain", steps)[0]
        losses += result["losses"]
    assert result["step"] == 6
    np.testing.assert_allclose(losses, alone["losses"], rtol=1e-6)
    for name, weights in alone["weights"].items():
        np.testing.assert_allclose(result["weights"][name], weights, atol=1e-3, err_msg=name)


def test_a_run_resumed_while_its_batch_grows_is_exact_to_the_bit(tmp_path: Path) -> None:
    """Also with prefixes, and positions that are reset; one rank with other micro-batches takes the same samples."""
    config = tiny_config(
        training={"rampup": {"start": 2, "increment": 2, "num_samples": 12}, "micro_batch_size": 1},
        model={"document_mask": True},
        data={"prefix_lm": True, "reset_positions": True},
    )
    whole = run_ranks(train_and_save, 2, config, tmp_path / "whole", 3, 3)[0]
    middle = checkpoint.step_folder(tmp_path / "whole", 3)
    shutil.copytree(middle, checkpoint.step_folder(tmp_path / "resumed", 3))
    resumed = run_ranks(train_and_save, 2, config, tmp_path / "resumed", 3)[0]
    assert resumed["losses"] == whole["losses"][3:]
    for kind in ("weights", "state"):
        for name, values in whole[kind].items():
            np.testing.assert_array_equal(resumed[kind][name], values, err_msg=name)
    one_rank = config.model_copy(update={"training": config.training.model_copy(update={"micro_batch_size": 8})})
    alone = run_ranks(train_and_save, 1, one_rank, tmp_path / "alone", 6)[0]
    np.testing.assert_allclose(alone["losses"], whole["losses"], rtol=1e-5)
    for name in ("whole", "resumed", "alone"):
        state = checkpoint.read_state(newest_folder(tmp_path / name))
        assert (state.num_samples, len(state.orders)) == (2 + 2 + 4 + 6 + 8 + 8, 1)


def load_only(config: RunConfig, out: Path) -> Result:
    return train_and_save(config, out)


def test_loading_moves_every_tensor_bit_for_bit(saved: Path) -> None:
    config = tiny_config(training={"global_batch_size": 12})
    on_two, on_three = (run_ranks(load_only, num_ranks, config, saved)[0] for num_ranks in (2, 3))
    assert any(values.any() for name, values in on_two["state"].items() if name.endswith("exp_avg_sq"))
    for kind in ("weights", "state"):
        assert on_two[kind].keys() == on_three[kind].keys()
        for name, values in on_two[kind].items():
            np.testing.assert_array_equal(on_three[kind][name], values, err_msg=name)


def killed_save(out: Path, killed_rank: int, at_sync: int) -> bool:
    """Save step 6; the rank dies at its `at_sync`-th fsync. Returns whether the save came through."""
    with tiny_run(CONFIG) as run:
        resume(run, out)
        train_steps(run, 2)
        if run.world.rank == killed_rank:
            _die_at_sync(at_sync)
        save(run, out)
        return True


def _die_at_sync(number: int) -> None:
    fsync, calls = os.fsync, iter(range(1, 10_000))

    def dying(fd: int) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(fd)

    os.fsync = dying  # type: ignore[assignment]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_save_killed_at_any_point_leaves_the_one_before(rank: int, copied: Path) -> None:
    """FAULTS row 2: every fsync of a save in turn is where the rank dies."""
    num_killed = 0
    for at_sync in range(1, 100):
        try:
            run_ranks(killed_save, 2, copied, rank, at_sync)
            break
        except RanksFailed as failure:
            assert -signal.SIGKILL in failure.codes, failure
        num_killed += 1
        newest = checkpoint.newest(copied)
        assert newest is not None
        if newest.name == "step-00000006":  # died after the commit: it counts
            checkpoint.read_commit(newest)
            break
        assert newest.name == "step-00000004"
        checkpoint.sweep(copied)
        assert [path.name for path in (copied / "checkpoints").iterdir() if path.name > newest.name] == []
    assert num_killed >= (5 if rank == 0 else 1)
    assert run_ranks(load_only, 1, CONFIG, copied)[0]["step"] == 6


def newest_folder(out: Path) -> Path:
    folder = checkpoint.newest(out)
    assert folder is not None
    return folder


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


def test_a_missing_shard_is_refused_on_every_rank(copied: Path) -> None:
    path = newest_folder(copied) / "shard-00002-model-00001-of-00001.safetensors"
    path.unlink()
    with pytest.raises(RanksFailed, match=r"rank 0: (?s:.)*shard-00002(?s:.)*is missing(?s:.)*rank 1: ") as caught:
        run_ranks(load_only, 2, CONFIG, copied)
    assert caught.value.codes == [0, 0]


def test_a_file_that_does_not_belong_is_refused(copied: Path) -> None:
    folder = newest_folder(copied)
    shutil.copy(folder / "shard-00002-model-00001-of-00001.safetensors", folder / "shard-00003.safetensors")
    with pytest.raises(WenhaiError, match=r"shard-00003\.safetensors: does not belong"):
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
    with pytest.raises(RanksFailed, match=r"another model \(num_heads 4 there and 2 here\)"):
        run_ranks(load_only, 1, tiny_config(model={"num_heads": 2}), saved)
    with pytest.raises(RanksFailed, match="other token shards"):
        run_ranks(_load_with_other_data, 1, saved)


def _load_with_other_data(out: Path) -> None:
    with tiny_run(CONFIG) as run:
        other = dataclasses.replace(IDENTITY, data="other")
        checkpoint.load(newest_folder(out), run.parameters, run.optimizer, run.config, other, run.world)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    run_ranks(train_and_save, 1, tiny_config(checkpoint={"keep_last": 2}), tmp_path, 1, 1, 1, 1)
    assert [folder.name for folder in checkpoint.committed(tmp_path)] == ["step-00000003", "step-00000004"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def save_twice(out: Path) -> None:
    with tiny_run(CONFIG) as run:
        save(run, out)
        save(run, out)


def test_a_committed_step_is_never_written_into(tmp_path: Path) -> None:
    with pytest.raises(RanksFailed, match="is committed already"):
        run_ranks(save_twice, 1, tmp_path)
    checkpoint.load_model(newest_folder(tmp_path))


def full_disk(out: Path) -> tuple[str, list[str], bool]:
    """A save on rank 1 beyond the largest file it may write."""
    import resource

    with tiny_run(CONFIG) as run:
        resume(run, out)
        train_steps(run, 1)
        if run.world.rank == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        message = ""
        try:
            save(run, out)
        except WenhaiError as error:
            message = str(error)
        run.world.any_of(False)  # the ranks still talk
        folders = sorted(path.name for path in (out / "checkpoints").iterdir())
        return message, folders, bool(np.isfinite(train_steps(run, 1)[0][0]))


def test_a_full_disk_leaves_the_old_checkpoints_and_the_run(copied: Path) -> None:
    """FAULTS row 3."""
    for message, folders, trains_on in run_ranks(full_disk, 2, copied):
        assert "step-00000005: cannot be written (rank 1: " in message
        assert "File too large" in message
        assert folders == ["step-00000002", "step-00000004"]
        assert trains_on


def test_load_model_predicts_what_the_run_predicted(saved: Path) -> None:
    model, config = checkpoint.load_model(newest_folder(saved))
    assert config == CONFIG
    expected = run_ranks(load_only, 2, CONFIG, saved)[0]["weights"]
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), expected[name])
    tokens = torch.from_numpy(tiny_loader().batch(0, 2).tokens.copy())
    with torch.no_grad():
        assert torch.isfinite(model(tokens)[..., :250]).all()


def test_a_folder_without_commit_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoint.step_folder(tmp_path, 3).mkdir(parents=True)
    assert checkpoint.newest(tmp_path) is None
    with pytest.raises(WenhaiError, match=r"is not a checkpoint \(it has no COMMIT\.json\)"):
        checkpoint.load_model(checkpoint.step_folder(tmp_path, 3))
    assert checkpoint.sweep(tmp_path) == ["step-00000003"]


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
    assert run_ranks(random_state_unchanged, 1) == [True]


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


def test_a_commit_that_was_edited_is_refused(copied: Path) -> None:
    path = newest_folder(copied) / "COMMIT.json"
    durable.write_json(path, json.loads(path.read_bytes()) | {"step": 5})
    with pytest.raises(WenhaiError, match=r"COMMIT\.json: was altered"):
        checkpoint.load_model(path.parent)
