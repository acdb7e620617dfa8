"""`python -m tokenizer head`: the first documents of the first shard as text, with their token counts."""

from __future__ import annotations

import argparse
import sys

from corpus.engine.errors import UsageError
from tokenizer.commands.open_shards import DATA_HELP, open_shards, tokenizer_of
from tokenizer.shards.record import ShardError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument("-n", type=int, default=3, help="documents (default 3)")
    parser.add_argument("--tokenizer", help="model file; default the one of the build")


def main(options: argparse.Namespace) -> None:
    """Print texts on standard output, counts on standard error."""
    if options.n < 0:
        raise UsageError(f"-n {options.n}: give 0 or more.")
    shard = next(open_shards(options.data), None)
    if shard is None:
        raise ShardError(f"{options.data}: holds no shard.")
    tokenizer = tokenizer_of(shard, options.data, options.tokenizer)
    for index in range(min(options.n, shard.num_sequences)):
        ids = shard.sequence(index)
        print(f"sequence {index}: {len(ids):,} tokens", file=sys.stderr)
        print(tokenizer.decode(ids))
