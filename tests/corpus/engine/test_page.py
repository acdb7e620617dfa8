"""The kit of pages: what a page may do, and that text stays text wherever it enters one."""

from __future__ import annotations

import base64
import hashlib
import re
from xml.etree import ElementTree

import pytest

from corpus.engine.chart import Bar, Mark, Point, Row, Series, bars, figures, picture, plot, strips
from corpus.engine.page import Html, cards, document, table, tag
from tests.html_page import Page

SHOWN = '</title></svg><script>alert("x")</script>\'&amp;`|学'
EVIL = f"{SHOWN}\u202e\x1b[31m\x00"


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("script", [None, "let x = 1 < 2;"])
def test_only_its_own_style_and_script_are_allowed(script: str | None) -> None:
    after = [tag("script", Html(script))] if script else []
    text = document("标题", "事", [tag("p", "字")], style="b { color: red }", after=after, script=script)
    page = Page(text)
    page.check(num_scripts=len(after))
    (style,) = re.findall("<style>(.*)</style>", text, re.DOTALL)
    assert style.endswith("b { color: red }") and "url(" not in style and "@import" not in style
    allowed = f"default-src 'none'; style-src 'sha256-{digest(style)}'; "
    allowed += f"script-src 'sha256-{digest(script)}'; " if script else ""
    (policy,) = (one["content"] for _, one in page.tags if one.get("http-equiv") == "Content-Security-Policy")
    assert policy == f"{allowed}base-uri 'none'; form-action 'none'"
    assert ("meta", {"name": "referrer", "content": "no-referrer"}) in page.tags
    assert "标题" in page.text and "字" in page.text


def test_hostile_text_is_text_wherever_it_enters() -> None:
    drawings = [
        bars(EVIL, [Bar(EVIL, {EVIL: 1.0, "b": 1.0}, EVIL)], lambda _: EVIL, (1.0, EVIL), EVIL),
        plot(EVIL, [Series(EVIL, [Point(1, 1, EVIL)], radius=1.0)], EVIL, EVIL, marks=[("event", 1, EVIL)], unit=EVIL),
        strips(EVIL, [Row(EVIL, [Mark("dot", 1.0, about=EVIL)], EVIL)], (0, 2), EVIL, [(EVIL, 0)]),
    ]
    parts = [tag("p", EVIL, title=EVIL), table((EVIL,), [(EVIL,)], [EVIL]), cards([(EVIL, EVIL)]), figures(drawings)]
    text = document(EVIL, EVIL, [*parts, EVIL], EVIL, after=[EVIL])
    page = Page(text)
    page.check()
    assert page.text.count(SHOWN) == 33 and page.text.count(SHOWN) == page.text.count(f"{SHOWN}\\u202e\\x1b[31m\\x00")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    drawn = ElementTree.fromstring(picture(drawings, [EVIL]))
    assert all(SHOWN in "".join(one.itertext()) for one in drawn.findall("{http://www.w3.org/2000/svg}text"))
