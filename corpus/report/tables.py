"""The report's tables as data: headings and rows of plain strings, drawn by `html` and `markdown` alike.

Captions and words of ours in rows are made in the language of the page; headings are English until they are drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corpus.filters.measure import STATISTICS
from corpus.report import mixture
from corpus.report.distributions import Group
from corpus.report.explain import number
from corpus.report.language import ENGLISH, Language
from corpus.report.metadata import TOP_ROWS, BuildMetadata
from corpus.report.summary import DUPLICATE_RULES, most_first, share, size
from corpus.safe import snippet

TITLES = {
    "funnel": "Funnel",
    "reasons": "Why documents were dropped",
    "failures": "Records that could not be read",
    "left_out": "What extraction left out",
    "templates": "Templates of wikitext",
    "edits": "What was changed in texts",
    "statistics": "Statistics",
    "samples": "Near the limits",
    "quality": "Quality",
    "lengths": "Lengths",
    "labels": "Kinds of text",
    "domains": "Domains",
    "sources": "Sources",
    "encodings": "Encodings",
    "clusters": "Duplicates",
    "items": "Evaluation items",
    "earlier": "Earlier builds",
    "mixture": "Mixture",
    "throughput": "Throughput",
}
EDIT_PREFIX = "edited."
EDITS_CAPTION = (
    "By kind, in documents that were dropped afterwards, too: boilerplate lines, normalised characters, masked "
    "personal data, undone double encodings (mojibake), repeated lines, passages that another document keeps, and the "
    "documents that the template of [text] added to, with its characters."
)
EARLIER_CAPTION = (
    "Documents of these builds outrank all new ones: a document that resembles one of theirs was dropped, even where "
    "it is the better copy. So this is not what a build of all documents together would keep."
)
ITEMS_CAPTION = (
    "The evaluation items that cost most documents. One that is found in many may be a template of the test or of web "
    "pages, and no item."
)
MIXTURE_CAPTION = (
    "What the tokenizer takes of the text: how many times on average by bytes, and each group's share of the bytes "
    "before and after."
)
LEFT_OUT_CAPTIONS = {
    "goes_on": "{number} articles go on on a page that did not follow (meta.next_page).",
    "meta_left_out": "{number} documents had fields that sources.meta does not keep.",
}
RANGES = ("{low} to {high}", "below {high}", "not measured", "other documents")  # names of groups
CODE_COLUMNS = {"build", "rule", "edit", "statistic", "document", "folder"}


@dataclass(frozen=True)
class Table:
    """`numeric` columns are set to the right."""

    name: str
    caption: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int]


def describe_statistic(statistic: str) -> tuple[str, str]:
    """A statistic's unit and what it is, in one line; empty where it is not one of this version's.

    >>> describe_statistic("script.hangul_ratio")
    ('share of Han and hangul', 'Hangul over Han, kana and hangul. Korean prose has 0.9 or more.')
    """
    known = STATISTICS.get(statistic)
    return (known.unit, known.doc.partition("\n")[0].replace("`", "")) if known else ("", "")


def edit_counts(facts: BuildMetadata) -> dict[str, int]:
    """How often each kind of edit was made, the most frequent first."""
    counts: Counter[str] = Counter()
    for step in facts.funnel.steps:
        extra = step.counts.extra
        counts.update({key.removeprefix(EDIT_PREFIX): extra[key] for key in extra if key.startswith(EDIT_PREFIX)})
        counts.update({f"encoding.{key}": extra[key] for key in ("repaired", "damaged_lines") if key in extra})
        counts.update({key: extra[key] for key in extra if key.startswith("text.template_")})
    return most_first(counts)


def largest_only(groups: Sequence[Group], say: Language = ENGLISH) -> str:
    """Says that a list of groups was cut to its first rows, where it may have been."""
    return say("The {number} largest.", number=TOP_ROWS) if len(groups) == TOP_ROWS else ""


def funnel_rows(facts: BuildMetadata, say: Language) -> list[tuple[str, int, int, int]]:
    """(label, documents that stay, documents lost here, bytes of text or 0), from what was read to what is kept."""
    funnel = facts.funnel
    steps = [
        (say("without errors"), sum(funnel.errors.values())),
        (say("pass the filters"), sum(funnel.filtered.values())),
        *((say(f"without {DUPLICATE_RULES[rule]}"), count) for rule, count in funnel.duplicates.items()),
    ]
    rows, left = [(say("read"), funnel.documents_in, 0, funnel.bytes_in)], funnel.documents_in
    for label, lost in steps:
        left -= lost
        if lost:
            rows.append((label, left, lost, 0))
    return [*rows, (say("kept"), funnel.documents_kept, 0, funnel.bytes_kept)]


def tables(facts: BuildMetadata, say: Language = ENGLISH) -> Iterator[Table]:
    """All tables in reading order; empty ones are left out."""
    for table in (
        _funnel(facts, say),
        _reasons(facts, say),
        _failures(facts, say),
        _left_out(facts, say),
        _templates(facts, say),
        _edits(facts, say),
        _statistics(facts, say),
        *_groups(facts, say),
        *_origins(facts, say),
        _clusters(facts, say),
        _items(facts, say),
        _earlier(facts, say),
        _mixture(facts, say),
        _times(facts, say),
    ):
        if table.rows:
            yield table


def _funnel(facts: BuildMetadata, say: Language) -> Table:
    total = facts.funnel.documents_in
    rows = [
        (label, f"{stay:,}", f"{-lost:,}" if lost else "", share(stay, total), size(num_bytes) if num_bytes else "")
        for label, stay, lost, num_bytes in funnel_rows(facts, say)
    ]
    return Table("funnel", "", ("step", "documents", "lost here", "share", "size"), rows, frozenset({1, 2, 3, 4}))


def _reasons(facts: BuildMetadata, say: Language) -> Table:
    rows = [(one.rule, one.stage, say.condition(one.limit), f"{one.documents:,}", one.share) for one in facts.reasons]
    caption = say("Every document that is not kept ended by exactly one of these; the share is of all that were read.")
    return Table("reasons", caption, ("rule", "stage", "limit", "documents", "share"), rows, frozenset({3, 4}))


def _failures(facts: BuildMetadata, say: Language) -> Table:
    rows = [(one.rule, one.place, one.detail) for one in facts.failures]
    caption = say("The first few of each kind; explain takes the place as a key.")
    return Table("failures", caption, ("rule", "place", "detail"), rows, frozenset())


def _left_out(facts: BuildMetadata, say: Language) -> Table:
    """What extraction did with the characters of pages; white space does not count."""
    counts: Counter[str] = Counter()
    kinds = ("characters_", "lines_", "goes_on", "meta_left_out")
    for step in facts.funnel.steps:
        counts.update({key: count for key, count in step.counts.extra.items() if key.startswith(kinds)})
    total = counts.pop("characters_read", 0)
    found = {key.partition(".")[2]: count for key, count in counts.items() if key.startswith("characters_removed.")}
    rows = [
        (rule, f"{counts[f'lines_removed.{rule}']:,}", f"{count:,}", share(count, total))
        for rule, count in most_first(found).items()
    ]
    kept = total - sum(found.values())
    rows = [(say("kept"), "", f"{kept:,}", share(kept, total)), *rows] if total else []
    captions = [
        say("Characters of the pages that were read, white space aside; `corpus explain` has them for each document.")
    ]
    for key, sentence in LEFT_OUT_CAPTIONS.items():
        if counts[key]:
            captions.append(say(sentence, number=f"{counts[key]:,}"))
    return Table("left_out", say.join(*captions), ("rule", "lines", "characters", "share"), rows, frozenset({1, 2, 3}))


def _templates(facts: BuildMetadata, say: Language) -> Table:
    """What became of the templates of wikitext, of those left out the most frequent by name."""
    counts: Counter[str] = Counter()
    for step in facts.funnel.steps:
        counts.update({key: count for key, count in step.counts.extra.items() if key.startswith("wikitext.")})
    expanded, left_out = counts.pop("wikitext.expanded", 0), counts.pop("wikitext.left_out", 0)
    names = {f"{{{{{key.removeprefix('wikitext.left_out.')}}}}}": count for key, count in counts.items()}
    found = [(say("expanded"), expanded), (say("left out"), left_out), *list(most_first(names).items())[:TOP_ROWS]]
    rows = [(name, f"{count:,}", share(count, expanded + left_out)) for name, count in found if count]
    caption = say("Those of tables and references aside.")
    return Table("templates", caption, ("template", "times", "share"), rows, frozenset({1, 2}))


def _edits(facts: BuildMetadata, say: Language) -> Table:
    rows = [(kind, f"{count:,}") for kind, count in edit_counts(facts).items()]
    return Table("edits", say(EDITS_CAPTION), ("edit", "times"), rows, frozenset({1}))


def _statistics(facts: BuildMetadata, say: Language) -> Table:
    rows = [
        (
            one.name,
            number(one.limits["min"]) if "min" in one.limits else "",
            number(one.limits["max"]) if "max" in one.limits else "",
            *(number(value) for value in one.quantiles),
            share(one.num_below + one.num_above, one.num_documents) if one.limits else "",
            say.condition(one.detail),
        )
        for one in facts.measured.distributions
    ]
    caption = say(
        "Measured on {documents} documents. Outside counts a document under every rule that it breaks; the ledger "
        "counts it once, under the first.",
        documents=f"{facts.measured.documents:,}",
    )
    headings = ("statistic", "min", "max", "1 %", "median", "99 %", "outside", "detail")
    shown = len(headings) - (not any(one.detail for one in facts.measured.distributions))
    return Table("statistics", caption, headings[:shown], [row[:shown] for row in rows], frozenset(range(1, 7)))


def _groups(facts: BuildMetadata, say: Language) -> Iterator[Table]:
    measured = facts.measured
    lengths = [(say.made(one.name, *RANGES), *one.cells) for one in measured.lengths]
    headings: tuple[str, ...] = ("characters", "documents", "kept", "share")
    yield Table("lengths", say("After line edits; kept: by the filter."), headings, lengths, frozenset({1, 2, 3}))
    labels = [
        (key, say.made(one.name, *RANGES), *one.cells) for key, groups in measured.labels.items() for one in groups
    ]
    scores = [(say.made(one.name, *RANGES), *one.cells) for one in measured.scores]
    headings = ("score", "documents", "kept", "share")
    caption = say("By quality.score, the probability of the model's first class; kept: by the filter.")
    yield Table("quality", caption, headings, scores, frozenset({1, 2, 3}))
    headings = ("statistic", "label", "documents", "kept", "share")
    caption = say("By the statistics that are words; kept: by the filter.")
    yield Table("labels", caption, headings, labels, frozenset({2, 3, 4}))


def _origins(facts: BuildMetadata, say: Language) -> Iterator[Table]:
    for what, origins in facts.origins.items():
        rows = [(say.made(one.name, "(none)"), *one.cells) for one in origins]
        named = [one for one in origins if one.name != "(none)"]
        total = sum(step.counts.documents_out for step in facts.funnel.steps if step.stage == "extract")
        part = say("Of {read} of {total} documents.", read=f"{facts.documents_read:,}", total=f"{total:,}")
        caption = say.join(largest_only(origins, say), "" if facts.documents_read == total else part)
        if named:
            headings = (what, "documents", "kept", "share")
            yield Table(f"{what}s", caption, headings, rows, frozenset({1, 2, 3}))


def _clusters(facts: BuildMetadata, say: Language) -> Table:
    rows = [
        (say.made(label, *RANGES), f"{clusters:,}", f"{documents:,}") for label, clusters, documents in facts.clusters
    ]
    read, total = facts.clusters_read
    part = say("Of {read} of {total} kept documents.", read=f"{read:,}", total=f"{total:,}")
    caption = say("A cluster is a document that stayed and the duplicates that it stands for.")
    caption = say.join(caption, "" if read == total else part)
    return Table("clusters", caption, ("documents in a cluster", "clusters", "documents"), rows, frozenset({1, 2}))


def _items(facts: BuildMetadata, say: Language) -> Table:
    rows = [(name, f"{count:,}", say("a template?") if suspicious else "") for name, count, suspicious in facts.items]
    return Table("items", say(ITEMS_CAPTION), ("item", "documents", ""), rows, frozenset({1}))


def _earlier(facts: BuildMetadata, say: Language) -> Table:
    rows = [(name, out, f"{documents:,}") for name, out, documents in facts.earlier]
    return Table(
        "earlier", say(EARLIER_CAPTION), ("build", "folder of the run", "duplicates of it"), rows, frozenset({2})
    )


def _mixture(facts: BuildMetadata, say: Language) -> Table:
    whole = mixture.wholes(facts.mixture)
    rows = [
        (
            one.kind,
            say.made(snippet(one.name), *([mixture.REST] if one.kind == mixture.SOURCE else RANGES)),
            *mixture.cells(one, whole[one.kind]),
        )
        for one in mixture.top_groups(facts.mixture)
    ]
    return Table("mixture", say(MIXTURE_CAPTION), ("by", "group", *mixture.HEADINGS), rows, frozenset(range(2, 8)))


def _times(facts: BuildMetadata, say: Language) -> Table:
    rows = [
        (
            step.folder,
            f"{step.tasks:,}",
            f"{step.counts.documents_in:,}",
            size(step.counts.bytes_in),
            size(step.file_bytes),
            f"{step.cpu_seconds:,.1f}",
            f"{step.counts.bytes_in / 1e6 / step.cpu_seconds:,.1f}"
            if step.cpu_seconds >= 0.05 and step.counts.bytes_in
            else "",
        )
        for step in facts.funnel.steps
    ]
    headings = ("folder", "tasks", "documents in", "text in", "on disk", "CPU-s", "MB/s a core")
    caption = say("CPU time of the tasks that ran; text read for each second.")
    return Table("throughput", caption, headings, rows, frozenset(range(1, 7)))
