"""`python -m corpus ledger`: the ends of a build's documents, asked with DuckDB."""

from __future__ import annotations

import argparse

from corpus.report.queries import COLUMNS

FORMATS = ("table", "csv", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("out", metavar="OUT", help="the output folder of a run")
    parser.add_argument("--where", metavar="SQL", help="a condition over the columns below, as DuckDB has it")
    parser.add_argument("--group", type=_names, default=(), metavar="A,B", help="count the documents by these columns")
    parser.add_argument(
        "--columns", type=_names, default=(), metavar="A,B", help="of the rows, where nothing is grouped"
    )
    add_answer_arguments(parser, "rows (default: all, in a table 40)")
    width = max(map(len, COLUMNS))
    columns = "\n".join(f"  {name:<{width}}  {meaning}" for name, meaning in COLUMNS.items())
    parser.epilog = f"{parser.epilog}\n\ncolumns:\n{columns}"


def add_answer_arguments(parser: argparse.ArgumentParser, limited: str) -> None:
    """Where an answer goes: `--format`, `--output`, `--limit`."""
    parser.add_argument("--format", choices=FORMATS, default="table", help="csv and parquet: nothing masked or cut")
    parser.add_argument("--output", metavar="FILE", help="a path or URL, for csv and parquet")
    parser.add_argument("--limit", type=int, metavar="N", help=f"at most N {limited}")


def main(arguments: argparse.Namespace) -> None:
    """Print or write the answer."""
    from corpus.report.queries.ask import ask
    from corpus.report.queries.output import Target

    target = Target(arguments.format, arguments.output, arguments.limit)
    ask(arguments.out, arguments.where, arguments.group, arguments.columns, target)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
