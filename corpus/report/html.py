"""`report.html`: one page without a single request, that opens from disk, light or dark.

A page is text of strangers, so it may do nothing: its content-security policy allows one style sheet by its hash and no
script, image, font, frame, form or connection at all; and every string is escaped where it is put in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from importlib import resources

from corpus.engine import storage
from corpus.report.facts import Facts, Sample, gather
from corpus.report.histograms import Histogram
from corpus.report.markdown import render_markdown
from corpus.report.safe import escape_html
from corpus.report.summary import share, size
from corpus.report.svg import cell_bar, funnel_bars, histogram_chart
from corpus.report.tables import CODE_COLUMNS, TITLES, Table, funnel_rows, tables

HTML_NAME = "report.html"
MARKDOWN_NAME = "report.md"


def write_report(out: str) -> str:
    """Write `report.html` and `report.md` below `out`, each complete or not at all; returns where the page is.

    Raises:
        WenhaiError: `out` holds no run, a file is damaged, or the disk refuses.
    """
    facts = gather(out)
    for name, text in ((MARKDOWN_NAME, render_markdown(facts)), (HTML_NAME, render_html(facts))):
        with storage.create(storage.join(out, name)) as path:
            path.write_text(text, encoding="utf-8")
    return storage.join(out, HTML_NAME)


def render_html(facts: Facts) -> str:
    """The whole page."""
    style = resources.files("corpus.report").joinpath("page.css").read_text(encoding="utf-8")
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="referrer" content="no-referrer">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>Corpus report</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n",
            *_body(facts),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _body(facts: Facts) -> Iterator[str]:
    shown = {table.name: table for table in tables(facts)}
    present = {*shown, "samples"} if facts.samples else set(shown)
    sections = {name: title for name, title in TITLES.items() if name in present}
    yield "<h1>Corpus report <small>文海 wenhai</small></h1>\n<nav>"
    yield from (f'<a href="#{name}">{title}</a>' for name, title in sections.items())
    yield "</nav>\n"
    for breach in facts.funnel.breaches:
        yield f'<p class="warning"><b>Conservation broken.</b> {escape_html(breach)}</p>\n'
    yield from _cards(facts)
    yield f'<h2 id="funnel">Funnel</h2>\n<figure class="scroll">{funnel_bars(funnel_rows(facts))}</figure>\n'
    for name in ("reasons", "failures", "edits", "statistics"):
        if name in shown:
            yield from _section(shown[name], facts)
    if facts.samples:
        yield from _samples(facts.samples)
    yield '<div class="pair">\n'
    for name in ("domains", "sources", "encodings", "clusters"):
        if name in shown:
            yield f"<section>{''.join(_section(shown[name], facts))}</section>\n"
    yield "</div>\n"
    if "throughput" in shown:
        yield from _section(shown["throughput"], facts)
    yield (
        "<footer>Any line of this page can be followed to its documents: "
        "<code>python -m corpus explain OUT ID|URL|SHARD:ROW</code>. Texts are shortened, personal data in them masked."
        "</footer>\n"
    )


def _cards(facts: Facts) -> Iterator[str]:
    funnel = facts.funnel
    cards = [
        (f"{funnel.documents_in:,}", f"documents read, {size(funnel.bytes_in)}"),
        (f"{funnel.documents_kept:,}", f"kept, {size(funnel.bytes_kept)} of text"),
        (share(funnel.documents_kept, funnel.documents_in) or "–", "of the documents kept"),
        (f"{sum(funnel.duplicates.values()):,}", "duplicates dropped"),
    ]
    if funnel.tokens:
        cards.append((f"{sum(funnel.tokens.values()):,}", "tokens"))
    yield '<div class="cards">'
    yield from (f'<div class="card"><b>{figure}</b><span class="soft">{label}</span></div>' for figure, label in cards)
    yield "</div>\n"


def _section(table: Table, facts: Facts) -> Iterator[str]:
    yield f'<h2 id="{table.name}">{TITLES[table.name]}</h2>\n'
    if table.name == "reasons":
        counts = [one.documents for one in facts.reasons]
        yield _table(table, [cell_bar(count, max(counts)) for count in counts])
    elif table.name == "statistics":
        judged = [one for one in facts.histograms if one.limits]
        others = [one for one in facts.histograms if not one.limits]
        yield f'<p class="soft">{escape_html(table.caption)} Heights are logarithms of counts.</p>\n'
        yield f'<div class="grid">{"".join(map(_chart, judged))}</div>\n'
        if others:
            yield f"<details><summary>{len(others)} statistics without a rule</summary>"
            yield f'<div class="grid">{"".join(map(_chart, others))}</div></details>\n'
        yield f"<details><summary>All {len(table.rows)} as a table</summary>{_table(table)}</details>\n"
    else:
        yield _table(table)


def _chart(histogram: Histogram) -> str:
    outside = histogram.num_below + histogram.num_above
    part = share(outside, histogram.num_documents)
    note = f"<figcaption>{outside:,} outside ({part})</figcaption>" if histogram.limits else ""
    return f"<figure><h3>{escape_html(histogram.name)}</h3>{histogram_chart(histogram)}{note}</figure>"


def _samples(samples: Iterable[Sample]) -> Iterator[str]:
    yield f'<h2 id="samples">{TITLES["samples"]}</h2>\n'
    yield "<p>The documents nearest to a limit on both sides of it, for the rules that drop most."
    yield " Judge the limit by them.</p>\n"
    head = '<thead><tr><th></th><th class="num">value</th><th>document</th><th>text</th></tr></thead>'
    by_rule: dict[str, list[Sample]] = {}
    for sample in samples:
        by_rule.setdefault(sample.rule, []).append(sample)
    for index, (rule, group) in enumerate(by_rule.items()):
        yield f"<details{'' if index else ' open'}><summary><code>{escape_html(rule)}</code> {escape_html(group[0].limit)}</summary>"
        yield f'<div class="scroll"><table>{head}<tbody>'
        for one in group:
            tag = '<td class="tag lost">dropped</td>' if one.dropped else '<td class="tag">passes</td>'
            text = escape_html(one.text) + (f'<br><span class="soft">{escape_html(one.url)}</span>' if one.url else "")
            yield (
                f'<tr>{tag}<td class="num">{one.value}</td><td class="code">{escape_html(one.name)}</td>'
                f"<td>{text}</td></tr>"
            )
        yield "</tbody></table></div></details>\n"


def _table(table: Table, bars: list[str] | None = None) -> str:
    numeric = [' class="num"' if index in table.numeric else "" for index in range(len(table.headings))]
    heads = "".join(f"<th{kind}>{escape_html(name)}</th>" for kind, name in zip(numeric, table.headings, strict=True))
    lines = []
    for index, row in enumerate(table.rows):
        cells = "".join(
            f"<td{kind}>{_cell(heading, cell)}</td>"
            for kind, heading, cell in zip(numeric, table.headings, row, strict=True)
        )
        lines.append(f"<tr>{cells}{f'<td>{bars[index]}</td>' if bars else ''}</tr>")
    caption = f'<p class="soft">{escape_html(table.caption)}</p>' if table.caption else ""
    head = f"<thead><tr>{heads}{'<th></th>' if bars else ''}</tr></thead>"
    return f'{caption}<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>\n'


def _cell(heading: str, cell: str) -> str:
    return f"<code>{escape_html(cell)}</code>" if heading in CODE_COLUMNS and cell else escape_html(cell)
