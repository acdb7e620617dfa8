"""`python -m tokenizer run`: train a vocabulary and encode the text; what is done already is skipped."""

from __future__ import annotations

import argparse
import json
import sys

from corpus.engine import config as engine_config
from corpus.engine import storage
from corpus.engine.cli import add_executor_arguments, cluster_address
from corpus.engine.progress import Progress
from corpus.engine.run import RUN_NAME, read_run, run_stages
from tokenizer.build import OF_TRAINING, stages
from tokenizer.commands import check
from tokenizer.config import MIXTURE_STAGE
from tokenizer.pretrained import pretrained_tokenizer
from tokenizer.report.reading import read_report
from tokenizer.report.summary import sample_by_source

REPORTED = ("vocab_size", "characters_per_token", "byte_fallback_ratio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    check.add_arguments(parser)
    parser.add_argument("--out", required=True, help="output folder or URL")
    parser.add_argument(
        "--text", nargs="+", default=(), metavar="PATH", help="Parquet files, folders, or another build"
    )
    parser.add_argument(
        "--tokenizer", metavar="PATH", help="encode with this model file, or that of another build, and train none"
    )
    add_executor_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on standard output")


def main(options: argparse.Namespace) -> None:
    """Run the stages and print what came of them."""
    address = cluster_address(options)
    settings = check.read_recipe(options)
    given = None if options.tokenizer is None else pretrained_tokenizer(options.tokenizer)
    folders = run_stages(
        stages(settings, options.text, mixed=is_mixed(options), given=given),
        options.out,
        workers=options.workers,
        address=address,
        resources=read_resources(options),
        progress=Progress(quiet=options.quiet),
        retired=() if given is None else OF_TRAINING,
    )
    report = None if given else read_report(folders["tokenizer"])
    counts = folders["tokens"].counts
    summary = {
        "documents": counts.documents_out,
        "bytes": counts.bytes_out,
        **dict(sorted(counts.extra.items())),
        **({key: report[key] for key in REPORTED} if report else {}),
        "tokenizer": folders["tokenizer"].files("model")[0].url,
        "tokens": folders["tokens"].url,
    }
    if report and report["vocab_size"] < report["vocab_size_asked"]:
        asked = report["vocab_size_asked"]
        left = " without what is rejected" if report["rejected_pieces"] else ""
        _say(f"the text{left} fills a vocabulary of {report['vocab_size']:,}, not the {asked:,} asked for")
    if options.json:
        print(json.dumps(summary, ensure_ascii=False))
    elif not options.quiet:
        for key, value in summary.items():
            _say(f"{key:<22} {value:,}" if isinstance(value, int) else f"{key:<22} {value}")
        if report:
            _say("\n" + sample_by_source(report))


def is_mixed(options: argparse.Namespace) -> bool:
    """Whether the build's mixture is encoded: where the recipe has a [mixture], and the text is the build's own."""
    asked = options.recipe is not None and "mixture" in engine_config.load_toml(
        engine_config.find_recipe(options.recipe)
    )
    if options.text:
        if asked:
            _say("the recipe's [mixture] is of the build's own text; every document of --text is taken once")
        return False
    there = storage.exists(storage.join(options.out, RUN_NAME)) and MIXTURE_STAGE in read_run(options.out)["stages"]
    if there and not asked:
        _say(f"{options.out} holds a mixture and this recipe has no [mixture]: every document is taken once")
    return asked


def read_resources(options: argparse.Namespace) -> dict[str, engine_config.Resources]:
    """The [resources.STAGE] sections of a recipe; a stage of the corpus package may stand among them."""
    if options.recipe is None:
        return {}
    path = engine_config.find_recipe(options.recipe)
    section = {"resources": engine_config.load_toml(path).get("resources", {})}
    return engine_config.parse(engine_config.WithResources, section, str(path)).resources


def _say(text: str) -> None:
    print(text, file=sys.stderr)
