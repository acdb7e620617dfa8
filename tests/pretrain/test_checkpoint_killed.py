"""Saves that die: the checkpoint before is there, whole, and the next save is as if nothing had been. FAULTS row 2.

What a kill leaves behind is what disk and store show at that moment. So one save is watched, and all copied before each
of its named steps (`kill_points`) on either rank; a real SIGKILL proves once that the other ranks end, too. The slow
test kills at every step, and says how many there were.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from pretrain import checkpoint
from pretrain.checkpoint import loading
from pretrain.checkpoint.places import Place, Store, newest_at, place_of
from pretrain.config import RunConfig
from tests.pretrain.checkpoints import resume_from, save_and_wait, saver_of
from tests.pretrain.kill_points import IN_STORE, ON_DISK, before_each
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

WAYS = ("waiting", "background", "store")
LAYOUTS: dict[str, dict[str, Any]] = {"data": {}, "pipeline": {"pp": 2}, "pipeline x tensor": {"pp": 2, "tp": 2}}


def config_of(way: str, layout: str, tmp_path: Path) -> RunConfig:
    """Saves that training waits for, that it does not wait for, and those to a store (here a folder, but by its
    rules)."""
    url = {"url": f"local://{tmp_path}/run/store"} if way == "store" else {}
    return tiny_config(parallel=LAYOUTS[layout], checkpoint={"async_save": way != "waiting", **url})


def own_place(config: RunConfig, run: Path, rank: int) -> tuple[Path, Place]:
    """The OUT of a rank; with a store each has another one, as on nodes without a shared disk."""
    out = run / f"node-{rank}" if config.checkpoint.url else run / "out"
    return out, place_of(out, config.checkpoint)


def make_folders() -> None:
    """Let fsspec's local files be a store, which knows no folders; and each rank be on a node of its own."""
    import fsspec

    fsspec.config.conf["local"] = {"auto_mkdir": True}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def train_and_save(config: RunConfig, run_folder: Path, num_saves: int) -> int:
    """Go on from the newest checkpoint, with a save after each step; returns the step."""
    make_folders()
    with tiny_run(config) as run:
        out, place = own_place(config, run_folder, run.world.rank)
        place.sweep(run.world.rank == 0)
        run.world.any_of(False)
        with newest_at(place, run.world) as folder:
            if folder is not None:
                resume_from(folder, run)
        saver = saver_of(run, out)
        for _ in range(num_saves):
            train_steps(run, 1)
            save_and_wait(saver, run)
        return run.state.step


def watched_save(config: RunConfig, run_folder: Path, seen: Path) -> list[str]:
    """Save step 3, and copy the run's folder before each step of that; returns the names of the steps."""
    make_folders()
    with tiny_run(config) as run:
        out, place = own_place(config, run_folder, run.world.rank)
        with newest_at(place, run.world) as folder:
            assert folder is not None
            resume_from(folder, run)
        saver = saver_of(run, out)
        train_steps(run, 1)
        points: list[str] = []
        looking = False

        def look(point: str, number: int) -> None:
            nonlocal looking
            if looking:  # it makes folders, too
                return
            looking = True
            points.append(point)
            if point not in ("copy", "agree", "gather"):
                _copy(run_folder, seen / f"rank {run.world.rank}, step {len(points):02d}: {point}")
            looking = False

        with before_each(look):
            save_and_wait(saver, run)
        return points


def _copy(folder: Path, to: Path) -> None:
    """Also while another rank renames and removes files there: as if all stood still when the first commit was
    copied."""
    for path in sorted(folder.rglob("*")):  # commits before the files they list
        with suppress(FileNotFoundError, NotADirectoryError):
            if path.is_file():
                (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to / path.relative_to(folder))
    for copied in to.rglob(checkpoint.COMMIT):
        if not (folder / copied.relative_to(to)).exists():  # removed meanwhile, and files that it lists perhaps
            copied.unlink()


def _files(folder: Path) -> dict[Path, int]:
    """Names and sizes of all files below a folder."""
    return {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def whole_checkpoints(config: RunConfig, run_folder: Path) -> Iterator[str]:
    """The names of the committed checkpoints, each of them checked, when what died is swept; nothing else remains."""
    make_folders()
    url = config.checkpoint.url and f"local://{run_folder}/store"
    for out in sorted(run_folder.glob("node-*")) if url else [run_folder / "out"]:
        place = place_of(out, config.checkpoint.model_copy(update={"url": url}))
        place.sweep(is_first=True)
        assert {path.name for path in (out / "checkpoints").glob("*")} == (set() if url else set(place.steps()))
    if url:
        Store(url, run_folder).sweep(is_first=True)
    folders = run_folder / ("store" if url else "out/checkpoints")
    for folder in sorted(folders.iterdir()):
        loading._check_files(folder, checkpoint.read_commit(folder), 0, 1)
        yield folder.name


@pytest.mark.parametrize(
    ("way", "layout"),
    [("waiting", "data"), ("background", "data"), ("background", "pipeline"), ("store", "data")],
)
def test_whenever_a_save_dies_a_whole_checkpoint_remains(way: str, layout: str, tmp_path: Path) -> None:
    config = config_of(way, layout, tmp_path)
    reused_ranks(train_and_save, 2, config, tmp_path / "run", 2)
    points = reused_ranks(watched_save, 2, config, tmp_path / "run", tmp_path / "seen")
    expected = (IN_STORE if way == "store" else ON_DISK) | ({"copy"} if way != "waiting" else set())
    assert set(points[0]) == expected
    assert {"agree", "write", "fsync", "rename", "gather"} <= set(points[1])
    newest = Counter[str]()
    states = {frozenset(_files(seen).items()): seen for seen in sorted((tmp_path / "seen").iterdir())}
    for seen in states.values():  # many steps change nothing
        names = list(whole_checkpoints(config, seen))
        newest[names[-1]] += 1
        assert names[-1] == "step-00000002" or len(names) <= 3
    assert newest["step-00000002"] >= 6 and newest["step-00000003"] >= 1 and len(newest) == 2


def killed_save(config: RunConfig, run_folder: Path, rank: int, at_step: int) -> None:
    """Save step 3; one rank dies before a step of it, in whatever thread that is."""
    make_folders()

    def die(point: str, number: int) -> None:
        if number == at_step:
            (run_folder / "died at").write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)

    with tiny_run(config) as run:
        out, place = own_place(config, run_folder, run.world.rank)
        with newest_at(place, run.world) as folder:
            assert folder is not None
            resume_from(folder, run)
        saver = saver_of(run, out)
        train_steps(run, 1)
        with before_each(die) if run.world.rank == rank else ExitStack():
            save_and_wait(saver, run)


def is_killed(num_ranks: int, config: RunConfig, run_folder: Path, rank: int, at_step: int) -> bool:
    """Kill a save; the ranks end and whole checkpoints are left. False if the save came through before."""
    try:
        run_ranks(killed_save, num_ranks, config, run_folder, rank, at_step)
        return False
    except RanksFailed as failure:
        assert -signal.SIGKILL in failure.codes, failure
    return True


@pytest.mark.long
@pytest.mark.parametrize("way", ["background", "store"])
def test_a_save_that_is_killed_is_made_again(way: str, tmp_path: Path) -> None:
    config = config_of(way, "data", tmp_path)
    reused_ranks(train_and_save, 2, config, tmp_path / "run", 2)
    assert is_killed(2, config, tmp_path / "run", rank=1, at_step=6)
    (tmp_path / "run/died at").unlink()
    assert list(whole_checkpoints(config, tmp_path / "run")) == ["step-00000001", "step-00000002"]
    assert reused_ranks(train_and_save, 2, config, tmp_path / "run", 1)[0] == 3
    assert list(whole_checkpoints(config, tmp_path / "run")) == ["step-00000002", "step-00000003"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("num_ranks", "layout", "rank", "stride"),
    [
        (2, "data", 0, 1),
        (2, "data", 1, 1),
        (2, "pipeline", 0, 7),
        (4, "pipeline x tensor", 0, 5),
        (4, "pipeline x tensor", 3, 5),
    ],
)
def test_a_save_killed_at_every_step(
    num_ranks: int, layout: str, rank: int, stride: int, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stride at every so many; after each kill the run is resumed and saves that step."""
    config = config_of(way, layout, tmp_path)
    reused_ranks(train_and_save, num_ranks, config, tmp_path / "run", 2)
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    died = Counter[str]()
    at_step = 1
    while True:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "before", tmp_path / "run")
        if not is_killed(num_ranks, config, tmp_path / "run", rank, at_step):
            break
        died[(tmp_path / "run/died at").read_text()] += 1
        (tmp_path / "run/died at").unlink()
        names = list(whole_checkpoints(config, tmp_path / "run"))
        assert names[-1] in ("step-00000002", "step-00000003")
        again = reused_ranks(train_and_save, num_ranks, config, tmp_path / "run", 1)[0]
        assert again == int(names[-1].removeprefix("step-")) + 1
        at_step += stride
    with capsys.disabled():
        points = ", ".join(f"{point} {count}" for point, count in sorted(died.items()))
        print(
            f"\n{way}, {num_ranks} ranks ({layout}), rank {rank} killed: {died.total()} kills, all resumed ({points})"
        )
    assert died.total() >= 4
