"""From log-likelihoods of words to the choice of a class: normalisation, contextual calibration, label expansion.

A language model prefers some words whatever it has read: those that are frequent, or that stand last in its prompt.
What it prefers shows where there is nothing to read: in the same prompt around a content-free text ("N/A"). Contextual
calibration (Zhao et al. 2021, arXiv:2102.09690) divides by it. With p the probabilities of the words, made to sum to 1,
and p_cf their mean over content-free prompts, made to sum to 1 as well (the mean first, as Zhao and Yuan 1.0 compute
it):

| calibration | W | b | the class of the largest W p + b |
|---|---|---|---|
| none | I | 0 | p |
| diagonal | diag(p_cf)^-1 | 0 | p / p_cf |
| identity | I | -p_cf | p - p_cf |

Label expansion gives a class several words: all are calibrated, then averaged by class. All but the difference is
computed with logarithms, so that a word of probability 1e-60 still counts.

Where a class is told by the loss of the text that follows it ("...？对，" and "...？错，"), a word is that whole text. The
content-free prompt then empties what stands before the class and leaves the scored text as it is, so that p_cf is each
item's own: what 对 and 错 alone do to this text. A prompt with nothing of an item before the class has nothing to
calibrate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Calibration = Literal["none", "diagonal", "identity"]
Normalisation = Literal["sum", "token", "character"]
CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)

Floats = NDArray[np.float64]


class Word(NamedTuple):
    """A text that speaks for a class, as a model scores it after a prompt."""

    choice: int  # the class
    log_likelihood: float  # natural logarithm, summed over its tokens
    num_tokens: int
    num_characters: int


def log_scores(words: Sequence[Word], normalisation: Normalisation = "sum") -> Floats:
    """[W] log-likelihoods: whole, for each token, or for each character. A whole one favours the shorter of two
    words."""
    scores = np.array([word.log_likelihood for word in words], dtype=np.float64)
    if normalisation == "sum":
        return scores
    sizes = [word.num_tokens if normalisation == "token" else word.num_characters for word in words]
    return scores / np.maximum(np.array(sizes, dtype=np.float64), 1.0)


def log_probabilities(scores_W: Floats) -> Floats:
    """[W] whose exponentials sum to 1: log softmax.

    >>> np.exp(log_probabilities(np.log([0.1, 0.3]))).round(3).tolist()
    [0.25, 0.75]
    """
    return scores_W - _log_sum(scores_W)


def content_free(scores_FW: Sequence[Floats]) -> Floats:
    """[W] log p_cf: the mean over F content-free prompts, then made to sum to 1: where words are likelier counts for
    more."""
    return log_probabilities(np.logaddexp.reduce(np.stack(scores_FW), axis=0))


def choose(
    words: Sequence[Word],
    content_free_words: Sequence[Sequence[Word]] = (),
    calibration: Calibration = "none",
    normalisation: Normalisation = "sum",
) -> int:
    """The class of the largest calibrated score, the first of equals.

    Args:
        content_free_words: the same words after each content-free prompt; only a calibration reads them.
    """
    values_W = log_probabilities(log_scores(words, normalisation))
    if calibration != "none":
        log_cf_W = content_free([log_scores(each, normalisation) for each in content_free_words])
        values_W = values_W - log_cf_W if calibration == "diagonal" else np.exp(values_W) - np.exp(log_cf_W)
    return int(np.argmax(_mean_by_class(words, values_W, in_logs=calibration != "identity")))


def _mean_by_class(words: Sequence[Word], values_W: Floats, in_logs: bool) -> Floats:
    """[C] means over the words of each class; of logarithms the logarithm of the mean."""
    choices = np.array([word.choice for word in words])
    means = np.full(choices.max() + 1, -np.inf)
    for choice in np.unique(choices):
        own = values_W[choices == choice]
        means[choice] = _log_sum(own) - np.log(len(own)) if in_logs else own.mean()
    return means


def _log_sum(values: NDArray[Any]) -> np.float64:
    """The logarithm of the sum of the exponentials."""
    return np.float64(np.logaddexp.reduce(values))
