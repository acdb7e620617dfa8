"""Webs without end: calendars, session ids, filters, paths and names that grow, and pages that are none."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from tools.fake_site.expected import ALLOWED, KEPT, TRAPPED, UNKNOWN
from tools.fake_site.site import Web, anchor, article, html_of
from tools.fake_site.wire import Asked, Reply, page

WILD_HOSTS = 40
TRAP_FATES = (
    *("fetched", "revisit", "not_modified", "moved", UNKNOWN),
    *("drop:trap_url", "drop:trap_pattern", "drop:trap_query", "drop:trap_repeats", "drop:max_depth", "drop:soft_404"),
    *("drop:max_pages_per_host", "drop:redirect_loop"),
)
MOST = 80  # requests that one trap may cost


def build(web: Web) -> None:
    """All hosts of this kind."""
    _trap(web, "calendar", "/calendar/2026/11", _calendar)
    _trap(web, "calendar-query", "/events?month=2026-11", _calendar_query)
    _trap(web, "growing-path", "/a/b/", _growing_path)
    _trap(web, "growing-query", "/q?x=1", lambda asked: [f"{asked.target}&x=1", f"{asked.target}&lang=zh"])
    _trap(web, "facets", "/shop?", _facets)
    _trap(
        web,
        "numbers",
        "/n/1",
        lambda asked: [f"/n/{int(asked.target.rsplit('/', 1)[1]) + step}" for step in (1, 7, 1000)],
    )
    _trap(web, "hashes", "/h/00000000000000000000", lambda asked: [f"/h/{_hash(asked.target + side)}" for side in "ab"])
    _trap(web, "same-content", "/same/a", _same, same=True)
    _trap(web, "same-content-numbered", "/copy/1", _copies, same=True, most=25)
    _sessions(web)
    _soft_404(web)
    _wildcard(web)
    _odd_links(web)


def _trap(
    web: Web, name: str, first: str, links: Callable[[Asked], list[str]], same: bool = False, most: int = MOST
) -> None:
    """A host all of whose pages lead to others, and a few honest pages beside them, which must all be fetched."""
    site = web.site(f"trap-{name}.test")
    honest = [f"/about/{word}.html" for word in ("us", "history", "contact")]
    for target in honest:
        site.add(target, article(site.host + target), "honest pages beside traps")
    site.add("/", article(site.host, [first, *honest]), "honest pages beside traps")

    def respond(asked: Asked) -> Reply:
        if same:
            return page(html_of(name, [anchor(link, text="下一篇") for link in links(asked)]))
        return page(html_of(asked.target, links(asked)))

    site.fallback = respond
    site.family("/.*", f"trap: {name}", TRAPPED, TRAP_FATES, 1, most)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _calendar(asked: Asked) -> list[str]:
    year, month = map(int, asked.target.split("/")[2:4])
    after = (year + month // 12, month % 12 + 1)
    before = (year - (month == 1), (month - 2) % 12 + 1)
    return [f"/calendar/{year}/{month:02d}" for year, month in (after, before, (year + 1, month), (year - 1, month))]


def _calendar_query(asked: Asked) -> list[str]:
    year, month = map(int, asked.target.split("=")[1].split("-"))
    return [f"/events?month={year + month // 12}-{month % 12 + 1:02d}", f"/events?month={year - 1}-{month:02d}"]


def _growing_path(asked: Asked) -> list[str]:
    """Relative links that the server takes at any depth."""
    return ["a/b/", "b/a/", "../a/b/c/", "x/index.html/"]


def _facets(asked: Asked) -> list[str]:
    """Each page sets one more filter, or another value of one."""
    chosen = [part for part in asked.target.partition("?")[2].split("&") if part]
    names = ("color", "size", "brand", "price", "sort", "stock", "year", "place")
    added = [name for name in names if not any(part.startswith(name) for part in chosen)]
    return ["/shop?" + "&".join([*chosen, f"{name}=v{len(chosen)}"]) for name in added[:4]]


def _same(asked: Asked) -> list[str]:
    """Ever new names for one and the same page."""
    words = ("spring", "summer", "autumn", "winter")
    number = int(_hash(asked.target)[:8], 16)
    return [f"/same/{words[(number + step) % 4]}/{_letters(number * 4 + step)}" for step in range(3)]


def _copies(asked: Asked) -> list[str]:
    """One page under every number: the repetition shows long before the budget of alike URLs is spent."""
    number = int(asked.target.rsplit("/", 1)[1])
    return [f"/copy/{number * 3 + step}" for step in range(3)]


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(7))


def _sessions(web: Web) -> None:
    """Ids in path and query that change with every request; each page is asked for once."""
    case = "session ids"
    for name, link in {
        "query": lambda target, session: f"{target}?PHPSESSID={session}",
        "path": lambda target, session: f"{target};jsessionid={session.upper()}",
        "tracking": lambda target, session: f"{target}?utm_source={session}&spm=a.{session}&from=singlemessage",
    }.items():
        site = web.site(f"session-{name}.test")
        names = [f"/{word}.html" for word in ("news", "forum", "shop", "help")]

        def respond(asked: Asked, names: list[str] = names, link: Callable[[str, str], str] = link) -> Reply:
            target = re.split(r"[?;]", asked.target)[0]
            session = hashlib.md5(f"{asked.target}{asked.times}".encode(), usedforsecurity=False).hexdigest()
            return page(html_of(f"session {target}", [link(name, session) for name in names]))

        site.fallback = respond
        site.add_computed("/", respond, case)
        for target in names:
            site.family(re.escape(target) + "([?;].*)?", case, ALLOWED, KEPT, 1, 1)


def _soft_404(web: Web) -> None:
    """A host that says 200 and an apology to every path."""
    site = web.site("soft-404.test")
    missing = [f"/old/{word}.html" for word in ("alpha", "beta", "gamma", "delta")]
    site.add("/", article("soft 404", [*missing, "/real.html"]), "honest pages beside traps")
    site.add("/real.html", article("real"), "honest pages beside traps")
    sorry = page(
        '<!DOCTYPE html><html lang="zh-CN"><head><title>页面不存在 - 404</title></head><body><h1>404</h1>'
        '<p>抱歉，您访问的页面不存在或已被删除。</p><p><a href="/">返回首页</a></p></body></html>'
    )
    site.fallback = lambda asked: sorry
    for target in missing:
        site.expect(target, "soft 404", TRAPPED, ("drop:soft_404",), 0, 1)


def _wildcard(web: Web) -> None:
    """Any name below this domain is a host, and each leads to others."""
    hosts = [f"w{number}.wild.test" for number in range(WILD_HOSTS)]
    for number, host in enumerate(hosts):
        site = web.site(host, is_seed=number == 0)
        links = [web.url(hosts[(number + step) % WILD_HOSTS]) for step in (1, 2, 3)]
        site.fallback = lambda asked, key=host, links=links: article(key, links)  # type: ignore[misc]
        site.family("/.*", "trap: names without end", TRAPPED, ("fetched", "drop:max_hosts_per_domain", UNKNOWN), 0, 1)


def _odd_links(web: Web) -> None:
    """Links that lead nowhere we may or can go; the page that has them is honest."""
    site = web.site("odd-links.test")
    never = [
        "mailto:a@odd-links.test", "javascript:void(0)", "javascript:location='/js'", "data:text/html,<a href=/data>",
        "ftp://odd-links.test/",
        "file:///etc/passwd", "tel:10086", "about:blank", "weixin://dl/chat", "http://", "http:///", "http://[",
        "http://%00/",
        "http://a b.test/", f"http://user:secret@odd-links.test:{web.port}/userinfo",
        f"http://user@odd-links.test:{web.port}/userinfo",
        "http://odd-links.test:22/port", "http://odd-links.test:99999/port",  "//",
        "/" + "l" * 5000, "/" + "%25" * 3 + "252525", "/?" + "&".join(f"p{n}=1" for n in range(60)), "?" + "x" * 3000,
    ]  # fmt: skip
    listed = [anchor(address) for address in never]
    site.add("/", page(html_of("odd links", [*listed, "/fine.html"])), "odd links")
    site.add("/fine.html", article("fine"), "odd links")
    fates = (
        "drop:trap_url",
        "drop:trap_query",
        "error:bad_url",
        "error:port",
        "error:tls",
        "error:connect",
        "error:host_down",
        "error:robots_unreachable",
        UNKNOWN,
    )
    site.family("/.*", "odd links: asked for", TRAPPED, fates, 0, 0)
