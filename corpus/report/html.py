"""`report.html`: one page without a single request, that opens from disk, light or dark.

A page is text of strangers, so it may do little: its content-security policy allows one style sheet and one script, by
their hashes, and no image, font, frame, form or connection at all; and every string is escaped where it is put in. The
script moves the sliders; without it the page has everything but those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources

from corpus.engine import storage
from corpus.engine.page import document
from corpus.filters.decide import Limit
from corpus.report.card import CARD_NAME, render_card
from corpus.report.distributions import Distribution
from corpus.report.examples import Sample
from corpus.report.explain import number
from corpus.report.facts import Facts, gather
from corpus.report.markdown import render_markdown
from corpus.report.sliders import page_data
from corpus.report.summary import share, size
from corpus.report.svg import CHART_WIDTH, cell_bar, funnel_bars, histogram_chart
from corpus.report.tables import CODE_COLUMNS, TITLES, Table, described, funnel_rows, tables
from corpus.safe import escape_html

HTML_NAME = "report.html"
MARKDOWN_NAME = "report.md"
STYLE, SCRIPT = "page.css", "page.js"


def write_report(out: str) -> str:
    """Write `report.html`, `report.md` and `DATASET_CARD.md` below `out`, each complete or not at all; returns where
    the page is.

    Raises:
        WenhaiError: `out` holds no run, a file is damaged, or the disk refuses.
    """
    facts = gather(out)
    written = (
        (MARKDOWN_NAME, render_markdown(facts)),
        (CARD_NAME, render_card(out, facts)),
        (HTML_NAME, render_html(facts)),
    )
    for name, text in written:
        with storage.create(storage.join(out, name)) as path:
            path.write_text(text, encoding="utf-8")
    return storage.join(out, HTML_NAME)


def render_html(facts: Facts) -> str:
    """The whole page."""
    style, script = (resources.files("corpus.report").joinpath(name).read_text("utf-8") for name in (STYLE, SCRIPT))
    after = _live(facts, script) if facts.measured.distributions else ()
    return document("Corpus report", style, _body(facts), after, script)


def _live(facts: Facts, script: str) -> Iterator[str]:
    """The panel of the sliders, the numbers behind it and the one script."""
    yield (
        '<aside id="panel" class="live" aria-label="Other limits"><p id="answer" role="status" aria-live="polite"></p>'
        '<div class="command"><span class="soft">exact, by rule, with examples:</span>'
        '<code id="command" tabindex="0" aria-label="command"></code><button id="copy" type="button">Copy</button>'
        '<button id="reset" type="button">Reset</button></div></aside>\n'
    )
    numbers = page_data(facts.measured, facts.samples, CHART_WIDTH)
    yield f'<script type="application/json" id="data">{numbers}</script>\n<script>{script}</script>\n'


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
    for name in ("reasons", "failures", "left_out", "edits", "statistics"):
        if name in shown:
            yield from _section(shown[name], facts)
    if facts.samples:
        yield from _samples(facts.samples)
    yield '<div class="pair">\n'
    for name in ("lengths", "scripts", "languages", "domains", "sources", "encodings", "clusters", "earlier"):
        if name in shown:
            yield f"<section>{''.join(_section(shown[name], facts))}</section>\n"
    yield "</div>\n"
    for name in ("mixture", "throughput"):
        if name in shown:
            yield from _section(shown[name], facts)
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
        charts = [(_chart(one, index), one) for index, one in enumerate(facts.measured.distributions)]
        judged, others = ([chart for chart, one in charts if bool(one.limits) == ruled] for ruled in (True, False))
        yield f'<p class="soft">{escape_html(table.caption)} Blue bars are inside the limits, orange ones outside; pale '
        yield "bars are documents that another rule drops anyway, full ones are decided by this limit. Heights are "
        yield 'logarithms of counts.<span class="live"> Move a slider: the line at the foot of the page tells what the '
        yield "filter would then keep, and the command that makes it so.</span></p>\n"
        yield f'<div class="grid">{"".join(judged)}</div>\n'
        if others:
            yield f"<details><summary>{len(others)} statistics without a rule</summary>"
            yield f'<div class="grid">{"".join(others)}</div></details>\n'
        yield f"<details><summary>All {len(table.rows)} as a table</summary>{_table(table)}</details>\n"
    else:
        yield _table(table)


def _chart(one: Distribution, index: int) -> str:
    outside = one.num_below + one.num_above
    alone = one.passing_others - _inside(one)
    unit, meaning = described(one.name)
    what = f'<p class="soft unit"><b>{escape_html(unit)}</b>. {escape_html(meaning)}</p>' if unit else ""
    note = (
        f"{outside:,} outside ({share(outside, one.num_documents)}), {alone:,} by this rule alone. "
        if one.limits
        else f"{one.num_documents:,} values. "
    )
    return (
        f'<figure id="f{index}" data-name="{escape_html(one.name)}"><h3>{escape_html(one.name)}</h3>{what}'
        f'{histogram_chart(one, index)}<div class="live">{"".join(_sliders(one))}</div>'
        f'<figcaption>{note}<b class="effect"></b></figcaption></figure>'
    )


def _inside(one: Distribution) -> int:
    """Documents that the rule keeps of those that pass all other rules."""
    low = one.below[one.grid.index(one.limits["min"])] if "min" in one.limits else 0
    high = one.up_to[-1] - one.up_to[one.grid.index(one.limits["max"])] if "max" in one.limits else 0
    return one.passing_others - low - high


def _sliders(one: Distribution) -> Iterator[str]:
    """One for each limit; where there is none, one for each that there could be. The ends mean no limit."""
    for bound, first, last, off in (("min", -1, len(one.grid) - 1, -1), ("max", 0, len(one.grid), len(one.grid))):
        if bound in one.limits or not one.limits:
            value = one.grid.index(one.limits[bound]) if bound in one.limits else off
            yield (
                f'<label class="slider"><span>{bound}</span><input type="range" min="{first}" max="{last}" '
                f'value="{value}" data-bound="{bound}" aria-label="{escape_html(one.name)} {bound}" autocomplete="off">'
                "<output></output></label>"
            )


def _samples(samples: Sequence[Sample]) -> Iterator[str]:
    yield f'<h2 id="samples">{TITLES["samples"]}</h2>\n'
    yield "<p>Documents on both sides of each limit: the nearest ones, then others. The page says which of them the "
    yield "sliders would keep or drop. Judge the limits by them.</p>\n"
    head = '<thead><tr><th>verdict</th><th class="num">value</th><th>document</th><th>text</th></tr></thead>'
    by_limit: dict[Limit, list[tuple[int, Sample]]] = {}
    for index, sample in enumerate(samples):
        by_limit.setdefault(sample.limit, []).append((index, sample))
    for place, (limit, group) in enumerate(by_limit.items()):
        bound = f"{limit.bound} {number(limit.threshold)}"
        yield f"<details{'' if place else ' open'}><summary><code>{escape_html(limit.key)}</code> {bound}</summary>"
        yield f'<div class="scroll"><table class="samples">{head}<tbody>'
        for index, one in group:
            tag = '<td class="tag lost">dropped</td>' if one.dropped else '<td class="tag">kept</td>'
            text = escape_html(one.text) + (f'<br><span class="soft">{escape_html(one.url)}</span>' if one.url else "")
            yield (
                f'<tr data-sample="{index}" data-dropped="{int(one.dropped)}">{tag}<td class="num">{number(one.value)}</td>'
                f'<td class="code">{escape_html(one.name)}</td><td class="text">{text}</td></tr>'
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
