"""Many plain pages over many hosts: the web that speed is measured on."""

from __future__ import annotations

import random
from functools import cache

from tools.fake_site.site import Web, anchor
from tools.fake_site.wire import Answer, Asked, Reply
from tools.pages import make_article
from tools.pages.templates import TEMPLATES

NUM_HOSTS = 64
NUM_LINKS = 12
CASE = "many pages"


def build(web: Web, pages: int) -> None:
    """`pages` pages over `NUM_HOSTS` hosts, all of which can be reached from the first page of each host."""
    for number in range(NUM_HOSTS):
        _host(web, number, pages // NUM_HOSTS + (number < pages % NUM_HOSTS))


def _host(web: Web, number: int, pages: int) -> None:
    site = web.site(f"many-{number}.test")

    def respond(asked: Asked) -> Reply:
        index = 0 if asked.target == "/" else int(asked.target[3:].removesuffix(".html"))
        return Answer(_page(number, index, pages, web.port))

    for index in range(pages):
        site.add_computed(f"/p/{index}.html" if index else "/", respond, CASE)
    site.seed()


def _article(number: int) -> tuple[str, str]:
    """A made-up page, cut in two where the links go."""
    article = make_article(number)
    names = sorted(TEMPLATES)
    html = TEMPLATES[names[number % len(names)]](article, random.Random(number))[0]
    html = html.replace('href="', 'data-href="')  # the template's own links lead nowhere
    before, _, after = html.rpartition("</body>")
    return before, "</body>" + after


@cache
def _page(host: int, index: int, pages: int, port: int) -> bytes:
    """Page `index` of a host: links to its children in a tree of `NUM_LINKS` a page, to its parent, and to other hosts."""
    before, after = _article(host + NUM_HOSTS * index)
    children = range(index * NUM_LINKS + 1, min(pages, (index + 1) * NUM_LINKS + 1))
    links = [f"/p/{child}.html" for child in children]
    links += ["/", f"/p/{(index - 1) // NUM_LINKS}.html"] if index > NUM_LINKS else ["/"]
    links += [f"http://many-{(host + step) % NUM_HOSTS}.test:{port}/" for step in (1, 5)]
    title = f"<h2>第{host}站第{index}篇</h2>"
    return (before + title + "".join(anchor(link, text=f"第{at}条") for at, link in enumerate(links)) + after).encode()
