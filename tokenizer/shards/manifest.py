"""Which shards a finished build has: what the manifest of its tokens stage lists, never what lies in the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.engine import durable, manifest
from corpus.engine.manifest import MANIFEST_NAME
from corpus.engine.storage import File
from tokenizer.shards.record import MEND, ShardError


def listed_shards(folder: Path, split: str) -> list[tuple[Path, str]]:
    """The shards of a split that the tokens stage lists: (prefix, SHA-256 of its record), sorted by name."""
    folder = tokens_folder(folder)
    end = f"-{split}.meta.json"
    return [
        (_inside(folder, file.url.removesuffix(".meta.json"), folder / MANIFEST_NAME), file.sha256)
        for file in _listed(folder)
        if file.url.endswith(end)
    ]


def listed_files(folder: Path) -> dict[str, str]:
    """All files that the manifest in a folder lists, and their SHA-256."""
    return {file.url: file.sha256 for file in _listed(folder)}


def _listed(folder: Path) -> Iterator[File]:
    found = manifest.read(str(folder), earlier=True)
    if found is None:
        raise ShardError(
            f"{folder}: holds no {MANIFEST_NAME}. Run the command that built it again: finished work is kept."
        )
    return manifest.files(str(folder), found)


def tokens_folder(folder: Path) -> Path:
    """The folder of the tokens stage: `folder` itself, or the current one of the build in `folder`."""
    if (folder / MANIFEST_NAME).is_file():
        return folder
    run = folder / "run.json"
    if not run.is_file():
        raise ShardError(
            f"{folder}: holds neither {MANIFEST_NAME} nor run.json, so there is no finished build here. Give the "
            "output folder of `python -m tokenizer run`."
        )
    stages = _table(durable.read_json(run), "stages", run)
    if "tokens" not in stages:
        raise ShardError(f"{run}: the tokens stage is not complete. Run `python -m tokenizer run --out {folder}`.")
    return _inside(folder, _table(stages, "tokens", run).get("folder"), run)


def _table(values: Any, key: str, source: Path) -> dict[str, Any]:
    """The JSON object under `key`, or a refusal that names the file."""
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, dict):
        raise ShardError(f"{source}: has no table {key!r}, so it is not a manifest of ours. {MEND}")
    return found


def _inside(folder: Path, name: Any, source: Path) -> Path:
    """`folder / name`, for a name that stays inside the folder."""
    if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise ShardError(f"{source}: names {name!r}, which lies outside its folder. Do not use this build.")
    return folder / name
