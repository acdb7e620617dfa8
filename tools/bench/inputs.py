"""The documents that are timed: of files, of a build, or of the test data."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpus.document import read_table
from corpus.engine.errors import UsageError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import current
from corpus.sources import Record, SourcesConfig, read


def read_texts(url: str, column: str = "text") -> Iterator[str]:
    """The texts of one file, those that are not empty."""
    for record in read(url, SourcesConfig(text=(column,))):
        if isinstance(record, Record) and record.text:
            yield record.text


def read_documents(arguments: Namespace) -> Iterator[str]:
    """The texts of `--input`, else of the build `--data`, else of $WENHAI_TEST_DATA/text, else of the demo.

    Raises:
        UsageError: none of them is there.
    """
    patterns, test_data = arguments.input, os.environ.get("WENHAI_TEST_DATA")
    if not patterns and test_data and not arguments.data:
        patterns = [str(Path(test_data, "text"))]
    if patterns:
        for file in list_inputs(patterns):
            yield from read_texts(file.url, arguments.column)
        return
    data = arguments.data or Path("build/demo")
    if not (data / "run.json").exists():
        raise UsageError("no documents: give --input, set WENHAI_TEST_DATA, or run `make corpus` first.")
    for file in current(str(data), "text").files():
        yield from read_table(Path(file.url), ["text"])["text"].to_pylist()


def spread(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Documents at even distances through all of them, about `max_bytes` of UTF-8 together."""
    size = sum(len(text.encode()) for text in texts)
    step = max(1.0, size / max_bytes)
    return [texts[int(index * step)] for index in range(int(len(texts) / step))]
