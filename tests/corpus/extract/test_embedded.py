"""The article in a page's scripts: found in the shapes that sites use, nothing in feeds and settings, and in linear
time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from corpus.extract.embedded import MAX_SCRIPT_BYTES, article_html
from tests.linear import assert_linear

LINES = [
    "清晨，木匠沿着河岸慢慢走，数着对岸亮起的灯。这件事后来被许多人提起，没有人觉得奇怪。",
    "他说，习惯了就好。大家听了都笑起来，谁也不知道下一次会是什么时候，桥头的钟正好敲了六下。",
    "院子里的猫打了个哈欠，事情就这样定了下来；那封信一直没有回音，路上的积水映着天空。",
    "第二年春天，木匠又来了。河水涨了半尺，灯却少了一盏，他站在桥头想了很久，什么也没有说。",
]
HTML = "".join(f"<p>{line}</p>" for line in LINES)
PLAIN = "".join(f"<p>{line}</p>\n" for line in LINES)[:-1]
ARTICLE = {"id": 7, "title": "木匠和他的河", "content": HTML, "tags": ["散文", "河"]}
TEASERS = [{"title": f"标题{i}", "url": f"/{i}", "summary": line * 2} for i, line in enumerate(LINES * 3)]


def script(value: Any, attributes: str = "type='application/json'") -> str:
    return f"<body><div id=app></div><script {attributes}>{json.dumps(value, ensure_ascii=False)}</script>"


def found(page: str) -> str | None:
    result = article_html(page.encode())
    return None if result is None else result.decode()


BLOCKS = [{"type": "text", "text": line} for line in LINES] + [{"type": "image", "url": "//x/y.png", "title": "图"}]
TREE = {"type": "doc", "content": [{"type": "paragraph", "content": [{"text": line}]} for line in LINES]}
LITERAL = HTML.replace("<", "\\x3c").replace(">", "\\x3e")
PAGES = {
    "next": script(
        {"props": {"pageProps": {"article": ARTICLE}}, "page": "/a/[id]"}, "id=__NEXT_DATA__ type=application/json"
    ),
    "initial "
    "state": f"<script>window.__INITIAL_STATE__={json.dumps({'a': ARTICLE})};(function(){{var s=1}}())</script>",
    "a URL-encoded script": script({"a": 1}).replace('{"a": 1}', quote(json.dumps(ARTICLE))),
    "escaped JSON": f"<script>window.__data = {json.dumps(ARTICLE)}</script>".replace("<p>", "\\u003Cp\\u003E"),
    "undefined": f'<script>var x = {json.dumps(ARTICLE, ensure_ascii=False)[:-1]},"user":undefined}};</script>',
    "JSON in a literal": f"<script>window.y = JSON.parse({json.dumps(json.dumps(ARTICLE))})</script>",
    "a call of Nuxt": f'<script>window.__NUXT__=(function(a,b){{i.title="木匠和他的河";i.contentHtml="{LITERAL}";return '
    f"{{a:i}}}}())</script>",
    "an object of Nuxt": f'<script>window.__NUXT__=(function(a){{return {{data:[{{title:"木匠和他的河",content:"{LITERAL}"}}'
    f"]}}}}(1))</script>",
    "JSON-LD": script(
        {
            "@graph": [
                {"name": "站", "url": "/"},
                {"headline": "木匠和他的河", "author": {"name": "某"}, "articleBody": HTML},
            ]
        }
    ),
    "escaped markup": script({**ARTICLE, "content": HTML.replace("<", "&lt;").replace(">", "&gt;")}),
    "WeChat": f"<div id=js_content></div><script>x={{title: JsDecode('木匠和他的河'), content_noencode: "
    f"JsDecode('{LITERAL}')}}</script>",
    "with comments": script({**ARTICLE, "comments": [{"user": "甲", "content": "写得真好。我也想去看看。"}] * 9}),
    "with teasers": script({"article": ARTICLE, "related": [{"title": f"标题{i}", "url": "/"} for i in range(40)]}),
    "twice": script({"a": ARTICLE, "b": {**ARTICLE, "text": "".join(LINES), "description": LINES[0]}}),
}


@pytest.mark.parametrize("name", PAGES)
def test_an_article_is_found(name: str) -> None:
    assert found(PAGES[name]) == f"<h1>木匠和他的河</h1>\n{HTML}"


@pytest.mark.parametrize(
    "value",
    [
        {"content": "\n".join(LINES)},
        {"paragraphs": LINES},
        {"blocks": BLOCKS},
        {"content": TREE},
        {"content": json.dumps(BLOCKS)},
        {"content": [{"insert": line + "\n"} for line in LINES]},
    ],
)
def test_paragraphs_of_plain_text_become_paragraphs(value: dict[str, Any]) -> None:
    assert found(script({"title": "A&B", **value})) == f"<h1>A&amp;B</h1>\n{PLAIN}"


NOTHING = {
    "no script": f"<p>{LINES[0]}",
    "a feed of teasers": script({"list": TEASERS}),
    "a feed whose longest entry is an article": script({"items": [*TEASERS[:2], {**ARTICLE, "content": HTML * 3}]}),
    "a feed under a content's key": script({"title": "首页", "data": TEASERS}),
    "comments": script({"data": [{"user": {"name": "甲"}, "text": line} for line in LINES * 2]}),
    "two articles of a kind": script(
        {
            "a": {"content": HTML},
            "b": {"content": HTML[3:].replace("木匠", "船夫")},
            "c": {"content": HTML[6:].replace("河", "江")},
        }
    ),
    "translations": script({"zh": {f"key{i}": line for i, line in enumerate(LINES * 5)}}),
    "settings": script({"title": "站点", "description": LINES[0], "icp": "京备", "keys": list(range(99))}),
    "code": f"<script>function f(a){{ return a == {{}} ? 'x' : \"{LINES[0]}\" }}</script>" * 3,
    "no sentences": script({"title": "字", "content": "木匠沿着河岸慢慢走" * 40}),
    "no end": script(ARTICLE).replace("</script>", ""),
    "cut": f"<script type='application/json'>{json.dumps(ARTICLE)[:-2]}</script>",
    "deep": "<script>var a = " + '{"content":[' * 100_000 + "</script>",
    "deep JSON in JSON": script({"content": "[" * 100_000}),
    "too much": script({"content": HTML * (MAX_SCRIPT_BYTES // len(HTML))}),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_no_article_gives_nothing(name: str) -> None:
    assert found(NOTHING[name]) is None


HOSTILE: dict[str, Callable[[int], str]] = {
    "scripts": lambda n: "<script>" * n,
    "JSON scripts": lambda n: f"<script type=json>{json.dumps(ARTICLE)}</script>" * (n // 50),
    "one JSON": lambda n: script({"list": [{"content": str(i), "x": [[]]} for i in range(n)]}),
    "50 MB of JSON": lambda n: script(["文。" * 50] * (n * 8)),
    "assignments": lambda n: "<script>" + 'a={"b":' * n + "</script>",
    "assignments that fail late": lambda n: "<script>" + ('a=["' + "x" * 40 + '","a=[",') * n + "</script>",
    "assignments in strings": lambda n: "<script>" + 'a=["a=[",",","' * n + "</script>",
    "literals": lambda n: "<script>" + "content:'\"" * n + "</script>",
    "open literals": lambda n: "<script>" + "content:'\\" * n + "</script>",
    "parsed": lambda n: "<script>" + "JSON.parse('{" * n + "</script>",
    "nested blocks": lambda n: script({"content": [{"content": [{"content": [["文。"] * 9]}]}] * (n // 8)}),
    "angles": lambda n: script({"content": "<" * n + HTML, "text": "<p" * n}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_linearly(name: str) -> None:
    assert_linear(article_html, lambda n: HOSTILE[name](n).encode(), 40_000)
