"""Memory of offloaded steps: what is in use stays, is what was predicted, and a fused update needs none of its own."""

from __future__ import annotations

from typing import Any

import pytest

from pretrain.workload.memory import estimate
from tools.bench.pretrain import offload
from tools.bench.timing import in_child

STEPS = 12


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    return {row: in_child(offload.measure, row, STEPS) for row in ("offload", "foreach")}


@pytest.mark.long
def test_what_is_in_use_does_not_grow(measured: dict[str, dict[str, Any]]) -> None:
    """From one step to another; a leak of one gradient a step would be megabytes."""
    in_use = [bytes_in_use for bytes_in_use, _ in measured["offload"]["curve"]]
    assert len(in_use) == STEPS
    assert max(in_use[2:]) - min(in_use[2:]) < 100_000


@pytest.mark.long
def test_the_peak_in_use_is_what_was_predicted(measured: dict[str, dict[str, Any]]) -> None:
    (predicted,) = estimate(offload.config_of("offload"), 1, "cpu")
    assert measured["offload"]["peak_bytes"] == pytest.approx(offload.predicted_bytes(predicted), rel=0.2)


@pytest.mark.long
def test_a_fused_update_has_no_intermediate_results(measured: dict[str, dict[str, Any]]) -> None:
    """Of `foreach` they are as large as the larger of AdamW's two groups, that of the embedding."""
    model = offload.config_of("offload").model
    embedding = 4 * model.padded_vocab_size * model.hidden_size
    assert measured["offload"]["update_bytes"] < 0.02 * embedding
    assert measured["foreach"]["update_bytes"] > 0.9 * embedding


def test_bytes_in_use_are_seen_to_grow_and_to_be_given_back() -> None:
    before = offload.bytes_in_use()
    block = bytearray(50_000_000)
    during = offload.bytes_in_use()
    del block
    assert 40e6 < during - before < 60e6
    assert offload.bytes_in_use() - before < 10e6
