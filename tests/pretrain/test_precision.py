"""fp16 and bf16 train as fp32 does, within rounding, on one rank and over all axes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pretrain.precision import LAYOUTS, PRECISIONS, agreement

MARKS: dict[str, Any] = {
    "1 rank": (),
    "dp 2": pytest.mark.long,
    "pp 2, zero-bubble": pytest.mark.long,
    "tp 2 x pp 2": pytest.mark.long,
}  # the others are slow


@pytest.mark.parametrize(
    "layout", [pytest.param(layout, marks=MARKS.get(layout, pytest.mark.slow)) for layout in LAYOUTS]
)
def test_losses_agree_within_rounding(layout: str) -> None:
    found = {precision: agreement(layout, precision) for precision in PRECISIONS}
    for precision, one in found.items():
        assert one.is_within, f"{precision}: {one}"
        assert one.losses[-1] < one.losses[0] - 1, "it has learned something"
    assert len({tuple(one.losses) for one in found.values()}) == len(PRECISIONS), "they are computed differently"
