"""Where the checkpoints of a run lie: in a folder that all ranks see, or on object storage.

On object storage each rank writes its file to its own disk, uploads it and removes it; rank 0 puts COMMIT.json last,
after a look at what stands there. To load, the ranks of a node fetch all files of a checkpoint to the node's disk
together. So the ranks of a run need no folder in common: OUT may be another disk on each node, or one that all see.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from corpus.engine import storage, store_lock
from corpus.engine.durable import json_bytes, sync_folder, write_json
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.store_lock import BEAT_SECONDS, LOCK_NAME, StoreLock
from pretrain import run_folder
from pretrain.checkpoint.records import advice, describe, parse_commit
from pretrain.config import CheckpointConfig
from pretrain.console import log_message
from pretrain.parallel.base.mesh import World
from pretrain.run_folder import COMMIT, STEP_FOLDER, checkpoints_folder, step_of

FETCHED = "fetched"  # below checkpoints: what was copied there from a store, for one load
SILENT_SECONDS = 2.5 * BEAT_SECONDS  # after which a process that gives a sign of life each `BEAT_SECONDS` is dead
LOOK_SECONDS = 5.0


class Place:
    """Where checkpoints lie: OUT/checkpoints, on a disk that all ranks see. `Store` is a URL instead.

    What says that all ranks call it has no collective in it.
    """

    def __init__(self, out: Path) -> None:
        self.folder = checkpoints_folder(out)

    def where(self, name: str) -> str:
        """The folder or URL of a checkpoint."""
        return str(self.folder / name)

    def steps(self) -> dict[str, bool]:
        """The names of what stands there, oldest first, and whether each is committed."""
        return run_folder.steps(self.folder)

    def alone(self) -> AbstractContextManager[object]:
        """Within it no other run saves there; rank 0 enters it before anything is removed. Here OUT's lock sees to it.

        Raises:
            LockHeld: another one does. A save that finds this later raises it, too, and touches nothing.
        """
        return nullcontext()

    def begin(self, name: str, is_first: bool) -> Path:
        """The local folder where files of a save are written; rank 0, `is_first`, makes sure that nothing stands there
        yet.

        Rank 0 is done before the others call it.
        """
        folder = self.folder / name
        if is_first:
            if folder.exists():  # of a save that failed earlier in this run
                self.remove(name)
            folder.mkdir(parents=True)
        return folder

    def deliver(self, path: Path) -> None:
        """Take a finished file of a save; each rank its own. Here it lies there already."""

    def commit(self, name: str, commit: Mapping[str, Any]) -> None:
        """Make what was delivered a checkpoint; rank 0. By its file, then the name of the folder."""
        write_json(self.folder / name / COMMIT, commit)
        sync_folder(self.folder)

    def leave(self, name: str) -> None:
        """Remove what a save has left on this node beside the checkpoint; all ranks call it, also after a failure."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint, or what there is of one; rank 0. The commit first: half-removed it is no checkpoint."""
        (self.folder / name / COMMIT).unlink(missing_ok=True)
        shutil.rmtree(self.folder / name)

    def sweep(self, is_first: bool) -> list[str]:
        """Remove what saves that died have left; all ranks call it, before the first save. Returns names, on rank 0."""
        dead = [name for name, is_committed in self.steps().items() if not is_committed] if is_first else []
        for name in dead:
            self.remove(name)
        return dead

    def fetch(self, name: str) -> Path:
        """A local folder with the files of a checkpoint or a part of them; when all ranks have called it, with all."""
        return self.folder / name

    def forget(self, folder: Path) -> None:
        """Remove what `fetch` has copied, once all ranks of the node have loaded it."""

    def refuse_others(self) -> None:
        """Raise `UsageError` where nothing stands, and what an earlier run saved lies elsewhere; rank 0."""


class Store(Place):
    """A URL of object storage, with OUT/checkpoints for files on their way.

    Args:
        local_rank: of this process on its node.
        local_size: processes there, which share what is to be fetched.
    """

    def __init__(self, url: str, out: Path, local_rank: int = 0, local_size: int = 1) -> None:
        super().__init__(out)
        self.url = url
        self.local_rank, self.local_size = local_rank, local_size
        self._lock: StoreLock | None = None

    def where(self, name: str) -> str:
        """The URL of a checkpoint."""
        return storage.join(self.url, name)

    def steps(self) -> dict[str, bool]:
        """By one listing."""
        with _told(self.url, "read"):
            found = storage.sizes(self.url)
        folders = {file.split("/")[0] for file in found if "/" in file}
        names = sorted(filter(STEP_FOLDER.fullmatch, folders), key=step_of)
        return {name: f"{name}/{COMMIT}" in found for name in names}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """By the engine's lock in the store: two runs would sweep each other's uploads.

        A run that ends gives its lock back. One that is killed on another machine cannot: nobody sees that its process
        is dead, only that it gives no sign of life any more. A job that is queued again after that must not fail, so it
        waits for the next sign.
        """
        with ExitStack() as stack:
            with _told(self.url, "locked"):
                _wait_out_the_dead(self.url)
                self._lock = stack.enter_context(StoreLock(self.url))
            yield

    def begin(self, name: str, is_first: bool) -> Path:
        """A folder of the node."""
        if is_first:
            self._confirm(name)
            self.remove(name)
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def deliver(self, path: Path) -> None:
        """Upload it, and remove it here."""
        target = storage.join(self.where(path.parent.name), path.name)
        with _told(target, "written"):
            storage.upload(path, target)
        path.unlink()

    def commit(self, name: str, commit: Mapping[str, Any]) -> None:
        """After a look at what stands there: another run below the same URL would be seen."""
        self._confirm(name)
        expected = {file: record["bytes"] for file, record in commit["files"].items()}
        with _told(self.where(name), "written"):
            if (found := storage.sizes(self.where(name))) != expected:
                changed = min(file for file in found.keys() | expected if found.get(file) != expected.get(file))
                raise WenhaiError(
                    f"{self.where(name)}/{changed}: is not as it was uploaded. Does another run save there?"
                )
            storage.put(storage.join(self.where(name), COMMIT), json_bytes(commit))

    def leave(self, name: str) -> None:
        """Files that were not uploaded, and the node's folder once it is empty."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def remove(self, name: str) -> None:
        """The commit first: what dies half-removed is no checkpoint."""
        with _told(self.where(name), "removed"):
            storage.remove(storage.join(self.where(name), COMMIT))
            storage.remove_tree(self.where(name))

    def sweep(self, is_first: bool) -> list[str]:
        """Steps that were not uploaded whole; on each node what saves and loads left on its disk."""
        if self.local_rank == 0:
            for name in (FETCHED, *(name for name, done in run_folder.steps(self.folder).items() if not done)):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        return super().sweep(is_first)

    def fetch(self, name: str) -> Path:
        """This rank's share of the files, each compared with the commit; COMMIT.json comes last."""
        url, folder = self.where(name), self.folder / FETCHED / name
        with _told(url, "read"):
            values = storage.read_json(storage.join(url, COMMIT))
            commit = parse_commit(values, url)
            for file, expected in sorted(commit.files.items())[self.local_rank :: self.local_size]:
                storage.download(storage.join(url, file), folder / file)
                if describe(folder / file) != expected.model_dump():
                    raise WenhaiError(
                        f"{url}/{file}: was altered: its size or sha256 is not as recorded. {advice(url)}"
                    )
            write_json(folder / COMMIT, values)
        return folder

    def _confirm(self, name: str) -> None:
        """Ask the store whether this run still holds the lock."""
        if self._lock is not None:
            with _told(self.where(name), "written"):
                self._lock.confirm()

    def refuse_others(self) -> None:
        """A run that saved on its own disk before would begin anew here, and nobody would see it."""
        if any(run_folder.steps(self.folder).values()):
            raise UsageError(
                f"{self.url}: holds no checkpoint, and {self.folder} does. Copy them there, or leave "
                "checkpoint.url out."
            )

    def forget(self, folder: Path) -> None:
        """Remove what was fetched, once all ranks of the node have loaded it."""
        shutil.rmtree(folder.parent, ignore_errors=True)


def place_of(out: Path, config: CheckpointConfig) -> Place:
    """Where the checkpoints of a run lie."""
    if config.url is None:
        return Place(out)
    rank, size = (int(os.environ.get(name, number)) for name, number in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    return Store(config.url, out, rank % size, size)


@contextmanager
def newest_at(place: Place, world: World) -> Iterator[Path | None]:
    """The newest committed checkpoint as a local folder, there for the block's length; all ranks call it.

    Rank 0 says which it is. The block must end on all ranks, or raise.
    """
    name: str | None = None
    with world.propagate_errors():
        if world.rank == 0:
            name = next((name for name, committed in reversed(place.steps().items()) if committed), None)
            if name is None:
                place.refuse_others()
    (name,) = world.gather(name)[:1]
    folder: Path | None = None
    with world.propagate_errors():
        folder = None if name is None else place.fetch(name)
    yield folder
    with world.propagate_errors():
        pass
    if folder is not None:
        place.forget(folder)


def local_folder(folder_or_url: str | Path) -> Path:
    """The folder of a checkpoint, as commands name it; one on object storage is copied to the process's scratch folder.

    Raises:
        WenhaiError: the store does not give it.
    """
    if not storage.is_remote(str(folder_or_url)):
        return storage.local_path(str(folder_or_url))
    url, _, name = str(folder_or_url).rstrip("/").rpartition("/")
    return Store(url, storage.scratch_folder()).fetch(name)


def _wait_out_the_dead(url: str) -> None:
    """Remove a lock whose holder gives no sign of life, as this process's own clock says."""
    found = store_lock.read(url)
    if found is None or found.is_free:
        return
    log_message(f"{url}: in use by {found.words}; waiting up to {SILENT_SECONDS:.0f} s for a sign of life")
    end = time.monotonic() + SILENT_SECONDS
    while time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        if store_lock.read(url) != found:  # it lives, or gave the lock back: taking it will tell
            return
    storage.remove(storage.join(url, LOCK_NAME))


@contextmanager
def _told(url: str, done: str) -> Iterator[None]:
    """Tell what a store's client raises, which is of no one kind, as an error of ours."""
    try:
        yield
    except WenhaiError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise WenhaiError(f"{url}: cannot be {done} ({reason}).") from error
