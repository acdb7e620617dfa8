"""Templates of wikitext: what readers of zh.wikipedia.org see of them, every one counted, and bounded work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.stage import Counts
from corpus.extract.child import MAX_NAMES, Extracted, extract_wikitext
from corpus.extract.config import ExtractConfig
from corpus.sources import Record
from corpus.sources.stage import MAX_COUNTED, to_document
from corpus.wikitext import to_text
from corpus.wikitext.templates import KEPT, SHOWN
from tests.examples import examples
from tests.linear import assert_linear


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("'''鲁迅'''（{{bd|1881年|9月25日|1936年|10月19日|catIdx=L}}），", "鲁迅（1881年9月25日－1936年10月19日），"),
        ("'''柯文哲'''（{{BD|1959年|8月6日}}）是", "柯文哲（1959年8月6日）是"),
        ("（{{jpn|j='''小野六花'''|hg=おの りっか|rm=Ono Rikka}}；{{bd||}}）", "（小野六花、おの りっか、Ono Rikka）"),
        ("{{nihongo|东京塔|東京タワー|Tōkyō tawā}}、{{nihongo|甲}}", "东京塔（東京タワー，Tōkyō tawā）、甲"),
        ("又称（{{zh|s=汉字|t=漢字|p=hànzì}}）{{zh}}", "又称（汉字、漢字、hànzì）"),
        ("类似{{tsl|en|FAST TCP}}和{{tsl|en|TCP Vegas||维加斯}}，", "类似FAST TCP和维加斯，"),
        ("称为{{link-en|希腊化哲学|Hellenistic_philosophy}}时期，{{le|甲|A|乙}}", "称为希腊化哲学时期，乙"),
        ("表兄{{#invoke:ilh|main|lang-code=en|毕安库奇|Biancucchi}}、{{仮リンク|坂上|en|S}}", "表兄毕安库奇、坂上"),
        ("{{langx|en|Silicon}}，{{lang-sr-Cyrl|Срби}}，{{link-ja|{{nowrap|東}}|x}}", "Silicon，Срби，東"),
        ("长{{convert|10|km|mi}}、{{convert|5|to|10|ft|m|abbr=on}}、{{cvt|3|by|4|m}}", "长10公里、5–10 ft、3×4米"),
        ("{{convert|10|m|ft}}，{{convert|20|C}}，{{convert|7|furlong}}", "10米，20°C，7 furlong"),
        ("這個國家長{{convert|10|m|ft}}，說{{地区用词|cn=软件|tw=軟體|start={{langx|en|X}}}}", "這個國家長10公尺，說軟體（X）"),
        ("{{地区用词|cn=硅|tw=矽|as=译}}", "硅"),
        ("使用國家\n*{{USSR}}（生產國）\n*{{flag|西班牙}}\n*{{JPN}}、{{rus}}", "使用國家\n• 蘇聯（生產國）\n• 西班牙\n• 日本、"),
        ("{{val|3.14|0.02|e=8|u=m}}、{{sqrt|2}}、H{{sub|2}}O、{{linktext|汉|字}}", "3.14±0.02×10^8 m、√2、H2O、汉字"),
        ("{{start date|2020|01|02}}、{{date|2020-1}}", "2020年1月2日、2020年1月"),
        ("{{birth date and age|df=y|1990|10|20}}生", "1990年10月20日生"),
        ("{{death date|约1900年}}、{{film date|2010|7|16|美国|2010|9|2}}{{date}}", "约1900年、2010年7月16日"),
        ("位于{{coord|39|54|26|N|116|23|29|E|type:city|display=inline,title}}，", "位于39°54′26″N 116°23′29″E，"),
        ("位于{{coord|-33.9|18.4|format=dms}}{{coord|1|2|display=title}}。", "位于33.9°S 18.4°E。"),
        ("{{color|red|红}}{{font color|red|blue|紫}}{{color|red||白}}{{abbr|GDP|国内生产总值}}{{tooltip|甲|乙}}", "红紫白GDP甲"),
        ("{{ruby|漢|かん}}字{{heimu|黑}}{{size|25|大}}{{nowrap begin}}{{pi}}{{nowrap end}}", "漢字黑大π"),
        ("{{main|甲}}{{See also|乙}}正文{{fact|date=2013}}。{{r|a}}\n{{reflist|2}}", "正文。"),
        ("{{formatnum:{{nowrap|1234}}}}，{{lc:A{{x}}B}}", "1234，AB"),
    ],
)  # fmt: skip
def test_sentences(source: str, text: str) -> None:
    assert to_text(source).text == text


NAMES = ("nowrap", "Lang", "bd", "convert", "quote", "zh", "x", "cite web", "header", "infobox 人物", "注")


@st.composite
def wikitext(draw: st.DrawFn, depth: int = 4) -> tuple[str, int]:
    """Text, and how many templates stand in it."""
    text, count = draw(st.sampled_from(("文", "en", "1", "\n* 乙", "[[甲|乙]]"))), 0
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        parts = draw(st.lists(wikitext(depth - 1), max_size=3))
        text += "{{" + "|".join([draw(st.sampled_from(NAMES)), *(part for part, _ in parts)]) + "}}，"
        count += 1 + sum(number for _, number in parts)
    return text, count


@examples(100)
@given(wikitext())
def test_every_template_is_expanded_or_counted_as_left_out(drawn: tuple[str, int]) -> None:
    source, count = drawn
    found = to_text(source)
    assert found.num_expanded + found.left_out.total() == count
    assert all(number > 0 and name == name.casefold() for name, number in found.left_out.items())


def test_templates_left_out_are_counted_by_name() -> None:
    page = "{{NoteTA|G1=IT}}{{Infobox|a={{cite web|b}}{{lang|en|X}}}}{{lang|en|Y}}{{lang|en|}}{{r|a}}{{R|b}}"
    found = to_text(page + "{{DEFAULTSORT:孔}}{{tsl|en|{{nowrap|A}}|甲}}{{#if:x|{{nowrap|y}}}}<ref>{{cite web}}</ref>")
    assert found.num_expanded == 2 and found.text == "Y甲"
    assert found.left_out == {
        "noteta": 1, "infobox": 1, "cite web": 1, "lang": 2, "r": 2, "defaultsort": 1, "nowrap": 2, "#if": 1,
    }  # fmt: skip


def test_a_page_and_a_task_hold_a_bounded_number_of_names() -> None:
    many = "".join(f"{{{{t{number}|x}}}}" for number in range(2 * MAX_NAMES)) + "{{常见}}" * 9 + "文"
    page = extract_wikitext(many.encode(), ExtractConfig())
    assert (page.num_left_out, len(page.left_out), page.left_out["常见"]) == (2 * MAX_NAMES + 9, MAX_NAMES, 9)
    counts, record = Counts(), Record("", 0, b"", "wikitext")
    for number in range(2 * MAX_COUNTED):
        to_document(record, Extracted(text=b"x", num_left_out=2, left_out={f"t{number}": 1, "t0": 1}), counts)
    assert counts.extra["wikitext.left_out"] == 4 * MAX_COUNTED and len(counts.extra) == MAX_COUNTED
    assert counts.extra["wikitext.left_out.t0"] == 2 * MAX_COUNTED


def test_no_parameter_is_shown_twice_so_that_nested_templates_cannot_multiply_a_text() -> None:
    keys = [
        *"123456",
        "text",
        "content",
        "quote",
        "s",
        "t",
        "p",
        "j",
        "hg",
        "start",
        "cn",
        "tw",
        "e",
        "u",
        "label",
        "lt",
    ]
    marks = [f"文{index:02}" for index in range(len(keys))]
    for name in SHOWN.keys() | KEPT.keys():
        given = "|".join(f"{key}={mark}" for key, mark in zip(keys, marks, strict=True))
        shown = to_text(f"{{{{{name}|{given}}}}}").text
        assert all(shown.count(mark) <= 1 for mark in marks), name


@pytest.mark.parametrize(
    "piece", ["{{convert|1|km}}，", "{{nowrap|{{nihongo|甲|", "{{bd|{{bd|{{coord|1|N|", "{{x{{lang|en|a}}|{{y|"]
)
def test_time_grows_linearly_and_output_with_it(piece: str) -> None:
    opened = piece.count("{{") - piece.count("}}")
    assert_linear(to_text, lambda n: piece * n + "}}" * opened * n + "文", 2_000, slack=0.02)
    assert len(to_text(piece * 500 + "}}" * opened * 500).text) < 2 * 500 * len(piece)
