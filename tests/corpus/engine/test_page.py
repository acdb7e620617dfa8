"""The frame of every page: what it lets the page do."""

from __future__ import annotations

import base64
import hashlib

import pytest

from corpus.engine.page import document
from tests.html_page import Page

EVIL = '</title><script>alert("x")</script>'


def policy(page: Page) -> str:
    (found,) = (one["content"] for _, one in page.tags if one.get("http-equiv") == "Content-Security-Policy")
    return found or ""


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("script", [None, "let x = 1 < 2;"])
def test_only_its_own_style_and_script_are_allowed(script: str | None) -> None:
    page = Page(document("标题", "b { color: red }", ["<p>字</p>"], ["<aside>x</aside>"], script))
    allowed = f"default-src 'none'; style-src 'sha256-{digest('b { color: red }')}'; "
    allowed += f"script-src 'sha256-{digest(script)}'; " if script else ""
    assert policy(page) == f"{allowed}base-uri 'none'; form-action 'none'"
    assert ("meta", {"name": "referrer", "content": "no-referrer"}) in page.tags
    assert [tag for tag, _ in page.tags if tag in ("main", "p", "aside", "script")] == ["main", "p", "aside"]
    assert "标题" in page.text and "字" in page.text


def test_the_title_is_escaped() -> None:
    page = Page(document(EVIL, "", []))
    assert EVIL in page.text and not any(tag == "script" for tag, _ in page.tags)
