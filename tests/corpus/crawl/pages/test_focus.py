"""Evidence is a share, grows with Chinese text and falls with other text; links follow it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.pages.focus import host_evidence, host_prior, link_priority, page_evidence
from corpus.crawl.pages.page import PageLink, read_page

URL = "http://a.cn/"
CHINESE, ENGLISH = "清晨，木匠沿着河岸慢慢走。" * 40, "The carpenter walked along the river. " * 40
SHARES = st.floats(0, 1)


def page(text: str, encoding: str = "utf-8") -> float:
    return page_evidence(read_page(text.encode(encoding), None, URL))


def link(text: str = "", hreflang: str | None = None) -> PageLink:
    return PageLink("x", text, hreflang, False, "a")


def test_pages_are_judged_by_their_text() -> None:
    assert page(CHINESE) > 0.85 and page(ENGLISH) < 0.1
    assert page(ENGLISH) < page(CHINESE[:50] + ENGLISH) < page(CHINESE[:200] + ENGLISH) < page(CHINESE)
    assert page("<html lang=zh>" + ENGLISH) < 0.3 and page("<html lang=en>" + CHINESE) > 0.75  # they copy templates


def test_pages_without_text_are_judged_by_what_they_declare() -> None:
    assert page("<html lang=zh-CN><script>x</script>") == page("<meta charset=gbk><!--清晨河岸-->", "gbk") > 0.89
    assert page("<html lang=en>") < page("") < page("<html lang=zh>")


def test_hosts_begin_with_their_name_and_go_by_their_pages() -> None:
    assert host_evidence(0, 0, 0, "a.cn") == host_prior("a.cn") > host_prior("a.com.sg") > host_prior("a.com")
    for host in ("a.com.tw:81", "a.hk", "a.mo", "a.xn--fiqs8s", "a.xn--55qx5d", "xn--fsqu00a.xn--kpry57d"):
        assert host_prior(host) == host_prior("a.cn")
    for host in ("cn.com", "10.0.0.1", "[::1]:80", "a.xn--p1ai", "a.xn--", "xn--fiqs8s.com"):
        assert host_prior(host) == host_prior("a.com")
    assert host_evidence(0, 10**6, 40, "a.cn") < 0.1
    assert host_evidence(10**6, 10**6, 40, "a.com") > 0.9


def test_each_page_that_is_not_chinese_costs_its_host() -> None:
    evidence = [host_evidence(3_000, 3_000 + 3_000 * pages, 1 + pages, "a.cn") for pages in range(1, 20)]
    assert evidence == sorted(evidence, reverse=True) and evidence[0] > 0.85 and evidence[-1] < 0.3


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6), st.sampled_from(("a.cn", "a.com")))
def test_evidence_of_hosts_is_a_share(chinese: int, other: int, pages: int, host: str) -> None:
    assert 0 <= host_evidence(chinese, chinese + other, pages, host) <= 1


@given(SHARES, SHARES, st.integers(0, 1000), st.text("文海ab1 ", max_size=5), st.sampled_from((None, "zh", "en")))
def test_priorities_are_shares_that_grow_with_the_evidence(
    found: float, host: float, depth: int, text: str, hreflang: str | None
) -> None:
    priority = link_priority(link(text, hreflang), found, host, depth)
    assert 0 <= priority <= 1
    assert priority <= link_priority(link(text, hreflang), 1.0, host, depth)
    assert priority <= link_priority(link(text, hreflang), found, 1.0, depth)
    assert priority >= link_priority(link(text, hreflang), found, host, depth + 1)


def test_links_in_order() -> None:
    def priority(*arguments: str | None, depth: int = 1) -> float:
        return link_priority(link(*arguments), 0.9, 0.9, depth)  # type: ignore[arg-type]

    assert priority("新闻") > priority("News") > priority("新闻", "en")
    assert priority("新闻", "zh-Hant") == priority("新闻") > priority("新闻", depth=5)
    assert priority("") > priority("News")  # an image says nothing
    assert priority("123") == priority("")
