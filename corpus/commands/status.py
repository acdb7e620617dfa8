"""`python -m corpus status`: what is done, failed or missing below OUT."""

from __future__ import annotations

import argparse

from corpus.engine.cli import add_out_arguments, print_json
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import exists, local_path

add_arguments = add_out_arguments


def main(arguments: argparse.Namespace) -> None:
    """Print the state of each stage, and the pace of a run that lives."""
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
        print_json([asdict(stage) for stage in stages])
        return
    print(render_status(stages))
    for folder in crawl_folders(arguments.out):
        print(status_lines(local_path(folder)))
    if at is not None:
        print(render_pace(at))
