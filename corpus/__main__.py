"""The command line of the corpus package: parse, call, print."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from corpus.crawl.folders import CRAWL
from corpus.engine.cli import Command, add_examples, add_executor_arguments, cluster_address, run_command
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.storage import File, exists, is_remote, join, list_inputs, local_path, names

if TYPE_CHECKING:
    from corpus.crawl.config import CrawlConfig

EXAMPLES = {
    "run": """
python -m corpus run --recipe web_zh --input 'data/*.jsonl.zst' --out build/my
python -m corpus run --recipe my.toml --input crawl/ --out build/my --workers 8 --set dedup.threshold=0.75
python -m corpus run --recipe crawl_my.toml --out build/my        # a recipe with [crawl] begins with the crawl
python -m corpus run --recipe my.toml --input 's3://crawl/*.warc.gz' --out s3://corpus/my --executor ray
""",
    "crawl": """
python -m corpus crawl --seeds seeds.txt --contact me@example.org --out build/my/crawl
python -m corpus crawl --seeds https://example.org/ --contact https://example.org/bot --follow hosts --out build/one
python -m corpus crawl --config my.toml --max-pages 10000 --set crawl.budget.max_depth=5 --out build/my/crawl
python -m corpus crawl --config my.toml --since 7d --out build/my/crawl     # visit again what is older than a week
python -m corpus status build/my/crawl                                      # how far it is, from another shell
""",
    "commoncrawl": """
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --out build/cc --files 0:1 --limit 10000
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --base s3://commoncrawl/ --primary --host-suffix cn --out s3://my/cc
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --sample 0.01 --out build/cc --dry-run
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --whole wet --files 0:100 --out build/wet
""",
    "plan": """
python -m corpus plan --recipe my.toml --input 'crawl/*.warc.gz' --out build/my --set dedup.threshold=0.75
""",
    "prune": """
python -m corpus prune build/my --recipe my.toml          # what no recipe needs; nothing is removed
python -m corpus prune build/my --recipe my.toml --yes
""",
    "filter": """
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
python -m corpus filter --recipe web_zh --input 'data/*.parquet' --out kept --column content
""",
    "quality": """
python -m corpus quality train --good good.jsonl --bad bad.jsonl --advertisement ads.jsonl --out quality.model
python -m corpus quality train --from-build build/my --out quality.model
python -m corpus quality evaluate --model quality.model --good good.jsonl --bad bad.jsonl
""",
    "status": """
python -m corpus status build/my
""",
    "report": """
python -m corpus report build/my
""",
    "mixture": """
python -m corpus mixture build/my
""",
    "retune": """
python -m corpus retune build/my --set filter.repetition.top_2_gram_ratio.max=0.18
python -m corpus retune build/my --unset filter.lines.label_char_ratio --write my.toml
""",
    "verify": """
python -m corpus verify build/my
""",
    "explain": """
python -m corpus explain build/my https://example.org/page.html
python -m corpus explain build/my '00003.jsonl.gz:offset 1234' --json
python -m corpus explain build/my https://example.org/page.html --lines --input 'crawl/*.warc.gz'
""",
}
ROOMS = {  # verbs whose options and work (`add_arguments`, `main`) are in a module of their own
    "crawl": ("corpus.crawl.command", "fetch web pages from seeds on, politely, into WARC files"),
    "commoncrawl": ("corpus.commoncrawl.command", "fetch captures or whole files of Common Crawl into WARC files"),
    "filter": ("corpus.filters.adapters.command", "filter JSON lines from stdin, or files, without a build folder"),
    "quality": ("corpus.quality.command", "train a quality model for the filter, or try one"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("corpus", build_parser(words), words)


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of `python -m corpus`; of `ROOMS` only the one whose verb comes first is loaded."""
    parser = argparse.ArgumentParser(prog="python -m corpus", description="Turn Chinese text into a clean dataset.")
    add_examples(parser, "\n".join(text.strip() for text in EXAMPLES.values()))
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, command: Command | None, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        add_examples(added, EXAMPLES[name])
        added.set_defaults(command=command)
        return added

    run = verb("run", _run, "build a dataset, or bring it up to date")
    _add_build_arguments(run)
    add_executor_arguments(run)
    run.add_argument("--quiet", action="store_true", help="no progress, no summary")

    plan = verb("plan", _plan, "show what `run` would do and cost, and do nothing")
    _add_build_arguments(plan)
    plan.add_argument("--workers", type=int, metavar="N", help="processes to reckon with (default: one a core)")
    plan.add_argument("--json", action="store_true", help="print JSON")

    for name, (module, text) in ROOMS.items():
        added = verb(name, None, text)
        if words[:1] == [name]:
            room = import_module(module)
            room.add_arguments(added)
            added.set_defaults(command=room.main)

    retune = verb(
        "retune", _retune, "show what other thresholds would keep, from stored statistics, without reading text"
    )
    explain = verb("explain", _explain, "tell the fate of one document")
    verifying = verb("verify", _verify, "check every file of OUT against its manifest")
    verifying.add_argument("--workers", type=int, metavar="N", help="files read at a time (default: one a core)")
    reporting = [
        verb("status", _status, "what is done, failed or missing below OUT"),
        verb("report", _report, "write OUT/report.html, report.md and DATASET_CARD.md"),
        verb("mixture", _mixture, "show what the mixture takes of each source and bucket"),
        verifying,
        explain,
        retune,
    ]
    for reader in reporting:
        reader.add_argument("out", metavar="OUT", help="the output folder of a run")
        reader.add_argument("--json", action="store_true", help="print JSON")
    pruning = verb("prune", _prune, "list stage folders that no recipe needs, or remove them")
    pruning.add_argument("out", metavar="OUT", help="the output folder of a run; what its run.json names stays")
    pruning.add_argument(
        "--recipe", nargs="+", required=True, help="the recipes whose folders stay too, for any inputs"
    )
    pruning.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the recipes' values")
    pruning.add_argument("--yes", action="store_true", help="remove them")
    pruning.add_argument("--json", action="store_true", help="print JSON")
    names = "a URL, a document id (hex, or its beginning), SHARD:ROW, text/SHARD:ROW, or a bad record's FILE:offset N"
    explain.add_argument("key", metavar="KEY", help=names + "; with --lines also a file of HTML")
    explain.add_argument(
        "--lines", action="store_true", help="print each line of the page: kept, or by which rule it went"
    )
    explain.add_argument(
        "--input", nargs="+", default=[], metavar="GLOB", help="for --lines: the files that the build read"
    )
    retune.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="filter.FAMILY.STATISTIC.min|max=VALUE"
    )
    retune.add_argument("--unset", action="append", default=[], metavar="KEY", help="take a rule or one bound out")
    retune.add_argument("--write", metavar="FILE.toml", help="write the recipe that has these thresholds")
    return parser


def _add_build_arguments(parser: argparse.ArgumentParser) -> None:
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


def _run(arguments: argparse.Namespace) -> None:
    from corpus.build import OPTIONAL_STAGES, check_recipe_resources, stages
    from corpus.dedup.near.earlier import check_earlier
    from corpus.engine.progress import Progress
    from corpus.engine.run import run_stages
    from corpus.recipe import load_recipe, record_recipe
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    address = cluster_address(arguments)
    recipe = load_recipe(arguments.recipe, arguments.set)
    check_recipe_resources(recipe, arguments.recipe)
    earlier = check_earlier(recipe.dedup, arguments.out)
    inputs = _inputs(arguments, _crawled(arguments, recipe.crawl))
    run_stages(
        stages(recipe, inputs),
        arguments.out,
        workers=arguments.workers,
        address=address,
        resources=recipe.resources,
        progress=Progress(quiet=arguments.quiet),
        retired=OPTIONAL_STAGES,
    )
    record_recipe(arguments.out, arguments.recipe, arguments.set, earlier.outs())
    report = write_report(arguments.out)
    if not arguments.quiet:
        print(render(funnel(arguments.out), terminal=sys.stderr.isatty()), file=sys.stderr)
        print(f"report: {report}", file=sys.stderr)


def _plan(arguments: argparse.Namespace) -> None:
    from corpus.build import stages
    from corpus.dedup.near.earlier import check_earlier
    from corpus.plan import plan, render
    from corpus.recipe import load_recipe

    recipe = load_recipe(arguments.recipe, arguments.set)
    check_earlier(recipe.dedup, arguments.out)
    inputs = _inputs(arguments, None if recipe.crawl is None else _crawled_so_far(arguments.out))
    planned = plan(stages(recipe, inputs), inputs, arguments.out)
    if arguments.json:
        print(json.dumps(planned.as_json(), ensure_ascii=False, indent=1))
    else:
        print(render(planned, arguments.workers or os.cpu_count() or 1))


def _prune(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.build import stages
    from corpus.engine.prune import prune, unneeded
    from corpus.recipe import load_recipe

    pipelines = [stages(load_recipe(recipe, arguments.set), ()) for recipe in arguments.recipe]
    gone = (prune if arguments.yes else unneeded)(arguments.out, pipelines)
    if arguments.json:
        print(json.dumps([asdict(one) for one in gone], ensure_ascii=False, indent=1))
        return
    for one in gone:
        print(f"{one.folder:<32}{one.files:>8,} files{one.file_bytes:>18,} bytes")
    freed = f"{len(gone)} folders, {sum(one.freed_bytes for one in gone):,} bytes"
    hint = " freed" if arguments.yes else ("; remove them with --yes" if gone else " to remove")
    print(freed + hint, file=sys.stderr)


def _inputs(arguments: argparse.Namespace, crawled: Sequence[str] | None) -> list[File]:
    """The input files and those of the crawl; other files of the build are none, also where OUT lies inside an input."""
    if not arguments.input and crawled is None:
        raise UsageError("--input: give files, folders or globs to read, or a recipe with a section [crawl].")
    files = list_inputs(arguments.input)
    out = join(arguments.out if is_remote(arguments.out) else os.path.abspath(local_path(arguments.out)), "")
    for file in files:
        if file.url.startswith(out):
            raise UsageError(f"{file.url}: an input inside --out {arguments.out}. Choose an output folder elsewhere.")
    return files + list_inputs(crawled or ())


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


def _crawled_so_far(out: str) -> list[str]:
    """The archive files of OUT's crawl: under its final name a file is complete."""
    folder = join(out, CRAWL, "data")
    return [] if is_remote(out) else [join(folder, name) for name in names(folder, ".warc.gz")]


def _status(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.crawl.folders import crawl_folders
    from corpus.crawl.summary import status_lines
    from corpus.engine.running import pace
    from corpus.engine.running import render as render_pace
    from corpus.report.status import render_status, status

    if not exists(arguments.out):
        raise WenhaiError(f"{arguments.out}: does not exist. Give the output folder of a run.")
    stages, at = status(arguments.out), pace(arguments.out)
    if arguments.json:
        print(json.dumps([asdict(stage) for stage in stages], indent=1))
        return
    print(render_status(stages))
    for folder in crawl_folders(arguments.out):
        print(status_lines(local_path(folder)))
    if at is not None:
        print(render_pace(at))


def _report(arguments: argparse.Namespace) -> None:
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    report = write_report(arguments.out)
    summary = funnel(arguments.out)
    print(json.dumps(summary.as_json(), ensure_ascii=False, indent=1) if arguments.json else render(summary))
    print(f"report: {report}", file=sys.stderr)


def _mixture(arguments: argparse.Namespace) -> None:
    from corpus.report.mixture import as_json, mixture, render

    groups = mixture(arguments.out)
    print(json.dumps(as_json(groups), ensure_ascii=False, indent=1) if arguments.json else render(groups))


def _verify(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.engine.progress import Progress
    from corpus.report.verify import summary, verify

    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError(f"--workers {arguments.workers}: give 1 or more.")
    problems = verify(arguments.out, arguments.workers, Progress())
    if arguments.json:
        print(json.dumps([asdict(problem) for problem in problems], ensure_ascii=False, indent=1))
    else:
        for problem in problems:
            print(problem)
    if problems:
        raise WenhaiError(f"{arguments.out}: {summary(problems)}; each line above says what to do.")
    print(f"{arguments.out}: every file matches its manifest", file=sys.stderr)


def _explain(arguments: argparse.Namespace) -> None:
    from corpus.report.explain import explain, explain_json

    if arguments.lines and arguments.json:
        raise UsageError("--lines prints text; leave out --json.")
    if arguments.lines:
        from corpus.report.page_lines import explain_lines

        for line in explain_lines(arguments.out, arguments.key, arguments.input):
            print(line)
    elif arguments.json:
        print(json.dumps(explain_json(arguments.out, arguments.key), ensure_ascii=False, indent=1))
    else:
        print(explain(arguments.out, arguments.key))


def _retune(arguments: argparse.Namespace) -> None:
    from corpus.retune.command import as_json, render, retune

    prediction, thresholds = retune(arguments.out, arguments.set, arguments.unset, arguments.write)
    if arguments.json:
        value = as_json(arguments.out, prediction, thresholds, arguments.write)
        print(json.dumps(value, ensure_ascii=False, indent=1))
    else:
        print(render(arguments.out, prediction, thresholds, arguments.write))


if __name__ == "__main__":
    sys.exit(main())
