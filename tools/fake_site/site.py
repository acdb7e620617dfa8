"""A host of the fake web under construction: its pages, and what is expected of a crawler at each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from html import escape

from tools.fake_site.expected import ALLOWED, KEPT, UNKNOWN, Expected, Family, Truth, digest_of
from tools.fake_site.prose import headline, sentence
from tools.fake_site.wire import Answer, Asked, Computed, Reply, page

NOT_FOUND = Answer(b"<title>404</title>", 404)


class Web:
    """All hosts of one port, and the truth about them."""

    def __init__(self, port: int, round_number: int = 1) -> None:
        self.port = port
        self.tls_port = 0
        self.ca_file: str | None = None
        self.sites: dict[str, Site] = {}
        self.truth = Truth()
        self.seeds: list[str] = []
        self.fixed: dict[str, str] = {}  # hosts whose address is not handed out by us
        self.round = round_number

    def site(self, host: str, robots: Reply | str | None = None) -> Site:
        """A new host. `robots`: rules, another answer than 200 text/plain, or None for 404."""
        site = Site(self, host)
        if isinstance(robots, str):
            robots = Answer(robots.encode(), content_type="text/plain")
        if robots is not None:
            site.serve("/robots.txt", robots)
        self.sites[host] = site
        return site

    def url(self, host: str, target: str = "/") -> str:
        """The URL of a page, as a crawler normalises it."""
        return f"http://{host}:{self.port}{target}"

    def add_family(
        self, pattern: str, case: str, group: str, fates: Iterable[str], least: int = 0, most: int | None = None
    ) -> None:
        """Expect something of all URLs that match in full and are not named."""
        self.truth.families.append(Family(re.compile(pattern), group, case, frozenset(fates), least, most))


class Site:
    """One host: replies by target, and what to say to targets that have none."""

    def __init__(self, web: Web, host: str) -> None:
        self.web = web
        self.host = host
        self.replies: dict[str, Computed] = {}
        self.fallback: Computed = lambda asked: NOT_FOUND

    def url(self, target: str = "/") -> str:
        """The URL of a page of this host."""
        return self.web.url(self.host, target)

    def respond(self, asked: Asked) -> Reply:
        """The answer to a request."""
        if asked.target == "/robots.txt" and asked.target not in self.replies:
            return NOT_FOUND
        return self.replies.get(asked.target, self.fallback)(asked)

    def serve(self, target: str, reply: Reply) -> None:
        """A page of which nothing is expected, or which is expected elsewhere."""
        self.replies[target] = lambda asked: reply

    def add(
        self,
        target: str,
        reply: Reply,
        case: str,
        group: str = ALLOWED,
        fates: Iterable[str] = ("fetched",),
        least: int = 1,
        most: int = 1,
    ) -> None:
        """A page that is there, and what is expected of it."""
        self.serve(target, reply)
        if self.web.round > 1 and set(fates) == {"fetched"}:
            fates = KEPT  # the second time its payload is known
        kept = isinstance(reply, Answer) and reply.status == 200 and set(fates) <= KEPT
        digest = digest_of(reply.body) if kept and isinstance(reply, Answer) else None
        self.expect(target, case, group, fates, least, most, digest)

    def add_either(self, targets: Sequence[str], reply: Answer, case: str) -> None:
        """One page with several addresses, any one of which a crawler may prefer: one of them is asked for, once."""
        for target in targets:
            self.serve(target, reply)
        self.family("|".join(map(re.escape, targets)), case, ALLOWED, (*KEPT, UNKNOWN), least=1, most=1)

    def add_computed(
        self,
        target: str,
        reply: Computed,
        case: str,
        group: str = ALLOWED,
        fates: Iterable[str] = ("fetched",),
        least: int = 1,
        most: int = 1,
    ) -> None:
        """A page that is not the same for every request."""
        self.replies[target] = reply
        self.expect(target, case, group, fates, least, most)

    def expect(
        self,
        target: str,
        case: str,
        group: str,
        fates: Iterable[str],
        least: int = 1,
        most: int = 1,
        digest: str | None = None,
    ) -> None:
        """Expect something of a URL, whether or not there is a page."""
        self.web.truth.add(Expected(self.url(target), group, case, frozenset(fates), least, most, digest))

    def family(
        self, pattern: str, case: str, group: str, fates: Iterable[str], least: int = 0, most: int | None = None
    ) -> None:
        """Expect something of all targets of this host that match and are not named."""
        self.web.add_family(f"{re.escape(self.url(''))}(?:{pattern})", case, group, fates, least, most)

    def seed(self, *targets: str) -> None:
        """Begin the crawl here, too."""
        self.web.seeds += [self.url(target) for target in targets or ("/",)]


def text_of(key: str, paragraphs: int = 4) -> list[str]:
    """Paragraphs of made-up Chinese, of each key others."""
    chance = random.Random(key)
    return ["".join(sentence(chance) for _ in range(3)) for _ in range(paragraphs)]


def html_of(
    key: str,
    links: Sequence[str] = (),
    head: str = "",
    paragraphs: Sequence[str] | None = None,
    lang: str = "zh-CN",
    extra: str = "",
) -> str:
    """A page of made-up Chinese with these links; an entry of `links` is an address, or an element as it stands."""
    title = headline(random.Random(f"title {key}"))
    blocks = "".join(f"<p>{block}</p>\n" for block in (text_of(key) if paragraphs is None else paragraphs))
    items = "".join(f"<li>{link if link.startswith('<') else anchor(link)}</li>\n" for link in links)
    return (
        f'<!DOCTYPE html><html lang="{lang}"><head><title>{title}</title>{head}</head><body><h1>{title}</h1>\n'
        f"{blocks}{extra}<ul>{items}</ul></body></html>"
    )


def anchor(address: str, attributes: str = "", text: str = "") -> str:
    """A link."""
    return f'<a href="{escape(address)}" {attributes}>{text or headline(random.Random(address))}</a>'


def article(key: str, links: Sequence[str] = (), head: str = "") -> Answer:
    """A plain page: UTF-8, labelled so."""
    return page(html_of(key, links, head))
