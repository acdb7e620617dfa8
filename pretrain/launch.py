"""Ranks as processes: `--nproc` of them on each of `--nnodes` machines; srun and torchrun start them, too.

This is torchrun without an agent: no rendezvous (whose restarts are broken by default), no second import of torch,
signals passed on, and the exit code of the ranks themselves (75 for a run that was stopped and can go on), which an
agent turns into 1. Ranks also get SIGTERM when this process dies, whatever killed it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from corpus.engine.errors import Stopped, UsageError, WenhaiError
from corpus.engine.executor import available_cpus
from pretrain.errors import LostRank
from pretrain.signals import signal_handler

GRACE_SECONDS = 20.0  # for the other ranks, once one has failed
POLL_SECONDS = 0.05
KILLED = 1  # the exit code for a rank that a signal ended; 75 if that was passed on and the rank was still starting
KILLERS: dict[int, str] = {
    signal.SIGKILL: ", as the kernel does when memory runs out",
    signal.SIGABRT: ", as NCCL's watchdog does when another rank is gone or silent",
}
PR_SET_PDEATHSIG = 1  # of prctl


@contextmanager
def report_on_rank_zero() -> Iterator[None]:
    """End other ranks than the first without a word of errors that it tells; of a lost rank each says what it knows."""
    try:
        yield
    except (WenhaiError, KeyboardInterrupt) as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, LostRank):
            raise
        sys.exit(error.exit_code if isinstance(error, WenhaiError) else Stopped.exit_code)


class Nodes(NamedTuple):
    """The machines of a run, of which this is one."""

    number: int = 1
    rank: int = 0  # of this one
    master: tuple[str, str] | None = None  # host and port where the ranks meet

    @classmethod
    def of(cls, args: argparse.Namespace) -> Nodes:
        """As the command line says."""
        if not 0 <= args.node_rank < args.nnodes:
            raise UsageError(f"--node-rank {args.node_rank}: it must be from 0 to {args.nnodes - 1}, below --nnodes")
        host, _, port = (args.master or "").rpartition(":")
        if args.nnodes > 1 and not (host and port.isdecimal()):
            raise UsageError("--nnodes needs --master HOST:PORT, a free port of machine 0, the same on all of them")
        return cls(args.nnodes, args.node_rank, (host, port) if args.nnodes > 1 else None)


ALONE = Nodes()


def this_command() -> list[str]:
    """The command line of this process, for its ranks: they know by `RANK` that they are not to start any."""
    return [sys.executable, "-m", "pretrain", *sys.argv[1:]]


def launch(rank_command: Sequence[str], num_ranks: int, nodes: Nodes = ALONE, *, outputs: Sequence[Path] = ()) -> int:
    """Run a command on `num_ranks` ranks here; returns the exit code of the first that failed, or 0.

    When one fails the others have `GRACE_SECONDS` to end by themselves; then they are killed. `outputs` as in
    `start_ranks`.
    """
    ranks: list[subprocess.Popen[bytes]] = []
    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed_on.append(number)
        for process in ranks:
            process.send_signal(number)

    with signal_handler(pass_on):
        try:
            for process in start_ranks(rank_command, num_ranks, nodes, outputs=outputs):
                ranks.append(process)  # one by one: a signal reaches those that there are
            code = _wait(ranks, nodes.rank * num_ranks, passed_on)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    return code


def start_ranks(
    rank_command: Sequence[str],
    num_ranks: int,
    nodes: Nodes = ALONE,
    *,
    variables: Mapping[str, str] | None = None,
    outputs: Sequence[Path] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the ranks of this machine, one after the other; they end with this process.

    Args:
        variables: of the environment, over what this process has.
        outputs: a file for each rank, which takes what it prints.
    """
    threads = max(1, available_cpus() // num_ranks)
    host, port = nodes.master or ("127.0.0.1", str(_free_port()))
    environment = {
        "OMP_NUM_THREADS": str(threads),
        **os.environ,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(num_ranks * nodes.number),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        **(variables or {}),
    }
    for rank in range(num_ranks):
        numbers = {"RANK": str(nodes.rank * num_ranks + rank), "LOCAL_RANK": str(rank)}
        with open(outputs[rank], "wb") if outputs else nullcontext() as output:
            yield subprocess.Popen(
                rank_command, env=environment | numbers, stdout=output, stderr=output, preexec_fn=_die_with_parent
            )


def _wait(ranks: Sequence[subprocess.Popen[bytes]], first: int, passed_on: Sequence[int]) -> int:
    failed: int | None = None
    deadline = float("inf")
    while time.monotonic() < deadline:
        codes = [process.poll() for process in ranks]
        if failed is None:
            failed = next((rank for rank, code in enumerate(codes) if code), None)
            deadline = float("inf") if failed is None else time.monotonic() + GRACE_SECONDS
        if None not in codes:
            break
        time.sleep(POLL_SECONDS)
    if failed is None:
        return 0
    for rank in (rank for rank, code in enumerate(codes) if code is None):
        print(
            f"pretrain: rank {first + rank} did not end {GRACE_SECONDS:g} s after another; it is killed.",
            file=sys.stderr,
        )
    if passed_on and Stopped.exit_code in codes:  # a rank that had not begun ended at once, and others lost it
        return Stopped.exit_code
    code = ranks[failed].returncode
    if -code in passed_on:
        print("pretrain: stopped. Run the same command again to resume.", file=sys.stderr)
        return Stopped.exit_code
    if code < 0:
        reason = KILLERS.get(-code, "")
        print(f"pretrain: rank {first + failed} was killed by {signal.Signals(-code).name}{reason}.", file=sys.stderr)
    return code if code > 0 else KILLED


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
