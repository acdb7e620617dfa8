"""What hosts say about being crawled: robots.txt in every state, and pages that ask for it themselves."""

from __future__ import annotations

from urllib.parse import quote

from tools.fake_site import faults
from tools.fake_site.expected import FORBIDDEN, KEPT
from tools.fake_site.site import Site, Web, anchor, article, html_of
from tools.fake_site.wire import Answer, Reply, page, redirect

AGENT = "wenhaibot"
LIMIT_BYTES = 500 << 10
DENIED = ("drop:robots",)
UNREACHABLE = ("error:robots_unreachable", "error:host_down", "error:timeout", "error:connect")
CRAWL_DELAYS = {"delay-short.test": 0.2, "delay-huge.test": 86400}


def build(web: Web) -> None:
    """All hosts of this kind."""
    _rules(web)
    _groups(web)
    _states(web)
    _redirected(web)
    _odd_files(web)
    _delays(web)
    _directives(web)
    _opted_out(web)


def _host(web: Web, host: str, robots: Reply | str | None, allowed: dict[str, str], denied: dict[str, str]) -> Site:
    """A host with a page at every target (target: case), linked from its home page."""
    site = web.site(host, robots)
    for target, case in allowed.items():
        site.add(target, article(host + target), case)
    for target, case in denied.items():
        site.forbid(target, article(host + target), case, DENIED)
    targets = [*allowed, *denied]
    if "/" not in targets:
        site.add("/", article(host, targets), "robots.txt: its host's home")
    return site


def _rules(web: Web) -> None:
    """Allow and Disallow of the same length or longer, wildcards, ends, and Chinese paths however they are escaped."""
    rules = f"""
        # Kommentar
        User-agent: *
        Disallow: /private/
        Allow: /private/open.html
        Disallow: /*.pdf$
        Disallow: /*?print=
        Disallow: /秘密/
        Disallow: {quote("/禁止/")}
        Disallow: /equal
        Allow: /equal
        Disallow:
        Disallow: /a%2Fb
        disallow : /case/
        Disallow: /trailing   # with a comment
    """.replace("        ", "")
    allow = "robots.txt: Allow, ends, wildcards"
    allowed = dict.fromkeys(
        ("/private/open.html", "/file.pdf.html", "/page?id=3", "/equal", "/private", "/CASE/x", "/a/b"), allow
    )
    paths = ("/private/a.html", "/private/", "/doc/file.pdf", "/page?print=1", "/case/x", "/trailing/x")
    denied = dict.fromkeys(paths, "robots.txt: Disallow")
    denied |= dict.fromkeys((quote("/秘密/日记.html"), quote("/禁止/入内.html")), "robots.txt: Disallow, Chinese paths")
    _host(web, "robots-rules.test", rules, allowed, denied)


def _groups(web: Web) -> None:
    """The group that names us counts, however it is written, and no other one; groups of one name are one."""
    own = (
        f"User-agent: *\nDisallow: /\n\nUser-agent: OtherBot\nUser-agent: {AGENT.upper()}\nDisallow: /ours/\n\n"
        f"User-agent: {AGENT}\nDisallow: /too/\n"
    )
    ours = "robots.txt: our group"
    _host(web, "robots-group.test", own, {"/open/": ours}, {"/ours/": ours, "/too/": ours})
    denied = "\n\n".join(f"User-agent: {agent}\nDisallow: /" for agent in (f"{AGENT}news", "Baiduspider"))
    others = f"{denied}\n\nUser-agent: *\nDisallow: /all/\n"
    _host(
        web,
        "robots-others.test",
        others,
        {"/open/": "robots.txt: other agents' groups"},
        {"/all/": "robots.txt: the group of all"},
    )
    _host(web, "robots-closed.test", "User-agent: *\nDisallow: /\n", {}, {"/": "robots.txt: a closed host"})


def _states(web: Web) -> None:
    """4xx: allowed. 5xx and no answer: nothing may be asked."""
    for status in (401, 403, 404, 410, 451):
        robots = Answer(b"User-agent: *\nDisallow: /\n", status, "text/plain")
        _host(web, f"robots-{status}.test", robots, {"/page.html": "robots.txt: 4xx"}, {})
    replies: tuple[tuple[str, Reply], ...] = (
        ("500", Answer(status=500)),
        ("429", Answer(status=429)),
        ("503", Answer(status=503)),
        ("timeout", faults.silence),
        ("reset", faults.reset),
    )
    for name, reply in replies:
        site = web.site(f"robots-{name}.test", reply)
        site.forbid("/", article("unreachable"), "robots.txt: 5xx, timeout, reset", UNREACHABLE)


def _redirected(web: Web) -> None:
    """Five redirects are followed; further ones count as no robots.txt; other hosts' rules are this host's."""
    for hops in (5, 6):
        site = web.site(f"robots-hops-{hops}.test", redirect("/hop-1"))
        for hop in range(1, hops):
            site.serve(f"/hop-{hop}", redirect(f"/hop-{hop + 1}"))
        site.serve(f"/hop-{hops}", Answer(b"User-agent: *\nDisallow: /denied/\n", content_type="text/plain"))
        site.add("/", article(site.host, ["/denied/"]), "robots.txt: redirects")
        if hops == 5:
            site.forbid("/denied/", article("denied"), "robots.txt: redirects", DENIED)
        else:
            site.add("/denied/", article("not denied"), "robots.txt: six redirects")
        site.family("/hop-.*", "robots.txt: redirects", FORBIDDEN, ("unknown",), 0, hops)
    rules = web.site("robots-elsewhere.test", "User-agent: *\nDisallow: /\n", is_seed=False)
    rules.serve("/rules.txt", Answer(b"User-agent: *\nDisallow: /there/\n", content_type="text/plain"))
    rules.family("/rules.txt", "robots.txt: redirects", FORBIDDEN, ("unknown",), 1, 1)
    moved = redirect(rules.url("/rules.txt"), 301)
    _host(
        web,
        "robots-moved.test",
        moved,
        {"/here/": "robots.txt: at another host"},
        {"/there/": "robots.txt: at another host"},
    )


def _odd_files(web: Web) -> None:
    """Files that are too long, begin with a mark, are packed, or are no robots.txt at all."""
    rule, padding = "Disallow: /{}/\n", "# 填充\n"
    huge = (
        "User-agent: *\n"
        + rule.format("before")
        + padding * (LIMIT_BYTES // len(padding.encode()) + 1)
        + rule.format("behind")
    )
    long = "robots.txt: more than 500 KiB"
    _host(web, "robots-huge.test", huge, {"/behind/": long}, {"/before/": long})
    plain = f"User-agent: *\n{rule.format('denied')}"
    files = {
        "bom": Answer(b"\xef\xbb\xbf" + plain.encode(), content_type="text/plain"),
        "cr": Answer(plain.replace("\n", "\r").encode(), content_type="text/plain"),
        "gzip": Answer(plain.encode(), content_type="text/plain", coding="gzip"),
        "type": Answer(plain.encode(), content_type="application/octet-stream"),
        "noise": Answer(b"\xff\xfe\x00\x00garbage: \x80\n\n" + plain.encode(), content_type="text/plain"),
    }
    for name, answer in files.items():
        case = "robots.txt: odd bytes"
        _host(web, f"robots-{name}.test", answer, {"/open/": case}, {"/denied/": case})
    html = page(html_of("没有这个文件"))
    _host(web, "robots-html.test", html, {"/open/": "robots.txt: an HTML page"}, {})
    _host(web, "robots-empty.test", "", {"/open/": "robots.txt: empty"}, {})


def _delays(web: Web) -> None:
    """Crawl-delay, a short one and one of a day; crawling.py measures the pauses."""
    for host, seconds in CRAWL_DELAYS.items():
        targets = dict.fromkeys(
            (f"/{name}.html" for name in ("one", "two", "three", "four")), "robots.txt: Crawl-delay"
        )
        _host(web, host, f"User-agent: *\nCrawl-delay: {seconds}\n", targets, {})


def _directives(web: Web) -> None:
    """Pages that ask not to be kept, or that their links be not followed."""
    site = web.site("directives.test")
    metas = {
        "noindex": ("drop:noindex", "noindex"),
        "none": ("drop:noindex", "NONE"),
        "noarchive": ("drop:noarchive", "index, noarchive"),
        "noai": ("drop:opt_out", "noai, noimageai"),
    }
    tags, reserved = "pages: X-Robots-Tag", "pages: text and data mining reserved"
    rows: list[tuple[str, str, str, tuple[str, str] | None, str | None]] = []  # target, case, head, header, fate
    for name, (fate, content) in metas.items():
        meta = f'<meta name="robots" content="{content}">'
        rows += [
            (f"/meta/{name}.html", "pages: meta robots", meta, None, fate),
            (f"/header/{name}.html", tags, "", ("X-Robots-Tag", content), fate),
            (f"/other/{name}.html", "pages: other agents' tags", "", ("X-Robots-Tag", f"otherbot: {content}"), None),
        ]
    own_meta, tdm_meta = f'<meta name="{AGENT}" content="noindex">', '<meta name="tdm-reservation" content="1">'
    rows += [
        ("/own.html", tags, "", ("X-Robots-Tag", f"{AGENT}: noindex"), "drop:noindex"),
        ("/own-meta.html", "pages: meta robots", own_meta, None, "drop:noindex"),
        ("/tdm.html", reserved, "", ("tdm-reservation", "1"), "drop:opt_out"),
        ("/tdm-meta.html", reserved, tdm_meta, None, "drop:opt_out"),
        ("/nofollow.html", "pages: meta robots nofollow", '<meta name="robots" content="nofollow">', None, None),
    ]
    for target, case, head, header, dropped in rows:
        links = ["/behind-meta.html"] if target == "/nofollow.html" else []
        answer = Answer(html_of(target, links, head).encode(), headers=(header,) if header else ())
        site.add(target, answer, case, *((FORBIDDEN, (dropped,)) if dropped else ()))
    not_followed = "pages: links that are not to be followed"
    for target in ("/behind-meta.html", "/behind-rel.html"):
        site.forbid(target, article(target), not_followed, ("unknown",))
    links = [*(row[0] for row in rows), anchor("/behind-rel.html", 'rel="external nofollow"')]
    site.add("/", article("directives", links), "pages: their host's home", fates=KEPT)


def _opted_out(web: Web) -> None:
    """A host that lets crawlers in and training out."""
    rules = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n"
    site = web.site("opted-out.test", rules)
    site.forbid("/", article("opted out"), "robots.txt: training opted out of", ("drop:opt_out",), most=1)
