"""Many plain pages over many hosts: the web that speed is measured on.

A page has some 8 KB and 15 links, or as `large` one the weight of a page of a news site, 21 KB: lists of other articles
(`MANY_LINKS`), style and script around the text.
"""

from __future__ import annotations

import random
from functools import cache

from tools.fake_site.site import Web, anchor, headline, html_of, text_of
from tools.fake_site.wire import Answer, Asked, Reply

NUM_HOSTS = 64
NUM_LINKS = 12
PARAGRAPHS = 20
MANY_LINKS = 90
STYLE = "<style>" + ".list li a:hover{color:#c00;text-decoration:underline}\n" * 40 + "</style>"
SCRIPT = "<script>" + "window.dataLayer=window.dataLayer||[];dataLayer.push({event:'view'});\n" * 50 + "</script>"
CASE = "many pages"


def build(web: Web, pages: int, large: bool = False) -> None:
    """`pages` pages over `NUM_HOSTS` hosts, all of which can be reached from the first page of each host."""
    for number in range(NUM_HOSTS):
        _host(web, number, pages // NUM_HOSTS + (number < pages % NUM_HOSTS), large)


def _host(web: Web, number: int, pages: int, large: bool) -> None:
    site = web.site(f"many-{number}.test")

    def respond(asked: Asked) -> Reply:
        index = 0 if asked.target == "/" else int(asked.target[3:].removesuffix(".html"))
        return Answer(_page(number, index, pages, web.port, large))

    for index in range(pages):
        site.add_computed(f"/p/{index}.html" if index else "/", respond, CASE)


@cache
def _page(host: int, index: int, pages: int, port: int, large: bool) -> bytes:
    """Page `index` of a host: links to its children in a tree of `NUM_LINKS` a page, to its parent, and to other
    hosts."""
    children = range(index * NUM_LINKS + 1, min(pages, (index + 1) * NUM_LINKS + 1))
    links = [f"/p/{child}.html" for child in children]
    links += ["/", f"/p/{(index - 1) // NUM_LINKS}.html"] if index > NUM_LINKS else ["/"]
    links += [f"http://many-{(host + step) % NUM_HOSTS}.test:{port}/" for step in (1, 5)]
    texts = [f"第{at}条" for at in range(len(links))]
    if large:
        chance = random.Random(f"{host} {index}")
        links += [f"/p/{chance.randrange(1, pages)}.html" if pages > 1 else "/" for _ in range(MANY_LINKS)]
        texts += [headline(chance) for _ in range(MANY_LINKS)]
    items = [anchor(link, text=text) for link, text in zip(links, texts, strict=True)]
    key, (head, extra) = f"{host} {index}", (STYLE, SCRIPT) if large else ("", "")
    extra += f"<h2>第{host}站第{index}篇</h2>"
    return html_of(key, items, head, text_of(key, PARAGRAPHS), extra=extra).encode()
