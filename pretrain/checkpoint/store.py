"""Checkpoints on object storage.

Each rank writes its file to its own disk, uploads it and removes it; rank 0 puts COMMIT.json last, after a look at what
stands there. To load, the ranks of a node fetch all files of a checkpoint to the node's disk together. So the ranks of
a run need no folder in common: OUT may be another disk on each node, or one that all see.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from corpus.engine import storage
from corpus.engine.durable import json_bytes, write_json
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.store_lock import StoreLock
from pretrain.checkpoint.claim import claimed
from pretrain.checkpoint.records import COMMIT, STEP_FOLDER, advice, describe, parse_commit, step_of

FETCHED = "fetched"  # below checkpoints: what was copied there from a store, for one load


class Store:
    """A URL of object storage, with OUT/checkpoints for files on their way.

    Args:
        local_rank: of this process on its node.
        local_size: processes there, which share what is to be fetched.
    """

    def __init__(self, url: str, out: Path, local_rank: int = 0, local_size: int = 1) -> None:
        self.url, self.folder = url, out / "checkpoints"
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
        """By a lock in the store."""
        with ExitStack() as stack:
            with _told(self.url, "locked"):
                self._lock = stack.enter_context(claimed(self.url))
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
        if self.local_rank == 0 and self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.name == FETCHED or (STEP_FOLDER.fullmatch(path.name) and not (path / COMMIT).exists()):
                    shutil.rmtree(path, ignore_errors=True)
        dead = [name for name, committed in self.steps().items() if not committed] if is_first else []
        for name in dead:
            self.remove(name)
        return dead

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
        if any(path.is_file() for path in self.folder.glob(f"step-*/{COMMIT}")):
            raise UsageError(
                f"{self.url}: holds no checkpoint, and {self.folder} does. Copy them there, or leave checkpoint.url out."
            )

    def forget(self, folder: Path) -> None:
        """Remove what was fetched, once all ranks of the node have loaded it."""
        shutil.rmtree(folder.parent, ignore_errors=True)


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
