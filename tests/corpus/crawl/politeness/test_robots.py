from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from corpus.crawl.politeness import robots as robots_module
from corpus.crawl.politeness.robots import (
    PathRules,
    Robots,
    RobotsCache,
    comparable,
    path_of,
    training_refused,
)

SITE = "https://example.org"


def parse(text: str | bytes, agent: str = "wenhaibot") -> Robots:
    return Robots.parse(200, text.encode() if isinstance(text, str) else text, agent)


def everyone(*lines: str) -> Robots:
    return parse("\n".join(("User-agent: *", *lines)))


def allowed(robots: Robots, *paths: str) -> list[bool]:
    return [robots.allowed(SITE + path) for path in paths]


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("status", [300, 301, 302, 308, 400, 401, 403, 404, 410, 418, 451, 499])
def test_no_file_allows_everything(status: int) -> None:
    robots = Robots.parse(status, b"User-agent: *\nDisallow: /", "wenhaibot")
    assert robots.reachable and robots.allowed(SITE + "/a")


@pytest.mark.parametrize("status", [None, 0, 101, 429, 500, 502, 503, 504, 520, 599, 600, 999])
def test_no_answer_allows_nothing(status: int | None) -> None:
    robots = Robots.parse(status, b"User-agent: *\nAllow: /", "wenhaibot")
    assert not robots.reachable and allowed(robots, "/", "/a", "/robots.txt") == [False, False, True]


# -------------------------------------------------------------------------------------------------------------- groups

GROUPS = """
allow: /foo/bar/

user-agent: FooBot
disallow: /
allow: /x/
user-agent: BarBot
disallow: /
allow: /y/


allow: /w/
user-agent: BazBot

user-agent: FooBot
allow: /z/
disallow: /
"""


@pytest.mark.parametrize(
    ("agent", "paths"),
    [("FooBot", "/x/b /z/d"), ("BarBot", "/y/c /w/a"), ("BazBot", "/z/d"), ("QuxBot", "/x/b /z/d /y/c /w/a /foo/bar/")],
)
def test_groups_of_one_agent_are_one_and_empty_lines_part_nothing(agent: str, paths: str) -> None:
    robots = parse(GROUPS, agent)
    found = [path for path in "/x/b /z/d /y/c /w/a /foo/bar/".split() if robots.allowed(SITE + path)]
    assert sorted(found) == sorted(paths.split())


@pytest.mark.parametrize("between", ["Sitemap: https://e.org/s", "Crawl-delay: 5", "Unknown: x", "", "# comment", "x"])
def test_only_rules_part_the_agents_of_a_group(between: str) -> None:
    text = f"User-agent: wenhaibot\n{between}\nUser-agent: other\nDisallow: /"
    assert not parse(text).allowed(SITE + "/a") and not parse(text, "other").allowed(SITE + "/a")


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ("wenhaibot", True),
        ("WenHaiBot", True),
        ("wenhaibot/1.0", True),
        ("wenhaibot 1.0 (+https://e.org)", True),
        ("wenhai", False),
        ("wenhaibots", False),
        ("wenhaibot-image", False),
        ("mywenhaibot", False),
        ("bot", False),
        ("*", True),
        ("* (all)", True),
        ("*bot", False),
        ("GPTBot", False),
        ("CCBot", False),
        ("", False),
        ("文海", False),
    ],
)
def test_product_tokens(value: str, ours: bool) -> None:
    assert parse(f"User-agent: {value}\nDisallow: /").allowed(SITE + "/a") is not ours


def test_our_group_replaces_that_of_everyone_even_where_it_is_empty() -> None:
    everyone_out = "User-agent: *\nDisallow: /\nCrawl-delay: 9\n"
    for text in (
        everyone_out + "User-agent: wenhaibot\nDisallow:",
        "User-agent: wenhaibot\nAllow: /y\n" + everyone_out,
    ):
        robots = parse(text)
        assert robots.allowed(SITE + "/a") and robots.crawl_delay is None
    assert not parse(everyone_out).allowed(SITE + "/a") and parse(everyone_out).crawl_delay == 9


@pytest.mark.parametrize(
    "line",
    ["Disallow: /a", "DISALLOW:/a", "disallow /a", " \t Disallow \t: \t /a \t ", "Dissallow: /a", "Disallow: /a # why"],
)
@pytest.mark.parametrize("agent", ["User-agent: *", "user-agent *", "USER AGENT: *", "Useragent:*"])
def test_spellings_of_lines(agent: str, line: str) -> None:
    assert allowed(parse(f"{agent}\n{line}"), "/a", "/b") == [False, True]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", "\r\r\n", "\n\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_the_byte_order_mark(end: str, mark: bytes) -> None:
    text = mark + end.join(("User-agent: wenhaibot", "Disallow: /a", "Allow: /a/b")).encode()
    assert allowed(parse(text), "/a", "/a/b", "/b") == [False, True, True]


def test_what_are_no_line_ends() -> None:
    robots = everyone("Disallow: /a\x0bb", "Disallow: /c\x85d", "Disallow: /e\u2028f")
    paths = ["/a", "/a%0Bb", "/c", "/c%C2%85d", "/e", "/e%E2%80%A8f"]
    assert allowed(robots, *paths) == [True, False] * 3


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_nuls_and_utf_16(codec: str) -> None:
    text = "User-agent: *\nDisallow: /a\n"
    assert allowed(parse(text.encode(codec)), "/a", "/b") == [False, True]
    assert allowed(parse(b"User-agent: *\nDisal\0low: /a\0"), "/a", "/b") == [False, True]


def test_the_limit_cuts_before_a_line_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_module, "MAX_BYTES", 100)
    head = b"User-agent: *\nDisallow: /early\n"
    rule = b"Disallow: /private\nDisallow: /late\n"
    for cut in range(len(rule)):
        padding = b"#" * (100 - len(head) - cut - 1) + b"\n"
        robots = parse(head + padding + rule)
        whole = rule[: rule.rfind(b"\n", 0, cut) + 1].decode()
        paths = ["/early", "/private", "/late", "/p", "/"]
        assert allowed(robots, *paths) == [False, "private" not in whole, "late" not in whole, True, True]


def test_many_agents_and_many_rules_cost_their_sum() -> None:
    count = 18_000
    agents = b"".join(b"User-agent: a%s\n" % re.sub(rb"\d", b"x", b"%d" % n) for n in range(count // 2))
    rules = b"".join(b"Disallow: /%d\n" % n for n in range(count // 2))
    robots = parse(b"User-agent: wenhaibot\n" + agents + rules)
    assert not robots.allowed(SITE + "/7") and robots.size < 4_000_000
    assert parse(b"User-agent: *\n" * 30_000 + b"Disallow: /7").size < 2_000


# --------------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rules", "forbidden", "open_"),
    [
        ("Disallow: | Allow:", "", "/ /a"),
        ("Disallow:", "", "/ /a"),
        ("Disallow: /", "/ /a /?q", ""),
        ("Disallow: / | Allow: /", "", "/ /a"),  # as long: allowed
        ("Allow: /x | Disallow: /x", "", "/x /x/ /y"),
        ("Disallow: /x | Allow: /x/", "/x /x?a", "/x/ /x/y"),
        ("Disallow: /x/page.html | Allow: /x/", "/x/page.html", "/x/ /x/other"),
        ("Allow: /x/page.html | Disallow: /x/", "/x/ /x/other", "/x/page.html /y"),
        ("Allow: /page | Disallow: /*.html", "/page.html /a.html", "/page /a"),
        ("Allow: /x/page. | Disallow: /*.html", "/x/y.html", "/x/page.html"),
        ("Disallow: /x/", "/x/y", "/X/ /x"),
        ("Allow: /p | Disallow: /", "/ /a", "/page /p"),
        ("Allow: /$ | Disallow: /", "/page.htm /?", "/"),
        ("Disallow: /foo/bar/quz | Allow: /foo/*/qux", "/foo/bar/quz", "/foo/quz /foo//quz /foo/bax/quz"),
        ("Disallow: /foo/bar$ | Allow: /foo/bar/qux", "/foo/bar", "/foo/bar/qux /foo/bar/ /foo/bar/baz /foo/bar?"),
        ("Disallow: /foo/quz#qux | Allow: /", "/foo/quz /foo/quz/a", "/foo/bar"),
        ("Disallow: /fish", "/fish /fish.html /fish/s.html /fishheads /fish?id=1", "/Fish.asp /catfish /?id=fish"),
        ("Disallow: /fish*", "/fish /fish.html /fish/s.html /fishheads /fish?id=1", "/Fish.asp /catfish /?id=fish"),
        ("Disallow: /fish/", "/fish/ /fish/?id=1 /fish/salmon", "/fish /fish.html /animals/fish/ /Fish/s"),
        ("Disallow: /*.php", "/f.php /a/f.php?x //a/f.php.html /i?f=f.php/", "/ /php/ /windows.PHP"),
        ("Disallow: /*.php$", "/f.php /a/f.php", "/f.php?x /f.php/ /f.php5 /php/ /f?php /x.PHP"),
        ("Disallow: /fish*.php", "/fish.php /fishheads/catfish.php?p=1", "/Fish.PHP /fish"),
        ("Disallow: *.gif$", "/a.gif /a/b.gif", "/a.gif?x"),
        ("Disallow: /**a***b", "/ab /xaxb /xaxbx", "/ba /a"),
        ("Disallow: /*aba$", "/aba /xaba /ababa", "/ab /abab"),
        ("Disallow: /a*b*c$", "/abc /axbxc /abcbc", "/acb /ab /abcd /bc"),
        ("Allow: /*b | Disallow: /*bc", "/abc /bcd", "/ab /b"),
        ("Disallow: /*b | Allow: /*bc | Disallow: /*bcd", "/ab /abcd", "/abc /bce"),
        ("Disallow: /abc | Allow: /ab*", "", "/abc /abcd"),  # as long: allowed
        ("Allow: /abc | Disallow: /ab*", "/abd", "/abc /abcd"),
        ("Disallow: /*c | Allow: /ab | Allow: /b*", "/c", "/abc /bc"),
        ("Disallow: /a | Disallow: /abcdefgh | Allow: /a*", "/abcdefgh", "/a /ab"),
        ("Disallow: /*aba*aba*x", "/abaabax /aba-aba-x", "/abax /ababax"),
        ("Disallow: private", "", "/private /a/private"),  # a pattern begins with / or *
        ("Disallow: https://example.org/a", "", "/a"),
        ("Disallow: /a?b", "/a?b=1", "/a /a%3Fb"),
        ("Disallow: /a%3fb", "/a%3Fb /a%3fb", "/a?b"),
        ("Disallow: /a$b", "/a$b /a%24b", "/a /a%24 /ab"),
        ("Disallow: /a%24", "/a$ /a%24x", "/a"),
        ("Disallow: /a%2a", "/a* /a%2Ab", "/a /ab"),
        ("Disallow: /a*", "/a* /a%2A /a /ab", "/"),
        ("Disallow: /%62%61%7A", "/baz /%62az /b%61z", "/BAZ"),
        ("Disallow: /a%2Fb", "/a%2fb", "/a/b"),
        ("Disallow: /a|b{c}^d", "/a%7Cb%7Bc%7D%5Ed /a|b{c}^d", "/a"),
        ("Disallow: /?q='x'", "/?q=%27x%27 /?q='x'", "/?q=x"),
        ("Disallow: /100%", "/100% /100%zz /100%a", "/100"),
    ],
)
def test_paths(rules: str, forbidden: str, open_: str) -> None:
    robots = everyone(*rules.split(" | "))
    assert [path for path in forbidden.split() if robots.allowed(SITE + path)] == []
    assert [path for path in open_.split() if not robots.allowed(SITE + path)] == []


@pytest.mark.parametrize("rule", ["/文海/", "/%E6%96%87%E6%B5%B7/", "/%e6%96%87海/", "/文%E6%B5%B7/"])
@pytest.mark.parametrize("path", ["/文海/页", "/%E6%96%87%E6%B5%B7/", "/%e6%96%87%e6%b5%b7/a"])
def test_chinese_paths(rule: str, path: str) -> None:
    assert allowed(everyone(f"Disallow: {rule}"), path, "/文", "/文山/") == [False, True, True]


def test_paths_in_gbk() -> None:
    robots = parse("User-agent: *\nDisallow: /中文/\n".encode("gbk"))
    paths = ["/%D6%D0%CE%C4/a", "/中文/a", "/%E4%B8%AD%E6%96%87/a", "/%B9%FA%BC%D2/a", "/国家/a"]
    assert allowed(robots, *paths) == [False, False, False, True, True]
    robots = everyone("Disallow: /%D6%D0/")
    assert allowed(robots, "/%d6%d0/", "/%B9%FA/", "/中/") == [False, True, True]
    assert allowed(parse(b"User-agent: *\nDisallow: /\xff\xfe/"), "/%FF%FEa", "/%FF%FE/") == [True, False]


@pytest.mark.parametrize(
    "url", ["https://e.org", "https://e.org?q", "https://e.org/#x", "https://e.org#/a", "https://e.org/"]
)
def test_paths_that_are_empty(url: str) -> None:
    assert path_of(url) == (b"/?q" if "?" in url else b"/")
    assert not everyone("Disallow: /").allowed(url)


def test_robots_txt_itself_is_always_allowed() -> None:
    robots = everyone("Disallow: /")
    assert allowed(robots, "/robots.txt", "/robots.txt?x", "/robots.txt/", "/a/robots.txt") == [
        True,
        True,
        False,
        False,
    ]


PATTERNS = st.lists(st.sampled_from(["/", "a", "b", "ab", "*", "文", "%41", "?", "x"]), min_size=1, max_size=6)
PATHS = st.lists(st.sampled_from(["/", "a", "b", "ab", "文", "A", "?", "x"]), max_size=8).map(
    lambda parts: "/" + "".join(parts)
)
RULES = st.lists(
    st.tuples(st.booleans(), PATTERNS.map("".join).map(lambda text: "/" + text), st.sampled_from(["", "$"])), max_size=6
)


def by_brute_force(rules: list[tuple[bool, str, str]], path: str) -> bool:
    """The RFC's sentence, with regular expressions."""
    path = quote(path, safe="/?")
    best = (-1, True)
    for value, pattern, anchor in rules:
        plain = quote(pattern.replace("%41", "A"), safe="/?*")
        expression = "".join(".*" if char == "*" else re.escape(char) for char in plain) + ("$" if anchor else "")
        if re.match(expression, path):
            best = max(best, (len(plain) + len(anchor), value))
    return best[1]


@given(RULES, PATHS)
def test_the_longest_match_decides(rules: list[tuple[bool, str, str]], path: str) -> None:
    lines = [f"{'Allow' if value else 'Disallow'}: {pattern}{anchor}" for value, pattern, anchor in rules]
    assert everyone(*lines).allowed(SITE + path) == by_brute_force(rules, path)


LINES = st.lists(
    st.one_of(
        st.sampled_from(["User-agent: *", "User-agent: wenhaibot", "user-agent: Other", "", "# x", "Crawl-delay: 2"]),
        st.builds(
            "{}: {}".format, st.sampled_from(["Allow", "Disallow"]), PATTERNS.map("".join).map(lambda t: "/" + t)
        ),
    ),
    max_size=12,
)


@given(LINES, PATHS, st.sampled_from(["wenhaibot", "other", "third"]), st.sampled_from(["\n", "\r\n"]))
def test_protego_says_the_same_where_it_keeps_to_the_rfc(lines: list[str], path: str, agent: str, end: str) -> None:
    previous = ""
    grouped = []
    for line in lines:  # a Crawl-delay between two agents parts them for Protego alone
        if not (line.lower().startswith("user") and previous.startswith("Crawl")):
            grouped.append(line)
            previous = line if line.strip("# x") else previous
    text = end.join(grouped)
    theirs, ours = Protego.parse(text), parse(text, agent)
    assert ours.allowed(SITE + path) == theirs.can_fetch(SITE + path, agent)
    assert ours.crawl_delay == theirs.crawl_delay(agent)


@pytest.mark.parametrize(
    ("text", "url", "ours"),
    [
        ("User-agent: wenhai\nDisallow: /", "/a", True),
        ("User-agent: wenhaibot/1.0\nDisallow: /", "/a", False),
        ("User-agent: wenhaibot\nCrawl-delay: 1\nUser-agent: b\nDisallow: /", "/a", False),
        ("User-agent: *\nDisallow: /%D6%D0", "/%B9%FA", True),
        ("User-agent: *\nDisallow: /a?b", "/a%3Fb", True),
        ("User-agent: *\nDisallow: /a\u2028b", "/ax", True),
        ("User-agent: *\nDisallow: /a$", "/a%24", True),
    ],
)
def test_where_protego_departs_from_the_rfc(text: str, url: str, ours: bool) -> None:
    assert parse(text).allowed(SITE + url) is ours
    assert Protego.parse(text).can_fetch(SITE + url, "wenhaibot") is not ours  # else the docstring claims too much


@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_are_read(body: bytes, path: str) -> None:
    robots = parse(b"User-agent: *\n" + body)
    assert robots.allowed(SITE + "/" + path) in (True, False)
    assert robots.opted_out(SITE + "/" + path) in (True, False)


@given(st.binary(max_size=60))
def test_comparing_spellings_is_idempotent(path: bytes) -> None:
    assert comparable(comparable(path)) == comparable(path)


def test_rules_of_many_stars() -> None:
    rules = PathRules()
    rules.add(b"/" + b"*a" * 50_000, True)
    rules.add(b"/" + b"*" * 200_000 + b"$", True)
    rules.seal()
    assert rules.find(b"/" + b"a" * 2_000) is True
    assert PathRules().find(b"/") is None


@pytest.mark.parametrize("name", ["Disallow: ", "Content-Usage: "])
@pytest.mark.parametrize("costly", ["/*" + "a" * 40 + "b" + "a" * 40, "/*a" * 30 + "b", "/*b"])
def test_a_url_that_wildcards_take_long_to_judge_is_not_asked_for(name: str, costly: str) -> None:
    rules = 490_000 // (len(costly) + 20)
    lines = [
        f"{name}{costly}{number} train-ai=n" if "U" in name else f"{name}{costly}{number}" for number in range(rules)
    ]
    robots = everyone("Allow: /", *lines)
    url = SITE + "/" + "a" * 2_000

    def is_open(url: str) -> bool:
        return robots.allowed(url) and not robots.opted_out(url)

    assert not is_open(url) and robots.allowed(SITE + "/robots.txt")
    usual = everyone("Disallow: /*?a=*&b=", *(f"{name}/*/a{number}?*=b$ train-ai=n" for number in range(500)))
    assert usual.allowed(SITE + "/c/" * 300) and not usual.opted_out(SITE + "/c/" * 300)
    assert not usual.allowed(SITE + "/c?a=1&b=2")


# --------------------------------------------------------------------------------------------------- ------- delays


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5), ("0.5", 0.5), (".5", 0.5), ("10.", 10), ("0", 0), ("86400000", 86_400_000)]
    + [(bad, None) for bad in ("-1", "inf", "nan", "1e3", "1_0", "", "5s", "1,5", "9" * 400, "五", "+5")],
)
def test_crawl_delays(value: str, seconds: float | None) -> None:
    assert everyone(f"Crawl-delay: {value}").crawl_delay == seconds


def test_the_longest_crawl_delay_of_a_group_counts() -> None:
    assert everyone("Crawl-delay: 3", "Crawl-delay: 7", "Crawl-delay: 5").crawl_delay == 7


# ------------------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize(
    ("preferences", "refused"),
    [
        ("train-ai=n", True),
        ("Train-AI = N", True),
        ("search=y, train-ai=n", True),
        ("train-ai=y", False),
        ("train-ai=n;reason=x", True),
        ("train-genai=y, train-ai=n", False),
        ("train-genai=n, train-ai=y", True),
        ("bots=n", True),
        ("train-ai=n, train-ai=y", True),
        ("search=yes,ai-train=no", True),
        ("search=yes,ai-train=yes", False),
        ("search=n", None),
        ("train-ai", None),
        ("train-ai=maybe", None),
        ("", None),
        (",;=,", None),
    ],
)
def test_preferences(preferences: str, refused: bool | None) -> None:
    assert training_refused(preferences.encode()) is refused


def test_preferences_in_robots_txt() -> None:
    robots = everyone("Content-Usage: train-ai=n", "Content-Usage: /open/ train-ai=y", "Allow: /")
    assert [robots.opted_out(SITE + path) for path in ("/", "/a", "/open/a")] == [True, True, False]
    assert robots.allowed(SITE + "/a")
    assert everyone("Content-Signal: search=yes,ai-train=no").opted_out(SITE)
    assert parse("Content-Signal: ai-train=no\nUser-agent: other\nDisallow: /").opted_out(SITE + "/a")
    for text in (
        "User-agent: GPTBot\nContent-Usage: train-ai=n",
        "Content-Usage: x",
        "User-agent: *\nContent-Usage: /a",
    ):
        assert not parse(text).opted_out(SITE + "/a")


# --------------------------------------------------------------------------------------------------------------- cache


def test_answers_expire() -> None:
    cache = RobotsCache()
    cache.put("a", parse(""), now=100.0)
    assert cache.get("c", 100.0) is None and cache.get("a", 100.0 + 86_399) is not None
    assert cache.get("a", 100.0 + 86_400) is None and cache.size == 0


def test_those_used_longest_ago_make_room() -> None:
    robots = everyone("Disallow: /" + "x" * 1000)
    cache = RobotsCache(max_bytes=3 * robots.size)
    for host in "abc":
        cache.put(host, robots, 0.0)
    assert cache.get("a", 1.0)
    cache.put("d", robots, 1.0)
    cache.put("d", robots, 1.0)
    assert [host for host in "abcd" if cache.get(host, 2.0)] == ["a", "c", "d"]
    assert cache.size == 3 * robots.size
    cache.put("e", everyone(*(f"Disallow: /{n}" for n in range(100))), 2.0)
    assert [host for host in "acde" if cache.get(host, 2.0)] == ["e"]
