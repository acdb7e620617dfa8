"""Wikitext to text: what stays, what goes, conversion markup, and time that is linear in hostile markup."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.engine.stage import Counts
from corpus.extract import ExtractConfig
from corpus.sources import Record
from corpus.sources.pages import with_pages
from corpus.sources.stage import to_document
from corpus.wikitext import syntax, to_text
from corpus.wikitext.conversion import convert, script_of
from tests.examples import examples
from tests.linear import assert_linear

PAGE = """{{NoteTA|G1=IT|1=zh-hans:软件;zh-hant:軟體}}
{{Infobox 人物
| name = 孔子
| image = [[File:a.jpg|thumb|文[[像]]]]
| 列表 = {{plainlist|
* 甲
* 乙
}}
}}
__NOTOC__<!-- 注释 [[ -->
[[File:Confucius.jpg|thumb|200px|孔子[[像]]与[https://example.org 说明]]]
'''孔子'''（{{lang-en|Confucius}}；前551年－前479年），<!--
-->名'''丘'''{{r|a}}，字''仲尼''，[[春秋]]时期[[鲁国|鲁]]国人。<ref name="a">{{cite web|url=https://example.org|title=书}}</ref
><ref name=b />
學而時習之（{{zh|a}}），不亦說乎&nbsp;&mdash;[https://example.org/a 论语]，数组a[0]。

== 生平 ==
=== 早年 ===
* 有[[朋]]自远方来
** 不亦乐乎
# 其一
# 其二
; 人不知
: 而不愠
{| class="wikitable"
! 甲 !! 乙
|-
|
{|
| 内
|}
| 2
|}
勾股定理<math>a^2 + b^2 < c_1</math>，标记<nowiki>[[不是链接]] ''</nowiki>。
<poem>
床前明月光，
疑是地上霜。
</poem>
{{quote|举头望明月，<br />低头思故乡。}}
<gallery>
File:b.jpg|题
</gallery>
== 空节 ==
== 作品 ==
=== 空小节 ===
== 参考文献 ==
{{reflist}}
* [https://example.org 书]
== 外部链接 ==
* [https://example.org 官网]
{{春秋人物}}
[[Category:人物]][[分类:儒家|孔]]
[[en:Confucius]]
[[zh-classical:孔子]]
"""

TEXT = """孔子（Confucius；前551年－前479年），名丘，字仲尼，春秋时期鲁国人。
學而時習之，不亦說乎 —论语，数组a[0]。
生平
早年
• 有朋自远方来
• 不亦乐乎
1. 其一
2. 其二
人不知
而不愠
勾股定理a^2 + b^2 < c_1，标记[[不是链接]] ''。
床前明月光，
疑是地上霜。
举头望明月，
低头思故乡。"""


def test_a_page_becomes_what_its_reader_sees() -> None:
    assert to_text(PAGE).text == TEXT


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("[[甲|乙]]和[[丙]]、[[:Category:丁|戊]]、[[:分类:己]]", "乙和丙、戊、分类:己"),
        ("[[w:甲|乙]]，[[wikt:字]]，[[s:zh:论语]]", "乙，字，论语"),
        ("[[fr:甲]][[ File : a.jpg|x]][[檔案:b.png|缩略|说明[[链]]]]文", "文"),
        ("[[甲|'''乙''']]，[[甲|{{lang|en|B}}]]", "乙，B"),
        ("{{le|鲁迅|Lu Xun|周树人}}，{{link-en|中文名|English}}，{{tsl|en|A|本地|显示}}", "周树人，中文名，显示"),
        (
            "{{Lang|ja|日本}}，{{lang-fr|français}}，{{nowrap|{{small|小}}}}，{{Template:Nowrap|1=a=b}}",
            "日本，français，小，a=b",
        ),
        ("{{bd|1881年|9月25日|1936年|10月19日|catIdx=L}}", "1881年9月25日－1936年10月19日"),
        ("{{unknown|甲}}{{cite book|title=乙}}{{{1|默认}}}", "默认"),
        ("{{convert|10|km}}{{·}}{{formatnum:1234}}", "10公里·1234"),
        ("<ruby><rb>漢</rb><rp>(</rp><rt>hàn</rt><rp>)</rp></ruby>字<sup>2</sup>", "漢字2"),
        ("甲<br>乙<div style='x'>丙</div>丁<span>戊</span>", "甲\n乙\n丙\n丁戊"),
        ('甲<ref>x</ref>乙<REF name=a>y</Ref>丙<ref name="b"/>丁', "甲乙丙丁"),
        ("甲<ref>没有结束", "甲没有结束"),
        ("甲<!-- x -->乙<!-- 没有结束", "甲乙 没有结束"),
        ("<pre>a  [[b]]</pre><syntaxhighlight lang=c>x[[1]]</syntaxhighlight>", "a [[b]]\nx[[1]]"),
        ("[https://example.org][https://example.org 标签]//[mailto:a@example.org 信]", "标签//信"),
        ("{|\n|甲\n|}\n乙", "乙"),
        ("{|\n|甲\n没有结束", "没有结束"),
        ("|}\n甲", "甲"),
        ("{{x|甲", "x|甲"),
        ("甲]]乙}}丙[[丁", "甲乙丙丁"),
        ("{{nowrap|甲[[乙}}丙]]", "甲乙丙"),
        ("甲}-乙-{丙", "甲乙丙"),
        ("甲（）、乙（，）丙( )", "甲、乙丙"),
        ("&lt;b&gt;&amp;amp;&#x4e00;", "<b>&amp;一"),
        ("==标题==\n正文\n==注释==\n这是一段完整的说明文字。", "标题\n正文\n注释\n这是一段完整的说明文字。"),
        ("==标题==\n正文\n== 參考資料 ==\n* 書", "标题\n正文"),
        ("a == b", "a == b"),
        ("\x01\x02\x03" + "甲", "甲"),
        ("----\n甲", "甲"),
        (
            "质量{{mvar|m}}、{{math|''E''}}，{{chem|H|2|O}}，{{val|3.1|e=8|u=m}}，{{nts|5000}}人",
            "质量m、E，H2O，3.1×10^8 m，5000人",
        ),
        ("{{frac|2}}{{frac|1|3}}，{{frac|3|1|2}}{{frac}}，{{convert|5|to|10|km|mi}}", "1/21/3，3 1/2，5–10公里"),
        ("{{ruby-ja|東京|とうきょう}}，{{interlanguage link|辛|en|Xin}}，{{illm|辛|en|3=Xin|lt=壬}}", "東京，辛，壬"),
        ("子曰{{SK notes|注}}{{夾注|}}，{{as of|2010|5}}，{{circa|1500年}}", "子曰（注），截至2010年5月，约1500年"),
        ("曰{{quote|甲|乙}}又{{hlist|丙|丁}}", "曰\n甲\n又丙、丁"),
        ("{{columns-list|2|\n* 甲\n* 乙\n}}{{unbulleted list|丙|丁}}", "• 甲\n• 乙\n丙\n丁"),
        ("# 一\n#: 例\n## 子\n## 丑\n# 二\n\n# 一", "1. 一\n例\n1. 子\n2. 丑\n2. 二\n1. 一"),
        ("* {{l|zh|讀書}}、{{zh-l|念書}}\n* {{x}}、{{y}}\n[[/為政/]]", "• 讀書、念書\n為政"),
        ("甲（{{x}}；乙、{{x}}）、{{y}}、{{z}}、{{x}}。", "甲（乙）。"),
        ("<code>main()</code>与f(){{x}}，甲()<pre>g(（）)，，</pre>", "main()与f()，甲\ng(（）)，，"),
        ("<nowiki>&amp;lt;</nowiki>&amp;lt;", "&lt;&lt;"),
        ("", ""),
    ],
)
def test_pieces(source: str, text: str) -> None:
    assert to_text(source).text == text


def test_templates_dropped_before_the_parser_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    more = (
        "{{a|b}}{{{c|{{d}}}}}{{lang|en|x{{e|f}}}}{{nowrap|甲}}{{g|[[h]]}}{{header|author=乙}}{{!}}{{bd|1|2}}{{{1|默}}}"
    )
    fast = [to_text(source) for source in (PAGE, more)]
    monkeypatch.setattr("corpus.wikitext._SIMPLE_TEMPLATE", re.compile("(?!)"))
    assert [to_text(source) for source in (PAGE, more)] == fast


def test_a_wikisource_header_names_the_author() -> None:
    found = to_text(
        "{{header2\n|title=[[論語]]\n|section=學而\n|author=[[作者:孔子|孔子]]\n}}\n子曰：{{專名|顏回}}、{{*|小注}}"
    )
    assert (found.text, found.title, found.author) == ("子曰：顏回、（小注）", "論語", "孔子")


@pytest.mark.parametrize(
    ("source", "cn", "tw"),
    [
        ("-{zh-hans:软件; zh-hant:軟體;}-", "软件", "軟體"),
        ("-{zh-cn:博客;zh-hk:網誌;zh-tw:部落格}-", "博客", "部落格"),
        ("-{zh-hk:網誌}-", "網誌", "網誌"),
        ("-{A|zh-hans:内存;zh-hant:記憶體}-", "内存", "記憶體"),
        ("-{H|zh-hans:内存;zh-hant:記憶體}-文", "文", "文"),
        ("-{T|zh-hans:题;zh-hant:題}-文", "文", "文"),
        ("-{D|zh-hans:题;zh-hant:題}-文", "文", "文"),
        ("-{-|zh-hans:题;zh-hant:題}-文", "文", "文"),
        ("-{干}-", "干", "干"),
        ("-{R|甲:乙}-", "甲:乙", "甲:乙"),
        ("-{zh;zh-hans;zh-hant|甲}-", "甲", "甲"),
        ("-{}-", "", ""),
        ("-{巨集=>zh-cn:宏;}-", "宏", "宏"),
        ("-{zh-hans:见-{zh-hans:甲;zh-hant:乙}-;zh-hant:無}-", "见甲", "無"),
        ("-{[[甲|乙]]}-", "[[甲|乙]]", "[[甲|乙]]"),
        ("-{zh-hans:{{a|b}};zh-hant:c}-", "{{a|b}}", "c"),
        ("-{{{a}}}-", "-{{{a}}}-", "-{{{a}}}-"),
        ("-{甲", "甲", "甲"),
    ],
)
def test_conversion(source: str, cn: str, tw: str) -> None:
    assert (convert(source, "zh-cn"), convert(source, "zh-tw")) == (cn, tw)


def test_the_script_of_the_page_chooses() -> None:
    rule = "-{zh-cn:软件;zh-tw:軟體}-"
    assert to_text("这个" + rule).text == "这个软件" and to_text("這個" + rule).text == "這個軟體"
    assert to_text("这个" + rule, "zh-tw").text == "这个軟體"
    assert script_of("") == "zh-cn"


@examples(150)
@example(["-", "{-{", "}-", "{{-}}", "{"])
@given(
    st.lists(
        st.sampled_from(
            "-{ }- {{ }} [[ ]] { } [ ] | zh-cn: zh-tw: ; A| ' == \n * 甲 <ref> </ref> <!-- --> {| |} & < >".split(" ")
        )
    )
)
def test_no_marks_are_left_and_balanced_is_stable(parts: list[str]) -> None:
    source = "".join(parts)
    text = to_text(source).text
    assert "-{" not in text and "}-" not in text
    assert not any(mark in text for mark in ("{{", "}}", "[[", "]]", syntax.LIST, syntax.HEADING, syntax.BRACKET))


@example(["{{"] * 6 + ["x"] + ["}}"] * 6, 3)
@given(st.lists(st.sampled_from(["{{", "}}", "[[", "]]", "x"])), st.integers(1, 4))
def test_balanced_marks_are_in_pairs_and_not_too_deep(parts: list[str], max_depth: int) -> None:
    kept = syntax.balance_braces(" ".join(parts), max_depth).split()
    open_marks = []
    for mark in kept:
        if mark in ("{{", "[["):
            open_marks.append(mark)
            assert len(open_marks) <= max_depth
        elif mark != "x":
            assert open_marks.pop() == ("{{" if mark == "}}" else "[[")
    assert not open_marks and kept.count("x") == parts.count("x")


HOSTILE: dict[str, Callable[[int], str]] = {
    "templates": lambda n: "{{a|" * n,
    "braces": lambda n: "{" * 2 * n,
    "arguments": lambda n: "{{{a|" * n,
    "links": lambda n: "[[a|" * n,
    "brackets": lambda n: "[" * 4 * n,
    "crossed": lambda n: "[[ {{ ]] }} " * n,
    "closed templates": lambda n: "{{a|" * n + "}}" * n,
    "closed links": lambda n: "[[a|{{b|" * n + "}}]]" * n,
    "rules": lambda n: "-{A|zh-cn:" * n,
    "closed rules": lambda n: "-{" * n + "}-" * n,
    "spaces in rules": lambda n: "-{zh:a;" + " " * 20 * n + "}-",
    "protected rules": lambda n: "<nowiki>" + "-" * 10 * n + "{" * 10 * n + "</nowiki>",
    "many variants": lambda n: "-{" + "zh-cn:a;" * n + "}-",
    "tables": lambda n: "{|\n|-\n|a\n" * n,
    "closed tables": lambda n: "{|\n" * n + "|}\n" * n,
    "comments": lambda n: "<!--" * n,
    "references": lambda n: "<ref>" * n + "<ref " * n,
    "tags": lambda n: "<div><b>" * n,
    "external": lambda n: "[http://a " * n + "http://b " * n,
    "headings": lambda n: "= a\n" * n + "=" * n,
    "apostrophes": lambda n: "'" * 3 * n,
    "brackets without text": lambda n: "（ " * n,
    "separators": lambda n: "，、 " * n + "（，" * n,
    "deep lists": lambda n: "#" * n + "\n#" * n,
    "protected": lambda n: "<nowiki>a</nowiki>" * n,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_linearly(name: str) -> None:
    assert_linear(to_text, lambda n: HOSTILE[name](n) + "文", 2_000, slack=0.02)


@pytest.mark.long
def test_pages_that_the_parser_cannot_take_cost_themselves() -> None:
    config = ExtractConfig(max_page_seconds=1.0)
    slow = ("{{nowrap|b}} " * 400_000).encode()
    records = [Record(str(index), index, b"'''x'''", "wikitext") for index in range(3)]
    records.insert(1, Record("slow", 9, slow, "wikitext"))
    found = [page for _, page in with_pages(records, config)]
    assert [page.error if page else "none" for page in found] == [None, "killed", None, None]
    assert found[1] is not None and found[1].detail == "time"
    assert to_document(records[0], found[0], Counts())["text"] == b"x"
