"""Redirects that end, redirects that do not, and those that lead where no crawler may go."""

from __future__ import annotations

from tools.fake_site.expected import REDIRECTED, SSRF, TRAPPED, UNKNOWN
from tools.fake_site.site import Site, Web, article
from tools.fake_site.wire import Answer, Asked, Reply, redirect

CANARIES = ("127.0.0.1", "127.0.0.2", "::1")
LOOP_FATES = ("drop:redirect_loop", "moved", UNKNOWN)
REFUSED = ("error:address", "error:port", "error:bad_url", "error:robots_unreachable", "error:host_down", UNKNOWN)
MOVED = ("moved",)
PRIVATE = r"https?://(?:127\.0\.|0\.0\.|10\.|100\.64|169\.|172\.16|192\.168|\[|localhost|metadata|rebound).*|.*:6379/.*"


def build(web: Web) -> None:
    """All hosts of this kind."""
    _moves(web)
    _loops(web)
    _forgeries(web)


def _moves(web: Web) -> None:
    """Every kind of redirect to a page that is there."""
    site = web.site("moves.test")
    far = web.site("moved-here.test", is_seed=False)
    targets = []
    for status in (301, 302, 303, 307, 308):
        source, target = f"/{status}.html", f"/to-{status}.html"
        site.add(source, redirect(target, status), "redirects to a page", REDIRECTED, MOVED)
        site.add(target, article(target), "redirects: their targets")
        targets.append(source)
    locations = {
        "/absolute": (site.url("/absolute-target.html"), "/absolute-target.html"),
        "/relative": ("sub/../relative-target.html", "/relative-target.html"),
        "/chinese": ("/中文.html", "/%E4%B8%AD%E6%96%87.html"),
        "/fragment": ("/fragment-target.html#part", "/fragment-target.html"),
    }
    for source, (location, target) in locations.items():
        site.add(source, redirect(location), "redirects to a page", REDIRECTED, MOVED)
        site.add(target, article(target), "redirects: their targets")
    site.add("/far", redirect(far.url("/far.html")), "redirects to a page", REDIRECTED, MOVED)
    far.add("/far.html", article("far"), "redirects: their targets")
    site.add(
        "/denied", redirect(web.url("denied.test", "/x")), "redirects to where robots.txt says no", REDIRECTED, MOVED
    )
    denied = web.site("denied.test", "User-agent: *\nDisallow: /\n", is_seed=False)
    denied.expect("/x", "redirects to where robots.txt says no", REDIRECTED, ("drop:robots",), 0, 0)
    _no_target(site)
    links = [*targets, *locations, "/far", "/denied", "/no-location", "/empty-location", "/300"]
    site.add("/", article("moves", links), "redirects: their hosts' homes")


def _no_target(site: Site) -> None:
    fates = ("error:http_302", "error:bad_url", "error:http", "drop:redirect_loop")
    site.add("/no-location", Answer(b"", 302), "redirects to nowhere", REDIRECTED, fates)
    site.add("/empty-location", redirect(""), "redirects to nowhere", REDIRECTED, (*fates, "moved"))
    site.add("/300", Answer(b"choose", 300), "redirects to nowhere", REDIRECTED, ("error:http_300",))


def _loops(web: Web) -> None:
    """Redirects without end: to itself, to one another, across hosts, and to ever new addresses."""
    site, other = web.site("loops.test"), web.site("loops-too.test", is_seed=False)
    case = "redirects without end"
    site.add("/self", redirect("/self"), case, TRAPPED, LOOP_FATES)
    site.add("/two-a", redirect("/two-b"), case, TRAPPED, LOOP_FATES)
    site.add("/two-b", redirect("/two-a"), case, TRAPPED, LOOP_FATES)
    site.add("/across", redirect(other.url("/across")), case, TRAPPED, LOOP_FATES)
    other.add("/across", redirect(site.url("/across")), case, TRAPPED, LOOP_FATES)

    def growing(asked: Asked) -> Reply:
        return redirect(f"{asked.target}x") if asked.target.startswith("/grow") else Answer(status=404)

    site.fallback = growing
    site.family("/growx*", case, TRAPPED, LOOP_FATES, 1, 25)
    site.add("/", article("loops", ["/self", "/two-a", "/across", "/grow"]), "redirects: their hosts' homes")


def _forgeries(web: Web) -> None:
    """Links and redirects to private addresses in every spelling. Canaries listen where they can: nobody may knock."""
    site = web.site("forgeries.test")
    port = web.port
    names = {"rebound.test": "127.0.0.1", "rebound-too.test": "127.0.0.2", "metadata.test": "169.254.169.254"}
    web.fixed |= names
    hosts = [
        *(
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0x7f.1",
            "127.0.0.2",
            "0.0.0.0",
            "localhost",
        ),
        *(
            "169.254.169.254",
            "2852039166",
            "10.0.0.1",
            "192.168.0.1",
            "172.16.0.1",
            "100.64.0.1",
        ),
        *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fd00::1]", "[fe80::1]", "[::]"),
        *("１２７.０.０.１", "127。0。0。1", "127.0.0.1.", *names),
    ]
    locations = {f"/host-{number}": f"http://{host}:{port}/latest/meta-data/" for number, host in enumerate(hosts)}
    schemes = [
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "ftp://127.0.0.1/",
        "dict://127.0.0.1:11211/",
        "javascript:alert(1)",
        "data:text/html,hi",
    ]
    locations |= {f"/scheme-{number}": address for number, address in enumerate(schemes)}
    locations |= {
        "/port": "http://forgeries.test:6379/",
        "/userinfo": f"http://forgeries.test:{port}@127.0.0.1:{port}/",
    }
    fates = ("moved", "error:bad_url", "error:address", "error:port")
    for source, location in locations.items():
        site.add(source, redirect(location), "redirects to private addresses", SSRF, fates)
    site.add("/", article("forgeries", [*locations, *locations.values()]), "their host's home")
    web.add_family(PRIVATE, "private addresses", SSRF, REFUSED, most=0)
