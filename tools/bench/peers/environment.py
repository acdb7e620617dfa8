"""Environments for the peers below build/peers, apart from ours and each other: no one's pins may move another's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import WenhaiError

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
TIMEOUT_SECONDS = 900.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "LOGURU_LEVEL": "ERROR"}


@dataclass(frozen=True)
class Environment:
    """What NAME.txt beside this file pins, in build/peers/NAME."""

    name: str
    with_ours: bool = False  # what NAME.txt lacks is looked for among our own packages: torch alone is 1 GB
    options: tuple[str, ...] = ()  # further ones of pip

    @property
    def folder(self) -> Path:
        return ROOT / "build/peers" / self.name

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin/python"

    @property
    def requirements(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def is_installed(self) -> bool:
        """Whether it stands, with the versions that are pinned now."""
        stamp = self.folder / "requirements.sha256"
        return stamp.is_file() and stamp.read_text() == durable.sha256_file(self.requirements)

    def install(self) -> None:
        """Make it, up to 1 GB, unless it stands."""
        if self.is_installed():
            return
        print(f"installing the peers into {self.folder} (about two minutes)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
        build = {"PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        command = [str(self.python), "-m", "pip", "install", "-qq", "--no-deps", *self.options]
        subprocess.run([*command, "-r", str(self.requirements)], env=os.environ | build, check=True)
        if self.with_ours:
            (packages,) = self.folder.glob("lib/python*/site-packages")
            (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        (self.folder / "requirements.sha256").write_text(durable.sha256_file(self.requirements))

    def run(self, script: str, *arguments: str) -> Any:
        """What a script of this folder prints, as JSON, from a child.

        Raises:
            WenhaiError: the child failed; its last words are in the message.
        """
        command = [str(self.python), "-P", str(FOLDER / script), *arguments]
        variables = os.environ | OFFLINE | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, capture_output=True, text=True, env=variables, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode:
            raise WenhaiError(f"{script} failed in {self.folder}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def run_on(self, texts: Sequence[str], script: str, *arguments: str) -> Any:
        """`run` of a script whose first argument is a file of documents."""
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "documents.jsonl")
            write_documents(path, texts)
            return self.run(script, str(path), *arguments)


DATATROVE = Environment("datatrove")  # and fastText
TEXT_DEDUP = Environment("text_dedup")
READERS = Environment("readers", with_ours=True)
EXTRACTION = Environment("extraction", options=("--ignore-requires-python",))
PIPELINE = Environment("pipeline")
TOKENIZERS = Environment("tokenizers")
MEGATRON = Environment("megatron", with_ours=True)
HARNESS = Environment("harness", with_ours=True)  # lm-evaluation-harness, and servers of models


def write_documents(path: Path, texts: Sequence[str]) -> None:
    """Documents as the scripts read them."""
    with open(path, "w") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
