"""Saves beside training: the same bits, one at a time, and whatever goes wrong is told on all ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import places, saving, shards
from pretrain.checkpoint.shards import write_shard
from pretrain.config import RunConfig
from pretrain.errors import FailedRank
from tests.pretrain.checkpoints import assert_equal, contents, load_only, resume_from, saver_of
from tests.pretrain.data.shards import resident_kib
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Files of weights are written only once the yielded function was called, in the background."""
    may_write = threading.Event()

    def writing(path: Path, parts: Any) -> Any:
        assert threading.current_thread() is threading.main_thread() or may_write.wait(60)
        return write_shard(path, parts)

    with mock.patch.object(saving, "write_shard", writing):
        yield may_write.set


def saved_while_training(config: RunConfig, out: Path) -> dict[str, Any]:
    """Two steps, a save, and two more steps before anything of it is written; then what the save should hold."""
    with tiny_run(config) as run, held() as let_write:
        losses = train_steps(run, 2)[0]
        saver = saver_of(run, out)
        with saver.finishing():
            saver.save(run.state)
            at_save = contents(run)
            losses += train_steps(run, 2)[0]
            run.world.gather(not list(saver.ended()))  # the main threads talk while the others do
            let_write()
            losses += train_steps(run, 2)[0]
        (save,) = saver.ended()
        assert save.written is not None and save.in_background and save.step == 2
        return {"losses": losses, "at_save": at_save, "bytes": save.written.bytes}


@pytest.mark.long
@pytest.mark.parametrize("parallel", [{}, {"pp": 2}, {"zero": 3}, {"offload": True}])
def test_a_save_holds_the_step_at_which_it_began(parallel: dict[str, Any], tmp_path: Path) -> None:
    config = tiny_config(parallel=parallel)
    result = reused_ranks(saved_while_training, 2, config, tmp_path)[0]
    assert checkpoint.read_state(checkpoint.step_folder(tmp_path, 2)).step == 2
    assert_equal(reused_ranks(load_only, 2, config, tmp_path)[0]["loaded"], result["at_save"])
    folder = checkpoint.step_folder(tmp_path, 2)
    assert result["bytes"] == sum(file.bytes for file in checkpoint.read_commit(folder).files.values())
    waiting = tiny_config(parallel=parallel, checkpoint={"async_save": False})
    losses = [reused_ranks(trained, 2, each, tmp_path / name) for each, name in ((config, "a"), (waiting, "b"))]
    assert losses[0] == losses[1]
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


def trained(config: RunConfig, out: Path) -> list[float]:
    """Losses, with a save after each step."""
    losses = []
    with tiny_run(config) as run:
        saver = saver_of(run, out)
        with saver.finishing():
            for _ in range(3):
                losses += train_steps(run, 1)[0]
                saver.save(run.state)
    return losses


def hashes(out: Path) -> dict[tuple[str, str], str]:
    """Of all files but config.json, which says whether saves are waited for."""
    return {
        (folder.name, name): file.sha256
        for folder in checkpoint.committed_checkpoints(out)
        for name, file in checkpoint.read_commit(folder).files.items()
        if name != "config.json"
    }


def overlapping(out: Path) -> list[Any]:
    with tiny_run(tiny_config()) as run, held() as let_write:
        saver = saver_of(run, out)
        train_steps(run, 1)
        saver.save(run.state)
        under_way = not list(saver.ended())
        threading.Timer(0.3, let_write).start()
        saver.save(run.state, must=True)  # of the same step: joined
        train_steps(run, 1)
        saver.save(run.state)
        train_steps(run, 1)
        saver.save(run.state)  # of another: waits
        saver.wait()
        return [under_way, [(save.step, save.in_background) for save in saver.ended()]]


def test_saves_never_overlap_and_none_is_made_twice(tmp_path: Path) -> None:
    told = [True, [(1, True), (2, True), (3, True)]]
    assert reused_ranks(overlapping, 2, tmp_path) == [told, told]
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]


def refused(out: Path, must: bool) -> dict[str, Any]:
    """The disk refuses step 1 on rank 1 only; then there is room again."""
    full = True

    def writing(path: Path, parts: Any) -> Any:
        if full and os.environ["RANK"] == "1":
            raise OSError(28, "No space left on device", str(path))
        return write_shard(path, parts)

    raised = ""
    with tiny_run(tiny_config()) as run, mock.patch.object(saving, "write_shard", writing):
        saver = saver_of(run, out)
        train_steps(run, 1)
        try:
            saver.save(run.state, must)
            train_steps(run, 1)
            saver.wait()
        except WenhaiError as error:
            raised = str(error)
        errors = [str(save.error) for save in saver.ended()]
        run.world.any_of(False)  # rank 0 cleans up
        left = sorted(path.name for path in (out / "checkpoints").iterdir())
        run.world.any_of(False)
        full = False
        saver.save(run.state, must)
        saver.wait()
        return {"raised": raised, "errors": errors, "left": left, "ended": [save.error for save in saver.ended()]}


@pytest.mark.parametrize("must", [False, True])
def test_a_refused_save_is_told_on_all_ranks_and_tried_again(must: bool, tmp_path: Path) -> None:
    """FAULTS row 3: nothing remains of it; where it was the last chance, it is an error."""
    first, second = reused_ranks(refused, 2, tmp_path, must)
    words = f"{tmp_path}/checkpoints/step-00000001: cannot be written (No space left on device). Free space there."
    for result, said in ((first, f"rank 1: {words}"), (second, words)):
        last_chance = f"{said} What was saved before stands: the same command goes on from there."
        assert (result["raised"], result["errors"]) == ((last_chance, []) if must else ("", [said]))
        assert result["left"] == [] and result["ended"] == [None]
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == [f"step-0000000{1 if must else 2}"]


def broken(out: Path) -> list[str]:
    told = []
    with tiny_run(tiny_config()) as run, mock.patch.object(saving, "write_json", side_effect=KeyError("a bug")):
        saver = saver_of(run, out)
        saver.save(run.state)
        for look in (saver.wait, lambda: list(saver.ended()), lambda: saver.save(run.state)):
            try:
                look()
            except KeyError as error:
                told.append(str(error))
    return told


def test_a_bug_in_the_background_is_not_a_full_disk(tmp_path: Path) -> None:
    assert reused_ranks(broken, 1, tmp_path) == [["'a bug'"] * 3]


def broken_on_one(out: Path) -> None:
    """Rank 1's thread meets a bug while the main threads wait for each other."""

    def writing(path: Path, parts: Any) -> Any:
        if os.environ["RANK"] == "1":
            raise KeyError("a bug")
        return write_shard(path, parts)

    with tiny_run(tiny_config()) as run, mock.patch.object(saving, "write_shard", writing):
        saver = saver_of(run, out)
        try:
            with saver.finishing():
                saver.save(run.state)
                for _ in range(1000):
                    train_steps(run, 1)
                    list(saver.ended())
        except KeyError:
            os._exit(7)  # as a process does that ends with an error


@pytest.mark.long
def test_a_bug_in_the_background_of_one_rank_ends_the_run(tmp_path: Path) -> None:
    """The other is told by the save, in whichever of its threads waits."""
    with pytest.raises(RanksFailed, match=r"FailedRank: rank 1: KeyError: 'a bug' \(on ") as failed:
        run_ranks(broken_on_one, 2, tmp_path)
    assert failed.value.codes[1] == 7 and "Timed out" not in str(failed.value)
    assert checkpoint.committed_checkpoints(tmp_path) == []


def without_slices(config: RunConfig, out: Path) -> tuple[bool, Any, Any]:
    """Rank 0 writes all that both hold."""
    all_to_first = partial(DefaultSavePlanner, dedup_save_to_lowest_rank=True)
    with tiny_run(config) as run, mock.patch.object(shards, "DefaultSavePlanner", all_to_first):
        if (folder := checkpoint.newest(out)) is not None:
            resume_from(folder, run)
        loaded = contents(run)
        saver = saver_of(run, out)
        train_steps(run, 1)
        saver.save(run.state)
        saver.wait()
        (save,) = saver.ended()
        return bool(saver._plan.offsets), loaded, contents(run) if save.written else save.error


def test_a_rank_that_holds_no_slice_writes_no_file(tmp_path: Path) -> None:
    config = tiny_config(parallel={"dp_replicate": 2})
    first, second = reused_ranks(without_slices, 2, config, tmp_path)
    assert (first[0], second[0]) == (True, False)
    names = {path.name for path in checkpoint.step_folder(tmp_path, 1).iterdir()}
    assert names == {shards.SHARD_FILE.format(1), "COMMIT.json", "config.json", "state.json", "tokenizer.model"}
    for again in reused_ranks(without_slices, 2, config, tmp_path):
        assert_equal(again[1], first[2])


def growth(out: Path) -> list[int]:
    """Resident memory in KiB after each of 10 saves in the background."""
    sizes = []
    with tiny_run(tiny_config(model={"hidden_size": 256}, checkpoint={"keep_last": 1})) as run:
        saver = saver_of(run, out)
        for _ in range(10):
            train_steps(run, 1)
            saver.save(run.state)
            saver.wait()
            list(saver.ended())
            sizes.append(resident_kib())
    return sizes


@pytest.mark.long
def test_memory_is_flat_over_saves(tmp_path: Path) -> None:
    """A checkpoint has 20 MB: were one left behind in memory each time, it would be seen at once."""
    (sizes,) = run_ranks(growth, 1, tmp_path)
    num_bytes = sum(path.stat().st_size for path in checkpoint.step_folder(tmp_path, 10).iterdir())
    assert num_bytes > 15e6
    assert (sizes[-1] - sizes[4]) * 1024 < num_bytes / 2, sizes


def finishing(out: Path) -> list[bool]:
    """Whether a save was over when the block was left: while none can write: at its end, by an error of ours, by
    bugs."""
    over = []
    for error in (None, WenhaiError("all ranks have it"), RuntimeError("a bug"), FailedRank("another's bug")):
        with tiny_run(tiny_config()) as run, held() as let_write:
            saver = saver_of(run, out / str(len(over)))
            lost = mock.patch("pretrain.checkpoint.saver.LOST_SECONDS", 0.01)
            with suppress(WenhaiError, RuntimeError), lost, saver.finishing():
                saver.save(run.state)
                if not isinstance(error, RuntimeError | FailedRank):
                    threading.Timer(0.3, let_write).start()
                if error is not None:
                    raise error
            over.append(bool(list(saver.ended())))
            let_write()
            saver.wait()
    return over


def test_a_run_that_ends_waits_for_its_save_but_not_for_a_lost_rank(tmp_path: Path) -> None:
    assert reused_ranks(finishing, 1, tmp_path) == [[True, True, False, False]]


def save_steps(config: RunConfig, out: Path, num_saves: int, refuse: str) -> list[list[str]]:
    """The warnings of each save; what is named `refuse` cannot be removed."""
    remove = places.Place.remove

    def removing(place: places.Place, name: str) -> None:
        if name == refuse:
            raise PermissionError(13, "Permission denied", str(place.folder / name))
        remove(place, name)

    warnings: list[list[str]] = []
    with tiny_run(config) as run, mock.patch.object(places.Place, "remove", removing):
        saver = saver_of(run, out)
        for _ in range(num_saves):
            train_steps(run, 1)
            saver.save(run.state)
            saver.wait()
            warnings += [list(save.written.warnings) for save in saver.ended() if save.written is not None]
    return warnings


def test_an_old_checkpoint_that_cannot_be_removed_is_told_and_the_new_one_stands(tmp_path: Path) -> None:
    config = tiny_config(checkpoint={"keep_last": 1, "keep_every_steps": 2})
    first, second = reused_ranks(save_steps, 2, config, tmp_path, 4, "step-00000001")
    assert second == [[]] * 4
    assert first[0] == [] and len(first) == 4
    for (warning,) in first[1:]:
        assert "step-00000001 is no longer needed and cannot be removed ([Errno 13] Permission denied" in warning
    names = [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)]
    assert names == ["step-00000001", "step-00000002", "step-00000004"]


def test_what_earlier_removals_left_goes_with_the_next_save(tmp_path: Path) -> None:
    (checkpoint.step_folder(tmp_path, 7) / "deeper").mkdir(parents=True)
    reused_ranks(save_steps, 1, tiny_config(), tmp_path, 1, "")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
