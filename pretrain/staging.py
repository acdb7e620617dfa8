"""Corpora on object storage, brought to a disk of each machine before training.

Where a corpus' folder is a URL (`s3://...`, any fsspec store), its token shards, the tables of their documents and its
tokenizer are copied below `data.cache` (see `pretrain.shard_cache`), as a small build that everything reads like any
other:

    run.json    tokens/MANIFEST.json    tokens/manifest/...    tokens/data/...    and the same of tokenizer/, model/...

Or, of a folder of examples (see `pretrain.data.examples`), as what it is: MANIFEST.json, EXAMPLES.json, data/... and
model/...

What is on a disk already is used where it lies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from corpus.engine import durable, manifest, storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.manifest import MANIFEST_NAME, Manifest
from pretrain.config import DataConfig
from pretrain.data.examples import COUNTED, RECORD
from pretrain.shard_cache import GIB, GivenUp, RemoteCorpus, RemoteFile, ShardCache

if TYPE_CHECKING:
    from pretrain.parallel.base.mesh import World

BEAT_SECONDS = 2.0  # how often ranks tell each other that they are at it
SUFFIXES = (".bin", ".idx", ".meta.json", ".docs.parquet", COUNTED)


@contextmanager
def stage_locally(
    config: DataConfig, places: Mapping[str, str], stop: threading.Event | None = None
) -> Iterator[dict[str, Path]]:
    """The folders of corpora on this machine, by name; those in a store are fetched first, and held within the block.

    Args:
        config: Names the cache.
        places: Folders or URLs by name.
        stop: Gives up once it is set.

    Raises:
        UsageError: no cache is named, or the shards do not fit into it.
        DiskError: other runs hold too much of it, or the disk is full.
        WenhaiError: a file cannot be fetched, or is not what its manifest says.
    """
    remote = [url for url in places.values() if storage.is_remote(url)]
    folders: dict[str, Path] = {}
    with ExitStack() as stack:
        if remote:
            corpora = {url: read_corpus(url, (config.train_split, config.validation_split)) for url in remote}
            cache = ShardCache(cache_folder(config, remote[0]), int(config.cache_gib * GIB))
            entries = cache.hold(list(corpora.values()))
            for entry in entries.values():
                stack.callback(entry.close)
            cache.fetch(list(corpora.values()), stop or threading.Event())
            folders = {url: entries[corpus.key].folder for url, corpus in corpora.items()}
        yield {name: folders.get(url) or storage.local_path(url) for name, url in places.items()}


@contextmanager
def stage_on_all_ranks(world: World, config: DataConfig, places: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """`stage_locally` on every rank of a run. While some fetch, the others hear of it, and so do not give them up for
    lost."""
    if not any(storage.is_remote(url) for url in places.values()):
        with stage_locally(config, places) as folders:
            yield folders
        return
    stop, stack = threading.Event(), ExitStack()
    with stack:
        with ThreadPoolExecutor(1) as thread:
            work = thread.submit(stack.enter_context, stage_locally(config, places, stop))
            is_waiting = True
            while is_waiting:
                wait([work], timeout=BEAT_SECONDS)
                failed = work.done() and work.exception() is not None
                is_waiting, is_over = world.any_of(not work.done(), failed)
                if is_over:  # on one rank, and so for all
                    stop.set()
        with world.propagate_errors():
            if not isinstance(work.exception(), GivenUp):
                found = work.result()
        yield found


def cache_folder(config: DataConfig, url: str) -> Path:
    """The folder that `data.cache` names; `~` and variables of the machine's environment are filled in.

    Raises:
        UsageError: it names none.
    """
    if config.cache is None:
        raise UsageError(
            f"{url}: is in object storage, and data.cache names no folder for copies of its shards. Name one on a "
            "disk of "
            "each machine, as in --set data.cache=/local/wenhai (not in a home folder that machines share)."
        )
    return Path(os.path.expandvars(config.cache)).expanduser()


def read_corpus(url: str, splits: Sequence[str]) -> RemoteCorpus:
    """What the records of a build in a store say: the shards of some splits with their documents, and the tokenizer.

    Args:
        url: Of an output folder, of the folder of its tokens stage, or of a folder of examples.
        splits: By name.

    Raises:
        WenhaiError: there is no finished build, or its records are not ours.
    """
    wanted = tuple(f"-{split}{suffix}" for split in splits for suffix in SUFFIXES)
    if (found := manifest.read(url, earlier=True)) is not None:
        if found.get("stage") == "examples":
            return RemoteCorpus(url, _listed(url, found, (*wanted, ".model", RECORD)), manifest.copied(url, found))
        folders = {"tokens": url}
    else:
        run = storage.join(url, "run.json")
        stages = _table(storage.read_json(run), "stages", run)
        if "tokens" not in stages:
            raise WenhaiError(f"{run}: the tokens stage is not complete. Run `python -m tokenizer run --out {url}`.")
        names = [stage for stage in ("tokens", "tokenizer") if stage in stages]
        folders = {stage: storage.join(url, _inside(_table(stages, stage, run).get("folder"), run)) for stage in names}
    files: tuple[RemoteFile, ...] = ()
    run_record = {"format": 1, "stages": {stage: {"folder": stage} for stage in folders}}
    records = {"run.json": durable.json_bytes(run_record)}
    for stage, folder in folders.items():
        if (found := manifest.read(folder, earlier=True)) is None:
            raise WenhaiError(
                f"{storage.join(folder, MANIFEST_NAME)}: is missing, or of an earlier version. Run the command that "
                "built it again: finished work is kept."
            )
        records |= manifest.copied(folder, found, f"{stage}/")
        files += _listed(folder, found, wanted if stage == "tokens" else (".model",), f"{stage}/")
    return RemoteCorpus(url, files, records)


def _listed(folder: str, found: Manifest, endings: tuple[str, ...], place: str = "") -> tuple[RemoteFile, ...]:
    """The files of a manifest whose names end so; they are to lie below `place`."""
    where = storage.join(folder, MANIFEST_NAME)
    return tuple(
        RemoteFile(storage.join(folder, file.url), place + _inside(file.url, where), file.bytes, file.sha256)
        for file in manifest.files(folder, found)
        if file.url.endswith(endings)
    )


def _table(values: Any, key: str, source: str) -> dict[str, Any]:
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, dict):
        raise WenhaiError(f"{source}: has no table {key!r}, so it is not a record of ours. Name the folder of a build.")
    return found


def _inside(name: Any, source: str) -> str:
    """A name that stays inside its folder."""
    if not isinstance(name, str) or name.startswith("/") or ".." in PurePosixPath(name).parts or "\0" in name:
        raise WenhaiError(f"{source}: names {name!r}, which lies outside its folder. Do not use this build.")
    return name
