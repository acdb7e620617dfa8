"""Chinese sites as they are: every encoding, rightly, wrongly and not labelled, all ways of delivery, and real
pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote, urljoin

from tools.fake_site.expected import ALLOWED, KEPT
from tools.fake_site.site import Site, Web, anchor, article, html_of, text_of
from tools.fake_site.wire import Answer, Asked, Computed, Reply, page

IDN_HOST = "文海.test"
CODECS = {"utf-8": "iso-8859-1", "gbk": "utf-8", "gb18030": "big5", "big5": "gbk"}  # each with the label it lies by
MAX_REAL_PAGES = 40  # of a folder
REAL_CODECS = {"debian-faq-zh-cn": "gb18030", "debian-reference-zh-tw": "big5", "maint-guide-zh-cn": "gbk"}
CHARSET = re.compile(r'charset="?([\w-]+)|encoding="([\w-]+)"', re.IGNORECASE)
LINK = re.compile(r'href="([^"]*)"')
ENGLISH = "The ferry left at noon, and nobody on the pier knew when it would return to the village by the lake. "


def build(web: Web, data: Path | None = None) -> None:
    """All hosts of this kind. `data`: a folder of folders of HTML pages, each of which becomes a site."""
    for codec, lie in CODECS.items():
        _encoding(web, codec, lie)
    _names(web)
    _delivery(web)
    _mirrors(web)
    _conditional(web)
    _links(web)
    _english(web)
    for folder in sorted(data.iterdir()) if data else ():
        if folder.is_dir():
            _real(web, folder)


@cache
def _traditional(text: str) -> str:
    import opencc

    converted: str = opencc.OpenCC("s2t").convert(text)
    return converted


def _encoding(web: Web, codec: str, lie: str) -> None:
    """Four pages that differ in who names the encoding; on two of them a Chinese query and a Chinese path."""
    site = web.site(f"{codec}.test")
    word = "中文網頁" if codec == "big5" else "中文网页"
    query, path = f"/search?q={word}", f"/目錄/{word}.html" if codec == "big5" else f"/目录/{word}.html"
    labels = {
        "header": (f"text/html; charset={codec}", ""),
        "meta": ("text/html", f'<meta charset="{codec}">'),
        "none": ("text/html", ""),
        "lying": (f"text/html; charset={lie}", ""),
    }
    home = [f"/{label}.html" for label in labels]
    site.add("/", page(html_of(site.host, home), codec), "encodings, labelled")
    for label, (content_type, head) in labels.items():
        links = [query, path] if label in ("header", "meta") else []
        html = html_of(f"{codec} {label}", links, head)
        html = _traditional(html) if codec == "big5" else html
        case = "encodings, labelled" if links else "encodings, not or wrongly labelled"
        site.add(f"/{label}.html", page(html, codec, content_type=content_type), case)
    site.add(f"/search?q={quote(word, encoding=codec)}", article(f"{codec} search"), "queries in the page's encoding")
    site.add(quote(path), article(f"{codec} path"), "Chinese paths")


def _names(web: Web) -> None:
    """A host with a Chinese name, and paths in every spelling: each page is asked for once."""
    site = web.site(IDN_HOST.encode("idna").decode(), is_seed=False)
    raw, percent, lower = "/诗经/关雎.html", quote("/诗经/关雎.html"), quote("/诗经/关雎.html").lower()
    gbk = quote("/古文.html", encoding="gbk")
    absolute = f"http://{IDN_HOST}:{web.port}{raw}"
    site.add(
        "/",
        article("idn", [raw, percent, lower, absolute, gbk, f"/s?k={quote('诗', encoding='gbk')}"]),
        "a host with a Chinese name",
    )
    site.add(percent, article("关雎"), "Chinese paths")
    site.add(gbk, article("古文"), "paths escaped as GBK")
    site.add(f"/s?k={quote('诗', encoding='gbk')}", article("诗"), "queries escaped as GBK")
    web.seeds.append(f"http://{IDN_HOST}:{web.port}/")


def _delivery(web: Web) -> None:
    """Compressed, chunked, and ended by the end of the connection."""
    site = web.site("delivery.test")
    targets = []
    for coding in ("", "gzip", "deflate", "raw-deflate", "br"):
        for way in ("length", "chunked", "close"):
            target = f"/{coding or 'identity'}/{way}.html"
            body = html_of(target, paragraphs=text_of(target, 12)).encode()
            answer = Answer(body, coding=coding, chunked=way == "chunked", close=way == "close")
            site.add(target, answer, "compressed, chunked, without length")
            targets.append(target)
    site.add("/", article("delivery", targets), "compressed, chunked, without length")


def _mirrors(web: Web) -> None:
    """The same bytes at two hosts: one response and one revisit record of each."""
    for host in ("mirror-a.test", "mirror-b.test"):
        site = web.site(host)
        pages = [f"/{name}.html" for name in ("one", "two", "three")]
        for target in pages:
            site.add(target, article(f"mirror {target}"), "the same payload at two hosts", fates=KEPT)
        site.add("/", article(f"home of {host}", pages), "the same payload at two hosts")


def _conditional(web: Web) -> None:
    """Pages with validators: in the second round one has changed, one has gone, the others are as they were."""
    site = web.site("fresh.test")
    later = web.round > 1
    targets = [f"/{name}.html" for name in ("etag", "weak-etag", "modified", "plain", "changing", "vanishing")]
    site.add("/", article("fresh", targets), "validators")
    unchanged = ("not_modified",) if later else ("fetched",)
    for target, validator in (
        ("/etag.html", ("ETag", '"v1"')),
        ("/weak-etag.html", ("ETag", 'W/"v1"')),
        ("/modified.html", ("Last-Modified", "Fri, 06 Nov 2026 08:00:00 GMT")),
    ):
        site.add_computed(target, _validated(article(target), validator), "validators", fates=unchanged)
    site.add("/plain.html", article("plain"), "validators", fates=("revisit",) if later else ("fetched",))
    changing = article(f"changing in round {web.round}")
    site.add_computed("/changing.html", _validated(changing, ("ETag", f'"v{web.round}"')), "validators")
    if later:
        site.expect("/vanishing.html", "validators", ALLOWED, ("error:http_404",))
    else:
        site.add("/vanishing.html", article("vanishing"), "validators")


def _validated(answer: Answer, validator: tuple[str, str]) -> Computed:
    """The answer with its validator, or 304 to whoever has it."""
    condition = {"ETag": "if-none-match", "Last-Modified": "if-modified-since"}[validator[0]]

    def respond(asked: Asked) -> Reply:
        if asked.headers.get(condition) == validator[1]:
            return Answer(status=304, content_type=None, headers=(validator,))
        return Answer(answer.body, headers=(validator,))

    return respond


def _links(web: Web) -> None:
    """Every way in which a page names another."""
    site = web.site("links.test")
    case = "links of every kind"
    refresh = '<meta http-equiv="refresh" content="0; URL=\'/refreshed.html\'">'
    frames = '<html><frameset cols="*,*"><frame src="/frame.html"><noframes></noframes></frameset></html>'
    frame = ['<iframe src="/iframe.html"></iframe>', '<map><area href="/area.html"></map>']
    own = '<link rel="canonical" href="/canonical.html">'
    plain = Answer("\n".join(text_of("plain text")).encode(), content_type="text/plain; charset=utf-8")
    named = ("base/page", "frames", "refresh", "spelling")
    home = [*(f"/{name}.html" for name in named), "/canonical.html?session_view=1", "/plain.txt"]
    pages = {
        "/": article("links", home),
        "/base/page.html": article("base", ["a.html"], '<base href="/other/">'),
        "/other/a.html": article("other"),
        "/frames.html": page(frames),
        "/frame.html": page(html_of("frame", frame)),
        "/iframe.html": article("iframe"),
        "/area.html": article("area"),
        "/refresh.html": article("refresh", head=refresh),
        "/refreshed.html": article("refreshed"),
        "/canonical.html?session_view=1": article("not canonical", head=own),
        "/plain.txt": plain,
    }
    for target, answer in pages.items():
        site.add(target, answer, case)
    site.add("/canonical.html", article("canonical"), case, fates=KEPT)
    _spellings(site)


def _spellings(site: Site) -> None:
    """One address in many spellings is one page."""
    upper = f"HTTP://LINKS.TEST:{site.web.port}/dir/target.html"
    same = [
        "/dir/target.html",
        "/dir/target.html#top",
        "/./dir/x/../target.html",
        "/%64ir/target.html",
        " /dir/target.html\n",
        "/dir\\target.html",
        "/di\tr/target.html",
        upper,
        f"//links.test:{site.web.port}/dir/target.html",
    ]
    entity = '<a href="&#47;dir&sol;target.html">实体</a><A HREF=/dir/target.html>无引号</A>'
    tilde = ["/~wang/", "/%7Ewang/", "/%7ewang/"]
    site.add(
        "/spelling.html",
        article("spelling", [*same, entity, *tilde, "/order?a=1&b=2", "/order?b=2&a=1"]),
        "spellings of one address",
    )
    site.add("/dir/target.html", article("target"), "spellings of one address")
    site.add_either(tilde[:2], article("tilde"), "spellings of one address")
    site.add_either(["/order?a=1&b=2", "/order?b=2&a=1"], article("order"), "spellings of one address")


def _english(web: Web) -> None:
    """Sites in English, one of which leads to a Chinese one."""
    for number in range(3):
        site = web.site(f"english-{number}.test")
        targets = [f"/{name}.html" for name in ("about", "news", "contact", "history")]
        links = [*targets, web.url("only-linked.test")] if number == 0 else targets
        for target in ("/", *targets):
            blocks = [f"{target} {number}. {ENGLISH * 5}"]
            html = html_of(f"{site.host}{target}", [], paragraphs=blocks, lang="en")
            html = html.replace("</ul>", "".join(anchor(link, text="more") for link in links) + "</ul>")
            site.add(target, page(html), "sites in English")
    linked = web.site("only-linked.test", is_seed=False)
    linked.add("/", article("only linked"), "a host that is no seed")


def _real(web: Web, folder: Path) -> None:
    """A folder of real pages; its first page lists all that are served. Links to the others are taken out."""
    site = web.site(f"{folder.name.lower().replace('_', '-')}.test")
    codec = REAL_CODECS.get(folder.name, "utf-8")
    pages = _real_pages(folder)
    for target, html in pages.items():
        html = LINK.sub(lambda match, target=target: _kept_link(match, target, pages), html)  # type: ignore[misc]
        if codec != "utf-8":
            html = CHARSET.sub(lambda match: match[0].replace(match[1] or match[2], codec), html)
        site.add(
            target, Answer(html.encode(codec, "xmlcharrefreplace"), content_type="text/html"), "real pages", fates=KEPT
        )
    site.add("/", article(folder.name, list(pages)), "real pages")
    site.family(".*", "real pages' files", ALLOWED, ("error:http_404", "unknown", "drop:trap_pattern", "drop:trap_url"))


def _real_pages(folder: Path) -> dict[str, str]:
    """HTML by target, spread over the folder."""
    paths = sorted(folder.rglob("*.html"))
    chosen = paths[:: max(1, len(paths) // MAX_REAL_PAGES)][:MAX_REAL_PAGES]
    return {"/" + quote(path.relative_to(folder).as_posix()): path.read_text("utf-8", "replace") for path in chosen}


def _kept_link(match: re.Match[str], page: str, pages: Mapping[str, str]) -> str:
    """The link, or one to nowhere in place of one to a page of the site that is not served."""
    address = match[1].partition("#")[0]
    own = "://" not in address and address.endswith(".html")
    return 'href="#"' if own and urljoin(page, address) not in pages else match[0]
