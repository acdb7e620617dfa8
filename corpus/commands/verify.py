"""`python -m corpus verify`: every file of OUT against its manifest."""

from __future__ import annotations

import argparse
import sys

from corpus.engine.cli import add_out_arguments, print_json
from corpus.engine.errors import UsageError, WenhaiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_out_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="files read at a time (default: one a core)")


def main(arguments: argparse.Namespace) -> None:
    """Print the problems."""
    from dataclasses import asdict

    from corpus.engine.progress import Progress
    from corpus.report.verify import summary, verify

    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError(f"--workers {arguments.workers}: give 1 or more.")
    problems = verify(arguments.out, arguments.workers, Progress())
    if arguments.json:
        print_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            print(problem)
    if problems:
        raise WenhaiError(f"{arguments.out}: {summary(problems)}; each line above says what to do.")
    print(f"{arguments.out}: every file matches its manifest", file=sys.stderr)
