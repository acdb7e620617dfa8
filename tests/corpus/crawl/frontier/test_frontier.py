"""The frontier's order, its memory of what was fetched, rounds, and what it says of a file it cannot use."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corpus.crawl.fates import NOT_MODIFIED, REVISIT, Outcome, Place, Reference
from corpus.crawl.frontier import frontier as frontiers
from corpus.crawl.frontier import hosts, schema
from corpus.crawl.frontier.frontier import Frontier
from corpus.engine.errors import LockHeld, WenhaiError
from tests.corpus.crawl.frontier.frontiers import DATE, Clock, claimed, config, drained, fetched, link, opened, taken

NEVER = datetime(2000, 1, 1, tzinfo=UTC)
LATER = datetime(2030, 1, 1, tzinfo=UTC)
Begin = Callable[..., Frontier]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def begin(tmp_path: Path, clock: Clock) -> Iterator[Begin]:
    """Opens the frontier, whoever had it open before: each time with another budget, if need be."""
    made: list[Frontier] = []

    def make(**budget: int) -> Frontier:
        for one in made:
            one.close()
        made.append(opened(tmp_path, clock, **budget))
        return made[-1]

    yield make
    made[-1].close()


@pytest.fixture
def frontier(begin: Begin) -> Frontier:
    return begin()


# --------------------------------------------------------------------------------------------------------------- order


def test_a_host_has_one_request_under_way_and_rests_between(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link("http://a.cn/1"), link("http://a.cn/2")])
    first = taken(frontier, clock)
    assert frontier.next(clock.now) is None
    assert frontier.seconds_until_due(clock.now) is None and frontier.claimed == 1
    frontier.finish(first, fetched(first), clock.now + 7)
    assert frontier.next(clock.now + 6.9) is None
    assert frontier.seconds_until_due(clock.now) == pytest.approx(7)
    assert frontier.next(clock.now + 7) is not None


def test_no_more_than_four_hosts_of_a_domain_are_asked_at_a_time(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link(f"http://{name}.blog.cn/") for name in "abcdef"] + [link("http://other.cn/")])
    claims = []
    while (claim := frontier.next(clock.now)) is not None:
        claims.append(claim)
    assert sorted(claim.domain for claim in claims) == ["blog.cn"] * 4 + ["other.cn"]
    assert frontier.seconds_until_due(clock.now) is None
    ended = next(claim for claim in claims if claim.domain == "blog.cn")
    frontier.finish(ended, fetched(ended), clock.now + 1, place=Place("00000.warc.gz", 0, DATE))
    fifth = taken(frontier, clock)
    assert fifth.domain == "blog.cn" and frontier.next(clock.now) is None
    for claim in {*claims, fifth} - {ended}:
        frontier.give_back(claim, clock.now, False)
    assert len(drained(frontier, clock)) == 6


def test_chinese_hosts_go_first_when_several_are_due(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link("http://a.com/", priority=0.1), link("http://b.cn/", priority=0.9)])
    frontier.add([link("http://c.com/", priority=0.2), link("http://d.cn/", priority=0.8)])
    assert drained(frontier, clock) == ["http://b.cn/", "http://d.cn/", "http://c.com/", "http://a.com/"]


@pytest.mark.parametrize("window", [hosts.WINDOW, 4])
def test_what_a_host_turned_out_to_be_decides_and_none_starves(
    begin: Begin, clock: Clock, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "WINDOW", window)
    frontier = begin()
    names = [f"{n}.{'cn' if n < 6 else 'com'}" for n in range(12)]
    frontier.add([link(f"http://{name}/{n}", priority=0.5) for name in names for n in range(300)])
    served: Counter[str] = Counter()
    for _ in range(1_000):  # one request under way at a time, and all hosts always due: only the order decides
        claim = taken(frontier, clock)
        served[claim.host] += 1
        text = {"text_bytes": 10_000, "chinese_bytes": 10_000 if claim.host.endswith("cn") else 0}
        frontier.finish(claim, fetched(claim, **text), clock.now)
    chinese, others = [served[name] for name in names[:6]], [served[name] for name in names[6:]]
    assert min(others) >= 5
    assert min(chinese) > 4 * max(others)


def test_a_host_that_was_idle_has_saved_no_turns(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link("http://idle.cn/0")])
    drained(frontier, clock)
    frontier.add([link(f"http://busy.cn/{n}") for n in range(60)])
    for _ in range(30):
        claim = claimed(frontier, clock)
        assert claim is not None
        frontier.finish(claim, fetched(claim), clock.now)
    frontier.add([link(f"http://idle.cn/{n}") for n in range(1, 30)])
    clock.now += 10
    order = []
    for _ in range(8):
        claim = claimed(frontier, clock)
        assert claim is not None
        order.append(claim.host)
        frontier.finish(claim, fetched(claim), clock.now)
    assert order.count("busy.cn") >= 3


def test_a_host_that_rests_long_gives_its_place_to_others_and_comes_back(
    begin: Begin, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "WINDOW", 2)
    frontier = begin()
    frontier.add([link(f"http://{name}.cn/{n}") for name in "abcdef" for n in range(2)])
    for _ in range(6):
        claim = claimed(frontier, clock)
        assert claim is not None
        frontier.finish(claim, fetched(claim), clock.now + 1_000)
        assert len(frontier._hosts._window) <= 2
    assert frontier.seconds_until_due(clock.now) == pytest.approx(1_000)
    assert sorted(drained(frontier, clock)) == [f"http://{name}.cn/1" for name in "abcdef"]


@pytest.mark.parametrize("rest", [0.0, 1_000.0])
def test_a_host_that_is_found_while_the_window_is_full_is_asked_next(
    begin: Begin, clock: Clock, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "WINDOW", 2)
    frontier = begin()
    frontier.add([link(f"http://{name}.cn/{n}") for name in "ab" for n in range(2 if rest else 1)])
    claims = [frontier.next(clock.now), frontier.next(clock.now)]
    if not rest:
        frontier.add([link("http://c.cn/")])
    for claim in claims:
        assert claim is not None
        frontier.finish(claim, fetched(claim), clock.now + rest)
    frontier.add([link("http://c.cn/")])
    found = frontier.next(clock.now)  # those that rest long, or have nothing left, gave up their places
    assert found is not None and found.host == "c.cn"


# -------------------------------------------------------------------------------------------------------------- visits


def test_what_is_remembered_of_visits(frontier: Frontier, clock: Clock, begin: Begin) -> None:
    frontier.add([link("http://a.cn/"), link("http://out.cn/", refused="scope")])
    claim = claimed(frontier, clock)
    assert claim is not None
    record = Reference("urn:uuid:1", claim.url, DATE)
    done = fetched(claim, digest="sha1:A", record=record, text_bytes=9_000, chinese_bytes=9_000, detail="\udcff")
    frontier.finish(claim, done, clock.now, place=Place("0.warc.gz", 12, DATE), state={"failures": 1})
    frontier.checkpoint({"0.warc.gz": 99})
    again = begin()
    assert again.seen_digest("sha1:A") == record and again.seen_digest("sha1:B") is None
    assert again.host_state("a.cn") == {"failures": 1} and again.host_state("b.cn") is None
    assert again.host_evidence("a.cn") > 0.8 > again.host_evidence("b.com")
    assert again.saved() == {"0.warc.gz": 99}
    page, refused = again.iter_urls()
    expected = {"url": "http://a.cn/", "host": "a.cn", "fate": "fetched", "status": 200, "bytes": 100}
    expected |= {"file": "0.warc.gz", "offset": 12, "detail": "\\udcff"}
    assert page | expected == page and page["fetched"] == datetime.fromisoformat(DATE).timestamp()
    assert (refused["fate"], refused["host"], refused["status"]) == ("drop:scope", None, None)
    (host,) = again.top_hosts(5)
    assert host | {"name": "a.cn", "pages": 1, "bytes": 100, "chinese_bytes": 9_000, "pending": 0} == host


def test_claims_end_once(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link("http://a.cn/")])
    claim = taken(frontier, clock)
    frontier.give_back(claim, clock.now, attempt=True)
    with pytest.raises(ValueError, match="not claimed"):
        frontier.finish(claim, fetched(claim), clock.now)
    claim = taken(frontier, clock)
    assert claim.attempts == 1


# ------------------------------------------------------------------------------------------------------ after a restart


def test_a_promise_to_wait_outlives_the_process_and_needs_no_clock(
    frontier: Frontier, clock: Clock, begin: Begin
) -> None:
    frontier.add([link("http://a.cn/1"), link("http://a.cn/2")])
    claim = taken(frontier, clock)
    frontier.finish(claim, fetched(claim), clock.now + 900)
    clock.now += 100
    frontier.checkpoint({})
    clock.now = 5.0  # another boot
    again = begin()
    assert again.next(clock.now) is None
    assert again.seconds_until_due(clock.now) == pytest.approx(800)


def test_no_promise_is_longer_than_the_longest_allowed(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link("http://a.cn/1"), link("http://a.cn/2")])
    claim = taken(frontier, clock)
    frontier.finish(claim, fetched(claim), clock.now + 1e9)
    assert frontier.seconds_until_due(clock.now) == pytest.approx(3_600)


def test_after_a_kill_a_host_rests_though_its_last_request_is_forgotten(
    frontier: Frontier, clock: Clock, begin: Begin
) -> None:
    frontier.add([link(f"http://a.cn/{n}") for n in range(3)])
    for wait in (0, 20):
        claim = taken(frontier, clock)
        frontier.checkpoint({})  # the second time with a claim that the kill forgets
        frontier.finish(claim, fetched(claim), clock.now + 5)
        clock.now += wait or 5
    again = begin()
    assert again.counts() == {"pending": 2, "fetched": 1}
    assert again.seconds_until_due(clock.now) == pytest.approx(5)


# -------------------------------------------------------------------------------------------------------------- rounds


def test_a_round_asks_again_with_what_is_known_and_outlives_a_kill(
    frontier: Frontier, clock: Clock, begin: Begin
) -> None:
    frontier.add([link(f"http://a.cn/{n}") for n in range(3)] + [link("http://b.cn/")])
    while (claim := claimed(frontier, clock)) is not None:
        done = fetched(claim, etag=f'"{claim.url}"', last_modified="yesterday", content=b"all the same....")
        if claim.host == "b.cn":
            done = Outcome("error:dns")
        frontier.finish(claim, done, clock.now, place=Place("0.warc.gz", 1, DATE))
    assert frontier.begin_round(NEVER) == 1  # what failed for a passing reason
    assert frontier.begin_round(LATER) == 3
    frontier.checkpoint({})
    claim = claimed(frontier, clock)
    again = begin()
    assert again.counts() == {"pending": 4}
    assert again.begin_round(LATER) == 0
    outcomes = iter(
        (Outcome(NOT_MODIFIED, 304), Outcome(REVISIT, 200, digest="sha1:new"), Outcome("error:http_500", 500))
    )
    while (claim := claimed(again, clock)) is not None:
        if claim.host == "b.cn":
            again.finish(claim, fetched(claim), clock.now)
            continue
        assert (claim.etag, claim.last_modified, claim.attempts) == (f'"{claim.url}"', "yesterday", 0)
        assert claim.digest == f"sha1:{claim.key.hex()}"
        assert claim.refers_to == Reference(f"urn:uuid:{claim.key.hex()}", claim.url, DATE)
        again.finish(claim, next(outcomes), clock.now)
    assert again.counts() == {"pending": 0, "error:http_500": 1, "fetched": 1, NOT_MODIFIED: 1, REVISIT: 1}
    assert [known["round"] for known in again.iter_urls()] == [2, 2, 2, 2]
    assert all(known["digest"] for known in again.iter_urls())  # a 304 leaves what was known
    assert sorted(str(known["digest"])[:8] for known in again.iter_urls() if "a.cn" in known["url"])[-1] == "sha1:new"
    again.check_books()


def test_a_round_begins_budgets_and_hosts_anew(begin: Begin, clock: Clock) -> None:
    frontier = begin(max_pages=4, max_pages_per_host=2, max_repeats=1)
    frontier.add([link(f"http://{name}.cn/{n}") for name in "ab" for n in range(2)] + [link("http://down.cn/")])
    frontier.give_up_host("down.cn", "error:host_down")
    assert len(drained(frontier, clock, content=None)) == 4 and frontier.done
    assert frontier.begin_round(LATER) == 5
    assert len(drained(frontier, clock)) == 4 and frontier.done


def test_pages_that_did_not_change_are_no_trap(begin: Begin, clock: Clock) -> None:
    frontier = begin(max_repeats=2)
    frontier.add([link(f"http://a.cn/x/{n}") for n in range(6)])
    for _ in range(2):
        while (claim := claimed(frontier, clock)) is not None:
            frontier.finish(claim, fetched(claim, content=claim.key), clock.now, place=Place("0", 0, DATE))
        assert frontier.counts() == {"pending": 0, "fetched": 6}
        frontier.begin_round(LATER)


def test_a_round_begins_in_pieces_and_a_kill_between_them_costs_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontiers, "ROWS_AT_A_TIME", 3)
    pieces = 0

    def dies_at(last: int) -> Callable[[sqlite3.Connection], None]:
        def commit(db: sqlite3.Connection) -> None:
            nonlocal pieces
            schema.commit(db)
            pieces += 1
            if pieces == last:
                raise KeyboardInterrupt

        return commit

    for last in range(1, 8):  # the last of them is never reached
        folder = tmp_path / str(last)
        folder.mkdir()
        frontier = opened(folder, clock)
        frontier.add([link(f"http://{name}.cn/{n}") for name in "abcd" for n in range(2)])
        drained(frontier, clock)
        frontier.checkpoint({})
        pieces = 0
        with monkeypatch.context() as patch:
            patch.setattr(frontiers, "commit", dies_at(last))
            if last < 7:
                with pytest.raises(KeyboardInterrupt):
                    frontier.begin_round(LATER)
            else:
                assert frontier.begin_round(LATER) == 8 and pieces == 6  # 3 of URLs, 2 of hosts, the end
        frontier.close()
        again = opened(folder, clock)
        assert again.begin_round(LATER) == 0
        again.check_books()
        assert again.counts() == {"pending": 8} and len(drained(again, clock)) == 8
        assert {known["round"] for known in again.iter_urls()} == {1}
        again.close()


def test_a_checkpoint_writes_only_what_has_changed(frontier: Frontier, clock: Clock, begin: Begin) -> None:
    frontier.checkpoint({f"{n}.warc.gz": n for n in range(5)})
    before = frontier._db.total_changes
    frontier.checkpoint({"4.warc.gz": 99})
    assert frontier._db.total_changes - before <= 2  # that and the counters
    again = begin()
    assert again.saved() == {**{f"{n}.warc.gz": n for n in range(4)}, "4.warc.gz": 99}


SAME = b"all the same...."


def test_a_host_that_says_the_same_under_ever_new_names_is_closed(begin: Begin, clock: Clock) -> None:
    frontier = begin(max_repeats=2)
    frontier.add([link("http://a.cn/0"), link("http://b.cn/0")])
    asked = 0
    while (claim := claimed(frontier, clock)) is not None and asked < 500:
        asked += claim.host == "a.cn"
        links = tuple(link(f"http://a.cn/{claim.id}x{n}") for n in range(3)) if claim.host == "a.cn" else ()
        frontier.finish(claim, fetched(claim, content=SAME, links=links), clock.now)
    assert asked == 21  # the first repeats nothing
    assert {known["fate"] for known in frontier.iter_urls()} == {"fetched", "drop:trap_repeats"}
    frontier.check_books()
    frontier.add([link("http://a.cn/new")])
    assert frontier.counts()["pending"] == 0
    frontier.begin_round(LATER)
    frontier.add([link("http://a.cn/newer")])
    assert "http://a.cn/newer" in drained(frontier, clock)


@pytest.mark.parametrize("print_versions", [False, True])
def test_a_site_with_mirrored_pages_is_not_closed(begin: Begin, clock: Clock, print_versions: bool) -> None:
    frontier = begin(max_repeats=2)
    if print_versions:  # one pattern, larger than the row of repeats that closes a host
        pages = [f"{kind}/{n}" for kind in ("article", "print") for n in range(50)]
    else:  # rows of 15 mirrored pages, each of a pattern of its own, with a new one between them
        pages = ["front", *(f"m{row}x{n}" if n else f"new{row}" for row in range(5) for n in range(16))]
    frontier.add([link(f"http://a.cn/{name}") for name in pages])
    while (claim := claimed(frontier, clock)) is not None:
        name = claim.url.rpartition("/")[2]
        said = name if print_versions or name.startswith("new") else "front"
        frontier.finish(claim, fetched(claim, content=said.encode().ljust(16)), clock.now)
    assert frontier.counts() == {"pending": 0, "fetched": len(pages)}


def test_when_a_host_is_due(frontier: Frontier, clock: Clock) -> None:
    assert frontier.due("a.cn") == -math.inf
    frontier.add([link("http://a.cn/1"), link("http://a.cn/2")])
    claim = taken(frontier, clock)
    assert frontier.due("a.cn") is None
    frontier.finish(claim, fetched(claim), clock.now + 7)
    assert frontier.due("a.cn") == pytest.approx(clock.now + 7)


def test_a_round_needs_a_time_zone_and_no_claims(frontier: Frontier, clock: Clock) -> None:
    with pytest.raises(ValueError, match="time zone"):
        frontier.begin_round(datetime(2026, 1, 1))
    frontier.add([link("http://a.cn/")])
    frontier.next(clock.now)
    with pytest.raises(ValueError, match="without claims"):
        frontier.begin_round(LATER)


# ------------------------------------------------------------------------------------------------------------ the file


def test_one_process_at_a_time(frontier: Frontier, clock: Clock) -> None:
    with pytest.raises(LockHeld, match="another process has it open"):
        Frontier(frontier.path, config(), clock)


def test_files_that_are_no_frontier_of_this_format(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "frontier.sqlite"
    path.write_bytes("不是数据库。".encode() * 1_000)
    with pytest.raises(WenhaiError, match="damaged"):
        Frontier(path, config(), clock)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(WenhaiError, match="not a frontier of ours"):
        Frontier(path, config(), clock)
    assert path.read_bytes() == before
    path.unlink()
    opened(tmp_path, clock).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(WenhaiError, match="format 99, this version reads 2"):
        Frontier(path, config(), clock)


def test_a_damaged_page_is_told_and_ends_the_work(frontier: Frontier, clock: Clock) -> None:
    frontier.add([link(f"http://a.cn/{n}/{'x' * 300}") for n in range(200)])
    frontier.checkpoint({})
    frontier.close()
    data = bytearray(frontier.path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[4096 * page : 4096 * page + 200] = b"\xee" * 200
    frontier.path.write_bytes(data)
    with pytest.raises(WenhaiError, match="damaged"):
        broken = Frontier(frontier.path, config(), clock)
        broken.next(clock.now)
