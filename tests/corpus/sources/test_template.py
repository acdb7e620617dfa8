"""[text] template: what is written around a text, what is not, and that it is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.engine.errors import UsageError
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from corpus.recipe import load_recipe
from corpus.sources.shards import Row
from corpus.sources.template import TextConfig, write
from tests.corpus.sources.files import extract_stage, warc_record
from tests.corpus.sources.test_stage import rows
from tests.corpus.texts import document

POEM = {"title": "静夜思", "author": "李白", "text": "床前明月光，\n疑是地上霜。"}


def row(text: str, title: str | None = None, meta: dict[str, object] | None = None, url: str | None = None) -> Row:
    return Row(
        url=url,
        title=title,
        date=None,
        encoding=None,
        meta=json.dumps(meta).encode() if meta else None,
        text=text.encode(),
    )


@pytest.mark.parametrize(
    ("template", "one", "text"),
    [
        ("{title}\n\n{text}", row("正文。", "题"), "题\n\n正文。"),
        ("{title}\n\n{text}", row("正文。"), "正文。"),
        ("{title}\n\n{text}", row("正文。", " 　\n"), "正文。"),
        ("{title}\n\n{text}", row("正文。", "第一\n 行{url}"), "第一 行{url}\n\n正文。"),  # values are no templates
        ("{title}：{text}", row("正文。"), "正文。"),
        ("{title}\n{meta.author}\n\n{text}", row("床前", "静夜思", {"author": "李白"}), "静夜思\n李白\n\n床前"),
        ("{title}\n{meta.author}\n\n{text}", row("床前", "静夜思", {"author": ["李"]}), "静夜思\n床前"),
        ("{title}\n\n{meta.author}\n\n{text}", row("床前", "静夜思"), "静夜思\n\n床前"),
        ("{meta.年}\n{text}\n\n来源：{source}，{url}", row("文", None, {"年": 755}), "755\n文"),
        ("甲\n\n{text}\n\n来源：{source}", row("文"), "甲\n\n文\n\n来源：诗"),
    ],
)
def test_lines_of_a_template(template: str, one: Row, text: str) -> None:
    before = len(one["text"].decode())
    added = write(TextConfig(template=template), "诗", one)
    assert one["text"].decode() == text and added == len(text) - before


@pytest.mark.parametrize(
    ("title", "text", "is_titled"),
    [
        ("静夜思", "《静夜思》\n床前明月光", True),
        ("静夜思", "\n　静 夜 思：\r\n床前明月光", True),
        ("红楼梦 第一回 甄士隐", "第一回　甄士隐\n此开卷第一回也", True),  # a chapter's, of a book
        ("Python入门", "ＰＹＴＨＯＮ 入门（一）\n正文", True),
        ("孔子", "孔子（前551年－前479年），名丘，字仲尼。", False),  # an encyclopedia's first sentence
        ("春", "春天来了\n草绿了", False),
        ("……", "……\n文", False),
        ("文", "\n \n", False),
    ],
)
def test_a_text_that_begins_with_its_title_is_left_as_it_is(title: str, text: str, is_titled: bool) -> None:
    one = row(text, title)
    assert write(TextConfig(template="{title}\n\n{text}"), "s", one) == (0 if is_titled else len(title) + 2)
    assert one["text"].decode() == (text if is_titled else f"{title}\n\n{text}")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{titel}\n{text}", "{title}, {text}, {url}, {date}, {source}, and {meta.NAME}"),
        ("{text.__class__}", "no field"),
        ("{title!r}{text:>9}", "no field"),
        ("{title}", "0 times"),
        ("{text}{text}", "2 times"),
        ("{{text}}", "brace"),
        ("{meta.}{text}", "no field"),
    ],
)
def test_what_is_no_template_is_refused_with_the_fields_that_there_are(
    tmp_path: Path, template: str, message: str
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f"extends = 'demo'\n[text]\ntemplate = {json.dumps(template)}\n")
    with pytest.raises(UsageError) as refused:
        load_recipe(str(path))
    assert message in str(refused.value) and "text.template" in str(refused.value)


def test_a_template_asks_for_fields_that_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("extends = 'demo'\n[text]\ntemplate = '{text}（{meta.author}）'\n[[sources]]\n")
    with pytest.raises(UsageError, match=r'meta = \["author"\]'):
        load_recipe(str(path))
    assert load_recipe(str(path), ["sources.0.meta=author"]).text.template


def build(tmp_path: Path, name: str, data: bytes, template: str) -> Folder:
    (tmp_path / name).write_bytes(data)
    stage = replace(extract_stage(str(tmp_path / name), meta=["author"]), texts=TextConfig(template=template))
    return run_stages([stage], str(tmp_path / "out"), workers=0)["extract"]


def test_titles_are_written_above_texts_and_counted(tmp_path: Path) -> None:
    poems = [POEM, POEM | {"text": "静夜思\n床前"}, {"text": "无题之文。"}]
    lines = "\n".join(json.dumps(poem) for poem in poems).encode()
    folder = build(tmp_path, "a.jsonl", lines, "{title}\n{meta.author}\n\n{text}")
    assert [row["text"] for row in rows(folder)] == ["静夜思\n李白\n\n" + POEM["text"], "静夜思\n床前", "无题之文。"]
    extra = folder.counts.extra
    assert (extra["text.template_documents"], extra["text.template_characters"]) == (1, len("静夜思\n李白\n\n"))
    assert folder.counts.bytes_out == sum(len(row["text"].encode()) for row in rows(folder))


def test_plan_shows_texts_as_they_will_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(POEM))
    words = ["plan", "--recipe", "web_zh", "--input", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out")]
    assert main([*words, "--set", "text.template='{title}：{text}'", "--json"]) == 0
    [[shown]] = [source["documents"] for source in json.loads(capsys.readouterr().out)["sources"]]
    assert shown["text"].startswith("静夜思：床前明月光")


def pages(*bodies: str) -> bytes:
    """The pages of an article, each with a title tag and a link to the next one."""
    data = b""
    for number, body in enumerate(bodies, 1):
        link = f"<a href=t_2023_{number + 1}.html>下一页</a>" if number < len(bodies) else ""
        html = f"<title>木匠的河_文海网</title>{body}<p>{document(number)}</p>{link}"
        address = f"http://a.cn/t_2023{f'_{number}' if number > 1 else ''}.html"
        data += warc_record(number, html.encode()).replace(b"https://example.org/%d" % number, address.encode())
    return data


@pytest.mark.parametrize("bodies", [["<h1>木匠的河</h1>"], ["", "", ""], ["<h1>木匠的河</h1>", ""]])
def test_an_article_of_one_page_or_more_has_its_title_once(tmp_path: Path, bodies: list[str]) -> None:
    folder = build(tmp_path, "a.warc", pages(*bodies), "{title}\n\n{text}")
    [one] = rows(folder)
    assert folder.counts.dropped.get("extract.joined", 0) == len(bodies) - 1
    assert one["title"] == "木匠的河" and one["text"].count("木匠的河") == 1 and one["text"].startswith("木匠的河\n")
