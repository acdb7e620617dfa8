"""What `run` and `plan` read: the options of a build, its input files, and its crawl."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from corpus.crawl.folders import CRAWL
from corpus.engine.errors import UsageError
from corpus.engine.storage import File, is_remote, join, list_inputs, local_path, names


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """Which recipe, inputs and folder."""
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument(
        "--input",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="files, folders, globs or URLs; a recipe with [crawl] needs none",
    )
    parser.add_argument("--out", required=True, metavar="OUT", help="the build folder: a path or an fsspec URL")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")


def build_inputs(arguments: argparse.Namespace, crawled: Sequence[str] | None) -> list[File]:
    """The input files and those of the crawl; other files of the build are none, also where OUT lies inside an
    input."""
    if not arguments.input and crawled is None:
        raise UsageError("--input: give files, folders or globs to read, or a recipe with a section [crawl].")
    files = list_inputs(arguments.input)
    out = join(arguments.out if is_remote(arguments.out) else os.path.abspath(local_path(arguments.out)), "")
    for file in files:
        if file.url.startswith(out):
            raise UsageError(f"{file.url}: an input inside --out {arguments.out}. Choose an output folder elsewhere.")
    return files + list_inputs(crawled or ())


def crawled_so_far(out: str) -> list[str]:
    """The archive files of OUT's crawl: under its final name a file is complete."""
    folder = join(out, CRAWL, "data")
    return [] if is_remote(out) else [join(folder, name) for name in names(folder, ".warc.gz")]
