"""What a terminal shows: a live line that fits any width, folded reports above it, and plain lines where there is
none."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from pretrain.console import Console, Progress, fold_fields, log_message

FIELDS = [
    "step  340/1200",
    "loss 5.1234",
    "7.391 bits/char",
    "norm 0.42",
    "lr 2.71e-03",
    "6,912 tokens/s",
    "0.61 GiB",
    "fwd 31%",
    "bwd 69%",
]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def drawn(progress: Progress, width: int) -> str:
    console = RichConsole(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(progress)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_live_line_says_how_far_a_run_is(clock: list[float]) -> None:
    progress = Progress(1200)
    assert progress.fields() == ["before the first step", "0:00:00"]
    clock[0] += 50  # the first step has much to set up, and is no measure of the others
    progress.advance(1, 9.0)
    assert progress.seconds_left() is None
    clock[0] += 339
    progress.advance(340, 5.1234)
    progress.tokens_per_second, progress.mfu = 6912.3, 0.4567
    assert progress.seconds_left() == 860
    clock[0] += 10
    assert progress.fields() == [
        " 28%",
        "step 340/1200",
        "loss 5.123",
        "6,912 tok/s",
        "mfu 45.7%",
        "0:06:39",
        "eta 0:14:10",
    ]
    clock[0] += 10_000  # a step that hangs
    assert progress.seconds_left() == 0


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 200])
def test_it_is_one_line_of_any_width(width: int, clock: list[float]) -> None:
    progress = Progress(1200)
    progress.advance(340, 5.1234)
    line = drawn(progress, width)
    assert line.count("\n") == 1 and len(line) <= width + 1
    assert line.startswith(" 28%  step 340/1200"[:width])
    assert ("eta ?" in line) == (width >= 80)
    assert ("━" in line) == (width >= 80)


@given(st.lists(st.text("abc", min_size=1, max_size=15), max_size=12), st.integers(10, 120))
def test_folded_lines_hold_every_field(fields: list[str], width: int) -> None:
    lines = fold_fields(fields, width)
    assert [word for line in lines for word in line.split()] == fields
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_without_a_terminal_a_report_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(1200)
    console.report(FIELDS)
    console.show(1, 5.0)
    console.close()
    assert capsys.readouterr().err == "  ".join(FIELDS) + "\n"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, width: int, **environment: str) -> Iterator[list[str]]:
    """Makes stderr a terminal; afterwards the list holds what came to it."""
    main, side = pty.openpty()
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": str(width), "LINES": "25", "TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    seen: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(main, 65_536):
                seen.append(chunk)
        except OSError:  # the other end is closed
            pass

    reader = Thread(target=read)
    reader.start()
    found: list[str] = []
    with os.fdopen(side, "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", file)
        yield found
    reader.join()
    os.close(main)
    found.append(b"".join(seen).decode().replace("\r\n", "\n"))


def test_on_a_terminal_reports_are_folded_above_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 80) as seen:
        console = Console(1200)
        console.show(340, 5.1234)
        console.report(FIELDS)
        console.show(341, 5.0)
        log_message("saved somewhere [with brackets], 1.5 s")
        console.close()
        log_message("the end")
    lines = [CONTROL.sub("", line).split("\r")[-1].rstrip() for line in seen[0].split("\n")]
    assert all(len(line) <= 80 for line in lines)
    reported = [line for line in lines if line and "%  step" not in line and "before the first" not in line]
    assert reported == [
        "step  340/1200  loss 5.1234  7.391 bits/char  norm 0.42  lr 2.71e-03",
        "  6,912 tokens/s  0.61 GiB  fwd 31%  bwd 69%",
        "saved somewhere [with brackets], 1.5 s",
        "the end",
    ]
    assert "28%  step 341/1200  loss 5.000" in seen[0]
    assert "\x1b[38" in seen[0]  # the bar has a color


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 80, TERM="dumb") as seen:
        console = Console(1200)
        console.report(FIELDS)
        console.close()
    assert seen == ["  ".join(FIELDS) + "\n"]
