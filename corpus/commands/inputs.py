"""What `run` and `plan` read: the options of a build, its input files, and its crawl."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from corpus.crawl.folders import CRAWL
from corpus.engine.errors import UsageError
from corpus.engine.input_digests import Digests
from corpus.engine.inputs import LeftOut
from corpus.engine.storage import is_remote, join, local_path, names
from corpus.sources.config import SourcesConfig
from corpus.sources.packing import Source, find_sources

if TYPE_CHECKING:
    from corpus.engine.stage import Stage
    from corpus.mixture import MixtureConfig


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """Which recipe, inputs and folder."""
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument(
        "--input",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="files, folders, globs or URLs; not where the recipe's sources have paths, or with [crawl]",
    )
    parser.add_argument("--out", required=True, metavar="OUT", help="the build folder: a path or an fsspec URL")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")
    parser.add_argument("--allow-code", action="store_true", help="run the entry points that [[filter.rules]] name")


def build_sources(
    arguments: argparse.Namespace,
    configs: Sequence[SourcesConfig],
    crawled: Sequence[str] | None,
    digests: Digests,
) -> tuple[Source, ...]:
    """The sources of a build with their files, those of a crawl among them.

    Raises:
        UsageError: a source has no files, or --input no source; a file lies inside OUT and is none of the crawl's.
    """
    if crawled is None and not arguments.input and not all(config.path for config in configs):
        raise UsageError(
            "--input: give files, folders or globs to read, or a recipe whose [[sources]] have a path, or with a "
            "section [crawl]."
        )
    left_out: LeftOut = {}
    sources = find_sources(configs, arguments.input, crawled or (), left_out, digests)
    if left_out:
        told = (f"{len(found):,} {why} ({min(found)}{', ...' * (len(found) > 1)})" for why, found in left_out.items())
        print(f"left out of the inputs: {', '.join(told)}", file=sys.stderr)
    out = join(arguments.out if is_remote(arguments.out) else os.path.abspath(local_path(arguments.out)), "")
    for file in (file for source in sources for file in source.files):
        if file.url.startswith(out) and not file.url.startswith(join(out, CRAWL, "")):
            raise UsageError(f"{file.url}: an input inside --out {arguments.out}. Choose an output folder elsewhere.")
    return sources


def check_late_failures(stages: Sequence[Stage], mixture: MixtureConfig | None, sources: Sequence[Source]) -> None:
    """Open now what stages ask for when their turn comes: word lists, models, evaluation items, names of sources.

    Raises:
        UsageError: a file is missing or no such thing, or [mixture] names a source that cannot be.
        WenhaiError: an evaluation file has a line that is no item.
    """
    from corpus.dedup.contamination.stage import ContaminationStage

    for stage in stages:
        stage.config(), stage.parameters(), stage.inputs()
        if isinstance(stage, ContaminationStage):
            stage.check_items()
    names = [source.config.name for source in sources]
    if mixture is None or any(name.field or name.path for name in names):
        return  # names stand in the documents
    for pattern in mixture.patterns:
        if not any(fnmatchcase(name.default, pattern) for name in names):
            raise UsageError(
                f"[mixture] {pattern!r} is no source: {', '.join(name.default for name in names)}. "
                "Correct the pattern, or take it out."
            )


def crawled_so_far(out: str) -> list[str]:
    """The archive files of OUT's crawl: under its final name a file is complete."""
    folder = join(out, CRAWL, "data")
    return [] if is_remote(out) else [join(folder, name) for name in names(folder, ".warc.gz")]
