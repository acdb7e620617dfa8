"""The same training on every layout as on one process: what `make test` runs of the matrix."""

from __future__ import annotations

import pytest

from tests.pretrain.parity.cases import Case, new_case, quick_cases
from tests.pretrain.parity.measure import FP64, Limits, difference_from_one_process

FP32 = Limits(loss=1e-6, norm=1e-5, gradient=1e-5, weights=1e-4)  # measured: 9e-8, 3e-7, 6e-7, 5e-6
BF16 = Limits(loss=5e-4, norm=5e-3, gradient=5e-2, weights=2e-1)  # measured: 4e-5, 6e-4, 2e-2, 5e-2
QUICK = quick_cases()
IN_FULL = {
    case.config.parallel.schedule: case.name for case in reversed(QUICK) if case.config.parallel.pp == 2
}.values()


@pytest.mark.long
@pytest.mark.parametrize(("precision", "limits"), [("fp32", FP32), ("bf16", BF16)])
def test_a_layout_in_the_precisions_of_training(precision: str, limits: Limits) -> None:
    """AdamW makes whole steps of gradients that are little but rounding; so the steps are small here."""
    sections = {"training": {"precision": precision}, "optimizer": {"learning_rate": 1e-3}}
    off, _ = difference_from_one_process(new_case(precision, sections, {"parallel": {"pp": 2, "tp": 2}}))
    assert off.is_within(limits), off


@pytest.mark.long
def test_the_number_of_micro_batches_may_grow() -> None:
    """From one, fewer than the pipeline has ranks, to three."""
    rampup = {"start": 4, "increment": 4, "num_samples": 16}
    growing = {"micro_batch_size": 4, "global_batch_size": 12, "rampup": rampup}
    off, _ = difference_from_one_process(
        new_case("batch of 4 to 12, pp 2", {"training": growing, "parallel": {"pp": 2}})
    )
    assert off.is_within(FP64), off


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_a_layout_trains_as_one_process_does(case: Case) -> None:
    """Two updates with momentum; all six steps of one layout of each schedule, of all others: test_matrix.py."""
    off, _ = difference_from_one_process(case, num_steps=6 if case.name in IN_FULL else 3)
    assert off.is_within(FP64), off
