"""The same training on every layout as on one process: all of the matrix."""

from __future__ import annotations

import pytest

from tests.pretrain.parity.cases import Case, cubic_cases, pairwise_cases, uneven_cases
from tests.pretrain.parity.measure import FP64, difference_from_one_process


@pytest.mark.slow
@pytest.mark.parametrize("case", [*pairwise_cases(), *cubic_cases(), *uneven_cases()], ids=lambda case: case.name)
def test_a_layout_trains_as_one_process_does(case: Case) -> None:
    off, _ = difference_from_one_process(case)
    assert off.is_within(FP64), off
