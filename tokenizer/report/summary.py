"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenizer.report.shown import by_number, cut, number, percent, plain, printable_piece, table

NUM_SHOWN = 20
NUM_SOURCES = 12  # after training
NUM_REJECTED = 5
SOURCE_COLUMNS = 44
HEAD_OF_SOURCES = ("source", "documents", "characters", "characters/token", "bytes/token", "byte fallback")
Report = Mapping[str, Any]


def summarize(report: Report) -> str:
    """What a person wants to know first, in about a screen."""
    return "\n\n".join(_parts(report))


def headlines(report: Report) -> list[tuple[str, str]]:
    """(value, what it is) of the figures that sum up a tokenizer."""
    return [
        (number(report["vocab_size"]), "ids in the vocabulary"),
        (number(report["characters_per_token"], 3), "characters a token"),
        (number(report["bytes_per_token"], 3), "bytes a token"),
        (percent(report["byte_fallback_ratio"]), "of the tokens are single bytes"),
        (number(report["renyi_efficiency"], 3), "Renyi efficiency"),
        (percent(report["used_pieces_ratio"]), "of the ids occur in these texts"),
        (number(report["suspicious_pieces"]), "suspicious pieces"),
    ]


def _parts(report: Report) -> Iterator[str]:
    yield table([[what, value] for value, what in headlines(report)])
    if report["sources"]:
        groups = [*report["sources"].items(), *report["scripts"].items()]
        yield table([HEAD_OF_SOURCES, *([cut(plain(name), SOURCE_COLUMNS), *amounts(found)] for name, found in groups)])
        parts = sorted((float(part), pieces) for part, pieces in report["coverage"]["pieces_for"].items())
        tops = ", ".join(f"{number(int(pieces))} for {100 * part:.3g} %" for part, pieces in parts)
        yield f"most frequent tokens that cover a share of the text: {tops}"
    yield "pieces by script: " + ", ".join(f"{name} {number(n)}" for name, n in report["pieces_by_script"].items())
    lengths = by_number(report["pieces_by_length"])
    yield "pieces by characters: " + ", ".join(f"{length}: {number(count)}" for length, count in lengths)
    if rejected := report.get("rejected_pieces"):  # of a report that training wrote
        yield "kept out of the vocabulary: " + " ".join(map(printable_piece, sorted(rejected)[:NUM_SHOWN]))
    yield "longest: " + " ".join(map(printable_piece, report["longest_pieces"][:NUM_SHOWN]))
    yield "longest of Han: " + " ".join(map(printable_piece, report["longest_han_pieces"][:NUM_SHOWN]))
    if report["suspicious"]:
        rows = [
            [printable_piece(piece), number(count), plain(reason)]
            for piece, reason, count in report["suspicious"][:NUM_SHOWN]
        ]
        kinds = ", ".join(f"{kind} {number(count)}" for kind, count in report["suspicious_by_kind"].items())
        yield f"suspicious, by how often they were used ({kinds}):\n" + "\n".join("  ".join(row) for row in rows)


def sample_by_source(report: Report) -> str:
    """Of the largest sources: share of the corpus and of the sample, and what a token holds; what was kept out."""
    sampled = report["sample_by_source"]
    rows = [["source", "of the corpus", "of the sample", "characters/token", "byte fallback"]]
    for name, found in list(sampled.items())[:NUM_SOURCES]:
        measured = report["sources"].get(name, {})
        rows.append(
            [
                cut(plain(name), SOURCE_COLUMNS),
                percent(found["corpus_ratio"]),
                percent(found["ratio"]),
                number(measured.get("characters_per_token"), 3),
                percent(measured.get("byte_fallback_ratio")),
            ]
        )
    lines = [table(rows)]
    if len(sampled) > NUM_SOURCES:
        lines.append("the largest; `python -m tokenizer report` lists more")
    if rejected := report["rejected_pieces"]:
        few = " ".join(map(printable_piece, sorted(rejected, key=len)[-NUM_REJECTED:]))
        lines.append(f"kept out of the vocabulary: {number(len(rejected))} pieces, as {few}")
    return "\n".join(lines)


def amounts(found: Mapping[str, Any]) -> list[str]:
    """The cells of a source or script."""
    return [
        number(found["documents"]),
        number(found["characters"]),
        number(found["characters_per_token"], 3),
        number(found["bytes_per_token"], 3),
        percent(found["byte_fallback_ratio"]),
    ]
