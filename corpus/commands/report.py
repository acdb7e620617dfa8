"""`python -m corpus report`: write the reports of a build."""

from __future__ import annotations

import argparse
import sys

from corpus.engine.cli import add_out_arguments, print_json

add_arguments = add_out_arguments


def main(arguments: argparse.Namespace) -> None:
    """Write the reports, print the funnel."""
    from corpus.report.html import write_report
    from corpus.report.summary import funnel, render

    report = write_report(arguments.out)
    summary = funnel(arguments.out)
    if arguments.json:
        print_json(summary.as_json())
    else:
        print(render(summary))
    print(f"report: {report}", file=sys.stderr)
