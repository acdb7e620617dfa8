"""Lines over a common axis, and dots measured beside them, drawn as an SVG on its own ground, for light and dark
readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.chart import Point, Series, picture, plot

Floats = npt.NDArray[np.float64]


class Line(NamedTuple):
    """Values `y` at `x`, each float64[points]; a dashed one lets a line below it be seen.

    `measured` are dots beside a line of theory, each with one standard `error`.
    """

    name: str
    x: Floats
    y: Floats
    dashed: bool = False
    measured: Floats | None = None
    error: Floats | None = None


def write_lines(
    path: Path,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    left: float = 0.0,
    mark: tuple[float, str] | None = None,
) -> None:
    """Draw all lines into one frame, from `left` and 0, with a named vertical line at `mark`."""
    series = []
    for color, line in enumerate(lines):
        points = [Point(x, y) for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)]
        series.append(Series(line.name, points, color, style="dashed" if line.dashed else ""))
        if line.measured is not None and line.error is not None:
            rows = np.stack([line.x, line.measured, line.measured - line.error, line.measured + line.error], axis=1)
            dots = [Point(x, y, "", low, high) for x, y, low, high in rows.tolist()]
            series.append(Series("", dots, color, is_line=False, radius=3.0, between="error"))
    ends = left, max(point.x for one in series for point in one.points)
    marks = [("event", *mark)] if mark else []
    path.write_text(picture([plot(y_label, series, x_label, x_ends=ends, marks=marks)]))
