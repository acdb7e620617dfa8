"""The commit record of a token shard, `P.meta.json`: what the other files of the shard have to be."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tokenizer.shards.megatron_index import index_size

FORMAT_NAME = "wenhai.tokens"
FORMAT_VERSION = 1
UINT16_VOCAB_LIMIT = 65_500  # Megatron's own limit: below it tokens are uint16, from it on int32
INT32_VOCAB_LIMIT = 1 << 31
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "int32": np.dtype("<i4")}
BLOCK_BYTES = 4 << 20
SUFFIXES = (".bin", ".idx", ".meta.json")
MEND = "Restore the file from a copy, or remove its stage folder and run `python -m tokenizer run` again."

Tokens = NDArray[Any]


class ShardError(WenhaiError):
    """A token shard is not what its record says, or a token does not fit."""


@dataclass(frozen=True)
class ShardMeta:
    """The commit record of a shard: what `P.meta.json` holds."""

    split: str
    dtype: str
    vocab_size: int
    eod: int
    tokenizer_sha256: str
    recipe: str  # digest of the part of the recipe that orders and splits documents
    num_sequences: int
    num_documents: int
    num_tokens: int
    num_characters: int  # code points of the text, for losses per character
    max_id: int
    bin_bytes: int
    idx_bytes: int
    idx_sha256: str
    block_bytes: int
    block_sha256: tuple[str, ...]


_TYPES = {field.name: field.type for field in fields(ShardMeta)}


def shard_paths(prefix: Path) -> tuple[Path, Path, Path]:
    """(`P.bin`, `P.idx`, `P.meta.json`); a dot in the prefix's own name is kept."""
    tokens, idx, meta = (prefix.with_name(prefix.name + suffix) for suffix in SUFFIXES)
    return tokens, idx, meta


def dtype_name(vocab_size: int) -> str:
    """How tokens of a vocabulary are stored, by Megatron's rule.

    >>> dtype_name(65_499), dtype_name(65_500)
    ('uint16', 'int32')
    """
    if vocab_size > INT32_VOCAB_LIMIT:
        raise ShardError(f"a vocabulary of {vocab_size} does not fit int32, the widest token a shard holds.")
    return "uint16" if vocab_size < UINT16_VOCAB_LIMIT else "int32"


def read_meta(path: str | Path, sha256: str | None = None) -> ShardMeta:
    """Read a commit record and check everything in it that can be checked without the other files.

    Args:
        path: of the record.
        sha256: what a manifest says of the record's bytes; through the record it vouches for the rest of the shard.

    Raises:
        ShardError: the record is missing, another one, not of this format, or contradicts itself.
    """
    try:
        with open(  # without waiting for the writer of a pipe
            path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                refuse(path, 0, "this is no file")
            if found.st_size > durable.MAX_JSON_BYTES:
                refuse(path, 0, f"larger than {durable.MAX_JSON_BYTES:,} bytes; this is not a record")
            data = file.readall()
    except FileNotFoundError:
        raise ShardError(f"{path}: missing; without its record a shard was never committed. {MEND}") from None
    except OSError as error:
        raise ShardError(f"{path}: cannot be read ({error.strerror}). {MEND}") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        refuse(path, 0, "this is not the record that the manifest lists: another shard has taken its name")
    record = durable.parse_json(data, str(path))
    if not isinstance(record, dict) or (record.pop("format", None), record.pop("version", None)) != (
        FORMAT_NAME,
        FORMAT_VERSION,
    ):
        refuse(path, 0, f"this is not a record of {FORMAT_NAME} version {FORMAT_VERSION}")
    if set(record) != set(_TYPES):
        refuse(path, 0, f"keys differ from the format's: {', '.join(sorted(set(record) ^ set(_TYPES)))}")
    for name, kind in _TYPES.items():
        value = record[name]
        if kind == "int" and (type(value) is not int or not -1 <= value < 2**63):
            refuse(path, 0, f"{name} is not a count")
        if kind == "str" and not isinstance(value, str):
            refuse(path, 0, f"{name} is not a string")
    blocks = record["block_sha256"]
    if not isinstance(blocks, list) or not all(isinstance(block, str) for block in blocks):
        refuse(path, 0, "block_sha256 is not a list of checksums")
    meta = ShardMeta(**(record | {"block_sha256": tuple(blocks)}))
    _check_meta(meta, path)
    return meta


def _check_meta(meta: ShardMeta, path: str | Path) -> None:
    """The record agrees with itself; all in Python integers, which do not overflow."""
    dtype, sizes = dtype_name(meta.vocab_size), (meta.num_sequences, meta.num_tokens, meta.num_characters)
    for is_so, name, problem in (
        (meta.vocab_size < 1 or meta.dtype != dtype, "dtype", "does not belong to the size of the vocabulary"),
        (not 0 <= meta.eod < meta.vocab_size, "eod", "is outside the vocabulary"),
        (not -1 <= meta.max_id < meta.vocab_size, "max_id", "is outside the vocabulary"),
        ((meta.max_id == -1) != (meta.num_tokens == 0), "max_id", "is -1 of a shard without tokens alone"),
        (min(sizes) < 0, "num_sequences", "sequences, tokens and characters cannot be fewer than 0"),
        (meta.num_documents != meta.num_sequences, "num_documents", "is not num_sequences: a document is a sequence"),
        (meta.bin_bytes != meta.num_tokens * DTYPES[dtype].itemsize, "bin_bytes", "are not those of num_tokens"),
        (meta.idx_bytes != index_size(meta.num_sequences), "idx_bytes", "are not those of an index of num_sequences"),
        (meta.block_bytes != BLOCK_BYTES, "block_bytes", "is not 4 MiB"),
        (len(meta.block_sha256) != -(-meta.bin_bytes // BLOCK_BYTES), "bin_bytes", "are not covered by block_sha256"),
    ):
        if is_so:
            refuse(path, 0, f"{name} {getattr(meta, name)} {problem}")


def refuse(path: str | Path, offset: int, problem: str) -> NoReturn:
    """Raise `ShardError`: which file, where in it, what, and what to do next."""
    raise ShardError(f"{path}: offset {offset}: {problem}. {MEND}")
