"""Published results to print beside ours: `baselines.toml`, with its source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from corpus.engine.config import Strict, load_toml, parse

PATH = Path(__file__).with_name("baselines.toml")


class Row(Strict):
    """One model's line of a published table; in percent."""

    name: str
    about: str
    zero_shot: bool = False
    score: float  # as the table has it
    accuracy: dict[str, Annotated[float, Field(ge=0, le=100)]]

    def mean_over(self, tasks: Sequence[str]) -> float | None:
        """In percent, over some of its tasks; None where it lacks one."""
        if not tasks or any(task not in self.accuracy for task in tasks):
            return None
        return sum(self.accuracy[task] for task in tasks) / len(tasks)


class Baselines(Strict):
    """A published table."""

    title: str
    source: str
    split: str  # that its figures are of
    row: list[Row]


@cache
def published() -> Baselines:
    """The table."""
    return parse(Baselines, load_toml(PATH), str(PATH))
