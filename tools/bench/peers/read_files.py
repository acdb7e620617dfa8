"""The texts of files by the libraries that people use: argv[1] is {format: [path, ...]} as JSON; prints {format:
{library: CPU seconds}}."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas
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


def text_lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


def arrow_json(path: str) -> list[str]:
    options = pyarrow.json.ReadOptions(block_size=64 << 20, use_threads=False)
    return pyarrow.json.read_json(path, read_options=options)["text"].to_pylist()


def arrow_csv(path: str) -> list[str]:
    options = pyarrow.csv.ReadOptions(block_size=64 << 20, use_threads=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, read_options=options, parse_options=parse)["text"].to_pylist()


def csv_module(path: str) -> list[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def json_module(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [row["text"] for row in json.load(file)]


def pypdf_text(path: str) -> list[str]:
    return ["\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)]


def pdfium_text(path: str) -> list[str]:
    document = pypdfium2.PdfDocument(path)
    return ["\n".join(page.get_textpage().get_text_range() for page in document)]


READERS: dict[str, dict[str, Callable[[str], list[Any]]]] = {
    "jsonl": {
        "json, a line at a time": partial(lines, open),
        "pyarrow": arrow_json,
        "pandas": lambda path: list(pandas.read_json(path, lines=True)["text"]),
    },
    "jsonl.gz": {"gzip, json": partial(lines, gzip.open)},
    "jsonl.xz": {"lzma, json": partial(lines, lzma.open)},
    "json": {"json, whole": json_module, "pandas": lambda path: list(pandas.read_json(path)["text"])},
    "csv": {
        "csv": csv_module,
        "pyarrow": arrow_csv,
        "pandas": lambda path: list(pandas.read_csv(path)["text"]),
    },
    "parquet": {"pyarrow": lambda path: pyarrow.parquet.read_table(path, use_threads=False)["text"].to_pylist()},
    "arrow": {"pyarrow": lambda path: pyarrow.feather.read_table(path, use_threads=False)["text"].to_pylist()},
    "txt": {"open": text_lines},
    "zip": {"zipfile, json": zipped},
    "pdf": {"pypdf": pypdf_text, "pypdfium2": pdfium_text},
}


def main() -> None:
    """Time each library on each format's files."""
    files = json.loads(sys.argv[1])
    print(
        json.dumps(
            {
                name: {
                    peer: seconds_of(lambda work=work, paths=paths: [text for path in paths for text in work(path)])
                    for peer, work in READERS.get(name, {}).items()
                }
                for name, paths in files.items()
            }
        )
    )


if __name__ == "__main__":
    main()
