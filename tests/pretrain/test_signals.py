"""Signals that stop a run: at once before it trains, also while it is in C code; from then on a question, once and for
all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pretrain.signals import STOP_SIGNALS, stop_on_signal

BLOCKED_IN_C = r"""
import ctypes, os
from pretrain.signals import exit_on_signal, stop_on_signal

with exit_on_signal():
    with stop_on_signal() as stop_requested:
        for _ in range(2):
            os.kill(os.getpid(), {number})
        assert stop_requested()
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    os.write(1, b"up\n")
    libc.pthread_mutex_lock(mutex)  # which no signal interrupts
"""


@pytest.mark.parametrize(("number", "rank"), [*((number, "0") for number in STOP_SIGNALS), (signal.SIGTERM, "1")])
def test_before_the_first_step_a_signal_ends_the_process_at_once(number: signal.Signals, rank: str) -> None:
    command = [sys.executable, "-c", BLOCKED_IN_C.replace("{number}", str(int(number)))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"RANK": rank}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=250)
    assert process.returncode == 75
    assert said == ("pretrain: stopped before the first step. Run the same command again.\n" if rank == "0" else "")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_noted_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signal() as stop_requested:
        assert not stop_requested()
        for _ in range(2):
            os.kill(os.getpid(), number)
        assert stop_requested()
    assert signal.getsignal(number) is before
