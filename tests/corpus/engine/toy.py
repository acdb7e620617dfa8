"""Two small stages over text files: enough to test the engine without the corpus."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from corpus.engine import storage
from corpus.engine.errors import DiskError, SetupError, TransientError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File

OUTSIDE_THE_PROMISE = {
    "timings.json",
    "input_digests.jsonl",
    "running.json",
    ".lock",
    "report.html",
    "report.zh.html",
    "report.md",
}


def tree(folder: Path) -> dict[str, str]:
    """Names and digests of every file whose bytes are promised."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in OUTSIDE_THE_PROMISE
    }


def text_files(folder: Path, texts: Iterable[str]) -> tuple[File, ...]:
    """A new folder with a file for each text: what `Lines` reads."""
    folder.mkdir()
    for index, text in enumerate(texts):
        (folder / f"{index}.txt").write_text(text)
    return tuple(list_inputs([str(folder)]))


def numbered_files(folder: Path, num: int) -> tuple[File, ...]:
    """Files of which no two have a line in common: one that is lost, doubled or in another's place is seen."""
    return text_files(
        folder, ("\n".join(f"第{index}卷第{line}行之文" for line in range(index + 3)) for index in range(num))
    )


def undisturbed(files: tuple[File, ...], tmp_path: Path) -> dict[str, str]:
    """The tree of a run to which nothing happened."""
    run_stages([Lines(files), Joined()], str(tmp_path / "reference"), workers=0)
    return tree(tmp_path / "reference")


@dataclass(frozen=True)
class Lines(Stage):
    """Copies the lines of each input that are longer than `min_chars`."""

    files: tuple[File, ...]
    min_chars: int = 3
    loses: int = 0  # breaks the conservation law when not 0
    fault: str = (
        ""  # "<task>:kill|hang|error|disk|setup[@file]"; with a file: once, while the file exists; "*:hold@file"
    )

    name: ClassVar[str] = "lines"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {"min_chars": self.min_chars, "loses": self.loses}

    def inputs(self) -> tuple[File, ...]:
        return self.files

    def for_worker(self) -> Lines:
        return replace(self, files=())

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(f"{index:05d}", (file,)) for index, file in enumerate(self.files)]

    def run(self, task: Task, out: Output) -> Counts:
        lines = storage.fetch(task.inputs[0].url).read_text().splitlines()
        kept = [line for line in lines if len(line) >= self.min_chars]
        counts = Counts(documents_in=len(lines), documents_out=len(kept) - self.loses)
        counts.drop("length", len(lines) - len(kept))
        misbehave(task.name, self.fault)
        with out.create(f"data/{task.name}.txt", rows=len(kept)) as path:
            path.write_text("\n".join(kept))
        return counts


@dataclass(frozen=True)
class Joined(Stage):
    """Puts all lines into one file."""

    name: ClassVar[str] = "joined"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("lines",)

    def config(self) -> dict[str, Any]:
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task("all", tuple(upstream["lines"].files()))]

    def run(self, task: Task, out: Output) -> Counts:
        texts = [storage.fetch(file.url).read_text() for file in task.inputs]
        with out.create("data/all.txt") as path:
            path.write_text("\n".join(texts))
        rows = sum(file.rows for file in task.inputs)
        return Counts(documents_in=rows, documents_out=rows)


def misbehave(task: str, fault: str) -> None:
    """Do what `fault` asks of this task."""
    wanted, _, fault = fault.partition(":")
    if wanted == "*":
        hold(task, fault.partition("@")[2])
    if wanted != task:
        return
    fault, _, flag = fault.partition("@")
    if fault == "transient":  # always; the file says on which machines of a cluster
        import ray

        with open(flag, "a") as file:
            file.write(f"{ray.get_runtime_context().get_node_id()}\n")
        raise TransientError("memory://x: put failed 9 times")
    if flag and not os.path.exists(flag):
        return
    if flag:
        os.unlink(flag)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(600)  # until somebody kills it
    if fault == "error":
        raise ValueError("a bad shard")
    if fault == "disk":
        raise DiskError("somewhere: cannot be written (No space left on device).")
    if fault == "setup":
        raise SetupError("a server: does not answer.")


def hold(task: str, file: str) -> None:
    """Say in `<file>.log` that the task has begun, and wait until the file is gone."""
    with open(f"{file}.log", "a") as log:
        log.write(f"{task} {os.getpid()}\n")
    while os.path.exists(file):
        time.sleep(0.05)
