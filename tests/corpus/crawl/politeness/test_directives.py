from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.politeness.directives import directives


def of_header(*values: str, name: str = "X-Robots-Tag") -> set[str]:
    return set(directives([(name.encode(), value.encode()) for value in values], (), "wenhaibot").forbidden)


def of_meta(content: str, name: str = "robots") -> set[str]:
    return set(directives((), [(name, content)], "wenhaibot").forbidden)


TOKENS = [
    ("noindex", {"noindex"}),
    ("NoIndex, NOFOLLOW", {"noindex", "nofollow"}),
    ("noindex nofollow", {"noindex", "nofollow"}),
    ("noindex;nofollow", {"noindex", "nofollow"}),
    ("none", {"noindex", "nofollow"}),
    ("noarchive", {"noarchive"}),
    ("nocache", {"noarchive"}),
    ("noai", {"opt_out"}),
    ("noimageai, noai", {"opt_out"}),
    ("noimageai", {"opt_out"}),
    ("index, follow, all", set()),
    ("noindex, index", {"noindex"}),
    ("nosnippet, noodp, noimageindex, max-snippet:20", set()),
    ("noindexing, xnoindex, no index", set()),
    ("", set()),
    (" ,,, ", set()),
]


@pytest.mark.parametrize(("text", "forbidden"), TOKENS)
def test_tokens(text: str, forbidden: set[str]) -> None:
    assert of_header(text) == of_meta(text) == forbidden


@pytest.mark.parametrize(
    ("values", "forbidden"),
    [
        (("noindex", "nofollow"), {"noindex", "nofollow"}),
        (("wenhaibot: noindex, nofollow",), {"noindex", "nofollow"}),
        (("WenHaiBot : noindex",), {"noindex"}),
        (("wenhaibot/1.0: noindex",), {"noindex"}),
        (("wenhaibot:noindex,nofollow",), {"noindex", "nofollow"}),
        (("*: noindex",), {"noindex"}),
        (("googlebot: noindex, nofollow",), set()),
        (("googlebot: noindex, wenhaibot: noarchive, nofollow",), {"noarchive", "nofollow"}),
        (("noarchive, googlebot: noindex",), {"noarchive"}),
        (("googlebot: noindex", "nofollow"), {"nofollow"}),  # each header begins with everyone
        (("wenhai: noindex",), set()),
        (("wenhaibots: noindex",), set()),
        (("unavailable_after: 25 Jun 2010 15:00:00 PST",), set()),
        (("unavailable_after: Sat, 01-Jan-2000 00:00:00 GMT, noindex",), {"noindex"}),
        (("max-snippet: 20, noindex",), {"noindex"}),
    ],
)
def test_whom_an_x_robots_tag_speaks_to(values: tuple[str, ...], forbidden: set[str]) -> None:
    assert of_header(*values) == of_header(*values, name="x-robots-TAG") == forbidden


@pytest.mark.parametrize(
    ("name", "ours"),
    [("robots", True), ("ROBOTS", True), (" Robots ", True), ("wenhaibot", True), ("WenhaiBot", True)]
    + [(other, False) for other in ("googlebot", "baiduspider", "description", "", "robot")],
)
def test_whom_a_meta_speaks_to(name: str, ours: bool) -> None:
    assert of_meta("noindex", name) == ({"noindex"} if ours else set())


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("TDM-Reservation", "1", True),
        ("tdm-reservation", ' "1" ', True),
        ("tdm-reservation", "0", False),
        ("tdm-reservation", "", False),
        ("tdm-reservation", "11", False),
        ("tdm-policy", "1", False),
        ("Content-Usage", "train-ai=n", True),
        ("content-usage", "search=y, TRAIN-AI=N", True),
        ("content-usage", "train-ai=y", False),
        ("content-usage", "search=n", False),
    ],
)
def test_reservations(name: str, value: str, refused: bool) -> None:
    assert of_header(value, name=name) == of_meta(value, name) == ({"opt_out"} if refused else set())


def test_a_content_usage_given_twice_is_one_list() -> None:
    assert of_header("search=y", "train-ai=n", name="Content-Usage") == {"opt_out"}
    assert of_header("train-genai=y", "train-ai=n", name="Content-Usage") == set()


def test_reasons_say_where_each_came_from() -> None:
    headers = [(b"X-Robots-Tag", b"none, noindex"), (b"TDM-Reservation", b"1"), (b"content-usage", b"train-ai=n")]
    metas = [("wenhaibot", "noarchive"), ("robots", "noai"), ("robots", "noai"), ("tdm-reservation", "1")]
    found = directives(headers, metas, "wenhaibot")
    assert found.forbidden == {"noindex", "nofollow", "noarchive", "opt_out"}
    assert found.reasons == (
        "Content-Usage: train-ai=n",
        "TDM-Reservation: 1",
        "X-Robots-Tag: noindex",
        "X-Robots-Tag: none",
        "meta agent: noarchive",
        "meta robots: noai",
        "meta tdm-reservation: 1",
    )
    assert directives([(b"Server", b"noindex")], [("keywords", "noindex")], "wenhaibot").reasons == ()


def test_the_agent_of_the_config_in_capitals() -> None:
    found = directives([(b"X-Robots-Tag", b"mybot: noindex")], [("mybot", "nofollow")], "MyBot")
    assert found.forbidden == {"noindex", "nofollow"}


NAMES = st.sampled_from(["x-robots-tag", "content-usage", "tdm-reservation", "robots", "wenhaibot", "x"])
VALUES = st.text(st.sampled_from('noindex,: ;=*"\x00\xff文\ud800train-'), max_size=60)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_any_input_is_read_and_order_does_not_matter(pairs: list[tuple[str, str]]) -> None:
    headers = [(name.encode(), value.encode("utf-8", "surrogatepass")) for name, value in pairs]
    found = directives(headers, pairs, "wenhaibot")
    assert found == directives(headers[::-1], pairs[::-1], "wenhaibot")
    assert bool(found.reasons) == bool(found.forbidden)


def test_reasons_stay_few_however_long_the_input() -> None:
    found = directives(
        [(b"X-Robots-Tag", b"noindex, " * 10_000 + b"a:" * 50_000)] * 3, [("robots", "none " * 9_000)], "b"
    )
    assert found.reasons == ("X-Robots-Tag: noindex", "meta robots: none")
