"""`DATASET_CARD.md`: what a stranger must know of the dataset, in the form that the Hugging Face hub reads.

Everything is taken from this build, the biases too: they are the shares that the filter kept of kinds of documents
that can be told apart by their statistics. What only a person can say (name, licence, contact) stands in the recipe's
[card]; where it is missing the card says so in a line to fill in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corpus.engine import storage
from corpus.engine.config import parse
from corpus.engine.stage import Folder
from corpus.recipe import CardConfig, recorded_recipe
from corpus.report.distributions import Group
from corpus.report.explain import number
from corpus.report.markdown import markdown_table
from corpus.report.metadata import BuildMetadata, limit_text
from corpus.report.summary import folders, share, size
from corpus.report.tables import EARLIER_CAPTION, EDITS_CAPTION, describe_statistic, edit_counts, largest_only
from corpus.safe import code_markdown, escape_markdown, plain, snippet

CARD_NAME = "DATASET_CARD.md"
SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
         (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip
INPUTS_SHOWN = 20
SMALL_GROUP = 20  # documents: below it a share says little
NOTABLE = 0.10  # below the overall share by this much
NO_LICENSE = "unknown  # to fill in: [card] license of the recipe"
FILL_IN = "**To fill in:** `[card] {key}` of the recipe."


def render_card(out: str, facts: BuildMetadata) -> str:
    """The whole file."""
    recorded = recorded_recipe(out)
    values = recorded.values if recorded else {}
    card = parse(CardConfig, values.get("card", {}), "[card] of the recorded recipe")
    stages = folders(out)
    configs = {name: storage.read_json(storage.join(folder.url, "stage.json")) for name, folder in stages.items()}
    title = snippet(card.name) or "Chinese text, filtered and deduplicated"
    sections: list[tuple[str, Iterator[str]]] = [
        ("", _summary(facts, str(values.get("description", "")))),
        ("Sources", _sources(facts, configs)),
        ("Composition", _composition(facts)),
        ("Rules and what each removed", _rules(facts)),
        ("Changes to texts", _edits(facts)),
        ("Duplicates", _duplicates(facts, configs)),
        ("Known biases", _biases(facts)),
        ("Personal data", _personal(facts, configs)),
        ("Removal of a text", _removal(card)),
        ("How to make it again", _reproduction(recorded.name if recorded else None, configs, stages)),
        ("Citation", _citation(card, title)),
    ]
    blocks = [_front_matter(card, title, facts.funnel.documents_kept), f"# {escape_markdown(title)}"]
    for heading, body in sections:
        if text := list(body):
            blocks += [*([f"## {heading}"] if heading else []), *text]
    return "\n\n".join(blocks) + "\n"


def _front_matter(card: CardConfig, title: str, documents: int) -> str:
    """YAML; JSON strings are YAML strings."""
    size_name = next((name for limit, name in SIZES if documents < limit), "n>1T")
    license = json.dumps(snippet(card.license), ensure_ascii=False) if card.license else NO_LICENSE
    return f"""---
pretty_name: {json.dumps(title, ensure_ascii=False)}
language:
- zh
license: {license}
task_categories:
- text-generation
size_categories:
- {json.dumps(size_name)}
---"""


def _summary(facts: BuildMetadata, description: str) -> Iterator[str]:
    funnel = facts.funnel
    if description:
        yield escape_markdown(snippet(description))
    tokens = f", {sum(funnel.tokens.values()):,} tokens" if funnel.tokens else ""
    yield (
        f"{funnel.documents_kept:,} documents, {size(funnel.bytes_kept)} of UTF-8 text{tokens}: "
        f"{share(funnel.documents_kept, funnel.documents_in)} of the {funnel.documents_in:,} documents that were read."
    )


def _sources(facts: BuildMetadata, configs: Mapping[str, Any]) -> Iterator[str]:
    inputs = configs.get("extract", {}).get("inputs", [])
    if inputs:
        yield f"{len(inputs):,} input file{'s' if len(inputs) > 1 else ''}, {size(sum(entry[1] for entry in inputs))}."
    for what in ("source", "domain"):
        groups = facts.origins.get(what, [])
        if any(one.name != "(none)" for one in groups):
            yield from filter(None, [largest_only(groups)])
            yield _table(what, groups)


def _composition(facts: BuildMetadata) -> Iterator[str]:
    measured = facts.measured
    yield "What the filter kept, before duplicates were removed:"
    for what, groups in (
        *((key.partition(".")[2], groups) for key, groups in measured.labels.items()),
        ("characters", measured.lengths),
    ):
        if groups:
            yield _table(what, groups)


def _rules(facts: BuildMetadata) -> Iterator[str]:
    yield (
        "Rules are tried in the recipe's order; a document is counted under the first that it fails, and under the "
        "first range of a statistic that has several."
    )
    removed = {one.rule: (f"{one.documents:,}", one.share) for one in facts.reasons}
    rows, told = [], set()
    for one in facts.measured.distributions:
        if one.limits:
            limit = limit_text(one.limits, one.detail)
            measures = ". ".join(filter(None, describe_statistic(one.key)))
            known = removed.get(one.key, ("0", "0.00 %")) if one.key not in told else ("", "")
            told.add(one.key)
            rows.append((code_markdown(one.name), escape_markdown(limit), escape_markdown(measures), *known))
    yield markdown_table(("rule", "limit", "measures", "documents removed", "share of all read"), rows, (3, 4))


def _edits(facts: BuildMetadata) -> Iterator[str]:
    if counts := edit_counts(facts):
        yield EDITS_CAPTION
        rows = [(code_markdown(kind), f"{count:,}") for kind, count in counts.items()]
        yield markdown_table(("edit", "times"), rows, (1,))
    else:
        yield "None."


def _duplicates(facts: BuildMetadata, configs: Mapping[str, Any]) -> Iterator[str]:
    settings = {
        key: value
        for stage in ("signatures", "candidates", "clusters", "text")
        for key, value in configs.get(stage, {}).get("config", {}).items()
        if isinstance(value, int | float)
    }
    if settings:
        yield (
            "Settings: "
            + ", ".join(f"{code_markdown(key)} {number(value)}" for key, value in sorted(settings.items()))
            + "."
        )
    exact, near = (facts.funnel.duplicates.get(f"dedup.{kind}", 0) for kind in ("exact", "near"))
    if configs.get("text", {}).get("config", {}).get("keep") == "all_with_size":
        marked = next(step.counts.extra for step in facts.funnel.steps if step.stage == "text")
        exact, near = (marked.get(f"duplicates.{kind}", 0) for kind in ("exact", "near"))
        yield (
            f"{exact:,} exact and {near:,} near duplicates were found and kept; beside the text, `index` has the "
            "cluster of each document, its size, and whether the document is the one that stands for it."
        )
    else:
        yield f"{exact:,} exact and {near:,} near duplicates were removed; one document of each group stays."
    if facts.earlier:
        names = ", ".join(f"{code_markdown(name)} ({documents:,})" for name, _, documents in facts.earlier)
        yield f"Among them those of documents in earlier builds: {names}. {EARLIER_CAPTION}"


def _biases(facts: BuildMetadata) -> Iterator[str]:
    """Kinds of documents of which the filter kept clearly less than of all."""
    measured = facts.measured
    overall = measured.kept / measured.documents if measured.documents else 0.0
    yield (
        f"Of all documents measured the filter kept {share(measured.kept, measured.documents)}. Kinds of at least "
        f"{SMALL_GROUP} documents of which it kept less than that by {100 * NOTABLE:.0f} points or more:"
    )
    kinds = [
        *((f"of {one.name} characters", one) for one in measured.lengths),
        *((f"of {key} {one.name}", one) for key, groups in measured.labels.items() for one in groups),
        *(
            (f"from {what}: {one.name}", one)
            for what in ("source", "domain")
            for one in facts.origins.get(what, [])
            if one.name != "(none)"
        ),
    ]
    losses = [
        (one.kept / one.documents, label, one)
        for label, one in kinds
        if one.documents >= SMALL_GROUP and one.kept / one.documents <= overall - NOTABLE
    ]
    lines = [
        f"- {escape_markdown(label)}: {one.kept:,} of {one.documents:,} kept ({100 * part:.1f} %)"
        for part, label, one in sorted(losses, key=lambda item: item[:2])
    ]
    yield "\n".join(lines or ["- none"])
    yield (
        "Kinds are told apart by statistics of characters and lines, not by reading; sources and domains count "
        "duplicates as lost, too."
    )


def _personal(facts: BuildMetadata, configs: Mapping[str, Any]) -> Iterator[str]:
    edit = configs.get("filter", {}).get("config", {}).get("edit", {})
    policy = edit.get("personal_data")
    masked = {kind: count for kind, count in edit_counts(facts).items() if kind.startswith("personal.")}
    said = "The recipe keeps personal data as they are."
    if policy:
        shown = ", ".join(sorted(map(str, policy))) if isinstance(policy, list) else json.dumps(policy, sort_keys=True)
        said = f"Policy of the recipe: {escape_markdown(shown)}."
    kinds = ", ".join(f"{kind.removeprefix('personal.')} {count:,}" for kind, count in masked.items())
    places = f"{sum(masked.values()):,} places were masked, in documents that were dropped afterwards, too"
    yield f"{said}\n{places}{f': {kinds}' if kinds else ''}."
    yield "Masking finds patterns. Names, addresses and what is written in unusual ways remain."


def _removal(card: CardConfig) -> Iterator[str]:
    if card.contact:  # published on purpose, so not masked
        yield f"Write to {escape_markdown(plain(card.contact))} with the URL or the beginning of the text."
    else:
        yield FILL_IN.format(key="contact") + " Whom may an author ask to remove a text?"
    yield "`python -m corpus explain OUT URL` finds a document and every stage that it went through."


def _reproduction(recipe: str | None, configs: Mapping[str, Any], stages: Mapping[str, Folder]) -> Iterator[str]:
    name = snippet(recipe.rsplit("/", 1)[-1]) if recipe else "the recipe"
    yield f"The same inputs, {escape_markdown(name)} (kept whole in `recipe.json`) and code give the same bytes:"
    made = []
    for stage, folder in stages.items():
        version = configs[stage].get("version", "")
        made.append((code_markdown(stage), f"{version}", code_markdown(folder.base_name), f"`{folder.digest}`"))
    yield markdown_table(("stage", "version", "folder", "SHA-256 of its list of files"), made, (1,))
    if inputs := configs.get("extract", {}).get("inputs", []):
        files = [
            (escape_markdown(snippet(str(file))), f"{num_bytes:,}", code_markdown(str(digest)))
            for file, num_bytes, digest in inputs[:INPUTS_SHOWN]
        ]
        yield markdown_table(("input", "bytes", "SHA-256"), files, (1,))
    if len(inputs) > INPUTS_SHOWN:
        yield f"And {len(inputs) - INPUTS_SHOWN:,} more in the extract folder's `stage.json`."
    yield "`python -m corpus verify OUT` checks every file against these."


def _citation(card: CardConfig, title: str) -> Iterator[str]:
    yield f"Homepage: {escape_markdown(snippet(card.homepage))}" if card.homepage else FILL_IN.format(key="homepage")
    name = "".join(char for char in title if char not in "{}\\`")
    yield f"```bibtex\n@misc{{dataset,\n  title = {{{name}}},\n  howpublished = {{made with wenhai}},\n}}\n```"


def _table(what: str, rows: Sequence[Group]) -> str:
    cells = [(escape_markdown(one.name), *one.cells) for one in rows]
    return markdown_table((what, "documents", "kept", "share"), cells, (1, 2, 3))
