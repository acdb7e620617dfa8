"""`python -m tokenizer decode`: the text of tokens, byte for byte; of a shard's, or of the ids on standard input."""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from tokenizer.commands.open_shards import DATA_HELP, named_shard, read_stdin, tokenizer_of
from tokenizer.model import Tokenizer
from tokenizer.shards import TokenShard

CHUNK_TOKENS = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("data", nargs="?", help=f"{DATA_HELP}; without one, ids are read from standard input")
    parser.add_argument("--shard", metavar="NAME", help="which shard of a folder, e.g. 00000-00-train")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--sequence", type=int, metavar="I", help="the sequence (document) I of the shard, from 0")
    what.add_argument("--tokens", metavar="A:B", help="the tokens [A, B) of the shard")
    parser.add_argument("--pieces", action="store_true", help="pieces separated by blanks, control ids too, not text")
    parser.add_argument("--tokenizer", help="model file or output folder; default the one of the build")


def main(options: argparse.Namespace) -> None:
    """Write the text; no newline is added, and a character that a range cuts becomes U+FFFD."""
    if options.data is None:
        if (options.shard, options.sequence, options.tokens) != (None, None, None):
            raise UsageError("--shard, --sequence and --tokens are of a build: name it.")
        if options.tokenizer is None:
            raise UsageError(
                "ids on standard input: name their tokenizer with --tokenizer, or name the shards to read."
            )
        tokenizer, chunks = Tokenizer(options.tokenizer), iter([_ids_of_stdin()])
    else:
        shard = named_shard(options.data, options.shard)
        start, stop = _range(shard, options)
        tokenizer = tokenizer_of(shard, options.data, options.tokenizer)
        chunks = (
            shard.tokens(first, min(first + CHUNK_TOKENS, stop)).astype(np.int64)
            for first in range(start, stop, CHUNK_TOKENS)
        )
    for text in _pieces(tokenizer, chunks) if options.pieces else _texts(tokenizer, chunks):
        sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()


def _texts(tokenizer: Tokenizer, chunks: Iterator[NDArray[Any]]) -> Iterator[str]:
    """The text, a chunk at a time; characters that chunks cut are put together."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for ids in chunks:
        yield decoder.decode(tokenizer.decode_bytes(ids))
    yield decoder.decode(b"", final=True)


def _pieces(tokenizer: Tokenizer, chunks: Iterator[NDArray[Any]]) -> Iterator[str]:
    blank = ""
    for ids in chunks:
        tokenizer.decode_bytes(ids)  # refuses ids that are none
        for id in ids.tolist():
            yield blank + tokenizer.piece(id)
            blank = " "
    yield "\n"


def _range(shard: TokenShard, options: argparse.Namespace) -> tuple[int, int]:
    """Which tokens of the shard are asked for."""
    if options.sequence is not None:
        if not 0 <= options.sequence < shard.num_sequences:
            raise UsageError(f"--sequence {options.sequence}: {shard.prefix.name} has {shard.num_sequences:,}, from 0.")
        return shard.bounds(options.sequence)
    if options.tokens is None:
        raise UsageError(f"{options.data}: which tokens? Give --sequence I, or --tokens A:B.")
    try:
        start, stop = map(int, options.tokens.split(":"))
    except ValueError:
        raise UsageError(f"--tokens {options.tokens}: write it as A:B, for example 0:2048.") from None
    if not 0 <= start <= stop <= shard.num_tokens:
        raise UsageError(f"--tokens {options.tokens}: {shard.prefix.name} has {shard.num_tokens:,}, from 0.")
    return start, stop


def _ids_of_stdin() -> NDArray[Any]:
    try:
        return np.array([int(word) for word in read_stdin().split()], dtype=object)
    except ValueError:
        raise UsageError("standard input is not a list of ids separated by blanks.") from None
