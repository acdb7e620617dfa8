"""FAULTS row 16: a page that crashes, hangs or fills memory inside C code costs itself only, and is recorded."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpus import sandbox as sandbox_module
from corpus.engine.errors import WenhaiError
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Output, Task
from corpus.extract import ExtractConfig
from corpus.sandbox import Death, Limits, Sandbox
from corpus.sources import SourcesConfig, pages
from corpus.sources.packing import find_sources
from corpus.sources.stage import ExtractStage
from tests.corpus.sources.files import warc_record
from tests.corpus.texts import document

ACT = "tests.faults.evil:act"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a child waits long for its first second: only what it works itself is counted here."""
    monkeypatch.setattr("corpus.sandbox.WAIT_RATIO", 1000)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(ACT, Limits(seconds=0.8, megabytes=256))) as box:
        yield box


def children() -> list[int]:
    """Processes whose parent we are, dead ones that nobody waited for included."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def open_files() -> set[tuple[str, str]]:
    """Numbers of open files and what stands behind them."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the folder
            found.add((link.name, os.readlink(link)))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_each_death_is_recorded_and_costs_its_neighbours_nothing(sandbox: Sandbox) -> None:
    items = [b"ab", b"crash", b"cd", b"spin", b"ef", b"eat", b"exit", b"gh"]
    assert sandbox.map(items) == [
        b"ba",
        Death("signal SIGSEGV"),
        b"dc",
        Death("time"),
        b"fe",
        Death("memory"),
        Death("exit 5"),
        b"hg",
    ]
    assert sandbox.map([b"ij"]) == [b"ji"]


def test_a_child_that_only_waits_is_given_up_too(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sandbox.map([b"ab"]) == [b"ba"]
    with monkeypatch.context() as patched:
        patched.setattr("corpus.sandbox.WAIT_RATIO", 1)
        assert sandbox.map([b"sleep"]) == [Death("time")]
    assert sandbox.map([b"cd"]) == [b"dc"]


def test_large_results_do_not_block_the_pipes(sandbox: Sandbox) -> None:
    items = [bytes([number]) * 900_000 for number in range(65, 75)]
    assert sandbox.map(items) == items


def test_memory_left_by_earlier_items_condemns_no_later_one(sandbox: Sandbox) -> None:
    assert sandbox.map([b"hoard"] * 5) == [b"draoh"] * 5


def test_hostile_pages_in_a_row_cost_themselves(sandbox: Sandbox) -> None:
    hostile = [b"crash", b"eat", b"crash", b"spin", b"eat"]
    found = sandbox.map([*hostile, b"ab"])
    assert found[-1] == b"ba" and all(isinstance(death, Death) for death in found[:-1])


def test_a_machine_that_kills_three_in_a_row_fails_the_shard(sandbox: Sandbox) -> None:
    assert sandbox.map([b"exit", b"ab", b"exit", b"crash", b"exit", b"cd"])[-1] == b"dc"
    assert sandbox.map([b"ab", b"exit"]) == [b"ba", Death("exit 5")]
    with pytest.raises(WenhaiError, match="3 pages in a row"):
        sandbox.map([b"exit", b"crash", b"exit", b"ab"])


def test_an_exception_is_a_bug_and_says_so(sandbox: Sandbox) -> None:
    with pytest.raises(RuntimeError, match="ValueError: as asked"):
        sandbox.map([b"ab", b"raise"])


def test_a_child_that_was_killed_while_idle_is_replaced(sandbox: Sandbox) -> None:
    before = set(children())
    assert sandbox.map([b"ab"]) == [b"ba"]
    (child,) = set(children()) - before
    os.kill(child, signal.SIGKILL)
    assert sandbox.map([b"cd"]) == [b"dc"]


def test_a_process_that_cannot_be_started_says_so_and_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "")  # what a limit of processes (RLIMIT_NPROC) gives

    monkeypatch.setattr(subprocess, "Popen", refused)
    gc.collect()  # what earlier tests left open must not go meanwhile
    before = open_files()
    with closing(Sandbox(ACT, Limits(0.6, 256))) as box, pytest.raises(WenhaiError, match="fewer workers"):
        box.map([b"ab"])
    gc.collect()
    assert open_files() <= before


def test_no_process_is_left_behind() -> None:
    before = len(children())
    with closing(Sandbox(ACT, Limits(0.6, 256))) as box:
        box.map([b"ab", b"crash", b"cd"])
        assert len(children()) == before + 1
    assert len(children()) == before


def test_the_child_dies_with_its_parent() -> None:
    code = (
        "import os; from corpus.sandbox import *; box = Sandbox('tests.faults.evil:act', Limits(50.0, 256)); "
        "box.map([b'ab']); print(box._child._process.pid, flush=True); box.map([b'sleep'])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 100
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.long), pytest.param(0, marks=pytest.mark.slow)])
def test_pages_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    body = "<html><title>标题</title><body><p>%s</p></body></html>"
    evil = {3: "<!-- crash -->", 5: "<!-- spin -->", 6: "<!-- eat -->"}
    parts = [warc_record(n, (evil.get(n, "") + body % document(n)).encode(), mime="text/html") for n in range(9)]
    (tmp_path / "a.warc").write_bytes(b"".join(parts))
    monkeypatch.setattr(pages, "CHILD", "tests.faults.evil_pages:extract_payload")
    stage = EvilExtract(
        find_sources([SourcesConfig(max_error_ratio=1.0)], [str(tmp_path / "a.warc")]),
        extraction=ExtractConfig(max_page_seconds=3.0, max_page_mb=512),
    )
    folder = run_stages([stage], str(tmp_path / "out"), workers=workers)["extract"]
    rows = [row for file in folder.files() for row in pq.read_table(file.url).to_pylist()]
    fates = [row for file in folder.files("fates") for row in pq.read_table(file.url).to_pylist()]
    assert [row["text"] for row in rows] == [document(n).replace("\n", " ") for n in range(9) if n not in evil]
    assert [fate["detail"] for fate in fates] == ["signal SIGSEGV", "time", "memory"]
    assert folder.counts.errors == {"killed": 3} == dict(Counter(fate["rule"].removeprefix("error:") for fate in fates))


class EvilExtract(ExtractStage):
    """The stage in a worker, which a test cannot reach into."""

    def run(self, task: Task, out: Output) -> Counts:
        pages.CHILD = "tests.faults.evil_pages:extract_payload"
        sandbox_module.WAIT_RATIO = 1000
        return super().run(task, out)
