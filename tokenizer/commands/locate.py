"""`python -m tokenizer locate`: which document holds a token, and where in the shards a document lies.

A token is found by arithmetic and one group of rows of `P.docs.parquet`; a document, by its id or URL, by reading that
one column of every shard. A document of a mixture may lie in several places: all are listed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from corpus.engine.errors import UsageError
from tokenizer.commands.open_shards import DATA_HELP, local, named_shard, open_shards, tokenizer_of
from tokenizer.model import Tokenizer
from tokenizer.shards import SPLITS, TokenShard
from tokenizer.shards.provenance import find_rows, read_rows

ID_DIGITS = 32


@dataclass(frozen=True)
class Place:
    """A document in the shards: its tokens are [start, stop) of the shard, the last one its end-of-document token."""

    split: str
    shard: str
    sequence: int
    start: int
    stop: int
    id: str  # 32 hexadecimal digits
    source: str
    url: str | None


@dataclass(frozen=True)
class TokenPlace(Place):
    """A token of a document: its number there, and the characters [start, stop) of the text that begin in it.

    A character that is spelled in bytes begins in the first of them; the others, and the end-of-document token, hold
    no character's beginning.
    """

    token: int  # of the document, from 0
    token_id: int
    piece: str
    character_start: int
    character_stop: int


def locate_token(shard: TokenShard, offset: int, tokenizer: Tokenizer) -> TokenPlace:
    """The document that holds the token at `offset` of a shard.

    Raises:
        IndexError: the shard has no such token.
        ShardError: the shard's index or its `P.docs.parquet` is damaged.
    """
    sequence = shard.sequence_of(offset)
    (place,) = _places(shard, [sequence])
    begun = [
        sum(byte & 0xC0 != 0x80 for byte in tokenizer.piece_bytes(id))  # bytes that begin a character
        for id in shard.tokens(place.start, offset + 1).tolist()
    ]
    id = int(shard.tokens(offset, offset + 1)[0])
    characters = sum(begun)
    return TokenPlace(
        **asdict(place),
        token=offset - place.start,
        token_id=id,
        piece=tokenizer.piece(id),
        character_start=characters - begun[-1],
        character_stop=characters,
    )


def locate_document(shards: Sequence[TokenShard], column: str, value: bytes | str) -> Iterator[Place]:
    """Every place of the documents whose `id` (16 bytes) or `url` is a value, shard after shard."""
    for shard in shards:
        if sequences := find_rows(shard, column, value):
            yield from _places(shard, sequences)


def _places(shard: TokenShard, sequences: Sequence[int]) -> list[Place]:
    rows = read_rows(shard, sequences)
    return [
        Place(shard.meta.split, shard.prefix.name, sequence, *shard.bounds(sequence), **rows[sequence])
        for sequence in sequences
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("data", help=DATA_HELP)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--token", type=int, metavar="N", help="the token N of a split's shards in their order, from 0")
    what.add_argument("--url", help="documents of this URL")
    what.add_argument("--id", metavar="HEX", help="documents of this id, 32 hexadecimal digits")
    parser.add_argument("--split", choices=SPLITS, default="train", help="where --token counts (default train)")
    parser.add_argument("--shard", metavar="NAME", help="--token counts in this shard alone")
    parser.add_argument("--tokenizer", help="model file, for --token; default the one of the build")


def main(options: argparse.Namespace) -> None:
    """Print a JSON object a place.

    Raises:
        UsageError: there is no such token or document.
    """
    places: list[Place]
    if options.token is None:
        places = list(locate_document(list(open_shards(options.data)), *_wanted(options)))
        if not places:
            raise UsageError(f"{options.data}: holds no document of {options.url or options.id}.")
    else:
        shard, offset = _shard_of(options)
        places = [locate_token(shard, offset, tokenizer_of(shard, options.data, options.tokenizer))]
    for place in places:
        print(json.dumps(asdict(place), ensure_ascii=False))


def _wanted(options: argparse.Namespace) -> tuple[str, bytes | str]:
    """The column and what has to stand in it."""
    if options.url is not None:
        try:
            options.url.encode()
        except UnicodeEncodeError:  # what the shell gave was not UTF-8
            raise UsageError(f"--url {options.url!a}: is not UTF-8.") from None
        return "url", options.url
    try:
        id = bytes.fromhex(options.id)
    except ValueError:
        id = b""
    if len(id) * 2 != ID_DIGITS:
        raise UsageError(f"--id {options.id}: an id is {ID_DIGITS} hexadecimal digits.")
    return "id", id


def _shard_of(options: argparse.Namespace) -> tuple[TokenShard, int]:
    """The shard of `--token`, and where in it the token is."""
    if options.shard is not None or not local(options.data).is_dir():
        shards = [named_shard(options.data, options.shard)]
    else:
        shards = [shard for shard in open_shards(options.data) if shard.meta.split == options.split]
    offset, total = options.token, sum(shard.num_tokens for shard in shards)
    if not 0 <= offset < total:
        where = options.shard or f"the split {options.split}"
        raise UsageError(f"--token {offset}: {where} has {total:,} tokens, counted from 0.")
    for shard in shards:
        if offset < shard.num_tokens:
            return shard, offset
        offset -= shard.num_tokens
    raise AssertionError
