"""Characters of a page are kept or removed by a rule that has a name, and the sums agree."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest

from corpus.encoding import decode
from corpus.extract import ExtractConfig, extract_utf8
from corpus.extract.features import NUM_FEATURES
from corpus.extract.lines import RULES
from corpus.extract.model import line_model

KNOWN_RULES = {*RULES[1:], "hidden", "controls", "replaced"}
LINE_MODEL_DIGEST = "cfe97c649c0b3574afd1ca4b61ffd8b2e85e66c8117cca4a490d584eed137f10"


def test_every_character_of_a_page_is_accounted_for() -> None:
    page = """<title>河</title><nav><a href=/>首页</a></nav><h1>河</h1><p>学而时习之，不亦说乎？有朋自远方来，不亦乐乎？
    <b hidden>看不见</b><button>赞</button><ul><li>人不知而不愠，不亦君子乎？</ul><p>责任编辑：张三<p>坏\ufffd字"""
    found = extract_utf8(page.encode(), ExtractConfig())
    letters = re.sub(r"<title>.*?</title>|<[^>]*>|\s", "", page)
    assert found.num_read == len(letters)
    assert found.removed["hidden"] == (0, 3) and found.removed["controls"] == (0, 1)
    assert found.removed["damaged"] == (1, 3) and found.removed["labels"] == (1, 7)
    kept = len(re.sub(r"[\s•]", "", found.text.decode()))
    assert kept + sum(characters for _, characters in found.removed.values()) == found.num_read


def test_real_pages_conserve(test_data: Path) -> None:
    pages = sorted((test_data / "html_real" / "pages").iterdir())
    if not pages:
        pytest.skip("no real pages")
    for path in pages:
        page = decode(path.read_bytes()).text.encode()
        found = extract_utf8(page, ExtractConfig())
        assert set(found.removed) <= KNOWN_RULES, path.name
        kept = len(re.sub(r"\s", "", found.text.decode()))
        rest = found.num_read - sum(characters for _, characters in found.removed.values())
        marks = found.text.count("•".encode()) + 5 * len(re.findall(rb"^\d{1,4}\. ", found.text, re.M))
        assert rest <= kept <= rest + marks, path.name


def test_the_line_model_is_the_one_that_was_trained() -> None:
    data = (resources.files("corpus.extract") / "lines.table").read_bytes()
    assert hashlib.sha256(data).hexdigest() == LINE_MODEL_DIGEST
    model = line_model()
    assert model.features.max() < NUM_FEATURES
    assert len(model.features) == len(model.thresholds) == len(model.leaves) == 100
