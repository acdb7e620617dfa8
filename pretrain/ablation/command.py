"""`python -m pretrain ablate`: the same small model on several builds of a corpus, compared over seeds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from corpus.engine.errors import UsageError
from pretrain.ablation.plan import new_plan
from pretrain.batch_size import parse_tokens
from pretrain.config import named_configs

MAX_TOKENS = 50_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    names = ", ".join(named_configs())
    parser.add_argument(
        "--arm",
        action="append",
        required=True,
        metavar="NAME=FOLDER",
        help="a build of the corpus; twice or more, all encoded with one tokenizer; others are compared to the first",
    )
    parser.add_argument("--config", default="demo", help=f"a TOML file, or one of: {names} (default: demo)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--tokens", metavar="N", help="that each run takes: 600k, 20M (default: the configuration's steps)"
    )
    length.add_argument("--steps", type=int, metavar="N", help="of each run")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each arm (default 3)")
    parser.add_argument("--out", type=Path, required=True, help="the folder of runs, results.json and report.html")
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="processes of each run (default 1)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the configuration")
    parser.add_argument("--points", type=int, default=5, metavar="N", help="of a learning curve (default 5)")
    asked = parser.add_argument_group("what the models are compared on, beside the held-out text of every arm")
    asked.add_argument("--text", nargs="+", default=[], metavar="FILE", help="JSONL with a text in each line, or .txt")
    asked.add_argument("--by", metavar="FIELD", help="of a line that names its source (default: the file)")
    asked.add_argument(
        "--max-tokens", type=int, default=MAX_TOKENS, metavar="N", help=f"of each of these (default {MAX_TOKENS:,})"
    )
    asked.add_argument("--tasks", type=Path, metavar="FOLDER", help="ask tasks, too: the folder with a folder for each")
    asked.add_argument("--task", nargs="+", metavar="NAME", help="which tasks (default: all nine)")
    asked.add_argument("--limit", type=int, metavar="N", help="a sample of N items of each task")
    asked.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="that models are asked on")
    parser.add_argument("--json", action="store_true", help="the results as one JSON object instead of tables")


def main(args: argparse.Namespace) -> None:
    """Train, measure, compare; print the tables.

    Raises:
        WenhaiError: see `pretrain.ablation.experiment.experiment`.
    """
    if args.nproc < 1 or args.max_tokens < 1 or (args.limit is not None and args.limit < 1):
        raise UsageError("--nproc, --max-tokens and --limit must be 1 or more")
    if args.tasks is None and (args.task or args.limit):
        raise UsageError("--task and --limit say which tasks are asked: name their folder with --tasks FOLDER")
    plan = new_plan(
        args.arm,
        args.config,
        args.set,
        num_seeds=args.seeds,
        num_steps=args.steps,
        least_tokens=None if args.tokens is None else parse_tokens(args.tokens),
        points=args.points,
    )
    from pretrain.ablation.experiment import experiment
    from pretrain.ablation.measuring import Questions, tasks_of
    from pretrain.ablation.results import tables, to_json
    from pretrain.tasks.definition import NINE

    tasks = None if args.tasks is None else tasks_of(args.tasks, tuple(args.task or NINE), args.limit)
    asked = Questions((), args.max_tokens, tasks, args.device, tuple(args.text), args.by)
    results = experiment(plan, args.out, asked, args.nproc)
    print(json.dumps(to_json(results), ensure_ascii=False) if args.json else tables(results), end="")
