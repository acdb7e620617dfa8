"""`python -m tokenizer inspect`: what the shards of each split hold together, and with `--shards` each of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from tokenizer.commands.open_shards import DATA_HELP, open_shards
from tokenizer.shards import SPLITS
from tokenizer.shards.record import ShardMeta


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument("--shards", action="store_true", help="also a line a shard")
    parser.add_argument("--json", action="store_true", help="one JSON object, its shards among it")


def main(options: argparse.Namespace) -> None:
    """Print totals by split and the tokenizer, from the records of the shards."""
    shards = list(open_shards(options.data))
    metas = [shard.meta for shard in shards]
    splits = {split: totals([meta for meta in metas if meta.split == split]) for split in SPLITS}
    rows = [{"prefix": str(shard.prefix), "split": shard.meta.split, **totals([shard.meta])} for shard in shards]
    tokenizers = [
        {"sha256": meta.tokenizer_sha256, "vocab_size": meta.vocab_size, "eod": meta.eod, "dtype": meta.dtype}
        for meta in {shard.identity: shard.meta for shard in shards}.values()
    ]
    if options.json:
        print(json.dumps({"splits": splits, "tokenizers": tokenizers, "shards": rows}, ensure_ascii=False))
        return
    if options.shards:
        for row in rows:
            print(f"{row['prefix']}: {in_words(row)}")
    for split, values in splits.items():
        print(f"{split:<10} {values['shards']:,} shards, {in_words(values)}")
    for tokenizer in tokenizers:
        words = "{vocab_size:,} pieces, end of document {eod}, {dtype}, SHA-256 {sha256}"
        print(f"tokenizer  {words.format_map(tokenizer)}")


def totals(metas: Sequence[ShardMeta]) -> dict[str, Any]:
    """The sums of some records; each copy of a mixture is a document, and `bytes` is of tokens and index."""
    num_tokens = sum(meta.num_tokens for meta in metas)
    num_characters = sum(meta.num_characters for meta in metas)
    return {
        "shards": len(metas),
        "documents": sum(meta.num_documents for meta in metas),
        "tokens": num_tokens,
        "characters": num_characters,
        "characters_per_token": round(num_characters / num_tokens, 4) if num_tokens else None,
        "bytes": sum(meta.bin_bytes + meta.idx_bytes for meta in metas),
        "max_id": max((meta.max_id for meta in metas), default=-1),
    }


def in_words(values: dict[str, Any]) -> str:
    """Totals as part of a line."""
    rate = "" if values["characters_per_token"] is None else f" ({values['characters_per_token']} a token)"
    words = "{documents:,} documents, {tokens:,} tokens, {characters:,} characters{rate}, {bytes:,} bytes"
    return words.format(**values, rate=rate)
