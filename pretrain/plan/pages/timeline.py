"""A step's pipeline over time: who computes what when, with its real durations. A long step is shown by its ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from pretrain.monitor.charts import round_step
from pretrain.parallel.base.schedule import Kind, actions
from pretrain.parallel.base.simulate import Timeline, simulate
from pretrain.plan.pages.charts import figure
from pretrain.plan.prediction import Prediction

WIDTH, LEFT, ROW, GAP, BOTTOM = 1040, 56, 20, 48, 24  # pixels; GAP: of what is left out
MOST_ROWS = 20
MOST_BLOCKS = 1600  # that are drawn; more make a page slow, and are too narrow to see
NUMBERED = 15  # pixels: a block that wide has its micro-batch's number
COLORS: dict[Kind, int] = {"F": 0, "B": 2, "I": 4, "W": 1}
MEANINGS: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "backward of the inputs",
    "W": "backward of the weights",
}


@dataclass(frozen=True)
class Block:
    """One action, drawn."""

    row: int
    kind: Kind
    is_first: bool  # of its rank's first stage
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class Window:
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
        if seconds <= self.begin:
            return LEFT + scale * seconds
        return LEFT + scale * (self.begin + seconds - self.rest) + GAP


def of(prediction: Prediction) -> Timeline:
    """The step's pipeline in seconds: messages take no time, gradients of data parallelism and the update come after it."""
    parallel, stages = prediction.config.parallel, prediction.stages
    kinds = [{"F": one.forward, "I": one.inputs, "W": one.weights, "B": one.backward} for one in stages]
    lists = actions(parallel.schedule, parallel.pp, parallel.chunks, prediction.micro_batches)
    return simulate(lists, [one.rank for one in stages], lambda action: kinds[action.stage][action.kind])


def draw(timeline: Timeline, title: str) -> str:
    """The figure. Of many ranks some are shown, first and last among them."""
    ranks = rows(len(timeline.lists))
    found = list(blocks(timeline, ranks))
    window = fit(found, timeline.total)
    shown = [block for block in found if block.end <= window.begin or block.start >= window.rest]
    height = ROW * len(ranks) + BOTTOM
    parts = [
        f'<text x="{LEFT - 6}" y="{ROW * row + 14}" text-anchor="end">rank {rank}</text>'
        for row, rank in enumerate(ranks)
    ]
    parts += [_block(block, window) for block in shown]
    parts += _ticks(window, height)
    kinds = [kind for kind in COLORS if any(block.kind == kind for block in shown)]
    notes = []
    if len(ranks) < len(timeline.lists):
        notes.append(f"{len(ranks)} of {len(timeline.lists)} ranks")
    if not window.is_whole:
        notes.append(f"the {window.rest - window.begin:.3g} s in the middle, which repeat, are left out")
    if any(not block.is_first for block in shown):
        notes.append("pale: later stages of a rank")
    told = f"{title}: {timeline.total:.3g} s, of which the busiest rank waits {timeline.total - timeline.ideal:.3g} s"
    size = f'viewBox="0 0 {WIDTH} {height}"'
    svg = f'<div class="scroll"><svg {size} role="img" aria-label="{escape(told)}">{"".join(parts)}</svg></div>'
    note = f"{'; '.join(notes).capitalize()}. " if notes else ""
    note += "What is empty is the bubble; a number is a micro-batch."
    return figure(title, [(MEANINGS[kind], COLORS[kind]) for kind in kinds], svg, note, kind="wide")


def rows(num_ranks: int) -> list[int]:
    """Which ranks are shown.

    >>> rows(3), rows(38)[:4], rows(38)[-1], len(rows(38))
    ([0, 1, 2], [0, 2, 4, 6], 37, 20)
    """
    if num_ranks <= MOST_ROWS:
        return list(range(num_ranks))
    return sorted({round(index * (num_ranks - 1) / (MOST_ROWS - 1)) for index in range(MOST_ROWS)})


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
    begin = sorted(block.end for block in found)[half - 1]
    rest = sorted(block.start for block in found)[-half]
    return Window(begin, rest, total)


def _block(block: Block, window: Window) -> str:
    left, right = window.place(block.start), window.place(block.end)
    pale = "" if block.is_first else ' fill-opacity="0.4"'
    place = f'x="{left:.1f}" y="{ROW * block.row}" width="{max(0.4, right - left - 0.6):.1f}" height="{ROW - 3}"'
    shape = f'<rect class="c{COLORS[block.kind]}" {place}{pale}/>'
    if right - left < NUMBERED:
        return shape
    number = f'<text class="number" x="{(left + right) / 2:.1f}" y="{ROW * block.row + 13}" text-anchor="middle">'
    return f"{shape}{number}{block.micro_batch}</text>"


def _ticks(window: Window, height: float) -> Iterator[str]:
    """Seconds below the rows, and where some are left out."""
    shown = window.total if window.is_whole else window.begin + window.total - window.rest
    step = round_step(shown / 8)
    values = [index * step for index in range(int(window.total / step) + 1)]
    for value in values:
        if window.begin < value < window.rest:
            continue
        x = window.place(value)
        yield f'<text x="{x:.1f}" y="{height - 6}" text-anchor="{"middle" if x > LEFT + 8 else "start"}">{value:.4g} s</text>'
    if not window.is_whole:
        middle = window.place(window.begin) + GAP / 2
        yield f'<line class="restart" x1="{middle:.1f}" y1="0" x2="{middle:.1f}" y2="{height - BOTTOM}"/>'
