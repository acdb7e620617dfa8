"""What [mixture] takes and what it refuses, in words."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.dedup import DedupConfig
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from corpus.filters import FilterConfig
from corpus.mixture import MixtureConfig
from corpus.recipe import Recipe

CHARS = "length.num_chars"


def buckets(**values: Any) -> dict[str, Any]:
    return {"statistic": CHARS, "bounds": [1, 2], "weights": [0, 1, 2]} | values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "is empty"),
        ({"sources": {"web": -0.1}}, "sources.web"),
        ({"sources": {"web": 100.5}}, "sources.web"),
        ({"sources": {"web": float("nan")}}, "finite"),
        ({"sources": {"web": "3"}}, "sources.web"),
        ({"sources": {"": 1}}, "at least 1 character"),
        ({"sources": {"web": 1}, "shares": {"web": 1.0}}, "two ways to say one thing"),
        ({"shares": {"web": 0.5, "wiki": 0.4}}, "add up to 0.9"),
        ({"shares": {"web": 1.5}}, "shares.web"),
        ({"sources": {"web": 1}, "total_bytes": 5}, "total_bytes"),
        ({"by": "variety", "sources": {"yue": 1}}, "Weights by label"),
        ({"by": "variety", "shares": {"zh-TW": 1.0}}, "'zh-TW' is no label of script.variety"),
        ({"by": "num_chars", "shares": {"1": 1.0}}, "is a number"),
        ({"by": "varieti", "shares": {"yue": 1.0}}, "no such statistic"),
        ({"sources": {"web": 1}, "wieghts": {}}, "unknown key"),
        ({"buckets": [buckets(statistic="length.num_char")]}, "did you mean length.num_chars"),
        ({"buckets": [buckets(statistic="characters.han_ratio", bounds=[20, 60])]}, "did you mean 0.2"),
        ({"buckets": [buckets(bounds=[2, 1])]}, "ascending"),
        ({"buckets": [buckets(bounds=[1, 1])]}, "ascending"),
        ({"buckets": [buckets(bounds=[1])]}, "make 2 buckets, and there are 3 weights"),
        ({"buckets": [buckets(bounds=[], weights=[1])]}, "bounds"),
        ({"buckets": [buckets(weights=[0, 1, 101])]}, "weights.2"),
        ({"buckets": [buckets(), buckets()]}, "make them one"),
        ({"sources": {"web": 51.0}, "buckets": [buckets()]}, "102 times, more than 100"),
    ],
)
def test_what_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        parse(MixtureConfig, values, "recipe.toml [mixture]")


def test_the_order_of_keys_and_whole_numbers_do_not_matter() -> None:
    one = parse(MixtureConfig, {"sources": {"a": 1, "b": 2}}, "x")
    other = parse(MixtureConfig, {"sources": {"b": 2.0, "a": 1.0}}, "x")
    assert one.patterns == other.patterns == ("a", "b") and one.weighing() == other.weighing()


def test_labels_say_which_bucket_a_bound_belongs_to() -> None:
    [table] = parse(MixtureConfig, {"buckets": [buckets()]}, "x").buckets
    assert table.labels == ("below 1", "1 to 2", "2 +")


def test_contamination_must_be_measured_to_weigh() -> None:
    mixture = MixtureConfig.model_validate({"buckets": [buckets(statistic="contamination.share")]})
    with pytest.raises(ValueError, match=r"\[dedup.contamination\], which is not here"):
        Recipe(filter=FilterConfig(), mixture=mixture)
    dedup = DedupConfig.model_validate({"contamination": {"files": ["a.jsonl"], "action": "flag"}})
    assert Recipe(filter=FilterConfig(), mixture=mixture, dedup=dedup).mixture == mixture
