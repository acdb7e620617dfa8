"""What the page's script needs to tell what other limits would keep: counts on grids and a sample's places, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from corpus.report.distributions import NOT_A_NUMBER, Distribution, Measured
from corpus.report.examples import Sample


def page_data(measured: Measured, samples: Sequence[Sample], width: int) -> str:
    """A JSON text that may stand in a `script` element: no `<` in it. `width` is that of the histograms."""
    value = {
        "documents": measured.documents,
        "kept": measured.kept,
        "sampled": measured.sampled,
        "width": width,
        "statistics": [_statistic(index, one) for index, one in enumerate(measured.distributions)],
        "sample_places": _base64(b"".join(_places(sample, measured.distributions) for sample in samples)),
    }
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _statistic(index: int, one: Distribution) -> dict[str, Any]:
    bounds = {bound: one.grid.index(limit) for bound, limit in one.limits.items()}
    return bounds | {
        "index": index,
        "name": one.name,
        "bend": one.bend,
        "grid": one.grid,
        "below": _steps(one.below),
        "up_to": _steps(one.up_to),
        "characters_below": _steps(one.characters_below),
        "characters_up_to": _steps(one.characters_up_to),
        "places": _base64(one.places),
    }


def _places(sample: Sample, distributions: Sequence[Distribution]) -> bytes:
    """Where one shown document stands on each grid."""
    places = []
    for one in distributions:
        value = sample.statistics.get(one.name)
        if value is None or not np.isfinite(value):
            places.append(NOT_A_NUMBER)
        else:
            places.append(int(sum(np.searchsorted(one.grid, value, side) for side in ("left", "right"))))
    return bytes(places)


def _steps(totals: Sequence[int]) -> list[int]:
    """Differences: most of them are short numbers."""
    return [right - left for left, right in pairwise((0, *totals))]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
