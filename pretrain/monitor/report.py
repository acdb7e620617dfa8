"""`python -m pretrain report`: a run as one page (`report.html`) and as text (`report.md`), drawn from what it
recorded.

The page opens from disk without a single request and needs no script: its content-security policy allows its own style
sheet and nothing else, and every string is escaped where it is put in. A run writes it at its end; the command draws it
at any time, also while the run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from html import escape
from pathlib import Path

from corpus.engine import durable
from corpus.engine.page import document
from corpus.engine.toml import dump
from pretrain.monitor import facts
from pretrain.monitor.charts import draw
from pretrain.monitor.facts import Row
from pretrain.monitor.log import RunLog, read_log
from pretrain.monitor.page import style, table

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
    return document(f"{log.name} · training run", style(), _body(log))


def _body(log: RunLog) -> Iterator[str]:
    yield f"<h1>{escape(log.name)} <small>training run · 文海 wenhai</small></h1>\n"
    yield f"<p>{escape(facts.state(log))}</p>\n"
    for warning in facts.warnings(log):
        yield f'<p class="warning">{escape(warning)}</p>\n'
    yield '<div class="cards">'
    for figure, label in facts.headline(log):
        yield f'<div class="card"><b>{escape(figure)}</b><span class="soft">{escape(label)}</span></div>'
    yield "</div>\n"
    charts = [draw(chart, log.step, log.restarts) for chart in facts.charts(log)]
    if any(charts):
        yield f'<h2>Curves</h2>\n<div class="charts">\n{"".join(charts)}</div>\n'
        yield f'<p class="soft">{escape(facts.LEGEND)}</p>\n'
    if sample := log.summary.get("sample"):
        yield f'<h2>Sample</h2>\n<blockquote lang="zh">{escape(str(sample))}</blockquote>\n'
    if rows := facts.baselines(log):
        yield f"<h2>Held-out bits per character</h2>\n{table(('', 'bits per character'), rows)}"
    yield from _events(log)
    if rows := facts.checkpoints(log):
        yield f"<h2>Checkpoints</h2>\n{table(('folder', 'size'), rows)}"
    if log.config:
        yield f'<h2>Configuration</h2>\n<pre class="columns">{escape(dump(log.config))}</pre>\n'
    yield f"<footer>{escape(facts.FOOTER)}</footer>\n"


def _events(log: RunLog) -> Iterator[str]:
    rows = facts.events(log)
    if not rows:
        return
    yield f"<h2>Events</h2>\n<p>{escape(facts.event_counts(log))}</p>\n"
    earlier, latest = rows[:-SHOWN_EVENTS], rows[-SHOWN_EVENTS:]
    if earlier:
        yield f"<details><summary>{len(earlier):,} earlier ones</summary>{table(facts.EVENT_COLUMNS, earlier)}</details>"
    yield table(facts.EVENT_COLUMNS, latest)


def render_markdown(log: RunLog) -> str:
    """The same without the curves: their values at some twenty steps."""
    parts = [f"# {_cell(log.name)}: training run", facts.state(log)]
    parts += [f"**{warning}**" for warning in facts.warnings(log)]
    parts.append(_markdown_table(("", ""), [Row((label, figure)) for figure, label in facts.headline(log)]))
    columns, rows = facts.course(log)
    parts += ["## Curves", _markdown_table(columns, rows)] if rows else []
    if sample := log.summary.get("sample"):
        parts += ["## Sample", _fenced(str(sample))]
    if rows := facts.baselines(log):
        parts += ["## Held-out bits per character", _markdown_table(("", "bits per character"), rows)]
    if rows := facts.events(log):
        parts += ["## Events", facts.event_counts(log), _markdown_table(facts.EVENT_COLUMNS, rows[-SHOWN_EVENTS:])]
    if rows := facts.checkpoints(log):
        parts += ["## Checkpoints", _markdown_table(("folder", "size"), rows)]
    if log.config:
        parts += ["## Configuration", _fenced(dump(log.config), "toml")]
    return "\n\n".join([*parts, facts.FOOTER]) + "\n"


def _markdown_table(columns: tuple[str, ...], rows: list[Row]) -> str:
    lines = [columns, tuple("---" for _ in columns), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ").replace("`", "\\`")


def _fenced(text: str, language: str = "") -> str:
    """A block that the text cannot close."""
    longest = max((len(run) for run in text.replace("\n", " ").split(" ") if set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1, text.count("`") and 8)
    return f"{fence}{language}\n{text}\n{fence}"
