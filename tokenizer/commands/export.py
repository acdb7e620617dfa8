"""`python -m tokenizer export`: a folder for Hugging Face's tokenizers and transformers, with ids that are proven
equal."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from corpus.engine import storage
from corpus.engine.errors import UsageError
from tokenizer.documents import read_documents, text_files
from tokenizer.export.folder import export
from tokenizer.export.proof import Document, require
from tokenizer.model import Tokenizer

NUM_DOCUMENTS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("tokenizer", help="model file or output folder")
    parser.add_argument("--out", required=True, help="a folder that is not there yet")
    parser.add_argument(
        "--text", nargs="+", required=True, metavar="PATH", help="Parquet files, folders, or a build, to compare on"
    )
    parser.add_argument(
        "--documents",
        type=int,
        default=NUM_DOCUMENTS,
        metavar="N",
        help=f"how many documents must give equal ids (default {NUM_DOCUMENTS:,}); fewer in --text are refused",
    )


def main(options: argparse.Namespace) -> None:
    """Write the folder, and say on how much text it was proven."""
    if options.documents < 1:
        raise UsageError(f"--documents {options.documents}: give 1 or more.")
    if storage.is_remote(options.out):
        raise UsageError(f"{options.out}: --out is a local folder. Upload it afterwards.")
    require()
    tokenizer, out = Tokenizer(options.tokenizer), storage.local_path(options.out)
    documents = islice(read_files(text_files(options.text)), options.documents)
    proof = export(tokenizer, documents, out, num_documents=options.documents)
    for found, trials in zip(proof.documents, proof.trials, strict=True):
        print(
            f"{found.library}: equal ids and texts on {found.num_documents:,} documents ({found.num_characters:,} "
            f"characters, {found.num_tokens:,} tokens) and {trials.num_documents:,} trial texts",
            file=sys.stderr,
        )
    print(out)


def read_files(files: Sequence[storage.File]) -> Iterator[Document]:
    """The documents of files, a batch of each file in turn, so that the first ones come from many sources."""
    waiting = deque(map(_documents, files))
    while waiting:
        batches = waiting.popleft()
        for batch in islice(batches, 1):
            waiting.append(batches)
            yield from batch


def _documents(file: storage.File) -> Iterator[list[Document]]:
    for batch in read_documents(storage.fetch(file.url)):
        yield [
            Document(f"document {id.hex()} of {file.url}", text)
            for id, text in zip(batch.ids, batch.texts.to_pylist(), strict=True)
        ]
