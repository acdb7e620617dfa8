"""Nothing that a stranger wrote reaches a terminal, HTML or Markdown with a meaning of its own."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.safe import domain, escape_markdown, plain, plain_url, snippet

HOSTILE = st.text(
    st.one_of(st.sampled_from("\x1b\x9b\x07[]0;m<>|`\\\u202e\u200b\u2028\r\n"), st.characters()), max_size=60
)


@given(HOSTILE)
def test_plain_text_is_one_line_of_visible_characters(text: str) -> None:
    shown = plain(text)
    assert all(unicodedata.category(char)[0] != "C" and char not in "\u2028\u2029" for char in shown)
    assert len(shown) <= 160
    assert plain(shown) == shown


@pytest.mark.parametrize(
    "sequence",
    ["\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;https://evil.example\x1b\\", "\x1bPq\x1b\\", "\x9b2J", "\x1bc", "\x1b(B"],
)
def test_terminal_escapes_disappear_whole(sequence: str) -> None:
    assert plain(f"学而{sequence}时习之") == "学而时习之"


def test_snippets_are_masked_before_they_are_cut() -> None:
    text = "学" * 155 + "，13800138000，wang@example.com"
    assert "138" not in snippet(text)
    assert "1380013" not in snippet("电话13800138000", 10)
    assert "wang@example.com" not in snippet("邮箱wang@example.com，谢谢")


def test_urls_lose_what_may_be_personal() -> None:
    shown = plain_url("https://li:secret@example.org/u/13800138000?token=abc#mobile=13900139000")
    assert shown == "https://example.org/u/<MOBILE>?…"
    assert plain_url("https://example.org/论语#第一") == "https://example.org/论语?…"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.org:443/a@b", "example.org"),
        ("http://user:pw@h.example?x", "h.example"),
        ("https://[::1]:80/", "[::1]"),
        ("pages.warc.gz", ""),
        ("javascript:alert(1)", ""),
    ],
)
def test_domain(url: str, host: str) -> None:
    assert domain(url) == host


@given(HOSTILE)
def test_markdown_cells_hold_no_mark(text: str) -> None:
    cell = escape_markdown(plain(text))
    assert "<" not in cell and ">" not in cell
    unescaped = cell.replace("\\\\", "").replace("\\|", "").replace("\\`", "")
    assert "|" not in unescaped and "`" not in unescaped
