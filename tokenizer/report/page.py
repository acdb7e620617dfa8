"""`tokenizer.html`: a report, or several candidates side by side, as one page without a single request.

It is drawn from the JSON of `vocabulary_report` or `compare` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from corpus.engine.chart import BESIDE, NUM_COLORS, Bar, Drawing, Point, Series, bars, figures, plot
from corpus.engine.page import Html, cards, document, table, tag
from tokenizer.report.compare import MEASURES, comparison_rows, verdicts
from tokenizer.report.shown import by_number, cut, number, percent, plain, printable_piece
from tokenizer.report.summary import HEAD_OF_SOURCES, amounts, headlines

MAX_LENGTHS = 16  # bars of pieces by length
NUM_SUSPICIOUS = 200
FOOTER = (
    "␣ is a blank. Characters are code points; a token of one byte is part of a character that has no piece of its own."
)

Report = Mapping[str, Any]


def report_page(report: Report, title: str) -> str:
    """The page of one tokenizer."""
    return document("Tokenizer report", plain(title), _report_body(report), FOOTER)


def comparison_page(result: Mapping[str, Any]) -> str:
    """The page of several candidates."""
    return document("Tokenizers compared", f"{len(result['candidates'])} candidates", _comparison_body(result), FOOTER)


def _report_body(report: Report) -> Iterator[Html]:
    yield cards(headlines(report))
    if report["sources"]:
        groups = [*report["sources"].items(), *report["scripts"].items()]
        yield tag("h2", "Sources")
        yield figures([_by_group([(name, {"": found["characters_per_token"]}) for name, found in groups])])
        yield table(HEAD_OF_SOURCES, [[name, *amounts(found)] for name, found in groups])
    yield tag("h2", "Vocabulary")
    drawings = [
        _counts("Pieces by their number of characters", _by_length(report)),
        _counts("Pieces by script", report["pieces_by_script"].items()),
    ]
    if report["coverage"]["top"]:
        drawings.append(_coverage({"": report["coverage"]["top"]}))
    yield figures(drawings)
    yield from _pieces(report)
    yield tag("p", "model sha256 ", tag("code", report["tokenizer_sha256"]), class_="soft")


def _pieces(report: Report) -> Iterator[Html]:
    yield tag("h2", f"Suspicious pieces: {number(report['suspicious_pieces'])}")
    if suspicious := report["suspicious"]:
        rows = [[printable_piece(piece), number(count), reason] for piece, reason, count in suspicious[:NUM_SUSPICIOUS]]
        yield table(("piece", "uses", "reason"), rows)
        if len(suspicious) > NUM_SUSPICIOUS:
            yield tag("p", f"the {NUM_SUSPICIOUS} most used; the others are in the JSON.", class_="soft")
    if rejected := report.get("rejected_pieces"):  # of a report that training wrote
        yield tag("h2", f"Kept out of the vocabulary: {number(len(rejected))}")
        rows = [[printable_piece(piece), reason] for piece, reason in sorted(rejected.items())]
        yield table(("piece", "reason"), rows[:NUM_SUSPICIOUS])
    lists = [("Longest Han pieces", report["longest_han_pieces"]), ("Longest pieces", report["longest_pieces"])]
    if report["most_frequent"]:
        unused = report["unused"]
        lists += [
            ("Most frequent tokens", report["most_frequent"]),
            (f"Never used in these texts: {number(unused['pieces'])} pieces", unused["longest"]),
        ]
    for heading, pieces in lists:
        items = (
            tag("li", printable_piece(one))
            if isinstance(one, str)
            else tag("li", printable_piece(one[0]), tag("small", number(one[1])))
            for one in pieces
        )
        yield from (tag("h2", heading), tag("ul", *items, class_="pieces"))


def _comparison_body(result: Mapping[str, Any]) -> Iterator[Html]:
    candidates: Mapping[str, Any] = result["candidates"]
    yield tag("ul", *(tag("li", line) for line in verdicts(result)))
    yield _comparison(result)
    first = next(iter(candidates.values()))
    names = {name: plain(name) for name in list(candidates)[:NUM_COLORS]}
    groups = [
        (group, {shown: candidates[name][kind].get(group) for name, shown in names.items()})
        for kind in ("sources", "scripts")
        for group in first[kind]
    ]
    if groups:
        curves = {shown: candidates[name]["report"]["coverage"]["top"] for name, shown in names.items()}
        yield from (tag("h2", "Characters a token, and coverage"), figures([_by_group(groups), _coverage(curves)]))
    for name, row in candidates.items():
        yield tag("details", tag("summary", f"{plain(name)}: its pieces"), *_pieces(row["report"]))


def _comparison(result: Mapping[str, Any]) -> Html:
    """The table, the best of each measure marked where they are not all."""
    names = list(result["candidates"])
    head, *rows = comparison_rows(result)
    best = {entry["measure"]: entry["names"] for entry in result["best"]}
    for row, measure in zip(rows, MEASURES, strict=False):
        winners = best.get(measure.key, names)
        for column, name in enumerate(names, 1):
            if name in winners and len(winners) < len(names):
                row[column] = tag("b", row[column])
    return table(head, rows, numeric=range(1, len(head)))


def _by_group(groups: Sequence[tuple[str, Mapping[str, float | None]]]) -> Drawing:
    """Bars by source and script, one below the other for each candidate."""
    rows = [
        Bar("" if place else cut(plain(group), BESIDE), {name: value}, number(value, 3))
        for group, values in groups
        for place, (name, value) in enumerate(values.items())
    ]
    return bars("Characters a token by source", rows, lambda value: number(value, 3), note="Longer is better.")


def _counts(title: str, counts: Iterable[tuple[str, int]]) -> Drawing:
    return bars(title, [Bar(name, {"pieces": count}, number(count)) for name, count in counts], number)


def _by_length(report: Report) -> list[tuple[str, int]]:
    """Pieces by length, those above `MAX_LENGTHS` in one bar."""
    counts = by_number(report["pieces_by_length"])
    longer = sum(count for length, count in counts if length > MAX_LENGTHS)
    rows = [(str(length), count) for length, count in counts if length <= MAX_LENGTHS]
    return [*rows, (f"more than {MAX_LENGTHS}", longer)] if longer else rows


def _coverage(curves: Mapping[str, Sequence[Sequence[float]]]) -> Drawing:
    """Share of tokens over the number of most frequent pieces, whose axis is logarithmic."""
    series = [
        Series(name, [Point(count, share) for count, share in points], color)
        for color, (name, points) in enumerate(curves.items())
    ]
    last = max((point.x for one in series for point in one.points), default=10)
    decades = max(math.ceil(math.log10(last)), 1)
    return plot(
        "Coverage of the texts by the most frequent pieces",
        series,
        "pieces",
        text=percent,
        x_ends=(1.0, 10.0**decades),
        x_log=True,
        y_ends=(0.0, 1.0),
        note="Share of all tokens that the most frequent pieces are, over their number.",
    )
