"""`report.html` and `report.zh.html`: a page without a single request, that opens from disk, light or dark, in two
languages.

The script moves the sliders; without it the page has everything but those.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np

from corpus.engine import storage
from corpus.engine.chart import words
from corpus.engine.page import Html, cards, document, table, tag
from corpus.filters.decide import Limit
from corpus.filters.measure import stored_row
from corpus.report.card import CARD_NAME, render_card
from corpus.report.distributions import NOT_A_NUMBER, Distribution, Limits, Measured, judged
from corpus.report.examples import Sample
from corpus.report.explain import aside, number
from corpus.report.language import CHINESE, ENGLISH, Language
from corpus.report.markdown import render_markdown
from corpus.report.metadata import BuildMetadata, gather
from corpus.report.summary import BREACHES, share, size
from corpus.report.tables import CODE_COLUMNS, TITLES, Table, describe_statistic, funnel_rows, tables

MARKDOWN_NAME = "report.md"
STYLE, SCRIPT = "page.css", "page.js"
ABOVE = ("reasons", "failures", "left_out", "templates", "edits", "statistics")  # sections, from margin to margin
PAIRED = (
    "lengths",
    "labels",
    "domains",
    "sources",
    "encodings",
    "clusters",
    "earlier",
)  # two a row
BELOW = ("items", "mixture", "throughput")
CHART_WIDTH, BASE, TOP, CHART_HEIGHT = 300, 110, 14, 128  # pixels; BASE: where bars of a histogram stand
HEIGHTS = (
    "Blue bars are inside the limits, orange ones outside; pale bars are documents that another rule drops anyway, "
    "full ones are decided by this limit. Heights are logarithms of counts."
)
MOVE = (
    "Move a slider: the line at the foot of the page tells what the filter would then keep, and the command that "
    "makes it so."
)
NEAR = (
    "Documents on both sides of each limit: the nearest ones, then others. The page says which of them the sliders "
    "would keep or drop. Judge the limits by them."
)
SENTENCES = {  # of the script, which fills them in
    "recipe": "The recipe keeps {kept} of {documents} documents. Move a slider to try another limit.",
    "one": "Would keep {kept} of {documents} documents ({change}; {characters} characters), exactly.",
    "several": "Would keep {kept} of {documents} documents ({change}), exactly.",
    "estimate": "Would keep about {kept} of {documents} documents ({change} ± {error}), estimated from {sampled} of "
    "them; the command counts exactly.",
    "alone": "alone: {change} documents kept",
    "off": "off",
    "kept": "kept",
    "dropped": "dropped",
    "would_keep": "would be kept",
    "would_drop": "would be dropped",
    "copy": "Copy",
    "copied": "Copied",
}


def write_report(out: str) -> str:
    """Write `report.html`, `report.zh.html`, `report.md` and `DATASET_CARD.md` below `out`, each complete or not at
    all; returns where the English page is.

    Raises:
        WenhaiError: `out` holds no run, a file is damaged, or the disk refuses.
    """
    facts = gather(out)
    written = (
        (MARKDOWN_NAME, render_markdown(facts)),
        (CARD_NAME, render_card(out, facts)),
        *((say.page, render_html(facts, say)) for say in (ENGLISH, CHINESE)),
    )
    for name, text in written:
        with storage.create(storage.join(out, name)) as path:
            path.write_text(text, encoding="utf-8")
    return storage.join(out, ENGLISH.page)


def render_html(facts: BuildMetadata, say: Language = ENGLISH) -> str:
    """The whole page in one language."""
    style, script = (resources.files("corpus.report").joinpath(name).read_text("utf-8") for name in (STYLE, SCRIPT))
    after = _live(facts, script, say) if facts.measured.distributions else ()
    title, body = say("Corpus report"), _body(facts, say)
    return document(title, "", body, style=style, after=after, script=script, lang=say.tag)


def _live(facts: BuildMetadata, script: str, say: Language) -> Iterator[Html]:
    """The panel of the sliders, the numbers behind it and the one script."""
    command = tag(
        "div",
        tag("span", say("exact, by rule, with examples:"), class_="soft"),
        tag("code", id="command", tabindex="0", aria_label=say("command")),
        tag("button", say(SENTENCES["copy"]), id="copy", type="button"),
        tag("button", say("Reset"), id="reset", type="button"),
        class_="command",
    )
    answer = tag("p", id="answer", role="status", aria_live="polite")
    yield tag("aside", answer, command, id="panel", class_="live", aria_label=say("Other limits"))
    numbers = _page_data(facts.measured, facts.samples, facts.limits, say)
    yield tag("script", Html(numbers), type="application/json", id="data")
    yield tag("script", Html(script))


def _body(facts: BuildMetadata, say: Language) -> Iterator[Html]:
    shown = {one.name: one for one in tables(facts, say)}
    present = {*shown, "samples"} if facts.samples else set(shown)
    other = CHINESE if say is ENGLISH else ENGLISH
    link = tag("a", other.name, class_="language", href=other.page, hreflang=other.tag, lang=other.tag)
    yield tag("nav", link, *(tag("a", say(TITLES[name]), href=f"#{name}") for name in TITLES if name in present))
    for breach in facts.funnel.breaches:
        told = say.made(breach, *BREACHES)
        yield tag("p", tag("b", say("Conservation broken.")), f" {told}", class_="warning")
    yield cards(_figures(facts, say))
    yield from (_heading("funnel", say), _funnel(facts, say))
    yield from (part for name in ABOVE if name in shown for part in _section(shown[name], facts, say))
    if facts.samples:
        yield from (_heading("samples", say), tag("p", say(NEAR)), *_samples(facts.samples, say))
    if "quality" in shown:
        yield from _section(shown["quality"], facts, say)
        yield from (_folded((name,), (_row(one, say) for one in some), say) for name, some in facts.scored.items())
    pairs = (tag("section", *_section(shown[name], facts, say)) for name in PAIRED if name in shown)
    yield tag("div", *pairs, class_="pair")
    yield from (part for name in BELOW if name in shown for part in _section(shown[name], facts, say))
    yield tag(
        "footer",
        say("Any line of this page can be followed to its documents: "),
        tag("code", "python -m corpus explain OUT ID|URL|SHARD:ROW"),
        say(". Texts are shortened, personal data in them masked."),
    )


def _figures(facts: BuildMetadata, say: Language) -> Iterator[tuple[str, str]]:
    funnel = facts.funnel
    yield f"{funnel.documents_in:,}", say("documents read, {size}", size=size(funnel.bytes_in))
    yield f"{funnel.documents_kept:,}", say("kept, {size} of text", size=size(funnel.bytes_kept))
    yield share(funnel.documents_kept, funnel.documents_in) or "–", say("of the documents kept")
    yield f"{sum(funnel.duplicates.values()):,}", say("duplicates dropped")
    if funnel.tokens:
        yield f"{sum(funnel.tokens.values()):,}", say("tokens")


def _heading(name: str, say: Language) -> Html:
    return tag("h2", say(TITLES[name]), id=name)


def _funnel(facts: BuildMetadata, say: Language) -> Html:
    rows, whole = [], facts.funnel.documents_in
    for label, stay, lost, num_bytes in funnel_rows(facts, say):
        of_text = f" · {size(num_bytes)}" if num_bytes else ""
        minus = f" (−{lost:,})" if lost else ""
        told = tag("span", f"{stay:,} · {share(stay, whole)}{of_text}{minus}", class_="soft")
        widths = (100 * part / whole if whole else 0 for part in (stay + lost, stay))
        parts = (
            tag("rect", class_=kind, width=width, height=8) for kind, width in zip(("c1", "c0"), widths, strict=True)
        )
        bar = tag("svg", *parts, viewBox="0 0 100 8", preserveAspectRatio="none", role="img", aria_label=label)
        rows.append(tag("li", tag("span", label), bar, told))
    title = tag("p", say("Documents after each step; "), tag("span", say("lost there"), class_="c1"), class_="soft")
    return tag("figure", title, tag("ul", *rows, class_="funnel"))


def _section(one: Table, facts: BuildMetadata, say: Language) -> Iterator[Html]:
    yield _heading(one.name, say)
    if one.name == "statistics":
        yield from _statistics(one, facts, say)
        return
    if one.caption:
        yield tag("p", one.caption, class_="soft")
    counts = [reason.documents for reason in facts.reasons]
    yield _table(one, say, [_cell_bar(count, max(counts)) for count in counts] if one.name == "reasons" else [])


def _statistics(one: Table, facts: BuildMetadata, say: Language) -> Iterator[Html]:
    charts = [(_chart(found, index, say), found) for index, found in enumerate(facts.measured.distributions)]
    judged, others = ([chart for chart, found in charts if bool(found.limits) == ruled] for ruled in (True, False))
    moving = tag("span", f"{say.space}{say(MOVE)}", class_="live")
    yield tag("p", say.join(one.caption, say(HEIGHTS)), moving, class_="soft")
    yield tag("div", *judged, class_="charts")
    if others:
        folded = tag("div", *others, class_="charts")
        yield tag("details", tag("summary", say("{number} statistics without a rule", number=len(others))), folded)
    yield tag("details", tag("summary", say("All {number} as a table", number=len(one.rows))), _table(one, say))


def _table(one: Table, say: Language, bars: Sequence[Html] = ()) -> Html:
    """Names of ours as code, and a last column of bars."""
    rows = [
        [
            tag("code", cell) if name in CODE_COLUMNS and cell else cell
            for name, cell in zip(one.headings, row, strict=True)
        ]
        for row in one.rows
    ]
    headings = [say(heading) for heading in one.headings]
    if not bars:
        return table(headings, rows, numeric=one.numeric)
    beside = [[*row, bar] for row, bar in zip(rows, bars, strict=True)]
    return table((*headings, ""), beside, numeric=one.numeric)


def _cell_bar(part: int, whole: int) -> Html:
    bar = tag("rect", class_="c1", width=100 * part / whole if whole else 0, height=8, rx=1)
    return tag("svg", bar, class_="cell", viewBox="0 0 100 8", role="img", aria_label=share(part, whole))


def _chart(one: Distribution, index: int, say: Language) -> Html:
    outside = one.num_below + one.num_above
    alone = one.passing_others - _inside(one)
    unit, meaning = map(say, describe_statistic(one.key))
    note = say("{number} values. ", number=f"{one.num_documents:,}")
    if one.limits:
        note = say(
            "{outside} outside ({share}), {alone} by this rule alone. ",
            outside=f"{outside:,}",
            share=share(outside, one.num_documents),
            alone=f"{alone:,}",
        )
    return tag(
        "figure",
        tag("h3", tag("code", one.name), f" {say.condition(aside(one.detail))}"),
        tag("p", tag("b", unit), say(". "), meaning, class_="soft unit") if unit else "",
        histogram(one, index, say),
        tag("div", *_sliders(one), class_="live"),
        tag("figcaption", note, tag("b", class_="effect")),
        id=f"f{index}",
        data_name=one.name,
    )


def histogram(one: Distribution, index: int, say: Language) -> Html:
    """One histogram, heights logarithms of counts: all documents pale, those that pass all other rules full.

    Both are drawn in the colour of what is lost, and over it, inside the limits, in that of what is kept; a slider of
    the page moves the window (`clipPath`) and the lines.
    """
    xs = [CHART_WIDTH * one.axis(value) for value in one.grid]
    passing = [right - left for left, right in zip(one.below, (*one.below[1:], one.up_to[-1]), strict=True)]
    tallest = math.log1p(max(one.counts, default=0)) or 1.0
    low = CHART_WIDTH * one.axis(one.limits["min"]) if "min" in one.limits else -1.0
    high = CHART_WIDTH * one.axis(one.limits["max"]) if "max" in one.limits else CHART_WIDTH + 1.0
    window = tag("clipPath", tag("rect", x=low, y=0, width=high - low, height=BASE), id=f"c{index}")
    shapes = [
        tag("path", id=f"{kind}{index}", d=_cells(xs, counts, tallest))
        for kind, counts in (("a", one.counts), ("p", passing))
    ]
    both = tag("use", class_="pale", href=f"#a{index}"), tag("use", href=f"#p{index}")
    parts = [
        tag("defs", *shapes, window),
        tag("g", *both, class_="lost"),
        tag("g", *both, class_="kept", clip_path=f"url(#c{index})"),
        tag("line", class_="grid", x1=0, y1=BASE, x2=CHART_WIDTH, y2=BASE),
        words(0, BASE + 13, number(one.grid[0])),
        words(CHART_WIDTH, BASE + 13, number(one.grid[-1]), "end"),
    ]
    for bound in sorted(one.limits) or ("min", "max"):
        x = CHART_WIDTH * one.axis(one.limits.get(bound, one.grid[0]))
        ends = {"x1": x, "y1": 2, "x2": x, "y2": BASE}
        if bound in one.limits:
            anchor, offset = ("start", 4) if x < CHART_WIDTH / 2 else ("end", -4)
            name = words(x + offset, TOP - 3, f"{bound} {number(one.limits[bound])}", anchor, "limit-label")
            parts += [tag("line", class_="limit", **ends), name]
        hidden = None if bound in one.limits else "hidden"
        parts.append(tag("line", class_="moved", visibility=hidden, data_bound=bound, **ends))
    if one.bend:
        middle = one.grid[min(range(len(xs)), key=lambda i: abs(xs[i] - CHART_WIDTH / 2))]
        parts.append(words(CHART_WIDTH / 2, BASE + 13, number(middle), "middle"))
    told, box = say("Histogram of {name}", name=one.name), f"0 0 {CHART_WIDTH} {CHART_HEIGHT}"
    return tag("svg", *parts, class_="histogram", viewBox=box, role="img", aria_label=told)


def _cells(xs: Sequence[float], counts: Sequence[int], tallest: float) -> str:
    """A path of one bar for each cell of the grid that holds documents; each at least a pixel and a half wide."""
    steps = []
    for x, end, count in zip(xs, [*xs[1:], CHART_WIDTH], counts, strict=True):
        if count:
            tall = max(1.5, (BASE - TOP) * math.log1p(count) / tallest)
            wide = max(1.5, end - x - 0.3)
            steps.append(f"M{min(x, CHART_WIDTH - wide):.1f} {BASE}v{-tall:.1f}h{wide:.1f}V{BASE}z")
    return "".join(steps)


def _inside(one: Distribution) -> int:
    """Documents that the rule keeps of those that pass all other rules."""
    low = one.below[one.grid.index(one.limits["min"])] if "min" in one.limits else 0
    high = one.up_to[-1] - one.up_to[one.grid.index(one.limits["max"])] if "max" in one.limits else 0
    return one.passing_others - low - high


def _sliders(one: Distribution) -> Iterator[Html]:
    """One for each limit; where there is none, one for each that there could be. The ends mean no limit."""
    last = len(one.grid)
    for bound, ends, off in (("min", ("-1", str(last - 1)), -1), ("max", ("0", str(last)), last)):
        if bound in one.limits or not one.limits:
            value = one.grid.index(one.limits[bound]) if bound in one.limits else off
            moved = {"type": "range", "min": ends[0], "max": ends[1], "value": str(value), "data_bound": bound}
            slider = tag("input", aria_label=f"{one.name} {bound}", autocomplete="off", **moved)
            yield tag("label", tag("span", bound), slider, tag("output"), class_="slider")


def _samples(samples: Sequence[Sample], say: Language) -> Iterator[Html]:
    by_limit: dict[Limit, list[Html]] = {}
    for index, one in enumerate(samples):
        row = _row(one, say, data_sample=str(index), data_dropped=str(int(one.dropped)))
        by_limit.setdefault(one.limit, []).append(row)
    for place, (limit, rows) in enumerate(by_limit.items()):
        bound = f" {limit.bound} {number(limit.threshold)} {say.condition(aside(limit.detail))}"
        yield _folded((tag("code", limit.rule), bound), rows, say, is_open=not place)


def _row(one: Sample, say: Language, **data: str) -> Html:
    verdict = say(SENTENCES["dropped" if one.dropped else "kept"])
    url = [tag("br"), tag("span", one.url, class_="soft")] if one.url else []
    cells = (
        tag("td", verdict, class_="tag lost" if one.dropped else "tag"),
        tag("td", number(one.value), class_="num"),
        tag("td", tag("code", one.name)),
        tag("td", one.text, *url, class_="text"),
    )
    return tag("tr", *cells, **data)


def _folded(name: Sequence[str], rows: Iterable[Html], say: Language, is_open: bool = False) -> Html:
    """Documents under a line that opens and closes them."""
    heads = (
        tag("th", say("verdict")),
        tag("th", say("value"), class_="num"),
        tag("th", say("document")),
        tag("th", say("text")),
    )
    whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="samples")
    return tag("details", tag("summary", *name), tag("div", whole, class_="scroll"), open="" if is_open else None)


def _page_data(measured: Measured, samples: Sequence[Sample], limits: Limits, say: Language) -> str:
    """A JSON text that may stand in a `script` element: no `<` in it."""
    value = {
        "documents": measured.documents,
        "kept": measured.kept,
        "sampled": measured.sampled,
        "width": CHART_WIDTH,
        "sentences": {key: say(sentence) for key, sentence in SENTENCES.items()},
        "statistics": [_statistic(index, one) for index, one in enumerate(measured.distributions)],
        "sample_places": _base64(b"".join(_places(sample, measured.distributions, limits) for sample in samples)),
    }
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _statistic(index: int, one: Distribution) -> dict[str, Any]:
    bounds = {bound: one.grid.index(limit) for bound, limit in one.limits.items()}
    return bounds | {
        "index": index,
        "name": one.name,
        "bend": one.bend,
        "grid": one.grid,
        "below": _steps(one.below),
        "up_to": _steps(one.up_to),
        "characters_below": _steps(one.characters_below),
        "characters_up_to": _steps(one.characters_up_to),
        "places": _base64(one.places),
    }


def _places(sample: Sample, distributions: Sequence[Distribution], limits: Limits) -> bytes:
    """Where one shown document stands on each grid."""
    values = judged(stored_row(sample.statistics), limits)
    found = ((one.grid, float(values.get(one.name, [np.nan])[0])) for one in distributions)
    return bytes(
        int(sum(np.searchsorted(grid, value, side) for side in ("left", "right")))
        if np.isfinite(value)
        else NOT_A_NUMBER
        for grid, value in found
    )


def _steps(totals: Sequence[int]) -> list[int]:
    """Differences: most of them are short numbers."""
    return [right - left for left, right in pairwise((0, *totals))]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
