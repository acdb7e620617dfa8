"""Calibration, against probabilities worked out by hand and against the plain formula in linear space."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.tasks.calibration import (
    CALIBRATIONS,
    Calibration,
    Word,
    choose,
    content_free,
    log_scores,
)


def words(*likelihoods: float, choices: tuple[int, ...] | None = None) -> list[Word]:
    """One word for each class, or as `choices` say, of one token and one character."""
    return [
        Word(choice, math.log(likelihood), 1, 1)
        for choice, likelihood in zip(choices or range(len(likelihoods)), likelihoods, strict=True)
    ]


def test_content_free_prompts_are_averaged_before_they_sum_to_1() -> None:
    rows = [np.log([0.03, 0.01]), np.log([0.12, 0.24])]  # means 0.075 and 0.125; were each to sum to 1: 0.542, 0.458
    np.testing.assert_allclose(np.exp(content_free(rows)), [0.375, 0.625])
    prompts = [words(0.03, 0.01), words(0.12, 0.24)]
    assert choose(words(0.45, 0.55), prompts, "diagonal") == 0  # 1.2, 0.88; were each to sum to 1: 0.831, 1.2
    assert choose(words(0.45, 0.55), prompts, "identity") == 0


def test_probabilities_too_small_for_a_float_still_count() -> None:
    def tiny(*scores: float) -> list[Word]:
        return [Word(choice, score, 9, 9) for choice, score in enumerate(scores)]

    assert choose(tiny(-2000.0, -2900.0), [tiny(-2000.0, -2902.0)], "diagonal") == 1
    assert choose(tiny(-2000.0, -2900.0), [tiny(-2000.0, -2899.0)], "diagonal") == 0
    assert choose(tiny(-2000.0, -2900.0), [tiny(-2000.0, -2902.0)], "identity") == 0  # 1 - 1 and 0 - 0


@given(st.data())
def test_logarithms_choose_as_the_formula_does(data: st.DataObject) -> None:
    num_classes = data.draw(st.integers(2, 5))
    choices = tuple(
        data.draw(st.permutations([*range(num_classes), *data.draw(st.lists(st.integers(0, num_classes - 1)))]))
    )
    rows = [
        np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(choices), max_size=len(choices))))
        for _ in range(data.draw(st.integers(2, 4)))
    ]
    p, p_cf = rows[0] / rows[0].sum(), np.mean(rows[1:], axis=0)
    p_cf = p_cf / p_cf.sum()
    for calibration, calibrated in {"none": p, "diagonal": p / p_cf, "identity": p - p_cf}.items():
        means = [calibrated[np.array(choices) == choice].mean() for choice in range(num_classes)]
        found = choose(
            words(*rows[0], choices=choices), [words(*row, choices=choices) for row in rows[1:]], calibration
        )  # type: ignore[arg-type]
        assert means[found] >= max(means) - 1e-9


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_of_equals_the_first_is_chosen(calibration: Calibration) -> None:
    assert choose(words(0.2, 0.2, 0.2), [words(0.1, 0.1, 0.1)], calibration) == 0


def test_normalisation_divides_by_tokens_or_characters() -> None:
    pair = [Word(0, -4.0, 1, 4), Word(1, -6.0, 2, 3)]
    assert log_scores(pair).tolist() == [-4.0, -6.0]
    assert log_scores(pair, "token").tolist() == [-4.0, -3.0]
    assert log_scores(pair, "character").tolist() == [-1.0, -2.0]
    assert [choose(pair, normalisation=each) for each in ("sum", "token", "character")] == [0, 1, 0]
    free = [Word(0, -1.0, 1, 4), Word(1, -6.0, 2, 3)]
    assert choose(pair, [free], "diagonal", "token") == 1  # -4 and -3 against -1 and -3: e^-3 and e^0
