"""`python -m corpus filter`: between two pipes, or on files and folders."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from corpus.engine import durable
from corpus.engine.cli import add_examples
from corpus.engine.errors import UsageError
from corpus.filters import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m corpus filter`."""
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument("--column", default="text", metavar="NAME", help="the field or column with the text")
    parser.add_argument("--input", nargs="+", metavar="GLOB", help="Parquet or JSONL files (default: JSONL on stdin)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where kept documents go, under the inputs' names")
    parser.add_argument("--dropped", type=Path, metavar="PATH", help="keep what is dropped, with the reason, here")
    parser.add_argument("--statistics", type=Path, metavar="FOLDER", help="every statistic of every document, here")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="batches judged at a time (default: 1)")
    parser.add_argument("--pii-only", action="store_true", help="only mask personal data: no rules, no other edits")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")
    parser.add_argument("--allow-code", action="store_true", help="run the entry points that [[filter.rules]] name")
    add_examples(
        parser,
        """
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
zstdcat in.jsonl.zst | python -m corpus filter --recipe web_zh --dropped dropped.jsonl | zstd > kept.jsonl.zst
python -m corpus filter --recipe web_zh --input 'data/*.parquet' --out kept --column content --dropped dropped
python -m corpus filter --recipe web_zh --pii-only < in.jsonl > masked.jsonl
python -m corpus filter --recipe web_zh --set filter.length.num_chars.min=20 < in.jsonl > kept.jsonl
""",
    )


def main(arguments: argparse.Namespace) -> None:
    """Run `python -m corpus filter`."""
    if bool(arguments.input) != bool(arguments.out):
        raise UsageError("--input and --out belong together; without both, JSONL is read from stdin.")
    if arguments.threads < 1:
        raise UsageError("--threads: at least 1.")
    judge = load(arguments.recipe, arguments.set, allow_code=arguments.allow_code)
    if arguments.pii_only:
        if arguments.statistics:
            raise UsageError("--pii-only measures no statistics; leave --statistics out.")
        judge = judge.personal_only()
    if arguments.input:
        from corpus.filters.adapters.files import Options, filter_files

        folders = {name: getattr(arguments, name) for name in ("out", "dropped", "statistics")}
        if len({path.absolute() for path in folders.values() if path}) < sum(
            path is not None for path in folders.values()
        ):
            raise UsageError("--out, --dropped and --statistics must be different folders.")
        filter_files(arguments.input, Options(judge, column=arguments.column, threads=arguments.threads, **folders))
        return
    if arguments.statistics:
        raise UsageError("--statistics needs --input and --out.")
    from corpus.filters.adapters.stream import run_stream

    target = durable.commit(arguments.dropped) if arguments.dropped else nullcontext()
    with target as path, open(path, "wb") if path else nullcontext() as dropped:
        run_stream(
            sys.stdin.buffer,
            sys.stdout.buffer,
            sys.stderr,
            judge,
            column=arguments.column,
            dropped=dropped,
            threads=arguments.threads,
        )
