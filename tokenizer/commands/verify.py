"""`python -m tokenizer verify`: read every shard and compare every checksum; files that no manifest lists are named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tokenizer.commands.open_shards import DATA_HELP, local
from tokenizer.shards import SPLITS, TokenShard
from tokenizer.shards.manifest import listed_files, listed_shards, tokens_folder
from tokenizer.shards.provenance import verify_docs
from tokenizer.shards.record import MEND, ShardError

VOUCHED_FOR = (".bin", ".idx", ".meta.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("data", help=DATA_HELP)


def main(options: argparse.Namespace) -> None:
    """Print a line a problem.

    Raises:
        ShardError: there is a problem.
    """
    problems = []
    data = local(options.data)
    opened: list[Callable[[], TokenShard]] = [partial(TokenShard, data)]
    if data.is_dir():
        listed = [shard for split in SPLITS for shard in listed_shards(data, split)]
        opened = [partial(TokenShard, prefix, sha256) for prefix, sha256 in listed]
        if not opened:
            raise ShardError(f"{data}: lists no token shards. Give the output folder of `python -m tokenizer run`.")
    for open_shard in opened:
        try:
            shard = open_shard()
            shard.verify()
            verify_docs(shard)
        except WenhaiError as error:
            problems.append(str(error))
    if data.is_dir():
        folder = tokens_folder(data)
        checksums = listed_files(folder)
        names = set(checksums)
        present = {f"data/{path.name}" for path in folder.glob("data/*")}
        present |= {name for name in names if (folder / name).is_file()}
        problems += [f"{folder / name}: listed by the manifest but missing" for name in sorted(names - present)]
        problems += [f"{folder / name}: not listed by the manifest" for name in sorted(present - names)]
        problems += [  # for these of a shard its record vouches
            f"{folder / name}: its checksum is not the manifest's. {MEND}"
            for name in sorted(names & present)
            if not name.endswith(VOUCHED_FOR) and durable.sha256_file(folder / name) != checksums[name]
        ]
    for problem in problems:
        print(problem)
    print(f"{len(opened)} shards read, {len(problems)} problems", file=sys.stderr)
    if problems:
        raise ShardError(f"{data}: {len(problems)} problems; each line above says where and what to do.")
