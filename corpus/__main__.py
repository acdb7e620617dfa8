"""The command line of the corpus package: parse, call, print."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from corpus.engine.cli import Command, add_examples, run_command
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.storage import File, exists, is_remote, join, list_inputs, local_path

EXAMPLES = {
    "run": """
python -m corpus run --recipe web_zh --input 'data/*.jsonl.zst' --out build/my
python -m corpus run --recipe my.toml --input crawl/ --out build/my --workers 8 --set dedup.threshold=0.75
""",
    "plan": """
python -m corpus plan --recipe my.toml --input 'crawl/*.warc.gz' --out build/my --set dedup.threshold=0.75
""",
    "filter": """
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
""",
    "status": """
python -m corpus status build/my
""",
    "report": """
python -m corpus report build/my
""",
    "verify": """
python -m corpus verify build/my
""",
    "explain": """
python -m corpus explain build/my https://example.org/page.html
python -m corpus explain build/my 00003.jsonl.gz:1234 --json
""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return run_command("corpus", build_parser(words), words)


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of `python -m corpus`; the filter's options live with its kernels, so only its own verb loads them."""
    parser = argparse.ArgumentParser(prog="python -m corpus", description="Turn Chinese text into a clean dataset.")
    add_examples(parser, "\n".join(text.strip() for text in EXAMPLES.values()))
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        add_examples(added, EXAMPLES[name])
        added.set_defaults(command=command)
        return added

    run = verb("run", _run, "build a dataset, or bring it up to date")
    _add_build_arguments(run)
    run.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core; 0: none)")
    run.add_argument("--quiet", action="store_true", help="no progress, no summary")

    _add_build_arguments(verb("plan", _plan, "show what `run` would do, and do nothing"))

    stream = verb("filter", _filter, "filter JSON lines from stdin to stdout, without a build folder")
    if "filter" in arguments:
        from corpus.filters.stream import add_arguments

        add_arguments(stream)

    explain = verb("explain", _explain, "tell the fate of one document")
    reporting = [
        verb("status", _status, "what is done, failed or missing below OUT"),
        verb("report", _report, "write OUT/report.html and OUT/report.md"),
        verb("verify", _verify, "check every file of OUT against its manifest"),
        explain,
    ]
    for reader in reporting:
        reader.add_argument("out", metavar="OUT", help="the output folder of a run")
        reader.add_argument("--json", action="store_true", help="print JSON")
    explain.add_argument("key", metavar="KEY", help="a URL, a document id (hex, or its beginning), or file:offset")
    return parser


def _add_build_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument("--input", required=True, nargs="+", metavar="GLOB", help="files, folders, globs or URLs")
    parser.add_argument("--out", required=True, metavar="OUT", help="the build folder: a path or an fsspec URL")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")


def _run(arguments: argparse.Namespace) -> None:
    from corpus.build import stages
    from corpus.engine.progress import Progress
    from corpus.engine.run import require_workers, run_stages
    from corpus.recipe import load_recipe
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    require_workers(arguments.workers)
    recipe = load_recipe(arguments.recipe, arguments.set)
    inputs = _inputs(arguments)
    progress = Progress(quiet=arguments.quiet)
    run_stages(stages(recipe, inputs), arguments.out, workers=arguments.workers, progress=progress)
    report = write_report(arguments.out)
    if not arguments.quiet:
        print(render(funnel(arguments.out), terminal=sys.stderr.isatty()), file=sys.stderr)
        print(f"report: {report}", file=sys.stderr)


def _plan(arguments: argparse.Namespace) -> None:
    from corpus.build import stages
    from corpus.engine.run import plan_stages
    from corpus.recipe import load_recipe

    recipe = load_recipe(arguments.recipe, arguments.set)
    inputs = _inputs(arguments)
    pipeline = stages(recipe, inputs)
    print(f"{len(inputs):,} input files, {sum(file.bytes for file in inputs) / 1e6:,.1f} MB")
    planned = 0
    for stage, folder, tasks, done in plan_stages(pipeline, arguments.out):
        planned += 1
        state = "up to date" if done == tasks else f"{tasks - done} of {tasks} tasks to run"
        print(f"{stage.name:<12} {state:<24} {folder}")
    for stage in pipeline[planned:]:
        print(f"{stage.name:<12} after {', '.join(stage.upstream)}")


def _inputs(arguments: argparse.Namespace) -> list[File]:
    """The input files; the build's own files are none, also where OUT lies inside an input folder."""
    files = list_inputs(arguments.input)
    out = join(arguments.out if is_remote(arguments.out) else os.path.abspath(local_path(arguments.out)), "")
    for file in files:
        if file.url.startswith(out):
            raise UsageError(f"{file.url}: an input inside --out {arguments.out}. Choose an output folder elsewhere.")
    return files


def _filter(arguments: argparse.Namespace) -> None:
    from corpus.filters.stream import main as filter_stream

    filter_stream(arguments)


def _status(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.report.verify import render_status, status

    if not exists(arguments.out):
        raise WenhaiError(f"{arguments.out}: does not exist. Give the output folder of a run.")
    stages = status(arguments.out)
    print(json.dumps([asdict(stage) for stage in stages], indent=1) if arguments.json else render_status(stages))


def _report(arguments: argparse.Namespace) -> None:
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    report = write_report(arguments.out)
    summary = funnel(arguments.out)
    print(json.dumps(summary.as_json(), ensure_ascii=False, indent=1) if arguments.json else render(summary))
    print(f"report: {report}", file=sys.stderr)


def _verify(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.report.verify import verify

    problems = verify(arguments.out)
    if arguments.json:
        print(json.dumps([asdict(problem) for problem in problems], ensure_ascii=False, indent=1))
    else:
        for problem in problems:
            print(problem)
    if problems:
        raise WenhaiError(f"{arguments.out}: {len(problems)} problems; each line above says what to do.")
    print(f"{arguments.out}: every file matches its manifest", file=sys.stderr)


def _explain(arguments: argparse.Namespace) -> None:
    from corpus.report.explain import explain, explain_json

    if arguments.json:
        print(json.dumps(explain_json(arguments.out, arguments.key), ensure_ascii=False, indent=1))
    else:
        print(explain(arguments.out, arguments.key))


if __name__ == "__main__":
    sys.exit(main())
