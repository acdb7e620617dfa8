"""Environments for the peers below build/peers, apart from ours and each other: no one's pins may move another's."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.engine.errors import WenhaiError

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
REQUIREMENTS = FOLDER / "requirements.txt"
ENVIRONMENT = ROOT / "build/peers/datatrove"
TEXT_DEDUP_REQUIREMENTS = FOLDER / "text_dedup.txt"
TEXT_DEDUP = ROOT / "build/peers/text_dedup"
MEGATRON_REQUIREMENTS = FOLDER / "megatron.txt"
MEGATRON = ROOT / "build/peers/megatron"
TIMEOUT_SECONDS = 900.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "LOGURU_LEVEL": "ERROR"}


def is_installed(folder: Path | None = None, requirements: Path | None = None) -> bool:
    """Whether an environment stands, with the versions of its requirements; without arguments, datatrove's."""
    stamp = (folder or ENVIRONMENT) / "requirements.sha256"
    return stamp.is_file() and stamp.read_text() == _digest(requirements or REQUIREMENTS)


def install(
    folder: Path | None = None,
    requirements: Path | None = None,
    *,
    with_ours: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Make an environment, up to 1 GB, unless it stands.

    Args:
        folder: where; datatrove's without one.
        requirements: what is in it, pinned.
        with_ours: what the requirements lack is looked for among our own packages: torch alone is 1 GB.
        options: further ones of pip.
    """
    folder, requirements = folder or ENVIRONMENT, requirements or REQUIREMENTS
    if is_installed(folder, requirements):
        return
    print(f"installing the peers into {folder} (about two minutes)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    build = {"PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [str(python(folder)), "-m", "pip", "install", "-qq", "--no-deps", *options, "-r", str(requirements)]
    subprocess.run(command, env=os.environ | build, check=True)
    if with_ours:
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (folder / "requirements.sha256").write_text(_digest(requirements))


def install_megatron() -> None:
    """Make the environment of megatron-core, 120 MB, unless it stands; it computes with our own torch."""
    install(MEGATRON, MEGATRON_REQUIREMENTS, with_ours=True)


def run_peer(script: str, *arguments: str, folder: Path | None = None) -> Any:
    """What a script of this folder prints, as JSON, from a child in an environment; without one, in datatrove's.

    Raises:
        WenhaiError: the child failed; its last words are in the message.
    """
    command = [str(python(folder)), "-P", str(FOLDER / script), *arguments]
    environment = os.environ | OFFLINE | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        raise WenhaiError(f"{script} failed in {folder or ENVIRONMENT}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def call_on(texts: Sequence[str], script: str, *arguments: str, folder: Path | None = None) -> Any:
    """`run_peer` of a script whose first argument is a file of documents."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "documents.jsonl")
        write_documents(path, texts)
        return run_peer(script, str(path), *arguments, folder=folder)


def python(folder: Path | None = None) -> Path:
    """The interpreter of an environment."""
    return (folder or ENVIRONMENT) / "bin/python"


def write_documents(path: Path, texts: Sequence[str]) -> None:
    """Documents as the scripts read them."""
    with open(path, "w") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)


def _digest(requirements: Path) -> str:
    return hashlib.sha256(requirements.read_bytes()).hexdigest()
