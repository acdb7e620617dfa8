"""`tokenizer.html`: a report, or several candidates side by side, as one page without a single request.

Pieces are text of strangers, so the page may do nothing: its content-security policy allows one style sheet, by its
hash, and no script, image, font, form or connection; and every string is escaped where it is put in. It is drawn from
the JSON of `vocabulary_report` or `compare` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from corpus.engine.page import document
from tokenizer.report.compare import MEASURES, comparison_rows, verdicts
from tokenizer.report.shown import by_number, escape, number, shown
from tokenizer.report.summary import amounts, headlines
from tokenizer.report.svg import HALF_WIDTH, bars, coverage_curve

STYLE = "page.css"
MAX_SERIES = 6  # colours
MAX_LENGTHS = 16  # bars of pieces by length
NUM_SUSPICIOUS = 200
HEAD_OF_SOURCES = ("source", "documents", "characters", "characters/token", "bytes/token", "byte fallback")

Report = Mapping[str, Any]


def report_page(report: Report, title: str) -> str:
    """The page of one tokenizer."""
    return _page("Tokenizer report", title, _report_body(report))


def comparison_page(result: Mapping[str, Any]) -> str:
    """The page of several candidates."""
    return _page("Tokenizers compared", f"{len(result['candidates'])} candidates", _comparison_body(result))


def _page(title: str, subtitle: str, body: Iterator[str]) -> str:
    style = resources.files("tokenizer.report").joinpath(STYLE).read_text("utf-8")
    main = [
        f"<h1>{title} <small>{escape(subtitle)}</small></h1>\n",
        *body,
        "<footer>␣ is a blank. Characters are code points; a token of one byte is part of a character that has no "
        "piece of its own.</footer>\n",
    ]
    return document(title, style, main)


def _report_body(report: Report) -> Iterator[str]:
    cards = "".join(f'<div class="card"><b>{value}</b>{what}</div>' for value, what in headlines(report))
    yield f'<div class="cards">{cards}</div>\n'
    if report["sources"]:
        yield "<h2>Sources</h2>\n"
        yield _figure(
            bars(_by_group(report), "Characters per token by source", _three), "characters a token; longer is better"
        )
        groups = [*report["sources"].items(), *report["scripts"].items()]
        yield _table([HEAD_OF_SOURCES, *([name, *amounts(found)] for name, found in groups)])
    yield '<h2>Vocabulary</h2>\n<div class="pair">\n'
    yield _figure(
        bars(_by_length(report), "Pieces by length", number, HALF_WIDTH), "pieces by their number of characters"
    )
    scripts = [(name, [count]) for name, count in report["pieces_by_script"].items()]
    yield _figure(bars(scripts, "Pieces by script", number, HALF_WIDTH), "pieces by script")
    yield "</div>\n"
    if report["coverage"]["top"]:
        yield _figure(
            coverage_curve({"": report["coverage"]["top"]}, "Coverage of the texts by the most frequent pieces"),
            "share of all tokens that the most frequent pieces are, over their number",
        )
    yield from _pieces(report)
    yield f'<p class="soft">model sha256 <code>{escape(report["tokenizer_sha256"])}</code></p>\n'


def _pieces(report: Report) -> Iterator[str]:
    suspicious = report["suspicious"]
    yield f"<h2>Suspicious pieces: {number(report['suspicious_pieces'])}</h2>\n"
    if suspicious:
        rows = [[shown(piece), number(count), reason] for piece, reason, count in suspicious[:NUM_SUSPICIOUS]]
        yield _table([("piece", "uses", "reason"), *rows], text_columns=(0, 2))
        if len(suspicious) > NUM_SUSPICIOUS:
            yield f'<p class="soft">the {NUM_SUSPICIOUS} most used; the others are in the JSON.</p>\n'
    if rejected := report.get("rejected_pieces"):  # of a report that training wrote
        yield f"<h2>Kept out of the vocabulary: {number(len(rejected))}</h2>\n"
        rows = [[shown(piece), reason] for piece, reason in sorted(rejected.items())]
        yield _table([("piece", "reason"), *rows[:NUM_SUSPICIOUS]], text_columns=(0, 1))
    yield f"<h2>Longest Han pieces</h2>\n{_list(report['longest_han_pieces'])}"
    yield f"<h2>Longest pieces</h2>\n{_list(report['longest_pieces'])}"
    if report["most_frequent"]:
        counts = [number(count) for _, count in report["most_frequent"]]
        yield f"<h2>Most frequent tokens</h2>\n{_list([piece for piece, _ in report['most_frequent']], counts)}"
        unused = report["unused"]
        yield f"<h2>Never used in these texts: {number(unused['pieces'])} pieces</h2>\n{_list(unused['longest'])}"


def _comparison_body(result: Mapping[str, Any]) -> Iterator[str]:
    candidates: Mapping[str, Any] = result["candidates"]
    head, *rows = comparison_rows(result)
    best = {entry["measure"]: set(entry["names"]) for entry in result["best"]}
    marked = [best.get(measure.key, set()) for measure in MEASURES]
    yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in verdicts(result))}</ul>\n"
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th{'' if not column else _NUM}>{escape(cell)}</th>" for column, cell in enumerate(head))
    yield "</tr></thead><tbody>\n"
    for place, (label, *cells) in enumerate(rows):
        names = marked[place] if place < len(marked) else set()
        tags = [' class="num best"' if name in names and len(names) < len(candidates) else _NUM for name in candidates]
        yield f"<tr><td>{escape(label)}</td>"
        yield "".join(f"<td{tag}>{escape(cell)}</td>" for tag, cell in zip(tags, cells, strict=True)) + "</tr>\n"
    yield "</tbody></table></div>\n"
    shown = dict(list(candidates.items())[:MAX_SERIES])
    first = next(iter(candidates.values()))
    groups = [
        (name, [row[group].get(name) for row in shown.values()])
        for group in ("sources", "scripts")
        for name in first[group]
    ]
    if groups:
        yield f"<h2>Characters a token</h2>\n{_legend(list(shown))}"
        yield _figure(bars(groups, "Characters per token by source and candidate", _three), "longer is better")
        curves = {name: row["report"]["coverage"]["top"] for name, row in shown.items()}
        yield "<h2>Coverage</h2>\n"
        yield _figure(
            coverage_curve(curves, "Coverage by candidate"), "share of all tokens, over the most frequent pieces"
        )
    for name, row in candidates.items():
        yield f"<details><summary>{escape(name)}: its pieces</summary>\n"
        yield from _pieces(row["report"])
        yield "</details>\n"


_NUM = ' class="num"'


def _table(rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """A table; the first row is its head, all columns but the named ones are numbers."""
    lines = []
    for place, row in enumerate(rows):
        tag = "td" if place else "th"
        cells = (f"<{tag}{'' if c in text_columns else _NUM}>{escape(cell)}</{tag}>" for c, cell in enumerate(row))
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    return f'<div class="scroll"><table><thead>{lines[0]}</thead><tbody>{"".join(lines[1:])}</tbody></table></div>\n'


def _list(pieces: Sequence[str], notes: Sequence[str] = ()) -> str:
    items = (
        f"<li>{escape(shown(piece))}{f'<small>{notes[place]}</small>' if notes else ''}</li>"
        for place, piece in enumerate(pieces)
    )
    return f'<ul class="pieces">{"".join(items)}</ul>\n'


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>\n"


def _legend(names: Sequence[str]) -> str:
    square = '<svg viewBox="0 0 1 1" aria-hidden="true"><rect class="s{}" width="1" height="1"/></svg>'
    marks = (f"<span>{square.format(series)}{escape(name)}</span>" for series, name in enumerate(names))
    return f'<p class="legend soft">{"".join(marks)}</p>\n'


def _by_group(report: Report) -> list[tuple[str, list[float | None]]]:
    groups = [*report["sources"].items(), *report["scripts"].items()]
    return [(name, [found["characters_per_token"]]) for name, found in groups]


def _by_length(report: Report) -> list[tuple[str, list[float | None]]]:
    """Pieces by length, those above `MAX_LENGTHS` in one bar."""
    counts = by_number(report["pieces_by_length"])
    rows: list[tuple[str, list[float | None]]] = [(str(length), [n]) for length, n in counts if length <= MAX_LENGTHS]
    longer = sum(count for length, count in counts if length > MAX_LENGTHS)
    return [*rows, (f"more than {MAX_LENGTHS}", [longer])] if longer else rows


def _three(value: float | None) -> str:
    return number(value, 3)
