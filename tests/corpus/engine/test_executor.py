"""A worker's death, whatever kind, costs its own task at most: no other, not the run, and nobody waits for ever."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import executor
from corpus.engine.errors import TransientError
from corpus.engine.executor import Call, InlineExecutor, Outcome, ProcessExecutor
from tests.corpus.engine.test_run import wait_for

pytestmark = pytest.mark.timeout(600)


class Picky(Exception):
    """Cannot be pickled to another process and back: its constructor wants more than its message."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)


def double(number: int) -> int:
    return 2 * number


def raise_picky() -> None:
    raise Picky("charset", "a picky error")


def return_function() -> Callable[[], None]:
    return lambda: None


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def run(executor: ProcessExecutor | InlineExecutor, *calls: Call) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in executor.run(calls)}


BAD_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], str, str]] = [
    (raise_picky, (), "error", "Picky: a picky error"),
    (sys.exit, (3,), "error", "SystemExit: 3"),
    (return_function, (), "error", "pickle"),
    (os._exit, (0,), "killed", "exited with code 0"),
    (os._exit, (7,), "killed", "exited with code 7"),
    (die, (signal.SIGKILL,), "killed", "SIGKILL (out of memory?"),
    (die, (signal.SIGSEGV,), "killed", "SIGSEGV"),
]


def test_a_bad_call_costs_itself() -> None:
    good = [Call(f"good {number}", double, (number,)) for number in range(4)]
    bad = [Call(f"bad {number}", function, arguments) for number, (function, arguments, *_) in enumerate(BAD_CALLS)]
    with ProcessExecutor(2) as executor:
        outcomes = run(executor, *good[:2], *bad, *good[2:])
    assert [outcomes[call.name].value for call in good] == [0, 2, 4, 6]
    for call, (_, _, kind, words) in zip(bad, BAD_CALLS, strict=True):
        assert outcomes[call.name].kind == kind
        assert words in outcomes[call.name].failure


def test_in_this_process_a_bad_call_costs_itself_too() -> None:
    outcomes = run(InlineExecutor(), Call("a", raise_picky, ()), Call("b", sys.exit, (3,)), Call("c", double, (1,)))
    assert [outcomes[name].kind for name in "abc"] == ["error", "error", "done"]


def test_workers_killed_at_random_never_break_or_hang_the_pool() -> None:
    """Idle ones too: with a queue shared by the workers that broke the whole pool."""
    chance = random.Random(0)

    def calls(executor: ProcessExecutor) -> Iterator[Call]:
        """Before some calls are handed out one of the workers is killed, whatever it is doing."""
        for number in range(40):
            workers = executor._busy + executor._idle
            if workers and chance.random() < 0.15:
                chance.choice(workers)._process.kill()
            yield Call(str(number), double, (number,))

    with ProcessExecutor(2) as executor:
        outcomes = {outcome.name: outcome for outcome in executor.run(calls(executor))}
    assert len(outcomes) == 40
    assert {outcome.kind for outcome in outcomes.values()} <= {"done", "killed"}
    assert all(outcome.value == 2 * int(name) for name, outcome in outcomes.items() if outcome.kind == "done")


def test_no_worker_outlives_a_killed_run(tmp_path: Path) -> None:
    code = """
        import os, sys, time
        from pathlib import Path
        from corpus.engine.executor import Call, ProcessExecutor

        def hang(path):
            Path(path).write_text(str(os.getpid()))
            time.sleep(600)

        if __name__ == "__main__":
            with ProcessExecutor(1) as executor:
                list(executor.run([Call("hang", hang, (sys.argv[1],))]))
    """
    script, number = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(textwrap.dedent(code))
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen([sys.executable, str(script), str(number)], env=environment)
    wait_for(lambda: number.exists() and bool(number.read_text()))
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_running(int(number.read_text())))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_folder_too_long_for_sockets_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    program = (
        "from corpus.engine.executor import *\nwith ProcessExecutor(1) as pool: list(pool.run([Call('a', len, ([],))]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True
    )
    assert "Set TMPDIR to a shorter one" in ended.stderr


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/job/step", {"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/unseen/outside", {"cpu.max": "50000 100000"}, 1),
        (
            "4:cpu,cpuacct:/docker/1\n2:memory:/x",
            {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("0::/", {"cpu.max": "what"}, 8),
        ("0::/", {"cpu.max": "9900000 100000"}, 8),
    ],
)
def test_cpus_are_those_of_affinity_and_of_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, files: dict[str, str], cpus: int
) -> None:
    (tmp_path / "self").write_text(membership + "\n")
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(executor, "MEMBERSHIP", tmp_path / "self")
    monkeypatch.setattr(executor, "CGROUPS", tmp_path / "mount")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    assert executor.available_cpus() == cpus


def refused(log: str, times: int) -> int:
    """A store refuses so many tries of all processes; returns this process."""
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")
    if len(Path(log).read_text().split()) <= times:
        raise TransientError("memory://x: put failed 9 times. Run the same command again.")
    return os.getpid()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("times", "kind"), [(0, "done"), (1, "done"), (2, "done"), (3, "transient")])
def test_what_a_store_refused_is_tried_again_behind_the_others(
    tmp_path: Path, workers: int, times: int, kind: str
) -> None:
    log = tmp_path / "log"
    calls = [Call("refused", refused, (str(log), times)), Call("other", os.getpid, ())]
    with ExitStack() as stack:
        executor = stack.enter_context(ProcessExecutor(workers)) if workers else InlineExecutor()
        outcomes = list(executor.run(calls))
    assert [outcome.name for outcome in outcomes] == (["other", "refused"] if times else ["refused", "other"])
    assert {outcome.name: outcome.kind for outcome in outcomes} == {"other": "done", "refused": kind}
    tried = log.read_text().split()
    assert len(tried) == min(times + 1, 3)
    if workers and len(tried) == 3:
        assert tried[0] == tried[1] != tried[2]  # the third time by another worker
    if kind == "transient":
        assert "put failed 9 times" in next(outcome.failure for outcome in outcomes if outcome.kind == kind)
