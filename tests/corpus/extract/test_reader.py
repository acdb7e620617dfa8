"""The reader of HTML: the standard's syntax, line by line, and buffers that are never overrun."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from corpus.extract import lines, reader, tables
from corpus.extract.article import sizes
from corpus.extract.rows import fold_rows

TABLES = tables.tables(lines.START_CHARACTERS, lines.INSIDE_CHARACTERS, lines.BYLINE_CHARACTERS)
GUARD = 64


def read(page: str, use_names: bool = True) -> list[str]:
    """The lines of a page, rows folded; fails when anything was written behind a buffer's promised size."""
    data = np.frombuffer(page.encode(), np.uint8)
    num_out, num_rows, num_nodes, spanned = sizes(page.encode())
    out = np.full(num_out + GUARD, 255, np.uint8)
    rows = np.full((num_rows + GUARD, reader.LINE_COLUMNS), -7, np.int32)
    nodes = np.full((num_nodes + GUARD, reader.NODE_COLUMNS), -7, np.int64)
    info = np.zeros(reader.INFO_COLUMNS, np.int64)
    is_xml = page.startswith("<?xml")
    found = out[:-GUARD], rows[:-GUARD], nodes[:-GUARD]
    reader.read_page(data, *TABLES, use_names, is_xml, *found, info, spanned)
    assert (out[-GUARD:] == 255).all() and (rows[-GUARD:] == -7).all() and (nodes[-GUARD:] == -7).all()
    rows = rows[: info[reader.NUM_LINES]]
    rows = rows[: fold_rows(out, rows, nodes[: info[reader.NUM_NODES]])]
    text = [bytes(out[row[0] : row[1]]).decode() for row in rows]
    letters = sum(character.isalnum() and not character.isdecimal() for line in text for character in line)
    assert letters == rows[:, reader.LINE_LETTERS].sum()
    return text


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("甲 <b>乙</b>\n 丙<br>丁", ["甲 乙 丙", "丁"]),
        ("<p>甲<p>乙<div>丙</div>丁", ["甲", "乙", "丙", "丁"]),
        (
            "&lt;甲&gt; &amp;amp; &copy2 &nbsp;&#30002;&#x7532;&#128;&notit;&unknown; & &#; A&B",
            ["<甲> &amp; ©2 甲甲€¬it;&unknown; & &#; A&B"],
        ),
        ("甲<!-- <p>乙 --><!--> 丙 <!x>丁<?php echo ?></ x>戊", ["甲 丙 丁戊"]),
        ("<script>甲</scripty></script >乙<style>p{}</style><textarea><p>丙</textarea>丁", ["乙丁"]),
        ('<p title="a>b" class=x data=\'c>"d\'>甲</p>', ["甲"]),
        ("a < b 且 b<3 <", ["a < b 且 b<3 <"]),
        ('甲<a href=\'unclosed>乙</a><p title="a>b">丙', ["甲乙", "丙"]),
        ("<ul><li>甲<li>乙<ol><li>丙<li>丁</ol></ul><li>", ["• 甲", "• 乙", "1. 丙", "2. 丁"]),
        ("<table><tr><td>甲<td><b>乙</b><th>丙<tr><td>丁</table>", ["甲\t乙\t丙", "丁"]),
        ("<table><tr><td>甲<br>乙<td>丙</table>", ["甲 乙\t丙"]),
        ("<table><tr><td>甲<td><td>丙<tr><td><td><td>丁<tr><td>戊<td><td></table>", ["甲\t\t丙", "\t\t丁", "戊"]),
        ("<table><tr><th colspan=2>甲<th>乙<tr><td>1<td>2<td>3</table>", ["甲\t\t乙", "1\t2\t3"]),
        ("<table><tr><td rowspan=2>甲<td>乙<tr><td>丙<tr><td>丁<td>戊</table>", ["甲\t乙", "\t丙", "丁\t戊"]),
        ("<table><tr><td>甲<td rowspan=9999999999>乙<tr><td>丙<tr><td>丁<td>戊</table>", ["甲\t乙", "丙", "丁\t\t戊"]),
        ("<table><tr><td>甲<td><table><tr><td>乙<td>丙</table><tr><td>丁</table>", ["甲", "乙\t丙", "丁"]),
        ("<table><tr><td>甲<td><pre>a\n b</pre></table>", ["甲", "a", " b"]),
        ("<pre>\n a\n\n  <b>b</b>\t&nbsp;c \n</pre>d  e", [" a", "", "  b\t c", "d e"]),
        ("<ruby>漢<rp>(</rp><rt>hàn</rt><rp>)</rp></ruby>字", ["漢字"]),
        (
            "<nav>甲<div>乙</div></nav>丙<span style='color:red; DISPLAY : none'>丁<span>戊</span></span>己",
            ["甲", "乙", "丙己"],
        ),
        ("<div hidden>甲</div><div aria-hidden=true>乙</div><i aria-hidden=false>丙</i>", ["丙"]),
        ("<td><div class=nav>甲</td><td>乙", ["甲", "乙"]),
        ("<?xml version='1.0'?><html><head><script src='x'/><title/></head><body><a id='y'/>甲</body></html>", ["甲"]),
        ("<svg><title>甲</title><text>乙</text></svg><math><mi>x</mi></math>", ["x"]),
        ("\ufeff　甲　乙　\ufdd0", ["甲　乙"]),
        (
            "<ruby>漢<rt>hàn字<rb>字<rt>zì</ruby>后<div><ruby>文<rp>(<rt>wén</div><ruby>章<rt>zhāng<p>前",
            ["漢字后", "文", "章", "前"],
        ),
        ("<svg/>甲<svg><title/><style/><path d='x'/>乙</svg>丙<svg><svg/>丁</svg>戊", ["甲丙戊"]),
        ("<i>甲<svg><path d='x'><g>乙<p>丙</p>丁", ["甲", "丙", "丁"]),
        ("<p>甲<svg><g>乙</p>丙<svg>丁<span>戊</span>己<svg>庚<img>辛", ["甲", "丙戊己辛"]),
        ("<svg><section>甲</section><a href=x>乙</a></div>丙</svg>丁", ["丁"]),
        ("<svg><foreignObject><div>甲<p>乙</div>丙</p></foreignObject>丁</svg>戊", ["戊"]),
        ("<svg><desc><p>甲</desc><foreignObject><p>乙</foreignObject>丙<p>丁", ["丁"]),
        ("<button>甲<p>乙</button>丙", ["丙"]),
        ("甲<p class='cut", ["甲"]),
        ("甲<!-- a -- ><p>乙<!-- b ><p>丙 <!--", ["甲", "乙", "丙"]),
        ("<title>甲<p>乙<textarea>丙<iframe src=x>丁<title>戊", ["乙丙丁戊"]),
        ("<textarea><p>甲</textarea>乙<textarea>丙<!-- 丁 -->", ["乙丙"]),
        ("甲<script>a < b; '</div>'<p>c", ["甲"]),
    ],
)
def test_syntax(page: str, expected: list[str]) -> None:
    assert read(page) == expected


def test_what_is_hidden_is_read_on_request() -> None:
    page = "<div hidden>甲</div><div style='display:none'>乙</div><button>丙</button>丁"
    assert (read(page), read(page, use_names=False)) == (["丁"], ["甲", "乙", "丁"])


def test_no_mixture_of_tags_overruns_a_buffer() -> None:
    chance = random.Random(15)
    names = [*tables.ELEMENTS, "b", "span", "x-y"]
    pieces = [f"<{name}>" for name in names] + [f"</{name}>" for name in names]
    pieces += [
        f"<{name} class='content nav t_f' style=display:none href=x hidden>" for name in ("div", "td", "a", "span", "p")
    ]
    pieces += ["<td colspan=3 rowspan=70>", "<td rowspan=2>", "<th colspan=999999>"]
    pieces += "<!-- --> <! <? </ < > & &nGt; &#0; &#x10FFFF; &#55296; &nbsp 文 𠀀 x ' \" = / \ufdd0 \0".split(" ")
    pieces += [" ", "\n", "\t"]
    for _ in range(3_000):
        page = "".join(chance.choices(pieces, k=chance.choice([3, 30, 300])))
        for line in read(page):
            assert not re.search("[\ufdd0-\ufdef\ufffe\0\n]", line)
    assert len(read("<ol>" + "<li>x" * 30_000)) == 30_000
    assert read("&nGt;" * 1_000) == ["≫⃒" * 1_000]
