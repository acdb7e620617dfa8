"""KenLM as a statistic: exact on a model small enough to do by hand, bounded in what it reads, clear when it is
missing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from corpus.engine.errors import UsageError
from corpus.filters import load, measure
from corpus.filters.quality.language_model import SAMPLE_BYTES, load_language_model, sample

ARPA = """\\data\\
ngram 1=4
ngram 2=1

\\1-grams:
-1.0\t<unk>
-99\t<s>\t0
-0.5\t</s>
-0.25\t学\t-0.1

\\2-grams:
-0.125\t学 学

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> str:
    path = tmp_path / "zh.arpa"
    path.write_text(ARPA, "utf-8")
    load_language_model.cache_clear()
    return str(path)


def test_perplexity_by_hand(arpa: str) -> None:
    pytest.importorskip("kenlm")
    judge = load("web_zh", [f"filter.quality.language_model={arpa}", "filter.quality.language_model_perplexity.max=5"])
    found = judge.apply(["学 学\n", "学而", ""]).table["quality.language_model_perplexity"].to_pylist()
    assert found == pytest.approx([10 ** (0.375 / 2), 10 ** (1.35 / 2), 0.0])  # 而 is unknown, after a back-off
    assert judge.config.meaning()["language_model"] == load_language_model(arpa).digest


def test_two_samples_of_a_document() -> None:
    text = "前" * 1000 + "中" * 1000 + "后" * 1000
    taken = sample(np.frombuffer(text.encode(), np.uint8))
    assert set(taken) == {"前", "中"}
    assert len(taken) <= 2 * SAMPLE_BYTES // 3
    short = "学而时习之" * 100  # 1,500 bytes: the beginning and what is left
    assert len(sample(np.frombuffer(short.encode(), np.uint8))) == pytest.approx(500, abs=2)


def test_without_a_model() -> None:
    assert np.isnan(measure("quality.language_model_perplexity", ["学"])).all()
    with pytest.raises(UsageError, match="language_model = "):
        load("web_zh", ["filter.quality.language_model_perplexity.max=5"])


def test_without_the_module(arpa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(UsageError, match="pip install"):
        load("web_zh", [f"filter.quality.language_model={arpa}"])


def test_what_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    path = tmp_path / "zh.binary"
    path.write_bytes(b"no model at all\n" * 10)
    for name, message in ((path, "no model"), (tmp_path / "none", "is no file")):
        with pytest.raises(UsageError, match=message):
            load("web_zh", [f"filter.quality.language_model={name}"])
