"""What a report is made of: a tokenizer, texts by source out of Parquet files, and the report that training wrote."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc

from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.run import RUN_NAME, current
from corpus.engine.stage import Folder
from tokenizer.documents import read_documents, text_files
from tokenizer.model import Tokenizer

NUM_CHARACTERS = 5_000_000
MAX_FILES = 1000  # evenly spaced, of a corpus with more: a remote file is fetched whole
MAX_CHARACTERS_OF_DOCUMENT = 100_000  # as in the sample a vocabulary is trained on


def read_texts(patterns: Sequence[str], num_characters: int) -> dict[str, list[str]]:
    """The first documents of each Parquet file by source, about `num_characters` in all and as much of each file.

    Of more than 1,000 files as many are read, evenly spaced.

    Raises:
        UsageError: nothing matches, or there is no text.
        WenhaiError: a file is damaged or has no `text` column.
    """
    if num_characters < 1:
        raise UsageError(f"--characters {num_characters}: give 1 or more.")
    files = text_files(patterns)
    if len(files) > MAX_FILES:
        files = [files[number * len(files) // MAX_FILES] for number in range(MAX_FILES)]
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


def open_tokenizer(where: str) -> Tokenizer:
    """The tokenizer of a model file, a stage folder or an output folder; remote ones are fetched.

    Raises:
        WenhaiError: there is none, or it cannot be used.
    """
    if not storage.is_remote(where):
        return Tokenizer(storage.local_path(where))
    if where.endswith(".model"):
        if not storage.exists(where):
            raise WenhaiError(f"{where}: does not exist. Name a model file or the output folder of a build.")
        return Tokenizer(storage.fetch(where))
    folder = current(where, "tokenizer") if storage.exists(storage.join(where, RUN_NAME)) else Folder.open(where)
    (model,) = folder.files("model")
    return Tokenizer(storage.fetch(model.url))


def read_report(folder: Folder) -> dict[str, Any]:
    """The report that training wrote into its stage, beside its page.

    Raises:
        WenhaiError: it is of an older version, or the tokenizer was trained elsewhere.
    """
    file = next((file for file in folder.files("report") if file.url.endswith(".json")), None)
    if file is None:
        raise WenhaiError(
            f"{folder.url}: this tokenizer was trained elsewhere. Give --text, and it is measured on that."
        )
    report: dict[str, Any] = storage.read_json(file.url)
    if "renyi_efficiency" not in report:
        raise WenhaiError(f"{file.url}: of an older version. Run `python -m tokenizer run` again, or give --text.")
    return report


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
        help=f"of text to read, the same of each of up to {MAX_FILES:,} files (default {NUM_CHARACTERS:,})",
    )
