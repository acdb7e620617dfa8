"""`python -m pretrain tasks`: what a checkpoint knows, asked as ZeroCLUE and FewCLUE ask."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.inference.loading import LoadedCheckpoint, add_model_arguments, in_ranks, load_checkpoint
from pretrain.tasks.calibration import CALIBRATIONS, NORMALISATIONS
from pretrain.tasks.definition import NINE, Task, load_tasks
from pretrain.tasks.results import Results, compare_tasks, read_results, write_results
from pretrain.tasks.table import lines, published_baselines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain tasks`."""
    add_model_arguments(parser)
    parser.add_argument("--data", type=Path, required=True, help="the folder with a folder for each task")
    parser.add_argument(
        "--out", type=Path, help="where scores and results are kept; the same command goes on where it was cut off"
    )
    parser.add_argument(
        "--task", nargs="+", default=list(NINE), metavar="NAME|FILE.toml", help=f"default: {' '.join(NINE)}"
    )
    parser.add_argument("--split", metavar="NAME", help="which items (default: the task's, test_public)")
    parser.add_argument("--limit", type=int, metavar="N", help="a sample of N items, drawn by --seed")
    asking = parser.add_argument_group("how it is asked")
    asking.add_argument(
        "--method", metavar="NAME", help="label, loss, or another prompt of the task (default: the task's)"
    )
    asking.add_argument("--shots", type=int, default=0, metavar="K", help="examples before each item (default 0)")
    asking.add_argument("--seed", type=int, default=0, help="of the examples and the sample (default 0)")
    asking.add_argument("--expand", action="store_true", help="ask all words of a class, and average")
    asking.add_argument(
        "--calibrate", choices=CALIBRATIONS, default="none", help="by what it answers to empty texts (default: none)"
    )
    asking.add_argument(
        "--normalise", choices=NORMALISATIONS, default="sum", help="log-likelihoods: whole, or per token or character"
    )
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--compare", type=Path, metavar="OUT", help="another evaluation of the same items")
    shown.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    shown.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with drawings, too")


def main(args: argparse.Namespace) -> None:
    """Ask, and print the table."""
    for option, least in (("shots", 0), ("limit", 1)):
        value = getattr(args, option)
        if value is not None and value < least:
            raise UsageError(f"--{option} {value}: it must be {least} or more")
    tasks = load_tasks(args.task)
    for task in tasks:
        task.prompt_named(args.method)
    other = read_results(args.compare) if args.compare is not None else None
    in_ranks(args)
    with load_checkpoint(args) as model:
        results = _evaluated(args, tasks, model)
        with model.propagate_errors():
            if model.is_first:
                _tell(args, results, other)


def _evaluated(args: argparse.Namespace, tasks: list[Task], model: LoadedCheckpoint) -> Results:
    from pretrain.checkpoint import read_commit
    from pretrain.tasks.run import Options, run_tasks

    of = {"checkpoint": read_commit(model.checkpoint).digest, "tokenizer": model.tokenizer.sha256}
    options = Options(
        prompt=args.method,
        shots=args.shots,
        seed=args.seed,
        expand=args.expand,
        split=args.split,
        limit=args.limit,
        calibration=args.calibrate,
        normalisation=args.normalise,
    )
    found = run_tasks(model, tasks, args.data, options, args.out, of, is_shown=True)
    how = {**options.of_scores, "calibration": options.calibration, "normalisation": options.normalisation}
    return Results(of=of, options=how, tasks=found)


def _tell(args: argparse.Namespace, results: Results, other: Results | None) -> None:
    if args.out is not None:
        write_results(args.out, results)
    differences = None if other is None else compare_tasks(results.tasks, other.tasks)
    if args.report is not None:
        from pretrain.tasks.page import render

        durable.write_bytes(args.report, render(results, published_baselines(), differences).encode())
    if args.json:
        values = results.summary()
        if differences is not None:
            values["differences"] = {name: each._asdict() for name, each in differences.items()}
        print(json.dumps(values, ensure_ascii=False))
        return
    for line in lines(results, published_baselines(), differences):
        print(line)
