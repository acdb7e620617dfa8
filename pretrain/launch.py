"""`python -m pretrain train`: one process, or `--nproc` of them on this machine; across machines torchrun starts it.

For one machine this is torchrun without an agent: no rendezvous (whose restarts are broken on gloo by
default), no second import of torch, signals passed on, and the exit code of the ranks themselves (75 for a
run that was stopped and can go on). Ranks also get SIGTERM when this process dies, whatever killed it.
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
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain.config import corpus_folders, load_config, named_configs
from pretrain.errors import LostRank

GRACE_SECONDS = 20.0  # for the other ranks, once one has failed
POLL_SECONDS = 0.05
KILLED = 1  # the exit code for a rank that a signal ended; 75 if it was ours and the rank was still starting
PR_SET_PDEATHSIG = 1  # of prctl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain train`."""
    names = ", ".join(named_configs())
    parser.add_argument("--config", required=True, help=f"a TOML file, or one of: {names}")
    parser.add_argument(
        "--data",
        type=Path,
        help="the output folder that holds the token shards, where the configuration names no corpora",
    )
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; a run in it is resumed")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer, if it is not in --data")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="processes to start here (default 1)")


def main(args: argparse.Namespace) -> None:
    """Train in this process, or in `--nproc` new ones.

    Raises:
        SystemExit: with the code of the ranks it started, or of an error that rank 0 tells for all.
        LostRank: what each rank says for itself.
    """
    try:
        if args.nproc < 1:
            raise UsageError(f"--nproc {args.nproc}: it must be 1 or more")
        config = load_config(args.config, args.set)  # a mistake in it is told before anything starts
        corpus_folders(config.data, args.data)
        if args.nproc > 1 and "RANK" not in os.environ:
            sys.exit(launch(command(args), args.nproc))
        from pretrain.train import train

        train(config, args.data, args.out, args.tokenizer)
    except (WenhaiError, KeyboardInterrupt) as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, LostRank):
            raise
        sys.exit(error.exit_code if isinstance(error, WenhaiError) else Stopped.exit_code)


def command(args: argparse.Namespace) -> list[str]:
    """The command line of one rank."""
    tokenizer = ["--tokenizer", str(args.tokenizer)] if args.tokenizer else []
    overrides = [word for value in args.set for word in ("--set", value)]
    data = ["--data", str(args.data)] if args.data else []
    folders = [*data, "--out", str(args.out)]
    return [sys.executable, "-m", "pretrain", "train", "--config", args.config, *folders, *tokenizer, *overrides]


def launch(rank_command: Sequence[str], num_ranks: int) -> int:
    """Run a command on `num_ranks` ranks; returns the exit code of the first that failed, or 0.

    When one fails the others have `GRACE_SECONDS` to end by themselves; then they are killed.
    """
    threads = max(1, (os.cpu_count() or 1) // num_ranks)
    environment = {
        "OMP_NUM_THREADS": str(threads),
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
    }
    ranks: list[subprocess.Popen[bytes]] = []
    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed_on.append(number)
        for process in ranks:
            process.send_signal(number)

    handlers = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        for name in handlers:
            signal.signal(name, pass_on)
        for rank in range(num_ranks):
            numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen(rank_command, env=environment | numbers, preexec_fn=_die_with_parent))
        code = _wait(ranks)
        if passed_on and code == KILLED:
            print("pretrain: stopped. Run the same command again to resume.", file=sys.stderr)
            return Stopped.exit_code
        return code
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        for name, handler in handlers.items():
            signal.signal(name, handler)


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
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
    code = ranks[failed].returncode
    if code < 0:
        memory = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
        print(f"pretrain: rank {failed} was killed by {signal.Signals(-code).name}{memory}.", file=sys.stderr)
    return code if code > 0 else KILLED


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
