"""FAULTS rows 1 and 3 for the frontier: killed anywhere, or out of disk, it is what it was at the last checkpoint."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.crawl.fates import Outcome
from corpus.crawl.frontier import schema as frontier_schema
from corpus.crawl.frontier.frontier import Frontier
from corpus.engine.errors import DiskError, WenhaiError
from tests.corpus.crawl.frontier.frontiers import Clock, fetched, link, opened
from tests.faults.conftest import Disk, make_disk  # noqa: F401  (a fixture)

STEPS = 40


def calls(frontier: Frontier, clock: Clock) -> Iterator[int | None]:
    """A crawl, one call at a time; the number of each checkpoint that is durable, None after other calls."""
    frontier.add([link(f"http://{n}.cn/", depth=0) for n in range(8)])
    yield None
    for step in range(STEPS):
        clock.now += 1
        claims = [claim for claim in (frontier.next(clock.now) for _ in range(3)) if claim]
        yield None
        for number, claim in enumerate(claims):
            if number == 2:
                frontier.give_back(claim, clock.now + 2, attempt=True)
            elif number == 1:
                frontier.finish(claim, Outcome("error:http_404", 404), clock.now + 2)
            else:
                found = (link(f"http://{claim.host}/{step}/{n}/{'长' * 100}") for n in range(20))
                frontier.finish(claim, fetched(claim, links=tuple(found)), clock.now + 2)
            yield None
        if step % 16 == 3:
            frontier.give_up_host(f"{step % 8}.cn", "error:host_down")
            yield None
        if step % 5 == 4:
            frontier.checkpoint({"step": step})
            yield step


def dump(frontier: Frontier) -> list[Any]:
    frontier.check_books()
    return [frontier.saved(), frontier.counts(), frontier.top_hosts(100), *frontier.iter_urls()]


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_schema, "CACHE_KIB", 64)  # pages of an open transaction go to the log all the time


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """What a run that nobody kills is at each checkpoint; -1 is the beginning."""
    clock = Clock()
    frontier = opened(tmp_path_factory.mktemp("whole"), clock)
    found = {-1: dump(frontier)}
    for step in calls(frontier, clock):
        if step is not None:
            found[step] = dump(frontier)
    frontier.close()
    return found


def killed(folder: Path, arm: Callable[[Frontier], Callable[[], None]]) -> int:
    """Work in a child that `arm` makes kill itself; the last checkpoint it told of, -1 when none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            clock = Clock()
            frontier = opened(folder, clock)
            between = arm(frontier)
            for step in calls(frontier, clock):
                if step is not None:
                    os.write(writing, bytes([step]))
                between()
        finally:
            os._exit(0)  # never back into pytest
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        steps = told.read()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    return steps[-1] if steps else -1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("call", range(1, 119, 7))
def test_killed_between_calls(call: int, tmp_path: Path, states: dict[int, list[Any]]) -> None:
    def arm(frontier: Frontier) -> Callable[[], None]:
        left = iter(range(call, -1, -1))
        return lambda: None if next(left) else die()

    last = killed(tmp_path, arm)
    frontier = opened(tmp_path, Clock())
    assert dump(frontier) == states[last]
    frontier.close()


@pytest.mark.parametrize("moment", range(10, 12_000, 997))
def test_killed_inside_a_call(moment: int, tmp_path: Path, states: dict[int, list[Any]]) -> None:
    def arm(frontier: Frontier) -> Callable[[], None]:
        left = iter(range(moment, -1, -1))
        frontier._db.set_progress_handler(lambda: None if next(left) else die(), 10)  # instructions of SQLite's machine
        return lambda: None

    last = killed(tmp_path, arm)
    frontier = opened(tmp_path, Clock())
    assert dump(frontier) in (states[last], states.get(last + 5))  # a commit may be done and not yet told
    frontier.close()


def fill(folder: Path, arm: Callable[[Frontier], object]) -> int:
    """Work until the disk is full; the last checkpoint."""
    clock, last = Clock(), -1
    frontier = opened(folder, clock)
    arm(frontier)
    with pytest.raises(DiskError, match=r"frontier.sqlite cannot be written .* Free space"):
        for step in calls(frontier, clock):
            last = last if step is None else step
    with pytest.raises(WenhaiError, match="stopped by an error"):
        frontier.checkpoint({"step": 0})
    frontier.close()
    return last


def goes_on(folder: Path, last: int, states: dict[int, list[Any]]) -> None:
    clock = Clock()
    frontier = opened(folder, clock)
    assert dump(frontier) == states[last]
    for _ in calls(frontier, clock):
        pass
    frontier.checkpoint({})
    frontier.check_books()
    frontier.close()


def test_a_file_that_may_not_grow(tmp_path: Path, states: dict[int, list[Any]]) -> None:
    last = fill(tmp_path, lambda frontier: frontier._db.execute("PRAGMA max_page_count = 60"))
    goes_on(tmp_path, last, states)


def test_a_full_disk_and_space_freed_later(
    make_disk: Callable[[str], Disk],  # noqa: F811
    states: dict[int, list[Any]],
) -> None:
    disk = make_disk("size=480k")
    last = fill(disk.folder, lambda frontier: None)
    assert last > 0
    disk.remount("size=16m")
    goes_on(disk.folder, last, states)


def test_a_disk_that_may_only_be_read(make_disk: Callable[[str], Disk]) -> None:  # noqa: F811
    disk = make_disk("size=4m")
    frontier = opened(disk.folder, Clock())
    frontier.close()
    disk.remount("ro")
    with pytest.raises(DiskError, match="cannot be written"):
        opened(disk.folder, Clock())


def test_bugs_are_not_taken_for_the_disk(tmp_path: Path) -> None:
    frontier = opened(tmp_path, Clock())
    with pytest.raises(sqlite3.IntegrityError):
        frontier.add([link("http://a.cn/", depth=None, seed=True)])
    with pytest.raises(WenhaiError, match="stopped by an error"):
        frontier.add([link("http://a.cn/")])
    frontier.close()
