"""`python -m corpus plan`: what `run` would read, do and cost, and what would fail late."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from corpus.commands.inputs import add_build_arguments, build_sources, check_late_failures, crawled_so_far
from corpus.engine.cli import print_json
from corpus.engine.executor import available_cpus

if TYPE_CHECKING:
    from corpus.filters import FilterConfig
    from corpus.sources.preview import Preview

SNIPPET_CHARS = 60
ERRORS_SHOWN = 3
FIELDS_SHOWN = 20
PLACE_CHARS = 300  # the name of a file, and of a member


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_build_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="processes to reckon with (default: as `run`)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> None:
    """Print the sources and the plan."""
    from corpus.build import stages
    from corpus.dedup.near.earlier import check_earlier
    from corpus.engine.input_digests import Digests
    from corpus.plan import plan, render
    from corpus.recipe import load_recipe
    from corpus.sources.preview import preview

    recipe = load_recipe(arguments.recipe, arguments.set, allow_code=arguments.allow_code)
    check_earlier(recipe.dedup, arguments.out)
    crawled = None if recipe.crawl is None else crawled_so_far(arguments.out)
    sources = build_sources(arguments, recipe.sources, crawled, Digests(arguments.out))
    pipeline = stages(recipe, sources)
    check_late_failures(pipeline, recipe.mixture, sources)
    filters = recipe.own_filters(sources)
    looks = [
        _described(preview(source, recipe.extract, recipe.text), filters.get(source.key, recipe.filter))
        for source in sources
    ]
    planned = plan(pipeline, [file for source in sources for file in source.files], arguments.out)
    if arguments.json:
        print_json(asdict(planned) | {"sources": looks})
        return
    for look in looks:
        print("\n".join(_lines(look)), end="\n\n")
    print(render(planned, arguments.workers or available_cpus()))


def _described(look: Preview, config: FilterConfig) -> dict[str, Any]:
    """A source's files, columns and first documents with the filter's verdicts, as JSON; texts are masked."""
    from corpus.filters import Filter
    from corpus.safe import plain, plain_url, snippet

    documents = []
    verdicts = Filter(config).apply(look.documents)
    for row, place, verdict in zip(look.documents.to_pylist(), look.places, verdicts, strict=True):
        documents.append(
            {
                "place": plain(place, PLACE_CHARS),
                "source": row["source"],
                "title": snippet(row["title"] or "", SNIPPET_CHARS),
                "url": plain_url(row["url"]) if row["url"] else None,
                "date": plain(row["date"] or ""),
                "characters": len(row["text"]),
                "verdict": "kept" if verdict.kept else f"{verdict.rule} {verdict.value:g}",
                "text": snippet(verdict.text, SNIPPET_CHARS),
            }
        )
    errors = Counter(plain(f"{rule}: {detail}") for rule, detail, _ in look.errors)
    return {
        "source": look.source.key,
        "files": len(look.source.files),
        "bytes": sum(file.bytes for file in look.source.files),
        "kinds": dict(look.kinds.most_common()),
        "looked_at": look.looked_at,
        "fields": [plain(name) for name in look.fields[:FIELDS_SHOWN]],
        "documents": documents,
        "errors": dict(errors.most_common(ERRORS_SHOWN)),
    }


def _lines(look: dict[str, Any]) -> Iterator[str]:
    from corpus.engine.disk_budget import size

    yield f"source {look['source']}: {look['files']:,} files, {size(look['bytes'])}"
    of = "" if look["looked_at"] == look["files"] else f" of the first {look['looked_at']:,}"
    yield f"  kinds{of}: " + ", ".join(f"{count:,} {kind}" for kind, count in look["kinds"].items())
    if look["fields"]:
        yield f"  other fields: {', '.join(look['fields'])}"
    for one in look["documents"]:
        known = " ".join(str(one[name]) for name in ("title", "url", "date") if one[name])
        yield f"  {one['place']}  {one['characters']:,} characters, {one['verdict']}  {known}"
        yield f"      {one['text']}"
    for error, count in look["errors"].items():
        yield f"  {count:,} x {error}"
