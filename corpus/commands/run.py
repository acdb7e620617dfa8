"""`python -m corpus run`: build a dataset, or bring it up to date."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from corpus.commands.inputs import add_build_arguments, build_sources, check_late_failures
from corpus.crawl.folders import CRAWL
from corpus.engine import storage
from corpus.engine.cli import add_executor_arguments, cluster_address
from corpus.engine.errors import InputError, UsageError, WenhaiError
from corpus.engine.storage import is_remote, join

if TYPE_CHECKING:
    from corpus.crawl.config import CrawlConfig
    from corpus.report.summary import Funnel

RULES_SHOWN = 5
FILES_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_build_arguments(parser)
    add_executor_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def main(arguments: argparse.Namespace) -> None:
    """Run the stages, write the report, print the funnel."""
    from corpus.build import OPTIONAL_STAGES, check_recipe_resources, stages
    from corpus.dedup.near.earlier import check_earlier
    from corpus.engine.input_digests import Digests
    from corpus.engine.progress import Progress
    from corpus.engine.run import run_stages
    from corpus.recipe import load_recipe, record_recipe
    from corpus.report.html import write_report
    from corpus.report.metadata import template_warnings
    from corpus.report.summary import funnel, render
    from corpus.sources.preview import check_fields

    address = cluster_address(arguments)
    recipe = load_recipe(arguments.recipe, arguments.set, allow_code=arguments.allow_code)
    check_recipe_resources(recipe, arguments.recipe)
    earlier = check_earlier(recipe.dedup, arguments.out)
    crawled = _crawled(arguments, recipe.crawl)
    digests = Digests(arguments.out, saves=True)
    sources = build_sources(arguments, recipe.sources, crawled, digests)
    pipeline = stages(recipe, sources)
    check_late_failures(pipeline, recipe.mixture, sources)
    check_fields(sources)
    digests.save()
    run_stages(
        pipeline,
        arguments.out,
        workers=arguments.workers,
        address=address,
        resources=recipe.resources,
        progress=Progress(quiet=arguments.quiet),
        retired=OPTIONAL_STAGES,
    )
    record_recipe(arguments.out, arguments.recipe, arguments.set, earlier.outs())
    report = write_report(arguments.out)
    summary = funnel(arguments.out)
    if not arguments.quiet:
        print(render(summary, terminal=sys.stderr.isatty()), file=sys.stderr)
        print("\n".join([f"report: {report}", *template_warnings(arguments.out)]), file=sys.stderr)
    _look_back(arguments.out, summary)


def _look_back(out: str, summary: Funnel) -> None:
    """Refuse to end well where nothing was kept, or where files were mostly in error; raises `InputError`."""
    from corpus.document import read_table
    from corpus.engine.run import current
    from corpus.sources.stage import QUARANTINE

    if not summary.documents_kept:
        gone = ", ".join(f"{count:,} {rule}" for rule, count in list(summary.dropped.items())[:RULES_SHOWN])
        nothing = "all in error" if summary.documents_in else "the files are empty"
        raise InputError(
            f"{out}: no document was kept of {summary.documents_in:,} records ({gone or nothing}). "
            f"`python -m corpus explain {out} KEY` says why one went."
        )
    extract = current(out, "extract")
    if mostly := extract.counts.extra.get("files_mostly_in_error", 0):
        tables = [read_table(storage.fetch(file.url)) for file in extract.files(QUARANTINE)]
        rows = [row for table in tables for row in table.slice(0, FILES_SHOWN).to_pylist()][:FILES_SHOWN]
        named = "; ".join(f"{row['file']}: {row['in_error']:,} of {row['records']:,}, {row['rule']}" for row in rows)
        num_files = sum(count for name, count in extract.counts.extra.items() if name.startswith("files."))
        raise InputError(
            f"{out}: the dataset is built, but most records of {mostly:,} of {num_files:,} files "
            f"are in error ({named}{'; ...' if mostly > len(rows) else ''}). "
            f"All are named in {extract.url}/{QUARANTINE}."
        )


def _crawled(arguments: argparse.Namespace, config: CrawlConfig | None) -> list[str] | None:
    """Crawl what the recipe's [crawl] asks for, or go on with it; returns the archive's files, None without [crawl]."""
    if config is None:
        return None
    from corpus.crawl.run import crawl
    from corpus.engine.stage import Folder

    if is_remote(arguments.out):
        raise UsageError(
            f"--out {arguments.out}: a crawl writes to a disk. Use `python -m corpus crawl`, then --input."
        )
    crawl(config, join(arguments.out, CRAWL), quiet=arguments.quiet, advise=False)
    files = [file.url for file in Folder.open(join(arguments.out, CRAWL)).files()]
    if not files and not arguments.input:
        raise WenhaiError(f"{arguments.out}: the crawl kept no page. Its summary says what became of the seeds.")
    return files
