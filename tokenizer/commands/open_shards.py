"""What a verb is given to read: the shards of an output folder or a tokens stage, one shard by its prefix, or standard
input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from corpus.engine import storage
from corpus.engine.errors import UsageError
from tokenizer.model import Tokenizer
from tokenizer.shards import SPLITS, TokenShard, open_split
from tokenizer.shards.manifest import listed_shards
from tokenizer.shards.record import SUFFIXES, ShardError

FILE_SUFFIXES = (*SUFFIXES, ".docs.parquet")
MAX_STDIN_BYTES = 64 << 20
DATA_HELP = "output folder, folder of the tokens stage, or prefix of a shard"


def local(data: str) -> Path:
    """The folder, or the prefix of a shard; any of the shard's own files stands for it.

    Raises:
        UsageError: a URL, or there is neither.
    """
    if storage.is_remote(data):
        raise UsageError(f"{data}: token shards are memory-mapped, so they must be local. Copy the build here first.")
    path = storage.local_path(data)
    if path.is_dir():
        return path
    for suffix in FILE_SUFFIXES:
        if path.name.endswith(suffix) and path.is_file():
            return path.with_name(path.name.removesuffix(suffix))
    if not any(path.with_name(path.name + suffix).exists() for suffix in FILE_SUFFIXES):
        raise UsageError(f"{data}: there is no such folder, and no shard of that prefix.")
    return path


def open_shards(data: str) -> Iterator[TokenShard]:
    """All shards of both splits, training first, or the one at a prefix."""
    path = local(data)
    if path.is_dir():
        for split in SPLITS:
            yield from open_split(path, split)
    else:
        yield TokenShard(path)


def named_shard(data: str, name: str | None) -> TokenShard:
    """The shard of a name (`00000-00-train`) among those of `data`; without a name, the one whose prefix `data` is.

    Raises:
        UsageError: there is none of that name, or none was named.
    """
    path = local(data)
    if not path.is_dir():
        if name not in (None, path.name):
            raise UsageError(f"--shard {name}: {data} is the prefix of one shard already.")
        return TokenShard(path)
    if name is None:
        raise UsageError(f"{data}: holds many shards. Name one with --shard, or give its prefix.")
    for split in SPLITS:
        for prefix, sha256 in listed_shards(path, split):
            if prefix.name == name:
                return TokenShard(prefix, sha256)
    raise UsageError(f"--shard {name}: not among the shards of {data}. `inspect --shards` lists them.")


def tokenizer_of(shard: TokenShard, data: str, named: str | None) -> Tokenizer:
    """The tokenizer that made a shard: the one that was named, or the one of the build that the shard lies in.

    Raises:
        ShardError: it is not the shard's.
        UsageError: none was named, and the shard lies in no build.
    """
    tokenizer = Tokenizer(named or _build_of(local(data)))
    if tokenizer.sha256 != shard.tokenizer_sha256:
        raise ShardError(f"{tokenizer.path}: not the tokenizer of {shard.prefix}. Name its own with --tokenizer.")
    return tokenizer


def _build_of(data: Path) -> Path:
    """The output folder that a stage folder or a shard prefix lies in."""
    for folder in (data, *data.absolute().parents, *data.resolve().parents):
        if (folder / "run.json").is_file():
            return folder
    raise UsageError(f"{data}: lies in no build. Name the tokenizer with --tokenizer.")


def read_stdin() -> bytes:
    """What is on standard input; raises `UsageError` beyond `MAX_STDIN_BYTES`."""
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise UsageError(f"standard input: more than {MAX_STDIN_BYTES:,} bytes. Encode files with `run --text`.")
    return data
