"""Remove stage folders that no recipe needs: each change of a threshold leaves another folder.

A folder is needed when `run.json` names it, or when one of the given pipelines could have written it: its stage, code
version and configuration are the pipeline's, and it was built on outputs of folders that are needed too. Inputs are not
asked for, so folders of earlier inputs of a needed recipe stay; what they share with newer ones is linked and costs
nothing twice. A stage that no given pipeline knows (the tokenizer's, for the corpus) is needed as long as what it was
built on is.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import storage, store_lock
from corpus.engine.manifest import MANIFEST_NAME
from corpus.engine.run import read_run, stage_folders
from corpus.engine.stage import Folder, Stage


@dataclass(frozen=True)
class Unneeded:
    """A stage folder to remove: the bytes of its files, and those that its removal (with the others') frees."""

    folder: str
    files: int
    file_bytes: int
    freed_bytes: int  # less where a file has another name in a folder that stays


def unneeded_folders(out: str, pipelines: Sequence[Sequence[Stage]]) -> list[Unneeded]:
    """The stage folders below `out` that neither `run.json` nor a pipeline needs, by name.

    Raises:
        WenhaiError: `out` holds no finished stage.
    """
    current = {entry["folder"] for entry in read_run(out)["stages"].values()}
    found = {name: storage.read_json(storage.join(out, name, "stage.json")) for name in stage_folders(out)}
    keep = set(current)
    for pipeline in pipelines:
        keep |= _needed(out, found, current, pipeline)
    gone = sorted(set(found) - keep)
    sizes = {name: storage.sizes(storage.join(out, name)) for name in gone}
    freed = {name: sum(files.values()) for name, files in sizes.items()}
    if not storage.is_remote(out):
        freed = _freed(storage.local_path(out), sizes)
    return [Unneeded(name, len(sizes[name]), sum(sizes[name].values()), freed[name]) for name in gone]


def prune(out: str, pipelines: Sequence[Sequence[Stage]]) -> list[Unneeded]:
    """Remove what `unneeded_folders` lists, and return it. A folder loses its manifest first: half removed, it is
    incomplete.

    Raises:
        LockHeld: a run works on `out`.
    """
    with store_lock.run_lock(out):
        gone = unneeded_folders(out, pipelines)
        for one in gone:
            url = storage.join(out, one.folder)
            storage.remove(storage.join(url, MANIFEST_NAME))
            storage.remove_tree(url)
    return gone


def _needed(out: str, found: Mapping[str, Mapping[str, Any]], current: set[str], pipeline: Sequence[Stage]) -> set[str]:
    """The folders that the pipeline could have written, and those of other stages built on them or on current ones."""
    configs = {stage.name: json.loads(json.dumps([stage.version, stage.config()])) for stage in pipeline}
    keep: set[str] = set()
    digests = {found[name]["stage"]: {_digest(out, name)} for name in current if name in found}
    waiting = set(found)
    while ready := {name for name in sorted(waiting) if _is_needed(found[name], configs, digests)}:
        for name in ready:
            digests.setdefault(found[name]["stage"], set()).add(_digest(out, name))
        keep |= ready
        waiting -= ready
    return keep


def _is_needed(parts: Mapping[str, Any], configs: Mapping[str, Any], digests: Mapping[str, set[str]]) -> bool:
    stage = parts["stage"]
    if stage in configs and configs[stage] != [parts["version"], parts["config"]]:
        return False
    # a stage of another package over files from outside is needed: nothing here tells what it is good for
    return all(digest in digests.get(name, ()) for name, digest in parts["upstream"].items())


def _digest(out: str, name: str) -> str:
    """What later stages know a folder by; of an incomplete one they know nothing."""
    folder = Folder.find(storage.join(out, name))
    return "" if folder is None else folder.digest


def _freed(out: Path, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Bytes whose last name goes; each is counted in the last of its folders."""
    names: Counter[tuple[int, int]] = Counter()
    freed = dict.fromkeys(sizes, 0)
    for folder, files in sizes.items():
        for name in files:
            status = os.lstat(out / folder / name)
            names[status.st_dev, status.st_ino] += 1
            if names[status.st_dev, status.st_ino] == status.st_nlink:
                freed[folder] += status.st_size
    return freed
