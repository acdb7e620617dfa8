"""FAULTS row 3 for training: a disk that is full for a while costs checkpoints, never the run, and never an older one.

The disk is a real one, in memory and too small for a second checkpoint (ENOSPC, where the tests may mount one).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pretrain import checkpoint
from pretrain.config import RunConfig
from tests.faults.conftest import Disk
from tests.pretrain.checkpoints import saver_of
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.test_checkpoint_killed import make_folders
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps


def trained(config: RunConfig, out: Path, grows: bool) -> tuple[list[float], list[str], list[str], list[str]]:
    """Losses of three steps with a save after each, what became of those, what stood before the last, and in the
    end."""
    make_folders()
    losses, told, stood = [], [], []
    with tiny_run(config) as run:
        saver = saver_of(run, out)
        with saver.finishing():
            for step in range(1, 4):
                losses += train_steps(run, 1)[0]
                if step == 3:
                    saver.wait()
                    run.world.any_of(False)  # rank 0 cleans up
                    stood = [folder.name for folder in checkpoint.committed_checkpoints(out)]
                    run.world.any_of(False)
                    if grows and run.world.rank == 0:
                        Disk(out.parent).remount("size=8m")
                run.world.any_of(False)
                saver.save(run.state)
        told = [str(save.error or "") for save in saver.ended()]
        run.world.any_of(False)
    return losses, told, stood, sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


@pytest.mark.parametrize("way", ["waiting", "background", "store"])
def test_training_goes_on_and_saves_again_when_there_is_room(
    way: str, make_disk: Callable[[str], Disk], tmp_path: Path
) -> None:
    """Where one checkpoint is kept, that one stays until another stands."""
    store = {"url": f"local://{tmp_path}/store"} if way == "store" else {}
    config = tiny_config(checkpoint={"async_save": way != "waiting", "keep_last": 1, **store})
    expected = reused_ranks(
        trained, 2, config.model_copy(update={"checkpoint": tiny_config().checkpoint}), tmp_path / "a", False
    )
    size = sum(file.stat().st_size for file in checkpoint.committed_checkpoints(tmp_path / "a")[0].iterdir())
    disk = make_disk(f"size={size // 4 if way == 'store' else size * 3 // 2}")  # for one, and not for two
    for (losses, told, stood, files), (without, *_) in zip(
        reused_ranks(trained, 2, config, disk.folder / "out", True), expected, strict=True
    ):
        assert losses == without
        assert stood == ([] if way == "store" else ["step-00000001"])
        first, second, third = told
        assert "step-00000002" in second and "cannot be written (No space left on device). Free space there." in second
        assert third == "" and ("No space left" in first if way == "store" else first == "")
        assert not any(file.endswith(".tmp") for file in files)
        assert (files == []) == (way == "store")
    if way == "store":
        assert [path.name for path in (tmp_path / "store").iterdir() if any(path.iterdir())] == ["step-00000003"]
        return
    (folder,) = checkpoint.committed_checkpoints(disk.folder / "out")
    assert folder.name == "step-00000003"
    checkpoint.load_model(folder)
