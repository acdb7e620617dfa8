"""How many duplicates are found, against what the theory of MinHash and banding promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from corpus.dedup import DedupConfig, Duplicate, near_duplicates
from tests.corpus.dedup.texts import ANALECTS, POEM, jaccard, random_text, shingles


def pair(generator: np.random.Generator, length: int, similarity: float) -> list[str]:
    """Two texts with about the given Jaccard: a shared beginning and two different ends."""
    shared = round(length * 2 * similarity / (1 + similarity))
    common = random_text(generator, shared)
    return [common + random_text(generator, length - shared) for _ in range(2)]


def promised(similarities: list[float], config: DedupConfig) -> np.ndarray:
    """P(some band is equal and enough minima are), each minimum being equal with probability j: by simulation."""
    generator = np.random.default_rng(0)
    chances = []
    for similarity in similarities:
        equal = generator.random((1000, config.num_permutations)) < similarity
        bands = equal[:, : config.bands * config.rows].reshape(1000, config.bands, config.rows).min(axis=2).max(axis=1)
        chances.append((bands & (equal.mean(axis=1) >= config.threshold)).mean())
    return np.array(chances)


@pytest.mark.parametrize("config", [DedupConfig(), DedupConfig(ngram=5, bands=9, rows=12, threshold=0.7)])
@pytest.mark.parametrize("similarity", [0.6, 0.8, 0.95])
def test_recall_is_the_s_curves(config: DedupConfig, similarity: float) -> None:
    generator = np.random.default_rng(int(100 * similarity))
    texts = [text for _ in range(60) for text in pair(generator, 300, similarity)]
    truth = [
        jaccard(shingles(a, config.ngram), shingles(b, config.ngram))
        for a, b in zip(texts[::2], texts[1::2], strict=True)
    ]
    assert abs(np.mean(truth) - similarity) < 0.02
    found = near_duplicates(texts, config)
    assert all(duplicate.index // 2 == duplicate.survivor // 2 for duplicate in found)
    chances = promised(truth, config)
    error = np.sqrt((chances * (1 - chances)).sum())
    assert abs(len(found) - chances.sum()) <= 4 * error + 1


def test_recall_on_document_pairs(test_data: Path) -> None:
    path = test_data / "dups" / "doc_pairs_dev.jsonl"
    found: dict[str, list[bool]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found.setdefault(record["label"], []).append(bool(near_duplicates([record["a"], record["b"]])))
    assert np.mean(found["near_dup"]) >= 0.98  # the label is a cut at a Jaccard of 5-grams of 0.8 before folding
    assert 0.2 <= np.mean(found["related"]) <= 0.6  # revisions of one article below it, down to 0.5
    assert not any(found["distinct"]) and not any(found["translation_variant"])


def test_near_duplicates_names_index_and_survivor() -> None:
    longer = POEM + "（唐诗）"
    found = near_duplicates([ANALECTS, POEM, longer, "", "短"])
    assert found == [Duplicate(1, 2, found[0].similarity, False)] and 0.75 <= found[0].similarity < 1
    assert near_duplicates([]) == [] == near_duplicates([POEM])


def test_the_shingle_length_is_configurable() -> None:
    rng = np.random.default_rng(3)
    text = random_text(rng, 600)
    other = "".join(
        c if i % 12 else random_text(rng, 1) for i, c in enumerate(text)
    )  # Jaccard 0.85 at n=1, 0.14 at n=9
    assert near_duplicates([text, other], DedupConfig(ngram=9)) == []
    assert len(near_duplicates([text, other], DedupConfig(ngram=1, threshold=0.7))) == 1
