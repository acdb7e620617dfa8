"""The cells that `pretrain.sweep` has measured: a table, and two drawings, beside the planner's predictions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from corpus.engine import durable
from corpus.engine.config import Strict
from pretrain.plan.auto import Chosen, toml_lines
from pretrain.plan.cost import Prediction
from pretrain.plan.naming import layout_name
from pretrain.plan.tuning.measure import Outcome

Kernels = Literal["fused", "plain", "compiled"]

GIB = 2**30
SIDE, MARGIN, ROW, LABEL, BAR = 360, 56, 18, 250, 300  # pixels: of the square, around it; of a bar's row, name, length
PREDICTED = "fused"  # the kernels that the planner's durations are of


class Grid(Strict):
    """What all cells of a sweep have in common."""

    run: str  # configuration and what overrides it
    digest: str  # of the configuration
    ranks: int
    machine: str
    steps: int
    warm_up: int
    cores: int
    device: str
    tokens_per_step: int
    flops_per_token: float
    refused: dict[str, tuple[str, ...]]  # cells that cannot run, by the reason

    @property
    def identity(self) -> str:
        """What tells cells of different sweeps apart."""
        return (
            f"{self.run} ({self.digest[:12]}) on {self.ranks} x {self.machine}, {self.steps} steps after {self.warm_up}"
        )


class Cell(Strict):
    """One measurement, as it lies in OUT/cells."""

    layout: str
    kernels: Kernels
    outcome: Outcome
    seconds: Annotated[tuple[float, ...], Field(strict=False)] = ()  # of each step, the slowest rank's
    peak_bytes: int | None = None  # of the fullest rank
    message: str = ""  # why it is not done
    of: str  # `Grid.identity`
    load: float = 0.0  # of the machine, over the last minute: what wanted to run, these ranks and others

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return statistics.median(self.seconds)

    def told(self) -> str:
        """In a line."""
        if self.outcome != "done":
            return f"{self.outcome}: {self.message}"
        memory = "" if self.peak_bytes is None else f", {self.peak_bytes / GIB:.2f} GiB"
        return f"{self.step_seconds:.3f} s a step{memory}"


class Row(NamedTuple):
    """A cell, and what was predicted of it."""

    cell: Cell
    predicted: Prediction | None

    @property
    def error(self) -> float | None:
        """Of the predicted step, relative to the measured one."""
        if self.predicted is None or self.cell.outcome != "done":
            return None
        return self.predicted.step_seconds / self.cell.step_seconds - 1


def write_report(
    out: Path,
    grid: Grid,
    results: Mapping[str, Cell],
    predictions: Mapping[str, Prediction],
    chosen: Chosen | None,
    reason: str,
) -> None:
    """sweep.jsonl, a line for each cell, sweep.md and sweep.svg, of what is measured so far.

    Args:
        predictions: by the names of cells, as `results`.
        reason: why the planner says nothing, or chooses none.
    """
    rows = [Row(cell, predictions.get(name)) for name, cell in results.items()]
    lines = b"".join(durable.canonical_json(_as_json(row, grid)) + b"\n" for row in rows)
    durable.write_bytes(out / "sweep.jsonl", lines)
    text = "".join(f"{line}\n" for line in table(grid, rows, chosen, reason))
    durable.write_bytes(out / "sweep.md", text.encode())
    durable.write_bytes(out / "sweep.svg", svg(grid, rows).encode())


def _as_json(row: Row, grid: Grid) -> dict[str, object]:
    cell, predicted = row
    values: dict[str, object] = cell.model_dump(mode="json")
    if cell.outcome == "done":
        values |= {"step_seconds": cell.step_seconds, **_rates(grid, cell.step_seconds)._asdict()}
    if predicted is not None:
        values |= {"predicted_seconds": predicted.step_seconds, "predicted_bytes": predicted.memory_bytes}
    return values


class _Rates(NamedTuple):
    tokens_per_second: float
    model_tflops_per_gpu: float


def _rates(grid: Grid, seconds: float) -> _Rates:
    """Of all ranks; and of one, model FLOPs, nothing counted twice."""
    tokens = grid.tokens_per_step / seconds
    return _Rates(tokens, tokens * grid.flops_per_token / grid.ranks / 1e12)


def table(grid: Grid, rows: Sequence[Row], chosen: Chosen | None, reason: str) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"`{grid.run}` on {grid.ranks} ranks: {grid.machine}{_shared(grid)}. Median of {grid.steps} steps after {grid.warm_up}."
    yield ""
    yield "| layout | kernels | s a step | tokens/s | TFLOP/s a rank | GiB a rank | predicted s | error | predicted GiB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=_order):
        yield _line(row, grid)
    yield ""
    for why, cells in grid.refused.items():
        yield f"- left out: {', '.join(cells)}: {why}"
    for row in rows:
        if row.cell.outcome != "done":
            yield f"- {row.cell.layout}, {row.cell.kernels}: {row.cell.told()}"
    busiest = max((row.cell.load for row in rows), default=0.0)
    if grid.device == "cpu" and busiest > max(grid.cores, grid.ranks) + 0.5:
        yield f"- others ran here (load up to {busiest:.1f} on {grid.cores} cores): do not compare these times"
    yield from _kernels(rows)
    yield from _verdict(rows)
    if reason:
        yield f"- {reason}"
    if chosen is not None:
        yield from _choice(grid, rows, chosen)


def _shared(grid: Grid) -> str:
    if grid.device != "cpu":
        return ""
    return f", {grid.cores} cores that share memory: a measure of what ranks cost each other here, not of a cluster"


def _order(row: Row) -> tuple[bool, float]:
    """The fastest first; those without a time last."""
    is_done = row.cell.outcome == "done"
    return not is_done, row.cell.step_seconds if is_done else 0.0


def _line(row: Row, grid: Grid) -> str:
    cell, predicted = row
    numbers = [cell.outcome, "", ""]
    if cell.outcome == "done":
        tokens, flops = _rates(grid, cell.step_seconds)
        numbers = [f"{cell.step_seconds:.3f}", f"{tokens:,.0f}", f"{flops:.4g}"]
    numbers.append("" if cell.peak_bytes is None else f"{cell.peak_bytes / GIB:.2f}")
    numbers.append("" if predicted is None else f"{predicted.step_seconds:.3f}")
    numbers.append("" if row.error is None else f"{row.error:+.1%}")
    numbers.append("" if predicted is None else f"{predicted.memory_bytes / GIB:.2f}")
    return f"| {cell.layout} | {cell.kernels} | {' | '.join(numbers)} |"


def _kernels(rows: Sequence[Row]) -> Iterator[str]:
    """What kernels are worth: over layouts measured with both, the geometric mean of the ratios of their steps."""
    times: dict[str, dict[str, float]] = {}
    for cell in (row.cell for row in rows if row.cell.outcome == "done"):
        times.setdefault(cell.kernels, {})[cell.layout] = cell.step_seconds
    for other in ("plain", "compiled"):
        both = sorted(times.get("fused", {}).keys() & times.get(other, {}).keys())
        if both:
            ratio = statistics.geometric_mean(times[other][layout] / times["fused"][layout] for layout in both)
            yield f"- {other} kernels take {ratio:.2f} times as long as fused ones (geometric mean of {len(both)} layouts)"


def _verdict(rows: Sequence[Row]) -> Iterator[str]:
    """How well steps were predicted, and in which order."""
    told = [
        (row.predicted.step_seconds, row.cell.step_seconds, row)
        for row in rows
        if row.predicted and row.error is not None
    ]
    if not told:
        return
    errors = [abs(row.error or 0.0) for *_, row in told]
    words = f"- predicted steps: mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}"
    if len(told) > 2:
        words += f", rank correlation {rank_correlation([p for p, *_ in told], [m for _, m, _ in told]):.2f}"
    yield f"{words} ({len(told)} layouts, {PREDICTED} kernels)"
    first, best = min(told, key=lambda each: each[0])[2], min(told, key=lambda each: each[1])[2]
    slower = first.cell.step_seconds / best.cell.step_seconds - 1
    end = "the fastest measured, too" if first is best else f"measured {slower:.1%} slower than {best.cell.layout}"
    yield f"- of these layouts the planner has {first.cell.layout} first: {end}"


def _choice(grid: Grid, rows: Sequence[Row], chosen: Chosen) -> Iterator[str]:
    done = [row.cell for row in rows if row.cell.outcome == "done"]
    if done:
        best = min(done, key=lambda cell: cell.step_seconds)
        yield f"- best measured: {best.layout}, {best.kernels} kernels, {best.told()}"
    name = layout_name(chosen.config, grid.ranks)
    seconds = chosen.prediction.step_seconds
    yield (
        f"- of all {chosen.plans.considered:,} layouts the planner would choose {name}: {seconds:.3f} s a step, by its account "
        f"(cluster {chosen.cluster.name}). To pin it:"
    )
    yield ""
    yield from ("```toml", *toml_lines(chosen.config).splitlines(), "```")


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, of equal values their mean rank; 0 where one side is all equal.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    ranks = [_ranks(first), _ranks(second)]
    if any(len(set(each)) < 2 for each in ranks):
        return 0.0
    return statistics.correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def svg(grid: Grid, rows: Sequence[Row]) -> str:
    """Measured over predicted steps, and below it the tokens/s of each cell, on light or dark ground; needs nothing else."""
    done = sorted((row for row in rows if row.cell.outcome == "done"), key=_order)
    top = SIDE + 40 if any(row.predicted for row in done) else 0
    width, height = LABEL + BAR + 120, top + ROW * len(done) + 60
    parts = [
        "<style>.ground{fill:#fff}.ink{fill:#1f2328}.axis{stroke:#1f2328;fill:none}.ideal{stroke:#888;stroke-dasharray:5 5}"
        ".fused{fill:#1b6ca8}.plain{fill:#b5651d}.compiled{fill:#3c8d40}@media(prefers-color-scheme:dark){.ground{fill:"
        "#0d1117}.ink{fill:#e6edf3}.axis{stroke:#e6edf3}.fused{fill:#6cb6ff}.plain{fill:#e0a060}.compiled{fill:#7ed083}}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *(_scatter(done) if top else ()),
        *_bars(grid, done, top),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}</svg>\n'
    )


def _scatter(rows: Sequence[Row]) -> Iterator[str]:
    """On both axes the same logarithmic scale: on the dashed line a prediction is right."""
    pairs = [(row.predicted.step_seconds, row.cell.step_seconds, row.cell) for row in rows if row.predicted]
    values = [value for predicted, measured, _ in pairs for value in (predicted, measured)]
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05

    def at(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * (SIDE - 2 * MARGIN)

    near, far = MARGIN, SIDE - MARGIN
    yield f'<path class="axis" d="M{near},{near} V{far} H{far}"/><path class="ideal" d="M{near},{far} L{far},{near}"/>'
    for value in (min(values), max(values)):
        yield _text(near + at(value), far + 16, f"{value:.3g}", "middle")
        yield _text(near - 6, far - at(value) + 4, f"{value:.3g}", "end")
    yield _text(near, near - 14, "measured s a step, over predicted s a step")
    for predicted, measured, cell in pairs:
        yield (
            f'<circle class="{cell.kernels}" cx="{near + at(predicted):.1f}" cy="{far - at(measured):.1f}" r="4">'
            f"<title>{escape(cell.layout)}: {measured:.3f} s, predicted {predicted:.3f} s</title></circle>"
        )


def _bars(grid: Grid, rows: Sequence[Row], top: float) -> Iterator[str]:
    yield _text(8, top + 22, "tokens/s (blue fused, brown plain, green compiled kernels)")
    most = max((_rates(grid, row.cell.step_seconds).tokens_per_second for row in rows), default=1.0)
    for number, row in enumerate(rows):
        tokens = _rates(grid, row.cell.step_seconds).tokens_per_second
        y, length = top + 36 + ROW * number, BAR * tokens / most
        yield _text(LABEL - 8, y + 12, f"{row.cell.layout} {row.cell.kernels}", "end")
        yield f'<rect class="{row.cell.kernels}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{ROW - 4}"/>'
        yield _text(LABEL + length + 6, y + 12, f"{tokens:,.0f}")


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="ink" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'
