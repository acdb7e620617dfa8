"""Buckets under a condition and by label: what they weigh, in which groups they are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from corpus.filters import STATISTICS, FilterConfig
from corpus.mixture import MixtureConfig
from corpus.mixture.config import Buckets
from corpus.mixture.weights import bucket_of
from corpus.recipe import Recipe
from tests.corpus.mixture.build import STATISTIC, Doc, mix

DOCS = [Doc(number, value=value) for number, value in enumerate([50.0, 300.0, 900.0, None])]


def table(**values: Any) -> dict[str, Any]:
    return {"statistic": STATISTIC, "bounds": [200.0], "weights": [3.0, 1.0], **values}


def test_documents_beyond_the_condition_weigh_one_there(tmp_path: Path) -> None:
    tables = [
        table(when={STATISTIC: {"max": 400}}),
        table(statistic="dedup.cluster_size", bounds=[2.0], weights=[2.0, 1.0], when={"num_chars": {"min": 301}}),
        table(when={"num_chars": {"min": 200}}, bounds=[500.0], weights=[0.0, 1.0]),
    ]
    result = mix(tmp_path, [DOCS], MixtureConfig.model_validate({"buckets": tables}))
    assert [row["copies"] for row in result.table("copies").to_pylist()] == [3, 0, 2, 1]
    groups = [(row["kind"], row["name"], row["documents"]) for row in result.table("groups").to_pylist()]
    first = f"{STATISTIC} where {STATISTIC} <= 400"
    assert [group[1:] for group in groups if group[0] == first] == [
        ("below 200", 1), ("200 +", 1), ("other documents", 2),
    ]  # fmt: skip
    assert sum(count for kind, _, count in groups if kind == f"{STATISTIC} where {STATISTIC} >= 200") == 4


def test_a_label_has_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(STATISTICS[STATISTIC], labels=("prose", "verse", "code"))
    monkeypatch.setitem(STATISTICS, STATISTIC, entry)
    buckets = Buckets.model_validate({"statistic": STATISTIC, "weights": {"verse": 2.0, "code": 0.5}})
    assert buckets.weights == (1.0, 2.0, 0.5) and buckets.labels == entry.labels
    assert bucket_of(np.array([2.0, 0.0, 1.0, np.nan]), buckets).tolist() == [2, 0, 1, -1]
    assert Buckets.model_validate(buckets.model_dump()) == buckets
    for wrong, words in (({"poem": 2.0}, "'poem' is no label"), ({"code": -1.0}, "greater than"), ([1.0], "by label")):
        with pytest.raises(ValidationError, match=words):
            Buckets.model_validate({"statistic": STATISTIC, "weights": wrong})


def test_what_is_refused() -> None:
    for wrong, words in (
        (table(when={"num_char": {"min": 3}}), "mean num_chars"),
        (table(when={}), "a condition says"),
        (table(bounds=[]), "bounds: give one"),
        (table(weights={"verse": 2.0}), "valid tuple"),
    ):
        with pytest.raises(ValidationError, match=words):
            Buckets.model_validate(wrong)
    twice = [table(when={"num_chars": {"min": 3}}), table(when={STATISTIC: {"min": 3.0}})]
    with pytest.raises(ValidationError, match="one statistic and one condition"):
        MixtureConfig.model_validate({"buckets": twice})
    mixture = MixtureConfig.model_validate({"buckets": [table(when={"quality.score": {"min": 0.5}})]})
    with pytest.raises(ValidationError, match="needs a model"):
        Recipe(filter=FilterConfig(), mixture=mixture)
