"""Where the checkpoints of a run lie in its folder: the one place that says so. Needs no torch.

OUT/checkpoints/step-00000100/COMMIT.json    exists once the checkpoint is complete
"""

from __future__ import annotations

import re
from pathlib import Path

COMMIT = "COMMIT.json"
STEP_FOLDER = re.compile(r"step-(\d{8,})")


def checkpoints_folder(out: Path) -> Path:
    """Below it each checkpoint is a folder."""
    return out / "checkpoints"


def step_name(step: int) -> str:
    """What a step's checkpoint is called."""
    return f"step-{step:08d}"


def step_of(name: str) -> int:
    """The step of a checkpoint's name."""
    found = STEP_FOLDER.fullmatch(name)
    assert found is not None
    return int(found[1])


def step_folder(out: Path, step: int) -> Path:
    """The folder of one step's checkpoint."""
    return checkpoints_folder(out) / step_name(step)


def steps(folder: Path) -> dict[str, bool]:
    """The names of the steps below a folder of checkpoints, oldest first, and whether each is committed."""
    names = [path.name for path in folder.iterdir() if STEP_FOLDER.fullmatch(path.name)] if folder.is_dir() else []
    return {name: (folder / name / COMMIT).is_file() for name in sorted(names, key=step_of)}


def committed_checkpoints(out: Path) -> list[Path]:
    """The committed checkpoints of a run, oldest first."""
    folder = checkpoints_folder(out)
    return [folder / name for name, is_committed in steps(folder).items() if is_committed]


def newest(out: Path) -> Path | None:
    """The newest committed checkpoint of a run."""
    return next(reversed(committed_checkpoints(out)), None)
