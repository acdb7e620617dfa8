"""The texts of files by the libraries that people use: argv[1] is {format: [path, ...]} as JSON; prints {format:
{library: CPU seconds}}."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pypdf
import pypdfium2

from tools.bench.timing import seconds_of

csv.field_size_limit(1 << 30)


def lines(opened: Callable[[str], Any], path: str) -> list[str]:
    with opened(path) as file:
        return [json.loads(line)["text"] for line in file]


def zipped(path: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [text for name in archive.namelist() for text in lines(archive.open, name)]


def opened(work: Callable[[Any], Any], path: str) -> list[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return [row["text"] for row in work(file)]


def column(work: Callable[[str], Any], path: str) -> list[str]:
    found = work(path)["text"]
    return found.to_pylist() if isinstance(found, pyarrow.ChunkedArray) else list(found)


def pypdf_text(path: str) -> list[str]:
    return ["\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)]


def pdfium_text(path: str) -> list[str]:
    document = pypdfium2.PdfDocument(path)
    return ["\n".join(page.get_textpage().get_text_range() for page in document)]


JSON_OPTIONS = pyarrow.json.ReadOptions(block_size=64 << 20, use_threads=False)
CSV_OPTIONS = pyarrow.csv.ReadOptions(block_size=64 << 20, use_threads=False)
IN_QUOTES = pyarrow.csv.ParseOptions(newlines_in_values=True)
Reader = Callable[[str], list[Any]]
READERS: dict[str, dict[str, Reader]] = {
    "jsonl": {
        "json, a line at a time": partial(lines, open),
        "pyarrow": partial(column, partial(pyarrow.json.read_json, read_options=JSON_OPTIONS)),
        "pandas": partial(column, partial(pandas.read_json, lines=True)),
    },
    "jsonl.gz": {"gzip, json": partial(lines, gzip.open)},
    "jsonl.xz": {"lzma, json": partial(lines, lzma.open)},
    "json": {"json, whole": partial(opened, json.load), "pandas": partial(column, pandas.read_json)},
    "csv": {
        "csv": partial(opened, csv.DictReader),
        "pyarrow": partial(column, partial(pyarrow.csv.read_csv, read_options=CSV_OPTIONS, parse_options=IN_QUOTES)),
        "pandas": partial(column, pandas.read_csv),
    },
    "parquet": {"pyarrow": partial(column, partial(pyarrow.parquet.read_table, use_threads=False))},
    "arrow": {"pyarrow": partial(column, partial(pyarrow.feather.read_table, use_threads=False))},
    "zip": {"zipfile, json": zipped},
    "pdf": {"pypdf": pypdf_text, "pypdfium2": pdfium_text},
}


def read_all(work: Reader, paths: Sequence[str]) -> list[Any]:
    return [text for path in paths for text in work(path)]


def main() -> None:
    """Time each library on each format's files."""
    files = json.loads(sys.argv[1])
    seconds = {
        name: {peer: seconds_of(partial(read_all, work, paths)) for peer, work in READERS.get(name, {}).items()}
        for name, paths in files.items()
    }
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
