"""`python -m pretrain train`: one process, or a launcher that starts `--nproc` of them, each with this command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, corpus_folders, load_config, named_configs
from pretrain.console import log_message
from pretrain.launch import Nodes, launch, report_on_rank_zero, this_command
from pretrain.signals import exit_on_signal


class Planner(NamedTuple):
    """What a run asks of the planner, which stands above it: `pretrain.__main__` brings both."""

    lay_out: Callable[[RunConfig, int, Callable[[str], None]], RunConfig]  # for a number of ranks; tells what it chose
    dry_run: Callable[[RunConfig, argparse.Namespace], None]  # prints what a run would be


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain train`."""
    names = ", ".join(named_configs())
    parser.add_argument("--config", required=True, help=f"a TOML file, or one of: {names}")
    parser.add_argument(
        "--data",
        help="the output folder (or its URL) that holds the token shards, where the configuration names no corpora",
    )
    parser.add_argument("--out", type=Path, help="the run's folder; a run in it is resumed")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer, if it is not in --data")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="processes to start here (default 1)")
    parser.add_argument("--nnodes", type=int, default=1, metavar="N", help="machines, each started by hand (default 1)")
    parser.add_argument("--node-rank", type=int, default=0, metavar="R", help="this machine's number, from 0")
    parser.add_argument("--master", metavar="HOST:PORT", help="where the ranks meet: a port of machine 0")
    dry = parser.add_argument_group("a dry run: what a run would be; it needs no GPU, no --data and no --out")
    dry.add_argument("--dry-run", action="store_true", help="print layout, memory, arithmetic and time, and end")
    dry.add_argument("--world-size", type=int, metavar="N", help="ranks of the run (default: --nproc x --nnodes)")
    dry.add_argument("--device", metavar="NAME", help="the GPU that times are told for, as in H100")
    dry.add_argument("--json", action="store_true", help="print all of it as a JSON object")


def main(args: argparse.Namespace, planner: Planner) -> None:
    """Train in this process, or in `--nproc` new ones.

    Raises:
        SystemExit: with the code of the ranks it started, or of an error that rank 0 tells for all.
        LostRank: what each rank says for itself.
    """
    with report_on_rank_zero(), exit_on_signal():
        _main(args, planner)


def _main(args: argparse.Namespace, planner: Planner) -> None:
    if args.nproc < 1:
        raise UsageError(f"--nproc {args.nproc}: it must be 1 or more")
    config = load_config(args.config, args.set)  # a mistake in it is told before anything starts
    if args.dry_run:
        planner.dry_run(config, args)
        return
    if args.out is None:
        raise UsageError("--out FOLDER: name the run's folder")
    corpus_folders(config.data, args.data)
    nodes = Nodes.of(args)
    if args.nproc * nodes.number > 1 and "RANK" not in os.environ:
        sys.exit(launch(this_command(), args.nproc, nodes))
    from pretrain.run.train import train

    train(laid_out(config, planner), args.data, args.out, args.tokenizer)


def laid_out(config: RunConfig, planner: Planner) -> RunConfig:
    """In the layout that the planner chooses for the ranks of this run, where the configuration leaves it to that."""
    if not config.parallel.auto:
        return config
    is_first = os.environ.get("RANK", "0") == "0"
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    return planner.lay_out(config, num_ranks, lambda line: log_message(line) if is_first else None)
