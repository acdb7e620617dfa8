"""What a projection needs beside the stages' rates: a range read, an entry of a manifest, a task of the driver.

    python -m tools.small_costs

CPU seconds of this process; files lie in the page cache. tools/projection.py has the numbers as constants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from corpus.dedup import records
from corpus.engine.manifest import commit_files
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from tools.bench.timing import timed
from tools.projection import READS_A_SECTION, Corpus, manifest_of

MEASURED_FILES, MEASURED_SECTIONS, MEASURED_TASKS = 2_000, 2_048, 400


@dataclass(frozen=True)
class Nothing(Stage):
    """Tasks that do nothing: what is left is the engine's own time."""

    name: ClassVar[str] = "nothing"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """Some tasks."""
        return [Task(f"{number:05d}") for number in range(MEASURED_TASKS)]

    def run(self, task: Task, out: Output) -> Counts:
        """Nothing."""
        return Counts()


def measure() -> str:
    """The small costs, measured here: a range read, an entry of a manifest, a task of the driver."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(MEASURED_FILES):
            path = Path(folder, f"{number}.bin")
            cuts = records.cuts_of(np.full(MEASURED_SECTIONS, 8))
            records.write_sections(path, cuts, [np.zeros(8 * MEASURED_SECTIONS, records.RECORD_DTYPE)])
            files.append(File(str(path), path.stat().st_size, "", 8 * MEASURED_SECTIONS))
        read = timed(partial(_read_last_sections, files))[0] / MEASURED_FILES / READS_A_SECTION
        listed = manifest_of("signatures", Corpus(1, 1, MEASURED_FILES, 1.0), MEASURED_FILES).listed("bands")
        entry = {file.url: {"bytes": file.bytes, "sha256": file.sha256, "rows": file.rows} for file in listed}
        commit_files(folder, entry, "signatures")
        opened = timed(lambda: Folder.open(folder).files("bands"))[0] / len(entry)
        spent, _ = timed(lambda: run_stages([Nothing()], f"{folder}/out", workers=1))  # its time is not this process's
    return f"READ_SECONDS {read:.1e}\nENTRY_SECONDS {opened:.1e}\nDRIVER_SECONDS {spent / MEASURED_TASKS:.1e}"


def _read_last_sections(files: list[File]) -> None:
    last = MEASURED_SECTIONS - 1
    records.sections(files, last, last + 1, records.RECORD_DTYPE).read()


if __name__ == "__main__":
    print(measure())
