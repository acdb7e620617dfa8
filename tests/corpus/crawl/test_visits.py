"""The steps of a crawl, without a network: what is asked next, and what is recorded of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from corpus.crawl.answers import Judge
from corpus.crawl.archive.archive import Archive
from corpus.crawl.config import CrawlConfig
from corpus.crawl.frontier.frontier import Frontier
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.seeds import seed_links
from corpus.crawl.urls.url import Scope
from corpus.crawl.visits import Visit, Visits
from tests.corpus.crawl.small_site import HTML, fetched, page

SEED = "http://a.cn/"


def moved(target: bytes, status: int = 302) -> Fetched:
    """A redirect."""
    return fetched(status, b"", (b"Location", target))


class Bench:
    """A crawl of `SEED` with a clock that tests move."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.config = CrawlConfig(seeds=(SEED,), contact="me@example.org")
        self.folder = folder
        self.frontier = Frontier(folder / "frontier.sqlite", self.config, lambda: self.now)
        archives = [Archive(folder / name, 1 << 20, {"software": "test"}) for name in ("data", "robots")]
        for archive in archives:
            archive.recover(())
        self.archives = archives
        scope = Scope("domains", [SEED])
        self.judge = Judge(self.config, scope, self.frontier.host_evidence)
        self.visits = Visits(self.config, self.frontier, self.judge, *archives, clock=lambda: self.now)
        self.frontier.add(seed_links([SEED], self.config, scope))

    def next(self) -> Visit:
        """The next request, however long one must wait for it."""
        rest = self.visits.seconds_until_next()
        assert rest is not None
        self.now += rest
        visit = self.visits.next()
        assert visit is not None
        return visit

    def page(self) -> Visit:
        """The next request of a page, robots.txt allowing everything."""
        visit = self.next()
        if visit.robots is not None:
            assert self.visits.record(visit, fetched(404)) is None
            visit = self.next()
        assert visit.robots is None
        return visit

    def fates(self) -> dict[str, str]:
        """Fate by URL."""
        return {known["url"]: known["fate"] for known in self.frontier.iter_urls()}

    def records(self, name: str = "data") -> list[tuple[str, str]]:
        """(type, URL) of the archive's records."""
        self.archives[name == "robots"].close()
        found = []
        for path in sorted((self.folder / name).glob("*.warc.gz")):
            with open(path, "rb") as file:
                found += [(one.rec_type, one.rec_headers["WARC-Target-URI"]) for one in ArchiveIterator(file)]
        return [(kind, url) for kind, url in found if kind in ("response", "revisit")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.frontier.close()


def test_robots_txt_comes_first_then_the_host_rests_then_its_pages(bench: Bench) -> None:
    first = bench.visits.next()
    assert first is not None and first.url == "http://a.cn/robots.txt" and first.robots == "http://a.cn"
    assert bench.visits.next() is None and bench.visits.under_way == 1
    bench.visits.record(first, fetched(200, b"User-agent: *\nDisallow: /secret\nCrawl-delay: 7"))
    assert bench.visits.seconds_until_next() == pytest.approx(7.0)
    visit = bench.next()
    assert visit.url == SEED and visit.headers["User-Agent"] == "wenhaibot/1.0 (+me@example.org)"
    bench.visits.record(visit, fetched(200, page(1, ["/secret", "/open"]).body))
    visit = bench.next()
    assert visit.url == "http://a.cn/open"
    bench.visits.record(visit, fetched(404))
    bench.now += 100
    assert bench.visits.next() is None
    assert bench.fates()["http://a.cn/secret"] == "drop:robots"  # no request was made for it
    assert bench.records() == [("response", SEED)]
    assert bench.records("robots") == [("response", "http://a.cn/robots.txt")]


def test_a_training_opt_out_of_robots_txt_spares_the_request(bench: Bench) -> None:
    bench.visits.record(bench.next(), fetched(200, b"User-agent: *\nContent-Usage: train-ai=n"))
    bench.now += 100
    assert bench.visits.next() is None
    assert bench.fates() == {SEED: "drop:opt_out"}


def test_robots_txt_follows_five_redirects_in_the_hosts_pace(bench: Bench) -> None:
    visit: Visit | None = bench.next()
    for number in range(5):
        assert visit is not None
        visit = bench.visits.record(visit, moved(b"http://b.cn/%d" % number))
        assert visit is not None and visit.host == "b.cn"
        assert visit.wait_seconds == (1.0 if number else 0.0)  # nobody has asked that host before
    assert visit is not None
    assert bench.visits.record(visit, fetched(200, b"User-agent: *\nDisallow: /")) is None
    bench.now += 100
    assert bench.visits.next() is None and bench.fates() == {SEED: "drop:robots"}


def test_a_sixth_redirect_of_robots_txt_counts_as_no_robots_txt(bench: Bench) -> None:
    visit = bench.next()
    for _ in range(5):
        following = bench.visits.record(visit, moved(b"/again"))
        assert following is not None
        visit = following
    assert bench.visits.record(visit, moved(b"/again")) is None
    assert bench.next().url == SEED


@pytest.mark.parametrize(
    ("answer", "times", "fate"),
    [
        (fetched(503), 3, "error:robots_unreachable"),
        (FetchError("timeout", ""), 3, "error:timeout"),
        (FetchError("dns", ""), 3, "error:dns"),
        (FetchError("dns", "no such name", retry=False), 1, "error:dns"),
        (FetchError("address", ""), 1, "error:address"),
        (FetchError("bomb", ""), 1, "error:robots_unreachable"),
    ],
)
def test_without_robots_txt_nothing_of_the_host_is_asked_for(
    bench: Bench, answer: Fetched | FetchError, times: int, fate: str
) -> None:
    bench.frontier.add(seed_links([f"{SEED}other"], bench.config, Scope("domains", [SEED])))
    waits = []
    for _ in range(times):
        began = bench.now
        visit = bench.next()
        waits.append(bench.now - began)
        assert visit.robots is not None
        bench.visits.record(visit, answer)
    assert waits == sorted(waits)
    bench.now += 100
    assert bench.visits.next() is None
    assert bench.frontier.done and bench.fates() == {SEED: fate, f"{SEED}other": fate}
    assert {known["detail"].partition(":")[0] for known in bench.frontier.iter_urls()} == {"robots.txt"}


def test_plain_pages_of_a_host_without_tls_are_fetched(bench: Bench) -> None:
    bench.frontier.add(seed_links(["https://a.cn/s"], bench.config, Scope("domains", [SEED])))
    for _ in range(4):
        visit = bench.next()
        if visit.url.startswith("https:"):
            bench.visits.record(visit, FetchError("tls", ""))
        else:
            bench.visits.record(visit, fetched(404) if visit.robots else fetched(200, page(1).body))
        if bench.frontier.done:
            break
    assert bench.fates() == {SEED: "fetched", "https://a.cn/s": "error:tls"}


def test_a_passing_failure_is_tried_again_and_then_counted(bench: Bench) -> None:
    for _ in range(3):
        bench.visits.record(bench.page(), FetchError("timeout", "no answer"))
    assert bench.frontier.done and bench.fates() == {SEED: "error:timeout"}


def test_a_status_that_passes_is_tried_again(bench: Bench) -> None:
    bench.visits.record(bench.page(), fetched(503, b"", (b"Retry-After", b"120")))
    assert bench.visits.seconds_until_next() == pytest.approx(120.0)
    bench.visits.record(bench.page(), fetched(200, page(1).body))
    assert bench.fates() == {SEED: "fetched"}


def test_a_host_that_asks_to_be_left_alone_for_a_day_is_given_up(bench: Bench) -> None:
    bench.visits.record(bench.page(), fetched(200, page(1, ["/a", "/b"]).body))
    bench.visits.record(bench.page(), fetched(429, b"", (b"Retry-After", b"86400")))
    assert bench.frontier.done
    fates = bench.fates()
    assert sorted(fates[f"http://a.cn/{name}"] for name in "ab") == ["error:host_down", "error:http_429"]
    details = {known["fate"]: known["detail"] for known in bench.frontier.iter_urls()}
    assert details["error:host_down"] == "Retry-After is longer than 3600 s"


def test_the_same_payload_is_written_once(bench: Bench) -> None:
    body = page(1, ["/", "/copy"]).body
    bench.visits.record(bench.page(), fetched(200, body))
    bench.visits.record(bench.page(), fetched(200, body))
    assert bench.fates() == {SEED: "fetched", "http://a.cn/copy": "revisit"}
    assert bench.records() == [("response", SEED), ("revisit", "http://a.cn/copy")]


def test_a_redirect_is_a_url_of_its_own_and_a_chain_ends(bench: Bench) -> None:
    for number in range(11):
        bench.visits.record(bench.page(), moved(b"/%d" % number))
    assert bench.frontier.done
    fates = list(bench.fates().values())
    assert fates == ["moved"] * 10 + ["drop:redirect_loop"]


def test_a_session_id_that_a_redirect_adds_is_followed_for_the_same_url(bench: Bench) -> None:
    visit = bench.page()
    bench.now += 100 * 86_400  # its robots.txt has expired meanwhile
    following = bench.visits.record(visit, moved(b"/?PHPSESSID=0123456789abcdef0123456789abcdef"))
    assert following is not None and following.claim == visit.claim and following.wait_seconds >= 1.0
    assert bench.visits.under_way == 1
    bench.visits.record(following, fetched(200, page(1).body))
    assert bench.fates() == {SEED: "fetched"}
    assert bench.records() == [("response", following.url)]


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        (fetched(200, page(1, head='<meta name="robots" content="noindex">').body), "drop:noindex"),
        (fetched(200, page(1).body, HTML, (b"X-Robots-Tag", b"noarchive")), "drop:noarchive"),
        (fetched(200, page(1).body, HTML, (b"TDM-Reservation", b"1")), "drop:opt_out"),
        (fetched(200, "<title>页面不存在</title>找不到页面".encode()), "drop:soft_404"),
        (fetched(404), "error:http_404"),
        (fetched(203, page(1).body), "error:http_203"),  # no page for the reader of the archive either
        (fetched(304), "error:http_304"),  # to a request without a condition
        (fetched(302), "error:bad_url"),
        (moved(b"ftp://a.cn/"), "error:bad_url"),
        (FetchError("content_type", "image/png"), "error:content_type"),
    ],
)
def test_what_is_not_kept_is_not_in_the_archive(bench: Bench, answer: Fetched | FetchError, fate: str) -> None:
    bench.visits.record(bench.page(), answer)
    assert bench.fates()[SEED] == fate and not bench.records()


def test_links_of_a_page_that_says_nofollow_are_not_followed(bench: Bench) -> None:
    head = '<meta name="robots" content="nofollow">'
    bench.visits.record(bench.page(), fetched(200, page(1, ["/a"], head).body))
    assert bench.fates() == {SEED: "fetched"}


def test_an_unchanged_page_is_asked_for_with_its_validators_and_recorded_as_a_revisit(bench: Bench) -> None:
    from datetime import UTC, datetime

    bench.visits.record(bench.page(), fetched(200, page(1).body, HTML, (b"ETag", b'"1"')))
    assert bench.frontier.begin_round(datetime(2027, 1, 1, tzinfo=UTC)) == 1
    visit = bench.page()
    assert visit.headers["If-None-Match"] == '"1"'
    bench.visits.record(visit, fetched(304))
    assert bench.fates() == {SEED: "not_modified"}
    assert bench.records() == [("response", SEED), ("revisit", SEED)]


def test_a_mistake_of_ours_costs_one_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("秘密")

    bench.visits.record(bench.page(), fetched(200, page(1, ["/a", "/b"]).body))
    with monkeypatch.context() as patch:
        patch.setattr("corpus.crawl.answers.read_page", fail)
        bench.visits.record(bench.page(), fetched(200, page(2).body))
    bench.visits.record(bench.page(), fetched(200, page(3).body))
    assert sorted(bench.fates().values()) == ["error:internal", "fetched", "fetched"]
    assert bench.visits.tally.failures == {"KeyError": 1}
    assert not any("秘密" in (known["detail"] or "") for known in bench.frontier.iter_urls())


def test_a_host_that_a_foreign_robots_txt_led_to_is_not_asked_at_the_same_time(bench: Bench) -> None:
    visit = bench.next()
    following = bench.visits.record(visit, moved(b"http://b.a.cn/robots.txt"))
    assert following is not None
    links = seed_links(["http://b.a.cn/"], bench.config, Scope("domains", [SEED]))
    bench.frontier.add(links)
    assert bench.visits.next() is None
    bench.visits.record(following, fetched(404))
    assert {bench.next().host, bench.next().host} == {"a.cn", "b.a.cn"}


def test_the_tally_counts_what_was_kept(bench: Bench) -> None:
    before = replace(bench.visits.tally)
    bench.visits.record(bench.page(), fetched(200, page(1).body))
    tally = bench.visits.tally
    assert (before.pages, tally.pages, tally.robots) == (0, 1, 1)
    assert 0 < tally.chinese_bytes <= tally.text_bytes <= tally.fetched_bytes


# ------------------------------------------------------------------------------------------------------------ redirects


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_urls_that_redirect_in_a_circle_are_a_loop_for_one_of_them(bench: Bench, length: int) -> None:
    names = [b"/", *(b"/%d" % number for number in range(1, length))]
    for number in range(length):
        bench.visits.record(bench.page(), moved(names[(number + 1) % length]))
    assert bench.frontier.done
    assert list(bench.fates().values()) == ["moved"] * (length - 1) + ["drop:redirect_loop"]


def test_redirects_to_what_is_known_are_no_circle(bench: Bench) -> None:
    bench.visits.record(bench.page(), fetched(200, page(1, ["/a", "/b", "/c"]).body))
    for _ in range(3):
        visit = bench.page()
        bench.visits.record(visit, moved(b"/" if visit.url.endswith("a") else b"/a"))
    assert bench.fates() == {SEED: "fetched", **dict.fromkeys((f"{SEED}{name}" for name in "abc"), "moved")}


def test_a_session_id_that_robots_txt_forbids_is_not_followed(bench: Bench) -> None:
    bench.visits.record(bench.next(), fetched(200, b"User-agent: *\nDisallow: /*PHPSESSID"))
    assert bench.visits.record(bench.next(), moved(b"/?PHPSESSID=0123456789abcdef0123456789abcdef")) is None
    assert bench.fates() == {SEED: "drop:robots"} and bench.frontier.done


@pytest.mark.parametrize(
    ("target", "links", "scope"),
    [
        (b"http://www.a.cn/", "fetched", {"www.a.cn"}),
        (b"http://evil.cn/", "drop:scope", set()),  # names that have lapsed lead to whoever pays for them
    ],
)
def test_the_host_that_a_seed_moves_to_is_in_scope(bench: Bench, target: bytes, links: str, scope: set[str]) -> None:
    bench.judge.scope = Scope("hosts", [SEED])
    bench.visits.record(bench.page(), moved(target))
    if scope:
        bench.visits.record(bench.page(), fetched(200, page(1, ["/inside", "http://b.a.cn/"]).body))
        bench.visits.record(bench.page(), fetched(200, page(2).body))
        assert bench.fates()["http://www.a.cn/inside"] == "fetched"
        assert bench.fates()["http://b.a.cn/"] == "drop:scope"
    assert bench.frontier.done and bench.fates()[target.decode()] == links
    assert {*bench.frontier.seed_hosts()} == {"a.cn"} | scope
    again = Scope("hosts", [SEED], bench.frontier.seed_hosts())  # as the next run has it
    assert again.allows("www.a.cn", "a.cn") == bool(scope) and not again.allows("b.a.cn", "a.cn")


def test_a_link_of_a_page_widens_no_scope(bench: Bench) -> None:
    bench.judge.scope = Scope("hosts", [SEED])
    bench.visits.record(bench.page(), fetched(200, page(1, ["/deep"]).body))
    bench.visits.record(bench.page(), moved(b"http://www.a.cn/"))
    assert bench.fates()["http://www.a.cn/"] == "drop:scope"


# -------------------------------------------------------------------------------------------- robots.txt of other hosts


def test_a_host_rests_after_anothers_robots_txt_has_led_to_it(bench: Bench) -> None:
    following = bench.visits.record(bench.next(), moved(b"http://b.a.cn/robots.txt"))
    assert following is not None and following.wait_seconds == 0.0
    bench.frontier.add(seed_links(["http://b.a.cn/"], bench.config, Scope("domains", [SEED])))
    bench.visits.record(following, fetched(404))
    asked = bench.now
    while (visit := bench.visits.next()) is None or visit.host != "b.a.cn":
        if visit is not None:
            bench.visits.record(visit, fetched(404))
        bench.now += 0.25
    assert 1.0 <= bench.now - asked <= 1.5


def test_another_hosts_robots_txt_waits_until_that_host_is_due(bench: Bench) -> None:
    bench.frontier.add(seed_links(["http://b.a.cn/"], bench.config, Scope("domains", [SEED])))
    visits = {visit.host: visit for visit in (bench.next(), bench.next())}
    hop = (b"Location", b"http://b.a.cn/robots.txt")
    busy = bench.visits.record(visits["a.cn"], fetched(302, b"", hop))
    assert busy is not None and busy.wait_seconds == 1.0  # b.a.cn is being asked
    bench.visits.record(visits["b.a.cn"], fetched(503, b"", (b"Retry-After", b"30")))
    bench.visits.record(busy, fetched(503))
    bench.now += 5.0
    visit = bench.visits.next()
    assert visit is not None and visit.host == "a.cn"
    resting = bench.visits.record(visit, fetched(302, b"", hop))
    assert resting is not None and resting.wait_seconds == pytest.approx(25.0)


# -------------------------------------------------------------------------------------------------------------- details


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (FetchError("content_type", "image/png"), "image/png"),
        (FetchError("content_type", "王小明 13800138000"), "not a media type"),
        (FetchError("headers", "Invalid header value: b'X-User: 13800138000'"), "Invalid header value"),
        (FetchError("http", "400, message='13800138000'", retry=False), "400, message="),
        (FetchError("too_large", "more than 2000000 bytes"), "more than 2000000 bytes"),
        (FetchError("tls", "a\nb\x00" + "长" * 999), "a b " + "长" * 196),
    ],
)
def test_the_ledger_says_why_and_repeats_nothing_of_an_answer(bench: Bench, error: FetchError, detail: str) -> None:
    bench.visits.record(bench.page(), error)
    (known,) = bench.frontier.iter_urls()
    assert (known["fate"], known["detail"]) == (f"error:{error.kind}", detail)


def test_a_host_that_a_page_links_to_is_no_seeds_host(bench: Bench) -> None:
    bench.visits.record(bench.page(), fetched(200, page(1, ["http://b.a.cn/"]).body))
    assert bench.fates()["http://b.a.cn/"] == "pending" and bench.frontier.seed_hosts() == ["a.cn"]


def test_the_ledger_says_why_a_host_was_given_up_for_its_robots_txt(bench: Bench) -> None:
    bench.frontier.add(seed_links([f"{SEED}other"], bench.config, Scope("domains", [SEED])))
    bench.visits.record(bench.next(), fetched(503, b"", (b"Retry-After", b"86400")))
    details = [known["detail"] for known in bench.frontier.iter_urls()]
    assert details == ["robots.txt: status 503", "Retry-After is longer than 3600 s"] and bench.frontier.done
