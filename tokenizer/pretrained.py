"""A tokenizer that is there already, as a stage: what is encoded with one vocabulary can be compared, and blended in a
run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from corpus.engine import storage
from corpus.engine.errors import UsageError
from corpus.engine.input_digests import check_file
from corpus.engine.inputs import list_inputs
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from tokenizer.model import Tokenizer, model_path


@dataclass(frozen=True)
class PretrainedTokenizerStage(Stage):
    """A model file of somewhere else, as a build keeps it."""

    model: File

    name: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {"given": True}

    def inputs(self) -> tuple[File, ...]:
        return (self.model,)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task("tokenizer", (self.model,))]

    def run(self, task: Task, out: Output) -> Counts:
        (model,) = task.inputs
        Tokenizer(storage.fetch(model.url))  # refuses what is no model
        with out.create("model/tokenizer.model") as path:
            shutil.copyfile(storage.fetch(model.url), path)
            check_file(model)
        return Counts()


def pretrained_tokenizer(where: str) -> PretrainedTokenizerStage:
    """The stage of a model file, or of the model in the output folder of a build.

    Raises:
        UsageError: it is not on a local disk.
        WenhaiError: there is none.
    """
    if storage.is_remote(where):
        raise UsageError(f"--tokenizer {where}: is read from a local disk. Copy it here first.")
    (model,) = list_inputs([str(model_path(Path(where)))])
    return PretrainedTokenizerStage(model)
