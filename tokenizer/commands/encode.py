"""`python -m tokenizer encode`: the ids (or pieces) of the text on standard input."""

from __future__ import annotations

import argparse

from corpus.engine.errors import UsageError
from tokenizer.commands.open_shards import read_stdin
from tokenizer.model import Tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("--tokenizer", required=True, help="model file or output folder")
    parser.add_argument("--pieces", action="store_true", help="pieces instead of ids")


def main(options: argparse.Namespace) -> None:
    """Print ids separated by blanks."""
    tokenizer = Tokenizer(options.tokenizer)
    try:
        ids = tokenizer.encode(read_stdin().decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 at byte {error.start}. Convert it first.") from None
    print(" ".join(tokenizer.piece(id) if options.pieces else str(id) for id in ids))
