"""One-permutation hashing: an oracle bin by bin, its densification, and its error against the theory's and datasketch's."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from corpus.dedup import DedupConfig, datasketch_scheme, near_duplicates
from corpus.dedup.minhash import NO_SHINGLE, SignatureArray, hash_shingles
from corpus.dedup.one_permutation import minhash, probe
from tests.corpus.dedup.test_minhash import fold_all
from tests.corpus.dedup.texts import ANALECTS, POEM, edited, jaccard, random_text, shingles

K = 112
NGRAM = 4


def sign(texts: list[str], k: int = K) -> SignatureArray:
    codes, offsets, _ = fold_all(texts)
    return minhash(codes, offsets, NGRAM, k)


def expected(text: str, k: int) -> list[int]:
    """The paper's definition: the least hash of each bin, and an empty bin's walk to one that is not."""
    codes, _, _ = fold_all([text])
    hashes = np.empty(len(codes), np.uint32)
    count = hash_shingles(codes, 0, len(codes), NGRAM, hashes)
    bins: list[list[int]] = [[] for _ in range(k)]
    for value in hashes[:count].tolist():
        bins[value * k >> 32].append(value)
    signature = []
    for place in range(k):
        at, attempt = place, 0
        while not bins[at]:
            at, attempt = probe(place, attempt, k), attempt + 1
        signature.append(min(bins[at]))
    return signature


@pytest.mark.parametrize(("length", "k"), [(NGRAM, 1), (NGRAM, 16), (30, 112), (300, 112), (2000, 100)])
def test_a_signature_is_the_definitions(length: int, k: int) -> None:
    text = random_text(np.random.default_rng(length), length)
    assert sign(["短", text, text + text[::-1]], k)[1].tolist() == expected(text, k)


def test_a_text_shorter_than_the_shingle_has_no_minimum() -> None:
    assert (sign(["", "天地玄", POEM])[:2] == NO_SHINGLE).all()


def test_walks_are_spread_and_differ_by_bin() -> None:
    walks = np.array([[probe(place, attempt, K) for attempt in range(100)] for place in range(K)])
    counts = np.bincount(walks.ravel(), minlength=K)
    assert walks.min() == 0 and walks.max() == K - 1
    assert ((counts - 100) ** 2 / 100).sum() < K + 5 * np.sqrt(2 * K)  # chi square of a fair choice
    assert abs((walks[0] == walks[1]).mean() - 1 / K) < 0.04


@pytest.mark.parametrize(
    ("length", "most"), [(500, 1.05), (250, 1.05), (115, 1.05), (63, 1.15), (33, 1.25)]
)  # below k shingles minima are copies of few
def test_the_estimate_is_unbiased_and_its_error_the_theorys(length: int, most: float) -> None:
    generator, texts = np.random.default_rng(length), []
    for i in range(500):
        text = random_text(generator, length)
        texts += [text, edited(generator, text, 0.2 * i / 500)]
    signatures = sign(texts)
    _, _, forms = fold_all(texts)
    sets = [shingles(form, NGRAM) for form in forms]
    truth = np.array([jaccard(a, b) for a, b in zip(sets[::2], sets[1::2], strict=True)])
    theory = np.sqrt((truth * (1 - truth) / K).mean())
    error = (signatures[::2] == signatures[1::2]).mean(axis=1) - truth
    assert np.sqrt((error**2).mean()) < most * theory
    assert abs(error.mean()) < 4 * most * theory / np.sqrt(len(truth))

    codes, offsets, _ = fold_all(texts)
    theirs = datasketch_scheme.minhash(codes, offsets, NGRAM, K)  # datasketch's own, bit for bit
    their_error = (theirs[::2] == theirs[1::2]).mean(axis=1) - truth
    assert np.sqrt((error**2).mean()) < 1.1 * most * np.sqrt((their_error**2).mean())


def test_a_signature_depends_on_the_set_of_shingles_only() -> None:
    cycle = "甲乙丙丁戊己庚"
    assert (sign([cycle * 3]) == sign([cycle * 9])).all()
    assert (sign([POEM]) != sign([ANALECTS])).mean() > 0.9


def test_duplicates_are_found_as_by_the_other_schemes() -> None:
    generator = np.random.default_rng(2)
    text = random_text(generator, 1500)
    texts = [text, ANALECTS, edited(generator, text, 0.01), "短"]
    found = near_duplicates(texts, DedupConfig(scheme="one_permutation"))
    assert [{pair.index, pair.survivor} for pair in found] == [{0, 2}]


def test_bytes_of_signatures_are_frozen() -> None:
    """If this fails, raise `version` of the stage `signatures`: committed builds hold the old bytes."""
    digest = hashlib.sha256(sign([POEM, ANALECTS]).astype("<u4").tobytes()).hexdigest()
    assert digest[:16] == "182076c92d5e73d7"
