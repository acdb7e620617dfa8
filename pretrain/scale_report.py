"""The points that `pretrain.scale` has measured, as a table and as two curves: throughput over ranks, beside the
ideal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from corpus.engine import durable
from corpus.engine.chart import Point as Dot
from corpus.engine.chart import Series, picture, plot
from corpus.engine.config import Strict, parse
from corpus.engine.errors import UsageError

Kind = Literal["weak", "strong"]

KINDS: dict[Kind, str] = {"weak": "the batch grows with the data-parallel ranks", "strong": "the batch stays"}
COLUMNS = "ranks | layout | batch | micro-batch | s a step | tokens/s | speed-up | efficiency"
FRONTIER = (
    "Published on Frontier (arXiv 2312.12705): weak scaling 100 % at 1,024 GPUs (175 B) and 3,072 (1 T); strong "
    "scaling 89 % "
    "and 87 %. Other machines and numbers of ranks: what the curves are called after, not what they compare with."
)


class Point(Strict):
    """One measurement; rank 0 writes it into OUT/points."""

    kind: Kind
    ranks: int
    global_batch_size: int
    micro_batch_size: int
    tokens_per_second: float  # of all ranks, by the median step
    flops_per_second: float  # of all ranks: model FLOPs, nothing counted twice
    step_seconds: Annotated[tuple[float, ...], Field(strict=False)]  # of each step, the slowest rank's
    run: str  # configuration and what overrides it
    layout: str
    device: str
    machine: str  # the GPU's or the CPU's name
    cores: int  # of a node, for its ranks
    ranks_per_node: int
    threads: int  # of a rank
    tokens: str  # where they came from

    @property
    def file_name(self) -> str:
        """Below OUT/points."""
        return f"{self.kind}-{self.ranks:06d}.json"


class Row(NamedTuple):
    """A point beside the one of the fewest ranks."""

    point: Point
    speedup: float
    efficiency: float  # speed a rank


def write_report(out: Path) -> None:
    """Draw what has been measured so far: scaling.json, scaling.md and scaling.svg in `out`.

    Raises:
        UsageError: the folder has points of different runs.
    """
    points = [parse(Point, durable.read_json(path), str(path)) for path in sorted((out / "points").glob("*.json"))]
    told = {(point.run, point.tokens, point.machine) for point in points}
    if len(told) > 1:
        runs = "; ".join(" | ".join(each) for each in sorted(told))
        raise UsageError(
            f"{out}: has points of different runs ({runs}). Give another --out, or remove {out / 'points'}"
        )
    curves = {
        kind: [
            {**row.point.model_dump(mode="json"), "speedup": row.speedup, "efficiency": row.efficiency}
            for row in rows(points, kind)
        ]
        for kind in KINDS
    }
    durable.write_json(out / "scaling.json", {"note": note(points), "curves": curves})
    durable.write_bytes(out / "scaling.md", "".join(f"{line}\n" for line in table(points)).encode())
    durable.write_bytes(out / "scaling.svg", svg(points).encode())


def rows(points: Sequence[Point], kind: Kind) -> list[Row]:
    """The points of a kind by number of ranks. The fewest ranks of all are measured once, for both kinds."""
    fewest = min(point.ranks for point in points)
    own = {point.ranks: point for point in points if point.ranks == fewest}
    own |= {point.ranks: point for point in points if point.kind == kind}
    speedups = {ranks: own[ranks].tokens_per_second / own[fewest].tokens_per_second for ranks in sorted(own)}
    return [Row(own[ranks], speedup, speedup * fewest / ranks) for ranks, speedup in speedups.items()]


def note(points: Sequence[Point]) -> str:
    """Where this was measured, and what that machine cannot do."""
    point = points[0]
    threads = f"{point.threads} thread{'s' * (point.threads > 1)} a rank"
    where = f"{point.machine}, {point.device}, {threads}, {point.tokens} tokens"
    if point.device != "cpu":
        return where
    most = max(point.ranks_per_node for point in points)
    limit = f": {most} ranks cannot be faster than {point.cores}" if most > point.cores else ""
    shared = f"{point.cores} cores that share memory{limit}"
    return f"{where}. {shared}. A measure of what ranks cost each other here, not of a cluster."


def table(points: Sequence[Point]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"`{points[0].run}`: {note(points)}"
    for kind, about in KINDS.items():
        yield from ("", f"{kind.capitalize()} scaling ({about}):", "", f"| {COLUMNS} |")
        yield "|---" * (COLUMNS.count("|") + 1) + "|"
        for point, speedup, efficiency in rows(points, kind):
            step = statistics.median(point.step_seconds)
            batch = (
                f"{point.global_batch_size} | {point.micro_batch_size} | {step:.3f} | {point.tokens_per_second:,.0f}"
            )
            yield f"| {point.ranks} | {point.layout} | {batch} | {speedup:.2f} | {efficiency:.0%} |"
    yield ""
    yield FRONTIER


def svg(points: Sequence[Point]) -> str:
    """Tokens a second over ranks, beside the speed of the fewest ranks multiplied, in one file that needs nothing
    else."""
    drawings = []
    for kind, about in KINDS.items():
        own = rows(points, kind)
        each = own[0].point.tokens_per_second / own[0].point.ranks
        measured = [
            Dot(point.ranks, point.tokens_per_second, f"{point.ranks} ranks: {efficiency:.0%}")
            for point, _, efficiency in own
        ]
        groups = [
            Series("ideal", [Dot(point.ranks, each * point.ranks) for point, *_ in own], 3),
            Series("measured", measured, 0, radius=4.0),
        ]
        efficiencies = ", ".join(f"{dot.about}" for dot in measured)
        title = f"{kind} scaling: {about}. {efficiencies}"
        ticks = [point.ranks for point, *_ in own]
        drawings.append(plot(title, groups, "ranks", "tokens/s", x_log=True, x_ticks=ticks))
    return picture(drawings, [points[0].run, *note(points).split(". ")])
