from __future__ import annotations

import hashlib
import itertools

import numpy as np
import numpy.typing as npt
import pytest

from corpus.dedup.near.minhash import (
    EXACT_BAND,
    NO_SHINGLE,
    SignatureArray,
    band_keys,
    exact_band_keys,
    min_matches,
    minhash,
    permutations,
)
from corpus.dedup.text.fold import fold
from tests.corpus.dedup.texts import ANALECTS, POEM, edited, jaccard, random_text, shingles
from tests.lazy import Lazy

K = 112


def fold_all(texts: list[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], list[str]]:
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int64)
    codes, code_offsets = fold(offsets, np.frombuffer(b"".join(data), np.uint8))
    forms = ["".join(map(chr, codes[a:b])) for a, b in itertools.pairwise(code_offsets)]
    return codes, code_offsets, forms


def sign(texts: list[str], ngram: int = 5, k: int = K) -> SignatureArray:
    codes, offsets, _ = fold_all(texts)
    return minhash(codes, offsets, ngram, k)


def pairs(length: int, count: int, seed: int) -> list[str]:
    """2 x count texts; texts 2 i and 2 i + 1 resemble each other, from hardly to fully."""
    generator = np.random.default_rng(seed)
    texts = []
    for i in range(count):
        text = random_text(generator, length)
        texts += [text, edited(generator, text, 0.1 * i / count)]
    return texts


@pytest.mark.parametrize("length", [40, 150, 1000])
def test_error_is_the_theorys_and_datasketchs(length: int) -> None:
    texts = pairs(length, 400, seed=length)
    signatures = sign(texts)
    _, _, forms = fold_all(texts)
    sets = [shingles(form) for form in forms]
    truth = np.array([jaccard(a, b) for a, b in zip(sets[::2], sets[1::2], strict=True)])
    theory = np.sqrt((truth * (1 - truth) / K).mean())
    error = (signatures[::2] == signatures[1::2]).mean(axis=1) - truth
    assert np.sqrt((error**2).mean()) < 1.15 * theory
    assert abs(error.mean()) < 4 * theory / np.sqrt(len(truth))

    theirs = [Lazy("datasketch").MinHash(num_perm=K, seed=7) for _ in sets]
    for sketch, members in zip(theirs, sets, strict=True):
        sketch.update_batch([member.encode() for member in sorted(members)])
    their_error = np.array([a.jaccard(b) for a, b in zip(theirs[::2], theirs[1::2], strict=True)]) - truth
    assert np.sqrt((error**2).mean()) < 1.25 * np.sqrt((their_error**2).mean())
    assert abs(error.mean() - their_error.mean()) < 4 * np.sqrt(2) * theory / np.sqrt(len(truth))


def test_a_signature_depends_on_the_set_of_shingles_only() -> None:
    cycle = "甲乙丙丁戊己庚"  # a cycle has the same n-grams however often it is repeated
    assert (sign([cycle * 3]) == sign([cycle * 9])).all()
    assert (sign([POEM]) != sign([ANALECTS])).mean() > 0.9


def test_signatures_do_not_depend_on_the_batch() -> None:
    texts = [POEM, "短", ANALECTS, "", random_text(np.random.default_rng(0), 3000)]
    together = sign(texts)
    assert all((sign([text])[0] == row).all() for text, row in zip(texts, together, strict=True))


@pytest.mark.parametrize("ngram", [1, 4, 9])
def test_a_text_shorter_than_the_shingle_has_no_minimum(ngram: int) -> None:
    signatures = sign(["天" * (ngram - 1), "天地玄黄宇宙洪荒日"[:ngram]], ngram)
    assert (signatures[0] == NO_SHINGLE).all()
    assert (signatures[1] != NO_SHINGLE).all()


def test_permutations_are_a_fixed_sequence_of_bijections() -> None:
    factors, summands = permutations(64)
    longer = permutations(200)
    assert (longer[0][:64] == factors).all() and (longer[1][:64] == summands).all()
    assert (factors % 2 == 1).all() and len(set(factors.tolist())) == 64


def test_bytes_of_signatures_and_keys_are_frozen() -> None:
    """If this fails, raise `version` of the stage `signatures`: committed builds hold the old bytes."""
    signatures = sign([POEM, ANALECTS])
    keys = band_keys(signatures, 14, 8)
    digest = hashlib.sha256(signatures.astype("<u4").tobytes() + keys.astype("<u8").tobytes()).hexdigest()
    assert digest[:16] == "28f4bdfe44e4a566"


def test_bands_never_share_a_key() -> None:
    same = np.full((1, 2040), 7, np.uint32)  # 255 bands of equal minima
    keys = band_keys(same, 255, 8)[0]
    assert (keys & np.uint64(0xFF)).tolist() == list(range(255))
    exact = exact_band_keys(np.array([[2**64 - 1, 0]], np.uint64))
    assert int(exact[0] & np.uint64(0xFF)) == EXACT_BAND and exact[0] not in keys


def test_a_band_key_depends_on_its_rows_only() -> None:
    generator = np.random.default_rng(1)
    signatures = generator.integers(0, 1 << 32, (1, K), dtype=np.uint32).repeat(K + 1, axis=0)
    signatures[np.arange(K), np.arange(K)] += np.uint32(1)  # row i differs in minimum i, the last in none
    keys = band_keys(signatures, 14, 8)
    changed = keys[:-1] != keys[-1]
    assert (changed == (np.arange(K)[:, None] // 8 == np.arange(14))).all()


@pytest.mark.parametrize(("threshold", "k", "least"), [(0.8, 112, 90), (0.5, 112, 56), (1.0, 128, 128), (0.8, 10, 8)])
def test_min_matches_is_the_smallest_count_that_reaches_the_threshold(threshold: float, k: int, least: int) -> None:
    assert min_matches(threshold, k) == least
    assert least / k >= threshold - 1e-9 and (least - 1) / k < threshold
