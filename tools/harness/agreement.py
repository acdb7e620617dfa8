"""How far our evaluation of a checkpoint and the harness' of the exported folder are apart, item by item.

Both are made equal first: our model gets the tokens that the harness makes of a pair, and reads them without masks and
prefixes, as transformers does. Then rounding alone is between them, and BOUND is what it may come to. Beside that
stands what `python -m pretrain tasks` says of the same items, with its own tokens and the masks of the training; where
these are the harness', it is held to the same bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pretrain.evaluation.bits import evaluate_documents
from pretrain.evaluation.held_out import Document
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.inference.scoring import Request, score
from pretrain.model import GPT
from tokenizer.model import Tokenizer
from tools.harness.pairs import Questions

BOUND = 1e-4  # of a log-likelihood, or of one nat where it is less
TEXTS_TOGETHER = 256


@dataclass(frozen=True)
class ChoiceAgreement:
    """Of a task."""

    name: str
    num_items: int
    num_left_out: int
    num_pairs: int
    num_other_tokens: int  # pairs whose tokens the harness cuts otherwise than we do
    difference: float  # the largest of a pair, same tokens on both sides
    own_difference: float  # the same of our own evaluation, in the pairs whose tokens are equal
    accuracy: float  # ours, with the harness' tokens
    harness_accuracy: float  # as it says itself
    own_accuracy: float  # of our own evaluation
    num_other_answers: int  # items that our own evaluation answers otherwise


@dataclass(frozen=True)
class TextAgreement:
    """Of texts, each read alone in windows of the model's length."""

    num_texts: int
    num_tokens: int
    num_bytes: int
    difference: float  # the largest of a text
    bits_per_character: float
    bits_per_byte: float
    harness_bits_per_byte: float  # as it says itself
    own_bits_per_byte: float  # with the masks of the training


def plain(batcher: EvaluationBatcher) -> EvaluationBatcher:
    """How transformers reads: every token sees all before it, and positions count on."""
    return replace(batcher, document_mask=False, reset_positions=False, prefix_lm=False)


def compare_choices(
    found: Questions, theirs: dict[str, Any], model: GPT, batcher: EvaluationBatcher
) -> ChoiceAgreement:
    """Ask our model what the harness asked, and compare."""
    grouped = [question.requests for question in found.asked]
    flat = _log_likelihoods(model, [request for requests in grouped for request in requests], plain(batcher))
    own = _log_likelihoods(model, [question.prompted.request for question in found.asked], batcher)
    remaining = iter(flat)
    differences, own_differences = [0.0], [0.0]
    right, own_right, other_answers = 0, 0, 0
    for question, requests, own_values, samples in zip(found.asked, grouped, own, theirs["samples"], strict=True):
        by_cut = {
            (tuple(request.context), tuple(continuation.tokens)): value
            for request, values in zip(requests, remaining, strict=False)
            for continuation, value in zip(request.continuations, values, strict=True)
        }
        values = [by_cut[cut] for cut in question.cuts]
        differences += [relative(one, other) for one, other in zip(values, samples, strict=True)]
        equal = [one == other for one, other in zip(question.cuts, question.own, strict=True)]
        own_differences += [relative(own_values[place], samples[place]) for place, same in enumerate(equal) if same]
        right += int(np.argmax(values) == question.item.choice)
        own_right += int(np.argmax(own_values) == question.item.choice)
        other_answers += int(np.argmax(own_values) != np.argmax(samples))
    num_items = len(found.asked)
    return ChoiceAgreement(
        found.name,
        num_items,
        found.num_left_out,
        sum(len(question.cuts) for question in found.asked),
        sum(question.num_other_tokens for question in found.asked),
        max(differences),
        max(own_differences),
        right / num_items,
        theirs["metrics"]["acc,none"],
        own_right / num_items,
        other_answers,
    )


def compare_texts(
    texts: Sequence[str], theirs: dict[str, Any], model: GPT, batcher: EvaluationBatcher, tokenizer: Tokenizer
) -> TextAgreement:
    """Score the texts as `python -m pretrain evaluate --text ... --stride LENGTH --without-ends` does, and compare."""
    documents = [
        Document(ids, text, str(number))
        for number, (ids, text) in enumerate(zip(tokenizer.encode_batch(texts), texts, strict=True))
    ]
    ours = list(_bits(model, documents, plain(batcher)))
    num_characters, num_bytes = sum(map(len, texts)), sum(len(text.encode()) for text in texts)
    is_plain = batcher == plain(batcher)
    own = sum(ours) if is_plain else sum(_bits(model, documents, batcher))
    nats = [-bits * float(np.log(2)) for bits in ours]
    return TextAgreement(
        len(texts),
        sum(len(document.tokens) for document in documents),
        num_bytes,
        max(relative(one, other) for one, (other,) in zip(nats, theirs["samples"], strict=True)),
        sum(ours) / num_characters,
        sum(ours) / num_bytes,
        theirs["metrics"]["bits_per_byte,none"],
        own / num_bytes,
    )


def disagreements(found: Iterable[ChoiceAgreement | TextAgreement], batcher: EvaluationBatcher) -> list[str]:
    """What is further apart than rounding explains."""
    told = []
    for each in found:
        name = each.name if isinstance(each, ChoiceAgreement) else "texts"
        if not each.difference <= BOUND:  # also where one is not a number
            told.append(f"{name}: log-likelihoods differ by {each.difference:.1e}")
        if isinstance(each, TextAgreement):
            if not relative(each.bits_per_byte, each.harness_bits_per_byte) <= BOUND:
                told.append(
                    f"{name}: {each.bits_per_byte} bits per byte, and the harness says {each.harness_bits_per_byte}"
                )
        else:
            if not abs(each.accuracy - each.harness_accuracy) < 0.5 / each.num_items:
                told.append(f"{name}: accuracy {each.accuracy:.4f}, and the harness says {each.harness_accuracy:.4f}")
            if batcher == plain(batcher) and not each.own_difference <= BOUND:
                told.append(f"{name}: our own evaluation differs by {each.own_difference:.1e} where tokens are equal")
    return told


def relative(one: float, other: float) -> float:
    """The difference of two log-likelihoods as a part of the larger, or of one nat.

    >>> relative(-10.0, -8.0), relative(-0.25, -0.5)
    (0.2, 0.25)
    """
    return abs(one - other) / max(abs(one), abs(other), 1.0)


def _log_likelihoods(model: GPT, requests: Sequence[Request], batcher: EvaluationBatcher) -> list[list[float]]:
    """Of the continuations of each request."""
    found: list[list[float]] = [[] for _ in requests]
    for number, scores in score(model, requests, batcher, "cpu"):
        found[number] = [each.log_likelihood for each in scores]
    return found


def _bits(model: GPT, documents: Sequence[Document], batcher: EvaluationBatcher) -> Iterable[float]:
    """Of each document, without its end; as many at a time as are told apart."""
    for first in range(0, len(documents), TEXTS_TOGETHER):
        block = documents[first : first + TEXTS_TOGETHER]
        result = evaluate_documents(model, block, batcher, 8, torch.device("cpu"), with_ends=False)
        yield from (result.by_source[document.source].bits for document in block)
