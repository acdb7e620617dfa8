"""A step's pipeline over time: who computes what when, with its real durations. A long step is shown by its ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from corpus.engine.chart import Drawing, round_step, words
from corpus.engine.page import Html, tag
from pretrain.parallel.base.simulate import Timeline
from pretrain.plan.prediction import Prediction
from pretrain.plan.time import pipeline_time
from pretrain.schedules import Kind

WIDTH, LEFT, ROW, GAP, BOTTOM = 1040, 56, 20, 48, 24  # pixels; GAP: of what is left out
MOST_ROWS = 20
MOST_BLOCKS = 1600  # that are drawn; more make a page slow, and are too narrow to see
NUMBERED = 15  # pixels: a block that wide has its micro-batch's number
KINDS: dict[Kind, tuple[str, int]] = {  # name and colour
    "F": ("forward", 0),
    "B": ("backward", 2),
    "I": ("backward of the inputs", 4),
    "W": ("backward of the weights", 1),
}


class Block(NamedTuple):
    """One action, drawn."""

    row: int
    kind: Kind
    is_first: bool  # of its rank's first stage
    micro_batch: int
    start: float
    end: float


class Window(NamedTuple):
    """What is drawn of a step: all before `begin`, all after `rest`."""

    begin: float
    rest: float
    total: float

    @property
    def is_whole(self) -> bool:
        """Nothing is left out."""
        return self.begin >= self.rest

    def place(self, seconds: float) -> float:
        """Pixels from the left."""
        room = WIDTH - LEFT - 2
        if self.is_whole:
            return LEFT + room * seconds / self.total
        scale = (room - GAP) / (self.begin + self.total - self.rest)
        return LEFT + scale * (seconds if seconds <= self.begin else self.begin + seconds - self.rest + GAP / scale)


def of(prediction: Prediction) -> Timeline:
    """The step's pipeline in seconds: messages take no time, gradients of data parallelism and the update come after
    it."""
    schedule, owners = prediction.config.parallel.schedule, prediction.step.places.owners
    stages = [stage._replace(first=0.0, last=0.0) for stage in prediction.step.stages]
    return pipeline_time.timeline(schedule, stages, owners, prediction.micro_batches, send=0.0)


def draw(timeline: Timeline, title: str, total: float | None = None, unit: str = " s") -> Drawing:
    """Of many ranks some are shown, first and last among them.

    Args:
        total: what fills the width, for several on one scale; else all of a step, or as much as can be seen.
        unit: of the times below the rows.
    """
    ranks = rows(len(timeline.lists))
    found = list(blocks(timeline, ranks))
    window = fit(found, timeline.total) if total is None else Window(total, total, total)
    shown = [block for block in found if block.end <= window.begin or block.start >= window.rest]
    height = ROW * len(ranks) + BOTTOM
    parts = [words(LEFT - 6, ROW * row + 14, f"rank {rank}", "end") for row, rank in enumerate(ranks)]
    parts += [part for block in shown for part in _block(block, window)]
    parts += _ticks(window, height, unit)
    notes = ["What is empty is the bubble; a number is a micro-batch."]
    if len(ranks) < len(timeline.lists):
        notes.append(f"{len(ranks)} of {len(timeline.lists)} ranks.")
    if not window.is_whole:
        notes.append(f"The {window.rest - window.begin:.3g} s in the middle, which repeat, are left out.")
    if any(not block.is_first for block in shown):
        notes.append("Pale: later stages of a rank.")
    told = f"{title}: {timeline.total:.3g} s, of which the busiest rank waits {timeline.total - timeline.ideal:.3g} s"
    legend = [about for kind, about in KINDS.items() if any(block.kind == kind for block in shown)]
    return Drawing(title, parts, height, told, legend, " ".join(notes), width=WIDTH)


def rows(num_ranks: int) -> list[int]:
    """Which ranks are shown.

    >>> rows(3), rows(38)[:4], rows(38)[-1], len(rows(38))
    ([0, 1, 2], [0, 2, 4, 6], 37, 20)
    """
    most = min(num_ranks, MOST_ROWS)
    return [round(index * (num_ranks - 1) / max(1, most - 1)) for index in range(most)]


def blocks(timeline: Timeline, ranks: Sequence[int]) -> Iterator[Block]:
    """The actions of these ranks."""
    for row, rank in enumerate(ranks):
        first = list(timeline.ranks).index(rank)
        for action, start, end in zip(timeline.lists[rank], timeline.starts[rank], timeline.ends[rank], strict=True):
            yield Block(row, action.kind, action.stage == first, action.micro_batch, start, end)


def fit(found: Sequence[Block], total: float) -> Window:
    """All of a step, or as much of its two ends as `MOST_BLOCKS` blocks are."""
    if len(found) <= MOST_BLOCKS:
        return Window(total, total, total)
    half = MOST_BLOCKS // 2
    return Window(sorted(block.end for block in found)[half - 1], sorted(block.start for block in found)[-half], total)


def _block(block: Block, window: Window) -> Iterator[Html]:
    left, right = window.place(block.start), window.place(block.end)
    kind = f"c{KINDS[block.kind][1]}{'' if block.is_first else ' faint'}"
    yield tag("rect", class_=kind, x=left, y=ROW * block.row, width=max(0.4, right - left - 0.6), height=ROW - 3)
    if right - left >= NUMBERED:
        yield words((left + right) / 2, ROW * block.row + 13, f"{block.micro_batch}", "middle", "number")


def _ticks(window: Window, height: float, unit: str) -> Iterator[Html]:
    """Seconds below the rows, and where some are left out."""
    step = round_step((window.begin + window.total - window.rest) / 8)
    for value in [index * step for index in range(int(window.total / step) + 1)]:
        if not window.begin < value < window.rest:
            x = window.place(value)
            yield words(x, height - 6, f"{value:.4g}{unit}", "middle" if x > LEFT + 8 else "start")
    if not window.is_whole:
        x = window.place(window.begin) + GAP / 2
        yield tag("line", class_="restart", x1=x, y1=0, x2=x, y2=height - BOTTOM)
