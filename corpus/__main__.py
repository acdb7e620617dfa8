"""The command line of the corpus package: parse, call, print."""

from __future__ import annotations

import argparse
import json
import sys

from corpus.engine.cli import add_examples, run_command

EXAMPLES = """
python -m corpus run --recipe web_zh --input 'data/*.jsonl.zst' --out build/my
python -m corpus plan --recipe my.toml --input 'crawl/*.warc.gz' --out build/my --set dedup.threshold=0.75
python -m corpus status build/my
python -m corpus explain build/my https://example.org/page.html
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    return run_command("corpus", build_parser(), arguments)


def build_parser() -> argparse.ArgumentParser:
    """The parser of `python -m corpus`; heavy modules are imported by the commands that use them."""
    parser = argparse.ArgumentParser(prog="python -m corpus", description="Turn Chinese text into a clean dataset.")
    add_examples(parser, EXAMPLES)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = verbs.add_parser("run", help="build a dataset, or bring it up to date")
    _add_build_arguments(run)
    run.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core; 0: none)")
    run.add_argument("--quiet", action="store_true", help="no progress, no summary")
    run.set_defaults(command=_run)

    plan = verbs.add_parser("plan", help="show what `run` would do, and do nothing")
    _add_build_arguments(plan)
    plan.set_defaults(command=_plan)

    filter_ = verbs.add_parser("filter", help="filter JSON lines from stdin to stdout, without a build folder")
    filter_.set_defaults(command=_filter)
    _add_filter_arguments(filter_)

    for name, command, text in (
        ("status", _status, "what is done, failed or missing below OUT"),
        ("report", _report, "write OUT/report.html and OUT/report.md"),
        ("verify", _verify, "check every file of OUT against its manifest"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("out", metavar="OUT", help="the output folder of a run")
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(command=command)

    explain = verbs.add_parser("explain", help="tell the fate of one document")
    explain.add_argument("out", metavar="OUT", help="the output folder of a run")
    explain.add_argument("key", metavar="KEY", help="a URL, a document id (hex, or its beginning), or file:offset")
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.set_defaults(command=_explain)
    return parser


def _add_build_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", required=True, help="a TOML file, or the name of a built-in recipe")
    parser.add_argument("--input", required=True, nargs="+", metavar="GLOB", help="files, folders, globs or URLs")
    parser.add_argument("--out", required=True, metavar="OUT", help="the build folder: a path or an fsspec URL")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")


def _add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    from corpus.filters.stream import add_arguments

    add_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    from corpus.build import stages
    from corpus.engine.progress import Progress
    from corpus.engine.run import require_workers, run_stages
    from corpus.engine.storage import list_inputs
    from corpus.recipe import load_recipe
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    require_workers(arguments.workers)
    recipe = load_recipe(arguments.recipe, arguments.set)
    inputs = list_inputs(arguments.input)
    progress = Progress(quiet=arguments.quiet)
    run_stages(stages(recipe, inputs), arguments.out, workers=arguments.workers, progress=progress)
    report = write_report(arguments.out)
    if not arguments.quiet:
        print(render(funnel(arguments.out), terminal=sys.stderr.isatty()), file=sys.stderr)
        print(f"report: {report}", file=sys.stderr)


def _plan(arguments: argparse.Namespace) -> None:
    from corpus.build import stages
    from corpus.engine.run import plan_stages
    from corpus.engine.storage import list_inputs
    from corpus.recipe import load_recipe

    recipe = load_recipe(arguments.recipe, arguments.set)
    inputs = list_inputs(arguments.input)
    pipeline = stages(recipe, inputs)
    print(f"{len(inputs):,} input files, {sum(file.bytes for file in inputs) / 1e6:,.1f} MB")
    planned = 0
    for stage, folder, tasks, done in plan_stages(pipeline, arguments.out):
        planned += 1
        state = "up to date" if done == tasks else f"{tasks - done} of {tasks} tasks to run"
        print(f"{stage.name:<12} {state:<24} {folder}")
    for stage in pipeline[planned:]:
        print(f"{stage.name:<12} after {', '.join(stage.upstream)}")


def _filter(arguments: argparse.Namespace) -> None:
    from corpus.filters.stream import main as filter_stream

    filter_stream(arguments)


def _status(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from corpus.report.verify import render_status, status

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

    from corpus.engine.errors import WenhaiError
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
