"""One process against a second GPT, written plainly: so that what all layouts agree with is itself right."""

from __future__ import annotations

import pytest

from tests.pretrain.parity.cases import Case, model_cases
from tests.pretrain.parity.measure import difference, train
from tests.pretrain.parity.plain import train_plainly
from tests.pretrain.tiny import tiny_loader_of


@pytest.mark.parametrize("case", model_cases(), ids=lambda case: case.name)
def test_one_process_trains_what_the_formulas_say(case: Case) -> None:
    training = train(case)
    plain = train_plainly(case.config, training.first, tiny_loader_of(case.config))
    assert training.gradients.keys() == plain.gradients.keys() == training.first.keys()
    assert training.num_tokens == tuple(plain.num_tokens)
    off = difference(training, plain)
    assert max(off.loss, off.norm, off.gradient) < 1e-9, off
    assert off.weights < 1e-8, off
