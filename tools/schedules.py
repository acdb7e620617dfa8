"""Pipeline schedules drawn over time: who computes what when, what is lost, and how much is held.

    python -m tools.schedules --ranks 4 --micro-batches 8 --svg docs/schedules.svg

A row is a rank. F is a forward, B a backward, I and W its two parts, for the inputs and for the weights; the number is
the micro-batch. All stages take the same time: a rank's second stage (small letters, faint in the picture) lasts half
as long as the only stage of a rank that has one. The micro-batches held are those whose activations the fullest rank
has at once, all its stages together.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus.engine.chart import picture
from corpus.engine.cli import add_examples
from pretrain.config import ParallelConfig
from pretrain.parallel.base.simulate import Timeline, most_held, simulate
from pretrain.plan.pages import timeline
from pretrain.schedules import SCHEDULES, Action, actions, stage_ranks

EXAMPLES = """
python -m tools.schedules --ranks 4 --micro-batches 8
python -m tools.schedules --ranks 2 --micro-batches 6 --schedule zbv --times 2 3 2
"""
TERMINAL_COLORS = {"F": 44, "B": 42, "I": 43, "W": 41}  # ANSI backgrounds


@dataclass(frozen=True)
class Drawing:
    """One schedule, simulated."""

    schedule: str
    chunks: int
    timeline: Timeline  # in times of a stage, of which a rank has `chunks`

    @property
    def held(self) -> float:
        """Most micro-batches that a rank holds at once; those of one of its stages count as a part."""
        sizes = [1 / self.chunks] * len(self.timeline.ranks)
        return max(most_held(own, sizes) for own in self.timeline.lists)

    @property
    def title(self) -> str:
        """What is read over the rows."""
        stages = f", {self.chunks} stages a rank" if self.chunks > 1 else ""
        return (
            f"{self.schedule}{stages}: bubble {100 * self.timeline.bubble:.1f} %, micro-batches held: {self.held:.3g}"
        )

    def rows(self) -> Iterator[list[tuple[Action, int, int, bool]]]:
        """For each rank its actions with start, end and whether they are of its first stage."""
        timeline = self.timeline
        for rank, (own, starts, ends) in enumerate(zip(timeline.lists, timeline.starts, timeline.ends, strict=True)):
            first = timeline.ranks.index(rank)
            yield [
                (action, int(start), int(end), action.stage == first)
                for action, start, end in zip(own, starts, ends, strict=True)
            ]


def draw(schedule: str, num_ranks: int, num_micro_batches: int, times: Sequence[int]) -> Drawing:
    """Simulate stages whose F, I and W take `times`."""
    forward, inputs, weights = times
    seconds = {"F": forward, "B": inputs + weights, "I": inputs, "W": weights}
    chunks = ParallelConfig(pp=num_ranks, schedule=schedule).chunks
    lists = actions(schedule, num_ranks, chunks, num_micro_batches)
    ranks = stage_ranks(schedule, num_ranks, chunks)
    return Drawing(schedule, chunks, simulate(lists, ranks, lambda action: seconds[action.kind]))


def as_text(drawing: Drawing, colored: bool = False) -> str:
    """A title and a line for each rank, two characters or more for each unit of time."""
    width = 1 + len(str(max(action.micro_batch for own in drawing.timeline.lists for action in own)))
    lines = [drawing.title]
    for row in drawing.rows():
        cells, now = [], 0
        for action, start, end, is_first in row:
            kind = action.kind if is_first else action.kind.lower()
            cell = f"{kind}{action.micro_batch}".ljust(width * (end - start))
            cells.append("." * width * (start - now))
            cells.append(f"\x1b[30;{TERMINAL_COLORS[action.kind]}m{cell}\x1b[0m" if colored else cell)
            now = end
        lines.append("".join(cells))
    return "\n".join(lines)


def as_svg(drawings: Sequence[Drawing]) -> str:
    """All drawings below each other on one scale of time, in light or dark as the reader has it."""
    longest = max(drawing.timeline.total / drawing.chunks for drawing in drawings)
    parts = [timeline.draw(drawing.timeline, drawing.title, longest * drawing.chunks, unit="") for drawing in drawings]
    return picture(parts, ["faint: the second stage of a rank; the number is the micro-batch"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the timelines, and draw them."""
    parser = argparse.ArgumentParser(prog="python -m tools.schedules", description=__doc__)
    add_examples(parser, EXAMPLES)
    parser.add_argument("--ranks", type=int, default=4, help="of the pipeline (4)")
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step (8)")
    parser.add_argument("--schedule", choices=SCHEDULES, nargs="+", default=list(SCHEDULES), help="which ones (all)")
    parser.add_argument(
        "--times", type=int, nargs=3, default=[1, 1, 1], metavar=("F", "I", "W"), help="of a stage (1 1 1)"
    )
    parser.add_argument("--svg", type=Path, help="draw them into this file")
    options = parser.parse_args(arguments)
    if min(options.ranks, options.micro_batches, *options.times) < 1:
        parser.error("ranks, micro-batches and times are at least 1")
    drawings = [draw(name, options.ranks, options.micro_batches, options.times) for name in options.schedule]
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print("\n\n".join(as_text(drawing, colored) for drawing in drawings))
    if options.svg:
        options.svg.write_text(as_svg(drawings))


if __name__ == "__main__":
    main()
