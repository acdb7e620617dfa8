"""What a run wrote of itself, read for a report: curves in a bounded number of cells, and the latest events.

`metrics.jsonl` grows with the run, what is kept of it does not: a curve has at most 2 x `CELLS` cells, each the mean
and the extremes of neighbouring records. A run that went back to a checkpoint does steps again: the last record of a
step counts, and records of later steps, which the run has not come to again, do not (where cells are wide, to within
one).
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.engine.durable import read_json
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.run_folder import COMMIT, committed_checkpoints

CELLS = 300
MAX_LINE_BYTES = 1 << 20
MAX_CURVES = 500
KEPT_EVENTS = 200  # of each kind, the latest
# what a page that others may see leaves out: names and passwords in URLs, and keys among their parameters
USER = re.compile(r"(?<=://)[^/\s\"']*@")  # to the last @ before the path
PARAMETER = re.compile(
    r"([?&][^=&\s\"']*(?:key|token|secret|sig|signature|password|credential)=)[^&\s\"']*", re.IGNORECASE
)
CURVES = ("train", "validation")  # the kinds of records that make curves; all others are events


@dataclass
class Cell:
    """Neighbouring records of one curve."""

    step: int  # of the first
    last: int
    count: int
    total: float
    low: float
    high: float

    @property
    def mean(self) -> float:
        """Of the values."""
        return self.total / self.count

    def add(self, other: Cell) -> None:
        """Take in the cell that follows."""
        self.last, self.count, self.total = other.last, self.count + other.count, self.total + other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass
class Curve:
    """One value over steps."""

    cells: list[Cell] = field(default_factory=list)
    width: int = 1  # records in a full cell

    def add(self, step: int, value: float) -> None:
        """Take in the record of a step."""
        self.cut(step)
        new = Cell(step, step, 1, value, value, value)
        if self.cells and self.cells[-1].count < self.width:
            self.cells[-1].add(new)
            return
        self.cells.append(new)
        if len(self.cells) > 2 * CELLS:
            for left, right in zip(self.cells[::2], self.cells[1::2], strict=False):
                left.add(right)
            self.cells = self.cells[::2]
            self.width *= 2

    def cut(self, step: int) -> None:
        """Forget this step and all later ones."""
        while self.cells and self.cells[-1].last >= step:
            cell = self.cells.pop()
            if cell.step < step:  # some of it stays, its extremes with it
                kept = max(1, round(cell.count * (step - cell.step) / (cell.last - cell.step + 1)))
                self.cells.append(Cell(cell.step, step - 1, kept, cell.mean * kept, cell.low, cell.high))

    def at(self, steps: Sequence[int]) -> list[float]:
        """The mean of the cell that each step lies in; 0 where there is none."""
        ends = [cell.last for cell in self.cells]
        found = [self.cells[place : place + 1] for place in (bisect_left(ends, step) for step in steps)]
        return [one[0].mean if one and one[0].step <= step else 0.0 for one, step in zip(found, steps, strict=True)]

    @property
    def last(self) -> float | None:
        """The mean of the last cell."""
        return self.cells[-1].mean if self.cells else None

    @property
    def mean(self) -> float | None:
        """Over all records."""
        count = sum(cell.count for cell in self.cells)
        return sum(cell.total for cell in self.cells) / count if count else None

    @property
    def high(self) -> float | None:
        """The largest value."""
        return max((cell.high for cell in self.cells), default=None)


@dataclass
class RunLog:
    """All that a report is drawn from."""

    name: str
    curves: dict[str, Curve] = field(default_factory=dict)  # by "train/loss", "train/phases/forward", "validation/loss"
    events: dict[str, deque[dict[str, Any]]] = field(default_factory=dict)  # by kind
    counts: Counter[str] = field(default_factory=Counter)  # of events by kind
    restarts: list[int] = field(default_factory=list)  # steps from which the run went on after an end
    starts: int = 0
    step: int = 0  # the last that is recorded
    unreadable: int = 0  # lines that are no records
    first_at: float | None = None
    last_at: float | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # of the newest checkpoint
    checkpoints: list[tuple[str, int]] = field(default_factory=list)  # name and bytes of those that are in the folder

    def latest(self, kind: str) -> dict[str, Any]:
        """The last event of a kind, or nothing."""
        return self.events[kind][-1] if self.events.get(kind) else {}

    def timeline(self) -> list[dict[str, Any]]:
        """The kept events of all kinds, in the order of the file."""
        return sorted((event for kind in self.events.values() for event in kind), key=lambda event: event["line"])

    def curve(self, name: str) -> Curve:
        """A curve; an empty one where nothing was recorded."""
        return self.curves.get(name, Curve())

    def take(self, record: Mapping[str, Any], line: int) -> None:
        """Take in one record."""
        kind, step = str(record["kind"]), int(record["step"])
        at = record.get("at")
        if isinstance(at, int | float):
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at
        if kind == "start":
            self._start(step)
        if kind not in CURVES:
            self.events.setdefault(kind, deque(maxlen=KEPT_EVENTS)).append({**without_secrets(record), "line": line})
            self.counts[kind] += 1
            return
        if kind == "train":
            self.step = step
        for name, value in numbers(record, kind):
            if name in self.curves or len(self.curves) < MAX_CURVES:
                self.curves.setdefault(name, Curve()).add(step, value)

    def _start(self, step: int) -> None:
        self.starts += 1
        if self.starts > 1 or step:
            self.restarts.append(step)
        for curve in self.curves.values():
            curve.cut(step + 1)
        self.step = step


def read_log(out: Path) -> RunLog:
    """Read what is in the folder of a run; what is missing or torn is left out.

    Raises:
        UsageError: the folder holds no run.
    """
    path = out / "metrics.jsonl"
    if not path.is_file():
        raise UsageError(f"{out}: has no metrics.jsonl. Name the --out of a training run.")
    log = RunLog(out.resolve().name)
    for line, record in enumerate(_records(path)):
        try:
            if record is None:
                raise TypeError
            log.take(record, line)
        except (KeyError, TypeError, ValueError):
            log.unreadable += 1
    log.restarts = sorted(set(log.restarts))
    log.summary = _json(out / "summary.json")
    folders = committed_checkpoints(out)
    for folder in folders:
        files = _json(folder / COMMIT).get("files", {})
        log.checkpoints.append((folder.name, sum(int(one.get("bytes", 0)) for one in files.values())))
    if folders:
        log.config = without_secrets(_json(folders[-1] / "config.json").get("config", {}))
    return log


def without_secrets(value: Any) -> Any:
    """A value of JSON whose strings hold none.

    >>> without_secrets({"url": "s3://ann:pa@ss@host/runs", "other": ["https://host/a?v=1&X-Amz-Signature=5f&b=2", 3]})
    {'url': 's3://…@host/runs', 'other': ['https://host/a?v=1&X-Amz-Signature=…&b=2', 3]}
    """
    if isinstance(value, str):
        return PARAMETER.sub(r"\1…", USER.sub("…@", value))
    if isinstance(value, Mapping):
        return {key: without_secrets(one) for key, one in value.items()}
    return [without_secrets(one) for one in value] if isinstance(value, list) else value


def _records(path: Path) -> Iterator[dict[str, Any] | None]:
    """The objects of a file of lines; None for a line that is none."""
    with open(path, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            try:
                value = json.loads(line)
            except ValueError:  # torn: its process was killed, or the disk was full
                value = None
            yield value if isinstance(value, dict) else None


def numbers(record: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Every finite number below a record, by its path: train/phases/forward."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}/{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            if key not in ("step", "at"):
                yield f"{prefix}/{key}", float(value)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except WenhaiError:
        return {}
    return value if isinstance(value, dict) else {}
