"""`python -m pretrain report`: a run as one page (`report.html`) and as text (`report.md`), drawn from what it
recorded.

The page opens from disk without a single request and needs no script. A run writes it at its end; the command draws it
at any time, also while the run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from corpus.engine import durable
from corpus.engine.chart import figures
from corpus.engine.page import Html, cards, document, table, tag
from corpus.engine.toml import dump
from pretrain.monitor import metadata
from pretrain.monitor.log import RunLog, read_log
from pretrain.monitor.metadata import Row

HTML_NAME, MARKDOWN_NAME = "report.html", "report.md"
SHOWN_EVENTS = 60  # the latest; the others are folded in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain report`."""
    parser.add_argument("out", type=Path, metavar="OUT", help="the --out of a run")


def main(args: argparse.Namespace) -> None:
    """Write the report, and say where."""
    print(write_report(args.out))


def write_report(out: Path) -> Path:
    """Write `report.html` and `report.md` of the run in `out`, each complete or not at all; returns the page.

    Raises:
        WenhaiError: `out` holds no run, or the disk refuses.
    """
    log = read_log(out)
    durable.write_bytes(out / MARKDOWN_NAME, render_markdown(log).encode())
    durable.write_bytes(out / HTML_NAME, render_html(log).encode())
    return out / HTML_NAME


def render_html(log: RunLog) -> str:
    """The whole page."""
    return document(log.name, "training run", _body(log), metadata.FOOTER)


def _body(log: RunLog) -> Iterator[Html]:
    yield tag("p", metadata.state(log))
    yield from (tag("p", warning, class_="warning") for warning in metadata.warnings(log))
    yield cards(metadata.headline(log))
    if charts := metadata.charts(log):
        yield from (tag("h2", "Curves"), figures(charts), tag("p", metadata.LEGEND, class_="soft"))
    if sample := log.summary.get("sample"):
        yield from (tag("h2", "Sample"), tag("blockquote", str(sample), lang="zh"))
    if rows := metadata.baselines(log):
        yield from (tag("h2", "Held-out bits per character"), table(("", "bits per character"), rows))
    if rows := metadata.events(log):
        yield from (tag("h2", "Events"), tag("p", metadata.event_counts(log)))
        if earlier := rows[:-SHOWN_EVENTS]:
            yield tag("details", tag("summary", f"{len(earlier):,} earlier ones"), _events(earlier))
        yield _events(rows[-SHOWN_EVENTS:])
    if rows := metadata.checkpoints(log):
        yield from (tag("h2", "Checkpoints"), table(("folder", "size"), rows))
    if log.config:
        yield from (tag("h2", "Configuration"), tag("pre", dump(log.config)))


def _events(rows: Sequence[Row]) -> Html:
    return table(metadata.EVENT_COLUMNS, rows, ["bad" if row[2] in metadata.BAD else None for row in rows])


def render_markdown(log: RunLog) -> str:
    """The same without the curves: their values at some twenty steps."""
    parts = [f"# {_cell(log.name)}: training run", metadata.state(log)]
    parts += [f"**{warning}**" for warning in metadata.warnings(log)]
    parts.append(_markdown_table(("", ""), [(label, figure) for figure, label in metadata.headline(log)]))
    columns, rows = metadata.course(log)
    parts += ["## Curves", _markdown_table(columns, rows)] if rows else []
    if sample := log.summary.get("sample"):
        parts += ["## Sample", _fenced(str(sample))]
    if rows := metadata.baselines(log):
        parts += ["## Held-out bits per character", _markdown_table(("", "bits per character"), rows)]
    if rows := metadata.events(log):
        parts += [
            "## Events",
            metadata.event_counts(log),
            _markdown_table(metadata.EVENT_COLUMNS, rows[-SHOWN_EVENTS:]),
        ]
    if rows := metadata.checkpoints(log):
        parts += ["## Checkpoints", _markdown_table(("folder", "size"), rows)]
    if log.config:
        parts += ["## Configuration", _fenced(dump(log.config), "toml")]
    return "\n\n".join([*parts, metadata.FOOTER]) + "\n"


def _markdown_table(columns: tuple[str, ...], rows: list[Row]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ").replace("`", "\\`")


def _fenced(text: str, language: str = "") -> str:
    """A block that the text cannot close."""
    longest = max((len(run) for run in text.replace("\n", " ").split(" ") if set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1, text.count("`") and 8)
    return f"{fence}{language}\n{text}\n{fence}"
