"""Which documents a training step saw: from its samples to windows, shards, sequences, rows of `P.docs.parquet`.

The order of samples is arithmetic (see `data`), so nothing had to be recorded while training, and no token is read
now: a step of 3,360 samples over a thousand shards costs the row groups that hold its documents' ids and URLs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpus.engine.config import parse
from corpus.engine.durable import read_json
from corpus.engine.errors import UsageError
from pretrain.checkpoint import order_of, read_commit, read_state
from pretrain.config import RunConfig
from pretrain.data import Loader, data_digest
from tokenizer.shards import ShardError, TokenShard, open_split

COLUMNS = ("id", "url", "source")


@dataclass(frozen=True)
class Sighting:
    """A document, or a part of one, in one sample."""

    sample: int  # of the run, from 0
    num_tokens: int  # of the document in this sample
    id: str  # 32 hexadecimal digits
    source: str
    url: str | None
    shard: str
    sequence: int  # of the shard


def trace(shards: Sequence[TokenShard], sequence_length: int, seed: int, first: int, count: int) -> list[Sighting]:
    """The documents in the samples [first, first + count), in the order of the samples and of their tokens.

    A sample is T + 1 tokens: its T inputs and the last target.

    Raises:
        ShardError: a shard's `P.docs.parquet` is missing, damaged or of another shard.
    """
    loader = Loader(shards, sequence_length, seed)
    parts = [
        (first + index, span.shard, sequence, num_tokens)
        for index, window in enumerate(loader.windows(first, count).tolist())
        for span in loader.spans(window)
        for sequence, num_tokens in sequences_between(shards[span.shard], span.start, span.stop)
    ]
    wanted: dict[int, set[int]] = {}
    for _, shard, sequence, _ in parts:
        wanted.setdefault(shard, set()).add(sequence)
    documents = {shard: read_rows(shards[shard], sequences) for shard, sequences in sorted(wanted.items())}
    return [
        Sighting(sample, num_tokens, **documents[shard][sequence], shard=shards[shard].prefix.name, sequence=sequence)
        for sample, shard, sequence, num_tokens in parts
    ]


def sequences_between(shard: TokenShard, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Each sequence with a token in [start, stop), and how many."""
    sequence = shard.sequence_of(start)
    while start < stop:
        end = min(shard.bounds(sequence)[1], stop)
        yield sequence, end - start
        sequence, start = sequence + 1, end


def read_rows(shard: TokenShard, sequences: set[int]) -> dict[int, dict[str, Any]]:
    """Id, URL and source of some sequences of a shard; only row groups that hold one are read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = shard.prefix.with_name(shard.prefix.name + ".docs.parquet")
    rows: dict[int, dict[str, Any]] = {}
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if file.metadata.num_rows != shard.num_sequences:
                raise ShardError(f"{path}: {file.metadata.num_rows} rows for {shard.num_sequences} sequences.")
            first = 0
            for group in range(file.num_row_groups):
                last = first + file.metadata.row_group(group).num_rows
                if here := sorted(sequence for sequence in sequences if first <= sequence < last):
                    table = file.read_row_group(group, columns=list(COLUMNS))
                    found = table.take([sequence - first for sequence in here]).to_pylist()
                    rows |= {
                        sequence: {**row, "id": row["id"].hex()} for sequence, row in zip(here, found, strict=True)
                    }
                first = last
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ShardError(f"{path}: missing or damaged ({type(error).__name__}). Encode its stage again.") from error
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain trace`."""
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="a step-... folder of the run, of this step or later"
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder it trained on")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="a step of the run, from 1")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of tab-separated columns")


def main(args: argparse.Namespace) -> None:
    """Print the documents of a step."""
    read_commit(args.checkpoint)
    saved = read_json(args.checkpoint / "config.json")
    config = parse(RunConfig, saved["config"], f"{args.checkpoint}/config.json")
    shards = open_split(args.data, config.data.train_split)
    if data_digest(shards) != saved["data"]:
        raise UsageError(f"{args.data}: is not what {args.checkpoint} was trained on. Name those shards with --data.")
    if not 1 <= args.step <= config.training.num_steps:
        raise UsageError(f"--step {args.step}: the run has the steps 1 to {config.training.num_steps}.")
    order = order_of(read_state(args.checkpoint), args.step - 1)
    count = order.global_batch_size
    first = order.num_samples + (args.step - 1 - order.step) * count
    found = trace(shards, config.model.sequence_length, order.seed, first, count)
    if not args.json:
        print("sample", "num_tokens", "id", "source", "url", "shard", "sequence", sep="\t")
    for sighting in found:
        values = asdict(sighting)
        print(json.dumps(values, ensure_ascii=False) if args.json else "\t".join(map(printable, values.values())))


def printable(value: Any) -> str:
    """A value as a tab-separated field: what would break the table or steer a terminal is percent-encoded."""
    text = "" if value is None else str(value)
    return "".join(mark if mark.isprintable() else "".join(f"%{b:02X}" for b in mark.encode()) for mark in text)
