"""Where the checkpoints of a run lie: in a folder that all ranks see, or on object storage (`store`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from corpus.engine import storage
from corpus.engine.durable import sync_folder, write_json
from pretrain.checkpoint.records import COMMIT, STEP_FOLDER, step_name, step_of
from pretrain.checkpoint.store import Store
from pretrain.config import CheckpointConfig
from pretrain.parallel.base.mesh import World


class Place(Protocol):
    """Where checkpoints lie. What says that all ranks call it has no collective in it."""

    def where(self, name: str) -> str:
        """The folder or URL of a checkpoint."""

    def steps(self) -> dict[str, bool]:
        """The names of what stands there, oldest first, and whether each is committed."""

    def alone(self) -> AbstractContextManager[object]:
        """Within it no other run saves there; rank 0 enters it before anything is removed.

        Raises:
            LockHeld: another one does. A save that finds this later raises it, too, and touches nothing.
        """

    def begin(self, name: str, is_first: bool) -> Path:
        """The local folder where files of a save are written; rank 0, `is_first`, makes sure that nothing stands there
        yet.

        Rank 0 is done before the others call it.
        """

    def deliver(self, path: Path) -> None:
        """Take a finished file of a save; each rank its own."""

    def commit(self, name: str, commit: Mapping[str, Any]) -> None:
        """Make what was delivered a checkpoint; rank 0."""

    def leave(self, name: str) -> None:
        """Remove what a save has left on this node beside the checkpoint; all ranks call it, also after a failure."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint, or what there is of one; rank 0."""

    def sweep(self, is_first: bool) -> list[str]:
        """Remove what saves that died have left; all ranks call it, before the first save. Returns names, on rank 0."""

    def fetch(self, name: str) -> Path:
        """A local folder with the files of a checkpoint or a part of them; when all ranks have called it, with all."""


class Disk:
    """OUT/checkpoints, on a disk that all ranks see."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "checkpoints"

    def where(self, name: str) -> str:
        """The folder of a checkpoint."""
        return str(self.folder / name)

    def steps(self) -> dict[str, bool]:
        """By the folders there are."""
        if not self.folder.is_dir():
            return {}
        names = [path.name for path in self.folder.iterdir() if STEP_FOLDER.fullmatch(path.name)]
        return {name: (self.folder / name / COMMIT).is_file() for name in sorted(names, key=step_of)}

    def alone(self) -> AbstractContextManager[object]:
        """The lock of OUT sees to it."""
        return nullcontext()

    def begin(self, name: str, is_first: bool) -> Path:
        """One folder for all ranks."""
        folder = self.folder / name
        if is_first:
            if folder.exists():  # of a save that failed earlier in this run
                self.remove(name)
            folder.mkdir(parents=True)
        return folder

    def deliver(self, path: Path) -> None:
        """It lies there already."""

    def commit(self, name: str, commit: Mapping[str, Any]) -> None:
        """By its file, then the name of the folder."""
        write_json(self.folder / name / COMMIT, commit)
        sync_folder(self.folder)

    def leave(self, name: str) -> None:
        """There is nothing else."""

    def remove(self, name: str) -> None:
        """The commit first: what dies half-removed is no checkpoint."""
        (self.folder / name / COMMIT).unlink(missing_ok=True)
        shutil.rmtree(self.folder / name)

    def sweep(self, is_first: bool) -> list[str]:
        """Folders without a commit."""
        dead = [name for name, committed in self.steps().items() if not committed] if is_first else []
        for name in dead:
            self.remove(name)
        return dead

    def fetch(self, name: str) -> Path:
        """The folder itself."""
        return self.folder / name


def place_of(out: Path, config: CheckpointConfig) -> Place:
    """Where the checkpoints of a run lie."""
    if config.url is None:
        return Disk(out)
    rank, size = (int(os.environ.get(name, number)) for name, number in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    return Store(config.url, out, rank % size, size)


@contextmanager
def newest_at(place: Place, world: World) -> Iterator[Path | None]:
    """The newest committed checkpoint as a local folder, there for the block's length; all ranks call it.

    Rank 0 says which it is. The block must end on all ranks, or raise.
    """
    name: str | None = None
    with world.together():
        if world.rank == 0:
            name = next((name for name, committed in reversed(place.steps().items()) if committed), None)
            if name is None and isinstance(place, Store):
                place.refuse_others()
    (name,) = world.gather(name)[:1]
    folder: Path | None = None
    with world.together():
        folder = None if name is None else place.fetch(name)
    yield folder
    with world.together():
        pass
    if isinstance(place, Store) and folder is not None:
        place.forget(folder)


def step_folder(out: Path, step: int) -> Path:
    """The folder of one step's checkpoint."""
    return Disk(out).folder / step_name(step)


def committed(out: Path) -> list[Path]:
    """The committed checkpoints of a run, oldest first."""
    return [Disk(out).folder / name for name, is_committed in Disk(out).steps().items() if is_committed]


def newest(out: Path) -> Path | None:
    """The newest committed checkpoint of a run."""
    return next(reversed(committed(out)), None)


def sweep(out: Path) -> list[str]:
    """Remove the folders of saves that died; call it alone, with the run's lock held. Returns their names."""
    return Disk(out).sweep(is_first=True)


def local_folder(folder_or_url: str | Path) -> Path:
    """The folder of a checkpoint, as commands name it; one on object storage is copied to the process's scratch folder.

    Raises:
        WenhaiError: the store does not give it.
    """
    if not storage.is_remote(str(folder_or_url)):
        return storage.local_path(str(folder_or_url))
    url, _, name = str(folder_or_url).rstrip("/").rpartition("/")
    return Store(url, storage.scratch_folder()).fetch(name)
