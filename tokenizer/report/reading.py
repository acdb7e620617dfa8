"""Texts by source for a report: out of Parquet files, some of each file, bounded in size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from corpus.engine import storage
from corpus.engine.errors import UsageError
from tokenizer.build import text_files
from tokenizer.documents import read_documents

NUM_CHARACTERS = 5_000_000
MAX_CHARACTERS_OF_DOCUMENT = 100_000  # as in the sample a vocabulary is trained on


def read_texts(patterns: Sequence[str], num_characters: int) -> dict[str, list[str]]:
    """The first documents of each Parquet file by source, about `num_characters` in all and as much of each file.

    Raises:
        UsageError: nothing matches, or there is no text.
        WenhaiError: a file is damaged or has no `text` column.
    """
    files = text_files(patterns)
    texts: dict[str, list[str]] = {}
    taken = 0
    for number, file in enumerate(files):
        wanted = taken + max((num_characters - taken) // (len(files) - number), 1)
        for source, text in _documents(file):
            if taken >= wanted:
                break
            texts.setdefault(source, []).append(text)
            taken += len(text)
    if not texts:
        raise UsageError(f"{', '.join(patterns)}: no document with text. Name Parquet files with a column `text`.")
    return texts


def _documents(file: storage.File) -> Iterator[tuple[str, str]]:
    """Source and text of each document that has text."""
    for batch in read_documents(storage.fetch(file.url)):
        texts = pc.utf8_slice_codeunits(batch.texts, 0, MAX_CHARACTERS_OF_DOCUMENT).to_pylist()
        yield from ((source, text) for source, text in zip(batch.sources, texts, strict=True) if text)


def add_text_arguments(parser: argparse.ArgumentParser, text: str, *, required: bool = False) -> None:
    """`--text` and how much of it is read."""
    parser.add_argument(
        "--text",
        nargs="+",
        default=(),
        required=required,
        metavar="PATH",
        help=f"Parquet files, folders, or a build; {text}",
    )
    parser.add_argument(
        "--characters",
        type=int,
        default=NUM_CHARACTERS,
        metavar="N",
        help=f"of text to read, the same of each file (default {NUM_CHARACTERS:,})",
    )
