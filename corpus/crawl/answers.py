"""What an answer means for its URL: kept, moved, dropped by whose rule, or which error; and what it links to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import FETCHED, MOVED, NOT_MODIFIED, Claim, Link, Outcome
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.pages.focus import link_priority, page_evidence
from corpus.crawl.pages.page import Page, read_page
from corpus.crawl.politeness.directives import directives
from corpus.crawl.urls.url import BadUrl, Scope, to_link
from corpus.encoding import UndecodableError

PAGE_TYPES = ("text/html", "application/xhtml+xml", "text/plain")
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS = 10
KEEPING_RULES = ("opt_out", "noarchive", "noindex")  # of a page that asks not to be kept, by weight
MAX_DETAIL = 200  # characters
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
_QUOTED = re.compile(r"""b?['":]""")


class Judge:
    """Decides on answers; pure but for `scope`, which redirects of seeds widen, and `evidence`, which tells how Chinese
    a host has been so far (0..1)."""

    def __init__(self, config: CrawlConfig, scope: Scope, evidence: Callable[[str], float]) -> None:
        self.config, self.scope, self.evidence = config, scope, evidence

    def outcome(self, claim: Claim, url: str, fetched: Fetched) -> Outcome:
        """What became of a claim that `url` answered for; a page to keep has fate `fetched` and no record yet."""
        status = fetched.status
        if status == 304 and claim.refers_to is not None:
            return Outcome(NOT_MODIFIED, status)  # what was known of the page stays
        if status in REDIRECTS:
            return self._moved(claim, url, fetched)
        if status != 200:  # what corpus/sources/formats/warc.py takes for a page; a 203 is a proxy's version of one
            return Outcome(f"error:http_{status}", status, fetched.wire_bytes)
        return self._page(claim, url, fetched)

    def _moved(self, claim: Claim, url: str, fetched: Fetched) -> Outcome:
        outcome = Outcome(MOVED, fetched.status, fetched.wire_bytes)
        target = location(fetched)
        try:
            if target is None:
                raise BadUrl("relative", "a redirect without a target")
            hops, depth = claim.redirects + 1, claim.depth
            link = to_link(target, url, "utf-8", depth=depth, config=self.config, scope=self.scope, redirects=hops)
        except BadUrl as error:
            return replace(outcome, fate="error:bad_url", detail=str(error))
        if link.refused == "scope" and claim.depth == 0 and self.scope.admit(link.host, link.domain, claim.domain):
            return self._moved(claim, url, fetched)
        if link.key == claim.key or link.redirects > MAX_REDIRECTS:
            return replace(outcome, fate="drop:redirect_loop")
        return replace(outcome, links=(replace(link, priority=self.evidence(link.host)),))

    def _page(self, claim: Claim, url: str, fetched: Fetched) -> Outcome:
        outcome = Outcome(FETCHED, fetched.status, fetched.wire_bytes)
        try:
            page = read_page(fetched.body, _text(fetched.header(b"content-type")), url)
        except UndecodableError:
            return replace(outcome, fate="error:encoding")
        asked = directives(fetched.raw_headers, page.meta_robots, self.config.agent)
        forbidden = next((f"drop:{rule}" for rule in KEEPING_RULES if rule in asked.forbidden), None)
        fate = forbidden or ("drop:soft_404" if page.soft_404 else FETCHED)
        return replace(
            outcome,
            fate=fate,
            chinese_bytes=page.chinese_bytes,
            text_bytes=page.text_bytes,
            content=page.content if fate == FETCHED else None,
            etag=_text(fetched.header(b"etag")),
            last_modified=_text(fetched.header(b"last-modified")),
            detail=", ".join(asked.reasons),
            links=() if "nofollow" in asked.forbidden or page.soft_404 else self._links(claim, url, page),
        )

    def _links(self, claim: Claim, url: str, page: Page) -> tuple[Link, ...]:
        """The links of a page, one a key: the most promising."""
        own, depth = page_evidence(page), claim.depth + 1
        evidence = cache(self.evidence)  # most links of a page lead to a few hosts
        found: dict[bytes, Link] = {}
        for one in page.links:
            if one.nofollow:
                continue
            try:
                base = page.base or url
                link = to_link(one.url, base, page.encoding, depth=depth, config=self.config, scope=self.scope)
            except BadUrl:  # mailto:, javascript: and what nobody can fetch: no URL of the books
                continue
            link = replace(link, priority=link_priority(one, own, evidence(link.host), depth))
            known = found.get(link.key)
            if link.key != claim.key and (known is None or known.priority < link.priority):
                found[link.key] = link
        return tuple(found.values())


def detail_of(error: FetchError) -> str:
    """What the ledger says of a failure: printable, short, and nothing that may be a page's text or a person's."""
    detail = error.detail
    if error.kind == "content_type" and not _MEDIA_TYPE.fullmatch(detail):
        return "not a media type"
    if error.kind in ("http", "headers"):  # aiohttp quotes the bytes that it cannot read
        detail = _QUOTED.split(detail, maxsplit=1)[0]
    return "".join(character if character.isprintable() else " " for character in detail[:MAX_DETAIL]).strip()


def location(fetched: Fetched) -> str | None:
    """Where a redirect leads, as the host wrote it; bytes beyond ASCII are UTF-8, as browsers read them."""
    return (fetched.header(b"location") or b"").decode("utf-8", "surrogateescape") or None


def _text(value: bytes | None) -> str | None:
    return value.decode("latin-1") if value else None
