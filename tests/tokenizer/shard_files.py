"""Token shards for tests, written document by document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizer.shards.writer import create_shard

EOD = 1


def write(
    prefix: Path, documents: Sequence[Any], vocab_size: int = 1000, split: str = "train", sha256: str = "5e" * 32
) -> Path:
    with create_shard(
        prefix, split=split, vocab_size=vocab_size, eod=EOD, tokenizer_sha256=sha256, recipe="r"
    ) as writer:
        for number, ids in enumerate(documents):
            writer.add(ids, f"doc{number}", num_characters=len(ids))
    return prefix
