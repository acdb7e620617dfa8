"""The cells that `pretrain.sweep` has measured: a table, and two drawings, beside the planner's predictions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from corpus.engine import durable
from corpus.engine.chart import Bar, Point, Series, bars, picture, plot
from corpus.engine.config import Strict
from pretrain.plan.auto import Chosen, toml_lines
from pretrain.plan.cost import Prediction
from pretrain.plan.naming import layout_name
from pretrain.plan.tuning.measure import Outcome

Kernels = Literal["fused", "plain", "compiled"]

GIB = 2**30
PREDICTED = "fused"  # the kernels that the planner's durations are of
COLUMNS = "layout | kernels | s a step | tokens/s | TFLOP/s a rank | GiB a rank | predicted s | error | predicted GiB"


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
        steps = f"{self.steps} steps after {self.warm_up}"
        return f"{self.run} ({self.digest[:12]}) on {self.ranks} x {self.machine}, {steps}"


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
        """The median step; infinite where there is none."""
        return statistics.median(self.seconds) if self.outcome == "done" else float("inf")

    @property
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
        tokens, flops = _rates(grid, cell)
        values |= {"step_seconds": cell.step_seconds, "tokens_per_second": tokens, "model_tflops_per_gpu": flops}
    if predicted is not None:
        values |= {"predicted_seconds": predicted.step_seconds, "predicted_bytes": predicted.memory_bytes}
    return values


def _rates(grid: Grid, cell: Cell) -> tuple[float, float]:
    """Tokens a second of all ranks; and of one, TFLOP/s of the model, nothing counted twice."""
    tokens = grid.tokens_per_step / cell.step_seconds
    return tokens, tokens * grid.flops_per_token / grid.ranks / 1e12


def table(grid: Grid, rows: Sequence[Row], chosen: Chosen | None, reason: str) -> Iterator[str]:
    """Lines of Markdown."""
    shared = f", {grid.cores} cores that share memory: a measure of what ranks cost each other here, not of a cluster"
    where = f"{grid.machine}{shared if grid.device == 'cpu' else ''}"
    yield f"`{grid.run}` on {grid.ranks} ranks: {where}. Median of {grid.steps} steps after {grid.warm_up}."
    yield ""
    yield f"| {COLUMNS} |"
    yield "|---" * (COLUMNS.count("|") + 1) + "|"
    for row in sorted(rows, key=lambda row: row.cell.step_seconds):
        yield f"| {' | '.join(_cells(row, grid))} |"
    yield ""
    for why, cells in grid.refused.items():
        yield f"- left out: {', '.join(cells)}: {why}"
    yield from (f"- {cell.layout}, {cell.kernels}: {cell.told}" for cell, _ in rows if cell.outcome != "done")
    busiest = max((row.cell.load for row in rows), default=0.0)
    if grid.device == "cpu" and busiest > max(grid.cores, grid.ranks) + 0.5:
        yield f"- others ran here (load up to {busiest:.1f} on {grid.cores} cores): do not compare these times"
    yield from _kernels(rows)
    yield from _verdict(rows)
    if reason:
        yield f"- {reason}"
    if chosen is not None:
        yield from _choice(grid, rows, chosen)


def _cells(row: Row, grid: Grid) -> Iterator[str]:
    cell, predicted = row
    yield from (cell.layout, cell.kernels)
    if cell.outcome == "done":
        tokens, flops = _rates(grid, cell)
        yield from (f"{cell.step_seconds:.3f}", f"{tokens:,.0f}", f"{flops:.4g}")
    else:
        yield from (cell.outcome, "", "")
    yield "" if cell.peak_bytes is None else f"{cell.peak_bytes / GIB:.2f}"
    yield "" if predicted is None else f"{predicted.step_seconds:.3f}"
    yield "" if row.error is None else f"{row.error:+.1%}"
    yield "" if predicted is None else f"{predicted.memory_bytes / GIB:.2f}"


def _kernels(rows: Sequence[Row]) -> Iterator[str]:
    """What kernels are worth: over layouts measured with both, the geometric mean of the ratios of their steps."""
    times: dict[str, dict[str, float]] = {"fused": {}, "plain": {}, "compiled": {}}
    for cell in (row.cell for row in rows if row.cell.outcome == "done"):
        times[cell.kernels][cell.layout] = cell.step_seconds
    for other in ("plain", "compiled"):
        if both := times["fused"].keys() & times[other].keys():
            ratio = statistics.geometric_mean(times[other][layout] / times["fused"][layout] for layout in sorted(both))
            mean = f"geometric mean of {len(both)} layouts"
            yield f"- {other} kernels take {ratio:.2f} times as long as fused ones ({mean})"


def _verdict(rows: Sequence[Row]) -> Iterator[str]:
    """How well steps were predicted, and in which order."""
    told = [(row.predicted.step_seconds, row.cell) for row in rows if row.predicted and row.error is not None]
    if not told:
        return
    errors = [abs(row.error) for row in rows if row.error is not None]
    words = f"- predicted steps: mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}"
    if len(told) > 2:
        correlation = rank_correlation([seconds for seconds, _ in told], [cell.step_seconds for _, cell in told])
        words += f", rank correlation {correlation:.2f}"
    yield f"{words} ({len(told)} layouts, {PREDICTED} kernels)"
    first, best = min(told, key=lambda each: each[0])[1], min(told, key=lambda each: each[1].step_seconds)[1]
    slower = f"measured {first.step_seconds / best.step_seconds - 1:.1%} slower than {best.layout}"
    end = "the fastest measured, too" if first is best else slower
    yield f"- of these layouts the planner has {first.layout} first: {end}"


def _choice(grid: Grid, rows: Sequence[Row], chosen: Chosen) -> Iterator[str]:
    if done := [row.cell for row in rows if row.cell.outcome == "done"]:
        best = min(done, key=lambda cell: cell.step_seconds)
        yield f"- best measured: {best.layout}, {best.kernels} kernels, {best.told}"
    name = layout_name(chosen.config, grid.ranks)
    yield (
        f"- of all {chosen.plans.considered:,} layouts the planner would choose {name}: "
        f"{chosen.prediction.step_seconds:.3f} s a step, by its account (cluster {chosen.cluster.name}). To pin it:"
    )
    yield from ("", "```toml", *toml_lines(chosen.config).splitlines(), "```")


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, of equal values their mean rank; 0 where one side is all equal.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    ranks = [[sorted(own).index(value) + (own.count(value) - 1) / 2 for value in own] for own in (first, second)]
    return 0.0 if any(len(set(own)) < 2 for own in ranks) else statistics.correlation(*ranks)


def svg(grid: Grid, rows: Sequence[Row]) -> str:
    """Measured over predicted steps, and below it the tokens/s of each cell; needs nothing else."""
    done = sorted((row for row in rows if row.cell.outcome == "done"), key=lambda row: row.cell.step_seconds)
    drawings = []
    if pairs := [(row.predicted.step_seconds, row.cell) for row in done if row.predicted]:
        most = max(max(predicted, cell.step_seconds) for predicted, cell in pairs)
        dots = [
            Point(
                predicted, cell.step_seconds, f"{cell.layout}: {cell.step_seconds:.3f} s, predicted {predicted:.3f} s"
            )
            for predicted, cell in pairs
        ]
        ideal = Series("as predicted", [Point(0, 0), Point(most, most)], 3)
        groups = [ideal, Series(f"{PREDICTED} kernels", dots, is_line=False, radius=4.0)]
        drawings.append(plot("Steps, measured and predicted", groups, "predicted s", "measured s"))
    if done:
        speeds = [
            Bar(f"{cell.layout} {cell.kernels}", {cell.kernels: _rates(grid, cell)[0]}, f"{_rates(grid, cell)[0]:,.0f}")
            for cell, _ in done
        ]
        drawings.append(bars("tokens/s", speeds, lambda value: f"{value:,.0f}"))
    return picture(drawings, [grid.run, f"{grid.ranks} x {grid.machine}"])
