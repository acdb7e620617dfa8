"""Counts, Renyi efficiency and coverage, against brute force."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer
from tokenizer.report.usage import BATCH_DOCUMENTS, OTHER, TRADITIONAL, Amounts, coverage, measure, renyi_efficiency

counts = st.lists(st.integers(0, 1000), min_size=2, max_size=60).map(lambda values: np.array(values, np.int64))


def test_amounts_are_what_encoding_each_text_gives(tokenizer: Tokenizer) -> None:
    sources = {"poems": documents(12), "rare": ["\U0002ffff字", "", "千山鳥飛絕，萬徑人蹤滅。"]}
    usage = measure(tokenizer, sources)
    ids = {name: [tokenizer.encode(text) for text in texts] for name, texts in sources.items()}
    for name, texts in sources.items():
        flat = [id for one in ids[name] for id in one]
        num_bytes = sum(tokenizer.is_byte(id) for id in flat)
        sizes = (len(texts), sum(map(len, texts)), sum(len(text.encode()) for text in texts))
        assert usage.sources[name] == Amounts(*sizes, len(flat), num_bytes)
    assert usage.sources["rare"].byte_tokens >= 4
    expected = Counter(id for texts in ids.values() for one in texts for id in one)
    assert {id: count for id, count in enumerate(usage.frequency.tolist()) if count} == expected
    for groups in (usage.sources, usage.scripts):
        for field in ("documents", "characters", "bytes", "tokens", "byte_tokens"):
            assert sum(getattr(group, field) for group in groups.values()) == getattr(usage.total, field)
    assert usage.scripts[TRADITIONAL].documents >= 1 and usage.scripts[OTHER].documents >= 1


def test_more_documents_than_a_batch(tokenizer: Tokenizer) -> None:
    usage = measure(tokenizer, {"many": ["学而"] * (BATCH_DOCUMENTS + 1)})
    assert usage.total.documents == BATCH_DOCUMENTS + 1
    assert usage.frequency.sum() == usage.total.tokens == (BATCH_DOCUMENTS + 1) * len(tokenizer.encode("学而"))


def test_no_text_has_no_ratios(tokenizer: Tokenizer) -> None:
    usage = measure(tokenizer, {"empty": [""], "none": []})
    assert usage.total == Amounts(documents=1)
    assert set(usage.total.ratios().values()) == {None}


@given(counts, st.sampled_from([2, 3, 4]))
def test_renyi_efficiency_is_its_formula(frequency: np.ndarray, alpha: int) -> None:
    total = int(frequency.sum())
    if not total:
        assert renyi_efficiency(frequency) is None
        return
    power_sum = sum((Fraction(int(count), total) ** alpha for count in frequency), Fraction(0))
    expected = math.log(power_sum) / (1 - alpha) / math.log(len(frequency))
    assert renyi_efficiency(frequency, alpha) == pytest.approx(expected, abs=2e-6)


def test_renyi_efficiency_at_its_default_alpha() -> None:
    by_hand = math.log(0.5**2.5 + 0.25**2.5 + 0.25**2.5) / (1 - 2.5) / math.log(4)
    assert renyi_efficiency(np.array([2, 1, 1, 0])) == round(by_hand, 6)
    assert renyi_efficiency(np.array([7])) is None


@given(counts)
def test_coverage_is_the_sum_of_the_largest(frequency: np.ndarray) -> None:
    found = coverage(frequency)
    total = int(frequency.sum())
    ordered = sorted(frequency.tolist(), reverse=True)
    if not total:
        assert found == {"top": [], "pieces_for": {}}
        return
    for count, share in found["top"]:
        assert share == pytest.approx(sum(ordered[:count]) / total, abs=1e-6)
    assert found["top"][-1] == [int((frequency > 0).sum()), 1.0]
    for part, pieces in found["pieces_for"].items():
        assert Fraction(sum(ordered[:pieces]), total) >= Fraction(part) - Fraction(1, 10**9)
        assert Fraction(sum(ordered[: pieces - 1]), total) < Fraction(part)
