"""The launcher for one machine: environment of ranks, exit codes, signals passed on; mistakes on the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain import __main__, launch
from pretrain.__main__ import main
from pretrain.errors import LostRank
from pretrain.signals import STOP_SIGNALS


def ranks(code: str, num_ranks: int = 3, nodes: launch.Nodes = launch.ALONE) -> int:
    start = "import os, signal, sys, time; rank = int(os.environ['RANK'])"
    return launch.launch([sys.executable, "-c", f"{start}; {code}"], num_ranks, nodes)


def test_ranks_are_told_who_they_are(tmp_path: Path) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    assert ranks(f"open('{tmp_path}/' + str(rank), 'w').write(' '.join(os.environ[n] for n in {names}))") == 0
    told = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [words[:4] for words in told] == [[str(rank), str(rank), "3", "127.0.0.1"] for rank in range(3)]
    assert len({words[4] for words in told}) == 1


def test_ranks_of_another_machine_count_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    code = (
        f"open('{tmp_path}/' + str(rank), 'w').write(' '.join(os.environ[n] for n in {names}))\n"
        "if rank == 3: os.abort()"
    )
    assert ranks(code, 2, launch.Nodes(2, 1, ("node0", "29500"))) == 1
    assert [(tmp_path / str(2 + rank)).read_text() for rank in (0, 1)] == [
        f"{2 + rank} {rank} 4 2 node0 29500" for rank in (0, 1)
    ]
    assert "rank 3 was killed" in capfd.readouterr().err


@pytest.mark.parametrize(("code", "expected"), [("sys.exit(75)", 75), ("sys.exit(2 if rank == 1 else 0)", 2)])
def test_the_exit_code_is_the_ranks_own(code: str, expected: int) -> None:
    assert ranks(code) == expected


def test_a_killed_rank_ends_the_others(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.5)
    assert ranks("os.kill(os.getpid(), signal.SIGKILL) if rank == 2 else time.sleep(60)") == 1
    said = capfd.readouterr().err
    assert "rank 2 was killed by SIGKILL, as the kernel does when memory runs out." in said
    assert "rank 0 did not end 0.5 s after another; it is killed." in said and "rank 2 did not end" not in said


def test_a_rank_that_aborted_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert ranks("os.abort()", 1) == 1
    assert "rank 0 was killed by SIGABRT, as NCCL's watchdog does" in capfd.readouterr().err


LAUNCHER = r"""
import sys
from pretrain.launch import launch
rank = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); "
    "os.write(1, b'up\\n'); time.sleep(60)"
)
sys.exit(launch([sys.executable, "-c", rank], 2))
"""


def start_launcher(code: str = LAUNCHER) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    return process


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_passed_on(number: signal.Signals) -> None:
    with start_launcher(LAUNCHER.replace("SIGTERM", number.name)) as process:
        process.send_signal(number)
        assert process.wait(250) == 75


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_rank_stopped_while_it_starts_is_resumable(number: signal.Signals) -> None:
    with start_launcher(LAUNCHER.replace("signal.signal(signal.SIGTERM, lambda *_: sys.exit(75));", "")) as process:
        process.send_signal(number)
        assert process.wait(250) == 75


def test_a_rank_that_fails_after_a_signal_has_failed() -> None:
    """As where its last save finds a full disk: 75 would say that it has saved."""
    with start_launcher(LAUNCHER.replace("sys.exit(75)", "sys.exit(1)")) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(250) == 1


def test_a_rank_that_stopped_before_the_others_speaks_for_those_that_lost_it() -> None:
    with start_launcher(
        LAUNCHER.replace("sys.exit(75)", "sys.exit(1 if os.environ['RANK'] == '0' else 75)")
    ) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(250) == 75


def test_ranks_end_when_the_launcher_is_killed() -> None:
    """Otherwise they would hold the folder's lock, and the same command would be refused."""
    with start_launcher() as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""  # ends when the last rank has closed its end of the pipe


def test_a_mistake_is_told_before_anything_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["train", "--config", "demo", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--nproc", "2"]
    assert main([*arguments, "--set", "model.num_head=4"]) == 2
    assert "did you mean num_heads?" in capsys.readouterr().err
    assert main([*arguments, "--nproc", "0"]) == 2
    assert "--nproc 0: it must be 1 or more" in capsys.readouterr().err
    without = ["train", "--config", "demo", "--out", str(tmp_path / "out"), "--nproc", "2"]
    assert main(without) == 2
    assert "give --data FOLDER, or list [[data.corpora]]" in capsys.readouterr().err
    assert main([*arguments, "--set", 'data.corpora=[{path="a"}]']) == 2
    assert "the configuration names the corpora already (a)" in capsys.readouterr().err
    for words, message in [
        (["--nnodes", "2"], "--nnodes needs --master HOST:PORT"),
        (["--nnodes", "2", "--master", "node0"], "--nnodes needs --master HOST:PORT"),
        (["--nnodes", "2", "--master", "node0:1", "--node-rank", "2"], "--node-rank 2: it must be from 0 to 1"),
    ]:
        assert main([*arguments, *words]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_one_rank_speaks_for_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "--config", "nothing", "--data", "a", "--out", "b"]
    monkeypatch.setattr(sys, "argv", ["pretrain", *arguments])
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert __main__._run() == 2
        assert bool(capsys.readouterr().err) is (rank == "0")


def test_each_rank_that_lost_another_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from pretrain.run import train

    def lose(*_: object) -> None:
        raise LostRank("rank 1 waited for rank 2")

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(train, "train", lose)
    arguments = ["train", "--config", "demo", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(arguments) == LostRank.exit_code
    assert "rank 1 waited for rank 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(SystemExit(75), 75, ""), (SystemExit(), 0, ""), (ValueError("a bug"), 1, "ValueError: a bug")],
)
def test_every_end_comes_back(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To `_end`: the interpreter's own way out waits for threads of torch, which may wait for ranks that are gone."""

    def raises() -> int:
        raise error

    monkeypatch.setattr(__main__, "main", raises)
    assert __main__._run() == code
    assert said in capsys.readouterr().err
