"""FAULTS row 15: hostile HTML is read in linear time and no text is lost by depth; parsers get only pages they can
take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corpus.extract import ExtractConfig, RefusedPage, extract_html
from tests.linear import assert_linear

TEXT = "清晨，木匠沿着河岸慢慢走，数着对岸亮起的灯。"
CONFIG = ExtractConfig(max_page_bytes=100_000_000)

HOSTILE: dict[str, Callable[[int], str]] = {
    "nested divs": lambda n: "<div>" * n + TEXT,
    "nested and closed": lambda n: "<div>" * n + TEXT + "</div>" * n,
    "nested lists": lambda n: "<ul><li>" * n + TEXT,
    "nested tables": lambda n: "<table><tr><td>" * n + TEXT,
    "nested names": lambda n: "<div class=content>" * n + TEXT,
    "nested skips": lambda n: TEXT + "<p>" + "<nav>" * n + "</nav>" * n,
    "nested forms": lambda n: "<form>" * n + TEXT,
    "misnested formatting": lambda n: "<b>" * n + "<div>" * n + "</b>" * n + TEXT,
    "unclosed tags": lambda n: "<p><b><i><a href=x>文" * n + "</a></i></b><p>" + TEXT,
    "unopened tags": lambda n: "</div></td></x></p>" * n + TEXT,
    "ends that must search": lambda n: "<p class=content><td>" + "<section>" * 500 + "</div></li></h1>" * n + TEXT,
    "list items under many": lambda n: "<ul>" + "<div>" * 500 + "<li></td>" * n + TEXT,
    "comment storm": lambda n: TEXT + "<!--" * n,
    "closed comments": lambda n: "<!-- x -->" * n + TEXT,
    "bogus comments": lambda n: "<!x><?y></ >" * n + TEXT,
    "endless comments": lambda n: "<!-- x >" * n + TEXT,
    "endless raw text": lambda n: "<textarea>x<title>y<iframe>" * n + "<p>" + TEXT,
    "nested rubies": lambda n: "<ruby>文<rt>x" * n + "<p>" + TEXT,
    "empty drawings": lambda n: "<svg><title/></svg><svg/>" * n + TEXT,
    "scripts": lambda n: "<script>x</script>" * n + TEXT,
    "unclosed scripts": lambda n: TEXT + "<script>" * n,
    "attributes": lambda n: "<p " + " ".join(f"a{i}" for i in range(n)) + ">" + TEXT,
    "quoted attributes": lambda n: "<p " + "a='b' " * n + ">" + TEXT,
    "classes": lambda n: "<div class='" + "content " * n + "'>" + TEXT,
    "roots": lambda n: "".join(f"<html a{i}=1><body b{i}=2>" for i in range(n)) + TEXT,
    "angles": lambda n: TEXT + "<" * n,
    "tags without end": lambda n: TEXT + "<a " * n,
    "open quotes": lambda n: TEXT + "<a b=\"c='" * n,
    "quotes that swallow tags": lambda n: TEXT + "<a b='>" * n,
    "ends without end": lambda n: TEXT + "</a" * n,
    "ampersands": lambda n: TEXT + "&" * n,
    "references": lambda n: TEXT + "&ampampampampampampampampamp" * n,
    "giant table": lambda n: "<table>" + "<tr><td>甲<td>乙" * n + "</table><p>" + TEXT,
    "wide row": lambda n: "<table><tr>" + "<td>甲" * n + "</table><p>" + TEXT,
    "spanned rows": lambda n: (
        "<table><tr>" + "<td rowspan=1000000000>甲" * 64 + "<tr><td>乙" * n + "</table><p>" + TEXT
    ),
    "spanned columns": lambda n: "<table>" + "<tr><td colspan=1000000000>甲" * n + "</table><p>" + TEXT,
    "the last of many": lambda n: "<div></div>" * n + f"<div class=content><p>{TEXT}</p></div>",
    "labels": lambda n: "<p>作者：甲" * n + "<p>" + TEXT,
    "formulas": lambda n: "<math><mi>x</mi></math>" * n + "<p>" + TEXT,
    "data": lambda n: f"<p>{TEXT}<script>window.__DATA__={{" + '"a":"文字，很多。",' * n + '"b":1}</script>',
    "containers": lambda n: "<div class=content>甲。</div>" * n + TEXT,
    "links": lambda n: "<a href=x>甲</a>\n" * n + "<p>" + TEXT,
    "meta": lambda n: "<meta " * n + "<p>" + TEXT,
    "dates": lambda n: "<p>2020-1-1 " + "2020-1-1 " * n + "<p>" + TEXT,
}
LOST = {"meta", "quotes that swallow tags"}  # the standard says that the text is inside a tag


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_linearly_and_the_text_is_found(name: str) -> None:
    html = HOSTILE[name](20_000)
    text = extract_html(html, CONFIG).text
    assert name in LOST or TEXT in text
    assert len(text) <= len(html)
    assert_linear(lambda html: extract_html(html, CONFIG), HOSTILE[name], 40_000)


def test_a_million_nested_tags_lose_no_text() -> None:
    text = extract_html("<div>" * 1_000_000 + TEXT + "</div>" * 1_000_000, CONFIG).text
    assert text == TEXT


@pytest.mark.parametrize("backend", ["resiliparse", "trafilatura"])
@pytest.mark.parametrize("name", ["nested divs", "misnested formatting", "attributes", "roots"])
def test_parsers_are_not_given_what_is_quadratic_for_them(backend: str, name: str) -> None:
    config = ExtractConfig.model_validate({"backend": backend})
    with pytest.raises(RefusedPage) as refused:
        extract_html(HOSTILE[name](20_000), config)
    assert refused.value.kind in ("too_deep", "too_complex")
