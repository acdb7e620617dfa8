"""Every backend finds an article; one that is not installed is an error of the recipe."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from corpus.extract import ExtractConfig, extract_html
from corpus.recipe import load_recipe
from tools.fake_site.site import html_of, text_of


@pytest.mark.parametrize("backend", ["wenhai", "resiliparse", "trafilatura"])
def test_each_backend_finds_the_article(backend: str) -> None:
    head = '<meta property="article:published_time" content="2021-03-04T08:00:00+08:00">'
    page = html_of("backends", ["/a", "/b"], head, paragraphs=text_of("backends", 8))
    found = extract_html(page, ExtractConfig.model_validate({"backend": backend}))
    assert [line for line in text_of("backends", 8) if line not in found.text] == []
    assert (found.title, found.date) == (page.partition("<title>")[2].partition("</title>")[0], "2021-03-04")
    assert extract_html("<p></p>", ExtractConfig.model_validate({"backend": backend})).text == ""


def test_a_missing_backend_is_told_when_the_recipe_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('[extract]\nbackend = "trafilatura"\n[filter]\n')
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"extract\.backend: trafilatura is not installed.*pip install"):
        load_recipe(str(recipe))
