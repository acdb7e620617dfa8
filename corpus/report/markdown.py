"""`report.md`: the report's tables as GitHub-flavoured Markdown, for a repository or a chat; every cell is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from corpus.report.examples import Sample
from corpus.report.explain import number
from corpus.report.metadata import BuildMetadata
from corpus.report.summary import size
from corpus.report.tables import CODE_COLUMNS, TITLES, Table, tables
from corpus.safe import code_markdown, cut, escape_markdown

SAMPLES_A_SIDE = 3
TEXT_CHARS = 90


def render_markdown(facts: BuildMetadata) -> str:
    """The whole file."""
    return "\n\n".join(_blocks(facts)) + "\n"


def _blocks(facts: BuildMetadata) -> Iterator[str]:
    funnel = facts.funnel
    yield "# Corpus report"
    yield from (f"> **Conservation broken.** {escape_markdown(breach)}" for breach in funnel.breaches)
    kept, tokens = size(funnel.bytes_kept), f", {sum(funnel.tokens.values()):,} tokens" if funnel.tokens else ""
    yield (
        f"{funnel.documents_in:,} documents read ({size(funnel.bytes_in)}), {funnel.documents_kept:,} kept "
        f"({kept} of text{tokens})."
    )
    for table in tables(facts) if not facts.samples else (*tables(facts), _samples(facts.samples)):
        yield f"## {TITLES[table.name]}"
        if table.caption:
            yield escape_markdown(table.caption)
        rows = [
            [
                code_markdown(cell) if heading in CODE_COLUMNS else escape_markdown(cell)
                for heading, cell in zip(table.headings, row, strict=True)
            ]
            for row in table.rows
        ]
        yield markdown_table(table.headings, rows, table.numeric)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Collection[int]) -> str:
    """Cells of Markdown as a table; the numeric columns are set to the right."""
    rule = "|".join("---:" if at in numeric else "---" for at in range(len(columns)))
    return "\n".join([f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def _samples(samples: Sequence[Sample]) -> Table:
    shown: dict[tuple[str, bool], list[Sample]] = {}
    for sample in samples:
        shown.setdefault((sample.limit.name, sample.dropped), []).append(sample)
    rows = [
        (
            one.limit.key,
            f"{one.limit.bound} {number(one.limit.threshold)}",
            "dropped" if one.dropped else "kept",
            number(one.value),
            one.name,
            cut(one.text, TEXT_CHARS),
        )
        for group in shown.values()
        for one in group[:SAMPLES_A_SIDE]
    ]
    return Table("samples", "", ("rule", "limit", "verdict", "value", "document", "text"), rows, frozenset({3}))
