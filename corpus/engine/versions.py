"""Versions of what decides bytes beside our code: other packages, Python, its Unicode data.

Three ways to treat one. What changes text or verdicts stands in a stage's `config()`, by content where it can be (a
table as it was computed, a dictionary's files), else by version: an upgrade makes another folder. What changes only how
equal values are encoded (`WRITERS`) is recorded in `stage.json` and keyed nowhere: an upgrade of pyarrow must not
recompute 5 TB; but the files of one folder are written by one version. And the machines of a cluster must have the
driver's versions of all that matters (`MATTER`).
"""

from __future__ import annotations

import platform
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xxhash

from corpus.engine import durable, storage
from corpus.engine.errors import WenhaiError

WRITERS = ("numpy", "pyarrow")
MATTER = (
    *(*WRITERS, "backports.zstd", "fastwarc", "faust-cchardet", "jieba", "lxml", "msgspec", "mwparserfromhell"),
    *("numba", "opencc", "pydantic", "pypdfium2", "resiliparse", "sentencepiece", "trafilatura", "ufal-kenlm"),
    *("xxhash", "zstandard"),
)
WRITTEN_WITH = "written_with"  # the key of `stage.json`
DIGEST = "digest"
ABSENT = "none"


@cache
def version_of(package: str) -> str:
    """The installed version of a distribution, "none" where there is none; as it was when it was first asked for."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT


def written_with() -> dict[str, str]:
    """What encodes the files of a stage, and the digest of that: no fingerprint covers it."""
    found = {package: version_of(package) for package in WRITERS}
    return found | {DIGEST: durable.digest(found)}


def is_sound(written: Mapping[str, str]) -> bool:
    """Whether what `stage.json` says of it is as it was written."""
    return written.get(DIGEST) == durable.digest({name: one for name, one in written.items() if name != DIGEST})


def versions_here() -> dict[str, str]:
    """Of Python, its Unicode data, and every package that matters."""
    here = {"Python": platform.python_version(), "Unicode data": unicodedata.unidata_version}
    return here | {package: version_of(package) for package in MATTER}


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """What differs, in words: "pyarrow 21.0.0 (not 22.0.0)"; empty where nothing does."""
    every = sorted((theirs.keys() | ours.keys()) - {DIGEST})
    names = [name for name in every if theirs.get(name) != ours.get(name)]
    return ", ".join(f"{name} {theirs.get(name, ABSENT)} (not {ours.get(name, ABSENT)})" for name in names)


@cache
def data_digest(module: str, *suffixes: str) -> str:
    """Of the data files of a package: dictionaries, by their names and contents. Some megabytes, hashed once."""
    spec = find_spec(module)
    hasher = xxhash.xxh3_128()
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in suffixes:
                data = path.read_bytes()
                hasher.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return hasher.hexdigest()


def write_recipe(url: str, parts: Mapping[str, Any]) -> None:
    """Write `stage.json` of a folder that work begins or goes on in: what made its fingerprint, and `written_with`.

    Raises:
        WenhaiError: finished tasks there were written with other versions.
    """
    recipe, ours = storage.join(url, "stage.json"), written_with()
    wanted, data = {**parts, WRITTEN_WITH: ours}, storage.read_if_there(recipe)
    if data == durable.json_bytes(wanted):
        return
    if data is not None:
        theirs = durable.parse_json(data, recipe).get(WRITTEN_WITH, ours)
        if theirs != ours and storage.names(storage.join(url, "done"), ""):
            raise WenhaiError(
                f"{url}: its finished tasks were written with {differences(theirs, ours)}, and files of two versions "
                "in one folder would not be those of one run. Install the versions that it was begun with to finish "
                "it, or remove the folder to begin again."
            )
    storage.write_json(recipe, wanted)
