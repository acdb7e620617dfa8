"""The points that `pretrain.scale` has measured, as a table and as two curves: throughput over ranks, beside the ideal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from corpus.engine import durable
from corpus.engine.config import Strict, parse
from corpus.engine.errors import UsageError

Kind = Literal["weak", "strong"]

KINDS: dict[Kind, str] = {
    "weak": "the batch grows with the data-parallel ranks",
    "strong": "the batch stays",
}
FRONTIER = (
    "Published on Frontier (arXiv 2312.12705): weak scaling 100 % at 1,024 GPUs (175 B) and 3,072 (1 T); strong scaling 89 % "
    "and 87 %. Other machines and numbers of ranks: what the curves are called after, not what they compare with."
)
WIDTH, HEIGHT, MARGIN = 380, 300, 56  # pixels, of one curve
NUM_TICKS = 4


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
    curves = {kind: rows(points, kind) for kind in KINDS}
    value = {
        "note": note(points),
        "curves": {
            kind: [
                {**row.point.model_dump(mode="json"), "speedup": row.speedup, "efficiency": row.efficiency}
                for row in own
            ]
            for kind, own in curves.items()
        },
    }
    durable.write_json(out / "scaling.json", value)
    durable.write_bytes(out / "scaling.md", "".join(f"{line}\n" for line in table(points)).encode())
    durable.write_bytes(out / "scaling.svg", svg(points).encode())


def rows(points: Sequence[Point], kind: Kind) -> list[Row]:
    """The points of a kind by number of ranks. The fewest ranks of all are measured once, for both kinds."""
    fewest = min(point.ranks for point in points)
    first = {point.ranks: point for point in points if point.ranks == fewest}
    own = first | {point.ranks: point for point in points if point.kind == kind}
    found = []
    for ranks, point in sorted(own.items()):
        speedup = point.tokens_per_second / own[fewest].tokens_per_second
        found.append(Row(point, speedup, speedup * fewest / ranks))
    return found


def note(points: Sequence[Point]) -> str:
    """Where this was measured, and what that machine cannot do."""
    point = points[0]
    where = f"{point.machine}, {point.device}, {point.threads} thread{'s' * (point.threads > 1)} a rank, {point.tokens} tokens"
    if point.device != "cpu":
        return where
    most = max(point.ranks_per_node for point in points)
    words = f"{where}. {point.cores} cores that share memory"
    if most > point.cores:
        words += f": {most} ranks cannot be faster than {point.cores}"
    return f"{words}. A measure of what ranks cost each other here, not of a cluster."


def table(points: Sequence[Point]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"`{points[0].run}`: {note(points)}"
    for kind, about in KINDS.items():
        yield ""
        yield f"{kind.capitalize()} scaling ({about}):"
        yield ""
        yield "| ranks | layout | batch | micro-batch | s a step | tokens/s | speed-up | efficiency |"
        yield "|---|---|---|---|---|---|---|---|"
        for point, speedup, efficiency in rows(points, kind):
            step = statistics.median(point.step_seconds)
            yield (
                f"| {point.ranks} | {point.layout} | {point.global_batch_size} | {point.micro_batch_size} | {step:.3f} | "
                f"{point.tokens_per_second:,.0f} | {speedup:.2f} | {efficiency:.0%} |"
            )
    yield ""
    yield FRONTIER


def svg(points: Sequence[Point]) -> str:
    """Two curves side by side in one picture that needs nothing else, on light or dark ground."""
    height = HEIGHT + 60
    parts = [
        "<style>.ground{fill:#fff}.ink{fill:#1f2328}.axis{stroke:#1f2328;fill:none}.curve{stroke:#1b6ca8;fill:none;"
        "stroke-width:2}.dot{fill:#1b6ca8}.ideal{stroke:#888;fill:none;stroke-dasharray:5 5}@media(prefers-color-scheme:"
        "dark){.ground{fill:#0d1117}.ink{fill:#e6edf3}.axis{stroke:#e6edf3}.curve{stroke:#6cb6ff}.dot{fill:#6cb6ff}}"
        "</style>",
        f'<rect class="ground" width="{2 * WIDTH}" height="{height}"/>',
    ]
    for index, (kind, about) in enumerate(KINDS.items()):
        parts.append(f'<g transform="translate({index * WIDTH},0)">')
        parts += _curve(rows(points, kind), f"{kind} scaling: {about}")
        parts.append("</g>")
    for index, words in enumerate([points[0].run, *note(points).split(". ")]):
        parts.append(_text(16, HEIGHT + 8 + 16 * index, words))
    size = f'viewBox="0 0 {2 * WIDTH} {height}" width="{2 * WIDTH}" height="{height}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'


def _curve(own: Sequence[Row], title: str) -> Iterator[str]:
    """Tokens a second over ranks, each point with its efficiency; dashed: the speed of the fewest ranks, multiplied."""
    first = own[0].point
    most_ranks = max(row.point.ranks for row in own)
    ideal = first.tokens_per_second / first.ranks
    top = 1.1 * max(ideal * most_ranks, *(row.point.tokens_per_second for row in own))

    def at(ranks: float, tokens_per_second: float) -> str:
        across = MARGIN + ranks / most_ranks * (WIDTH - 2 * MARGIN)
        return f"{across:.1f},{HEIGHT - MARGIN - tokens_per_second / top * (HEIGHT - 2 * MARGIN):.1f}"

    yield _text(WIDTH / 2, 24, title, "middle")
    yield f'<path class="axis" d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}"/>'
    for tick in range(1, NUM_TICKS + 1):
        value = ideal * most_ranks * tick / NUM_TICKS
        yield _text(MARGIN - 6, float(at(0, value).split(",")[1]) + 4, f"{value:,.0f}", "end")
    yield _text(8, MARGIN - 14, "tokens/s")
    yield _text(WIDTH - MARGIN, HEIGHT - MARGIN + 34, "ranks", "end")
    yield f'<path class="ideal" d="M{at(first.ranks, ideal * first.ranks)} L{at(most_ranks, ideal * most_ranks)}"/>'
    yield f'<polyline class="curve" points="{" ".join(at(row.point.ranks, row.point.tokens_per_second) for row in own)}"/>'
    for point, _, efficiency in own:
        x, y = map(float, at(point.ranks, point.tokens_per_second).split(","))
        yield f'<circle class="dot" cx="{x}" cy="{y}" r="4"/>'
        yield _text(x, y + 20, f"{efficiency:.0%}", "middle")
        yield _text(x, HEIGHT - MARGIN + 18, str(point.ranks), "middle")


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="ink" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'
