"""What extraction left out of a page is in the ledger, in the report, and line by line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.engine.errors import WenhaiError
from corpus.extract.config import ExtractConfig
from corpus.report.page_lines import explain_lines, page_lines
from tests.corpus.texts import document

PAGE = """<title>河边的人_文海网</title><div class=nav><a href=/>首页</a> <a href=/n>新闻</a> <a href=/s>体育</a></div>
<div class=content><h1>河边的人</h1>{}<p>责任编辑：张三</p></div><div style="display:none">看不见</div>"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paragraphs = "".join(f"<p>{text}。</p>" for text in document(1).split("。") if text.strip())
    (folder / "a.html").write_text(PAGE.format(paragraphs))
    (folder / "b.jsonl").write_text(json.dumps({"text": document(2), "title": "题"}, ensure_ascii=False))
    wiki = f"{{{{lang|en|A}}}}，{{{{r|a}}}}{{{{R}}}}{document(3)}"
    (folder / "c.xml").write_text(
        f"<mediawiki><page><ns>0</ns><revision><text>{wiki}</text></revision></page></mediawiki>"
    )
    out = folder / "out"
    command = ["run", "--recipe", "web_zh", "--set", "text.template='{title}：{text}'", "--input", f"{folder}/*.*"]
    assert main([*command, "--out", str(out), "--workers", "0", "--quiet"]) == 0
    return folder, out


def test_lines_of_a_page_of_a_build(build: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = build
    assert main(["explain", str(out), "a.html:offset 0", "--lines", "--input", str(folder / "a.html")]) == 0
    printed = capsys.readouterr().out.splitlines()
    rules = {line.split(maxsplit=2)[2]: line.split()[0] for line in printed[1:-1] if len(line.split()) > 2}
    assert rules["责任编辑：张三"] == "labels" and "首页 新闻 体育" in rules and rules["首页 新闻 体育"] != "keep"
    assert list(rules.values()).count("keep") > 5
    total = re.search(r"([\d,]+) characters read: ([\d,]+) kept, .*hidden 3", printed[-1])
    assert total is not None
    read, kept = (int(number.replace(",", "")) for number in total.groups())
    assert 0 < kept < read
    assert printed[1:] == list(explain_lines(str(out), str(folder / "a.html"), []))  # a file needs no build's inputs


def test_the_ledger_and_the_report_say_what_was_left_out(
    build: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = build
    assert main(["explain", str(out), "a.html:offset 0"]) == 0
    assert "extract.labels of 7 characters" in capsys.readouterr().out
    report = (out / "report.md").read_text()
    assert "What extraction left out" in report and re.search(r"^\| `?labels`? *\| *1 *\| *7 ", report, re.MULTILINE)
    for row in ("left out | 2 | 66.67 %", "{{r}} | 2 | 66.67 %", "expanded | 1 |", "`text.template_characters` | 2 |"):
        assert f"| {row}" in report, row


def test_what_has_no_lines_is_told(build: tuple[Path, Path]) -> None:
    folder, out = build
    for key, inputs, message in (
        ("a.html:offset 0", [], "--input"),
        ("a.html:offset 0", [str(folder / "b.jsonl")], "none of these inputs holds it"),
        ("b.jsonl:offset 0", [str(folder / "b.jsonl")], "not as a page"),
    ):
        with pytest.raises(WenhaiError, match=message):
            list(explain_lines(str(out), key, inputs))


def test_lines_of_an_article_in_a_script() -> None:
    data = json.dumps({"props": {"content": f"<p>{document(3)}</p>"}}, ensure_ascii=False)
    page = f"<title>河</title><p>请打开脚本</p><script id=__NEXT_DATA__ type=application/json>{data}</script>"
    printed = list(page_lines(page.encode(), None, ExtractConfig()))
    assert "in one of its scripts" in printed[0] and document(3)[:20] in "".join(printed[1:])
    assert "请打开脚本" not in "".join(printed) and "other 5, replaced 0" in printed[-1]


def test_lines_go_by_the_builds_recipe() -> None:
    page = (
        f"<title>河</title><p>{document(4)}</p><table><tr><td>甲县</td><td>31万</td></tr></table><p>{document(5)}</p>"
    )
    kept, dropped = (list(page_lines(page.encode(), None, ExtractConfig(tables=form))) for form in ("tabs", "drop"))
    assert [line.split()[0] for line in (*kept, *dropped) if "甲县" in line] == ["keep", "tables"]
    with pytest.raises(WenhaiError, match="resiliparse"):
        list(page_lines(page.encode(), None, ExtractConfig(backend="resiliparse")))
