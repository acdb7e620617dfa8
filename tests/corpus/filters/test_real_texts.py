"""On real pages (WENHAI_TEST_DATA): good ones stay, bad ones go, by kind of page. Texts are read, never copied."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from corpus.filters import Filter

MIN_KEPT_GOOD = 0.97  # of all good pages, and of each source of running text
MIN_REMOVED_BAD = 0.90
MODEL_NEEDED = {"gambling_site", "cc_seo_gambling", "crypto_seo"}  # fluent text: left to the quality model
SHORTER_THAN_A_PAGE = {"chinese_poetry"}  # a third of it is single poems below 50 characters


def texts_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_labelled_pages(test_data: Path, web_zh: Filter) -> None:
    pages = texts_of(test_data / "labelled" / "pages_dev.jsonl")
    kept: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for page, verdict in zip(pages, web_zh.apply([page["text"] for page in pages]), strict=True):
        kept[page["label"], page["kind"]].append(verdict.kept)
    share = {key: sum(flags) / len(flags) for key, flags in kept.items()}
    good = [flag for (label, _), flags in kept.items() if label == "good" for flag in flags]
    bad = [flag for (label, _), flags in kept.items() if label == "bad" for flag in flags]
    assert sum(good) / len(good) >= MIN_KEPT_GOOD
    assert 1 - sum(bad) / len(bad) >= MIN_REMOVED_BAD
    for (label, kind), value in share.items():
        if label == "good":
            assert value >= MIN_KEPT_GOOD, kind
        elif kind not in MODEL_NEEDED:
            assert 1 - value >= 0.80, kind


def test_running_text_of_all_kinds_is_kept(test_data: Path, web_zh: Filter) -> None:
    for path in sorted((test_data / "text").glob("*.jsonl")):
        texts = [row["text"] for row in texts_of(path)]
        verdicts = list(web_zh.apply(texts))
        if path.stem in SHORTER_THAN_A_PAGE:
            verdicts = [verdict for verdict in verdicts if verdict.rule != "length.num_chars"]
        assert sum(verdict.kept for verdict in verdicts) / len(verdicts) >= MIN_KEPT_GOOD, path.stem
