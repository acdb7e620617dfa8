"""Everything a report says, gathered once: `report.html` and `report.md` are two drawings of the same facts.

All of it but the times is a function of the build, to the byte. What would grow with the corpus is bounded: lists are
cut to their first lines, columns are read from evenly spread shards beyond some millions of documents (and the report
says so), samples are a handful a rule and were masked when the filter stored them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from corpus.dedup.contamination.stage import ContaminationStage
from corpus.dedup.near.earlier import COUNT_PREFIX
from corpus.document import read_batches
from corpus.engine import storage
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.filters.decide import Limit
from corpus.report import ledger
from corpus.report import mixture as mixing
from corpus.report.distributions import Group, Measured, measure, spread
from corpus.report.examples import Sample, read_samples, read_scored
from corpus.report.explain import aside, number
from corpus.report.summary import (
    CHOOSING_STAGES,
    LAST_STAGE,
    MIXTURE_STAGE,
    TOKEN_STAGE,
    Funnel,
    folders,
    funnel,
    most_first,
    share,
)
from corpus.safe import plain, snippet

TOP_ROWS = 15
FEWEST_OF_TEMPLATE, MOST_OF_ITEM = 10, 100  # copies of one exam question on the web are some dozens at most
TEMPLATE_RATIO = 0.01  # of a small build's documents
MAX_COUNTED_NAMES = 1 << 20  # distinct sources or domains held while counting
FAILURES_A_KIND = 3
INDEX_COLUMNS = ("cluster_size", "survivor")
CLUSTER_SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1000)  # first size of each line
NAME_CHARS = 60
HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\\]*@)?(?P<host>\[[0-9A-Fa-f:.]*\]|[^/?#:\\]*)"  # RE2: linear


@dataclass(frozen=True)
class Reason:
    """One line of the table of drop reasons."""

    stage: str
    rule: str
    limit: str
    documents: int
    share: str


@dataclass(frozen=True)
class Failure:
    """A record that never became a document: where it stands and what is wrong with it."""

    rule: str
    place: str
    detail: str


@dataclass(frozen=True)
class BuildMetadata:
    """A report's contents."""

    funnel: Funnel
    reasons: list[Reason]
    failures: list[Failure]  # the first few of each kind
    measured: Measured
    limits: Mapping[str, Sequence[Limit]]  # by rule
    origins: dict[str, list[Group]]  # "source", "domain", "encoding"
    clusters: list[tuple[str, int, int]]  # size of cluster, clusters, documents in them
    earlier: list[tuple[str, str, int]]  # earlier build, where the run found it, documents that resemble its own
    items: list[tuple[str, int, bool]]  # evaluation items that cost most documents, how many, and whether too many
    mixture: list[mixing.Group]  # by source, then by bucket; empty where each document is taken once
    samples: list[Sample]  # near the limits, on both sides of each
    scored: dict[str, list[Sample]]  # some documents of each bucket of the quality score
    documents_read: int  # of how many documents the origins tell
    clusters_read: tuple[int, int]  # of how many kept documents the clusters tell, and all of them


def gather(out: str) -> BuildMetadata:
    """Read manifests and the narrow columns of sidecars below `out`.

    Raises:
        WenhaiError: `out` holds no run, or a file is damaged.
    """
    stages = folders(out)
    summary = funnel(out)
    limits: dict[str, list[Limit]] = {}
    for folder in stages.values():
        limits |= ledger.rules(folder)
    sidecars = (folder.files("statistics") for folder in stages.values())
    statistics = spread(next(filter(None, sidecars), []))  # the filter's; a later stage measures what it changed anew
    read = spread(stages["extract"].files()) if "extract" in stages else []
    measured = measure(statistics, limits)
    index = stages[LAST_STAGE].files("index") if LAST_STAGE in stages else []
    return BuildMetadata(
        funnel=summary,
        reasons=list(_reasons(summary, limits)),
        failures=_failures(spread(stages["extract"].files("fates")) if "extract" in stages else []),
        measured=measured,
        limits=limits,
        origins=_origins(read, stages),
        clusters=_clusters(spread(index)),
        earlier=_earlier(out, stages),
        items=_items(stages),
        mixture=mixing.read_groups(stages[MIXTURE_STAGE]) if MIXTURE_STAGE in stages else [],
        samples=read_samples(stages["filter"], limits) if "filter" in stages else [],
        scored=read_scored(stages["filter"]) if measured.scores and "filter" in stages else {},
        documents_read=sum(file.rows for file in read),
        clusters_read=(sum(file.rows for file in spread(index)), sum(file.rows for file in index)),
    )


def template_warnings(out: str) -> list[str]:
    """A sentence for each evaluation item that cost so many documents that it may be no item; raises as `gather`."""
    return [
        f"contamination: {name} was found in {count:,} documents, which are dropped: is it a template, or a link? "
        "Take it out of dedup.contamination.files, or its set out of sets, if it is."
        for name, count, is_suspicious in _items(folders(out))
        if is_suspicious
    ]


def limit_text(bounds: Mapping[str, float], detail: str = "") -> str:
    """`min 80, max 200,000`, and for which documents."""
    limits = ", ".join(f"{bound} {number(bounds[bound])}" for bound in ("min", "max") if bound in bounds)
    return f"{limits} {aside(detail)}".rstrip()


def _reasons(summary: Funnel, limits: Mapping[str, Sequence[Limit]]) -> Iterator[Reason]:
    texts: dict[str, list[str]] = {}
    for tried in limits.values():
        bounds = {limit.bound: limit.threshold for limit in tried}
        texts.setdefault(tried[0].key, []).append(limit_text(bounds, tried[0].detail))
    for step in summary.steps:
        if step.stage in CHOOSING_STAGES:
            continue
        gone = {f"error:{kind.removeprefix('error:')}": count for kind, count in step.counts.errors.items()}
        gone |= step.counts.dropped if step.stage != TOKEN_STAGE else {}  # there a mixture's choice
        for rule, count in most_first(gone).items():
            limit = "; ".join(texts.get(rule, []))
            yield Reason(step.stage, rule, limit, count, share(count, summary.documents_in))


def _failures(files: Sequence[File]) -> list[Failure]:
    found: dict[str, list[Failure]] = {}
    for table in (
        table for file in files for table in read_batches(storage.fetch(file.url), ["rule", "place", "detail"])
    ):
        for rule in filter(lambda rule: rule.startswith("error:"), pc.unique(table["rule"]).to_pylist()):
            shown = found.setdefault(rule, [])
            rows = table.filter(pc.equal(table["rule"], rule)).slice(0, FAILURES_A_KIND - len(shown))
            shown += [
                Failure(rule, snippet(row["place"] or ""), snippet(row["detail"] or "")) for row in rows.to_pylist()
            ]
    return [failure for rule in sorted(found) for failure in found[rule]]


def _origins(read: Sequence[File], stages: Mapping[str, Folder]) -> dict[str, list[Group]]:
    names = {shard_name(file) for file in read}
    kept = [file for file in stages["text"].files() if shard_name(file) in names] if "text" in stages else []
    before, after = _count_origins(read), _count_origins(kept)
    return {
        what: [
            Group(snippet(name, NAME_CHARS) or "(none)", count, after[what][name])
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP_ROWS]
        ]
        for what, counts in before.items()
    }


def _count_origins(files: Sequence[File]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {"source": Counter(), "domain": Counter(), "encoding": Counter()}
    for file in files:
        for table in read_batches(storage.fetch(file.url), ["source", "url", "encoding"]):
            hosts = pc.struct_field(pc.extract_regex(table["url"], HOST), "host")
            columns = {"source": table["source"], "domain": pc.utf8_lower(hosts), "encoding": table["encoding"]}
            for what, column in columns.items():
                for item in pc.value_counts(pc.fill_null(column, "")).to_pylist():
                    found[what][item["values"]] += item["counts"]
                if len(found[what]) > MAX_COUNTED_NAMES:
                    found[what] = Counter(dict(found[what].most_common(MAX_COUNTED_NAMES // 2)))
    return found


def _earlier(out: str, stages: Mapping[str, Folder]) -> list[tuple[str, str, int]]:
    extra = stages["clusters"].counts.extra if "clusters" in stages else {}
    outs = ledger.earlier_outs(out)
    counts = {key.removeprefix(COUNT_PREFIX): count for key, count in extra.items() if key.startswith(COUNT_PREFIX)}
    return [(name, plain(outs.get(name, "")), count) for name, count in sorted(counts.items())]


def _items(stages: Mapping[str, Folder]) -> list[tuple[str, int, bool]]:
    if ContaminationStage.name not in stages:
        return []
    folder = stages[ContaminationStage.name]
    counts: Counter[str] = Counter()
    for file in folder.files("fates"):
        for table in read_batches(storage.fetch(file.url), ["detail"]):
            counts.update({one["values"]: one["counts"] for one in pc.value_counts(table["detail"]).to_pylist()})
    most = max(FEWEST_OF_TEMPLATE, min(MOST_OF_ITEM, int(TEMPLATE_RATIO * folder.counts.documents_in)))
    return [(plain(name), count, count > most) for name, count in list(most_first(counts).items())[:TOP_ROWS]]


def _clusters(files: Sequence[File]) -> list[tuple[str, int, int]]:
    """How many clusters there are of each size, from the index beside the text; a cluster is where its survivor is."""
    counts: Counter[int] = Counter()
    for table in (table for file in files for table in read_batches(storage.fetch(file.url), INDEX_COLUMNS)):
        sizes = table.filter(table["survivor"])["cluster_size"]
        counts.update({item["values"]: item["counts"] for item in pc.value_counts(sizes).to_pylist()})
    rows = []
    for first, following in zip(CLUSTER_SIZES, [*CLUSTER_SIZES[1:], None], strict=True):
        chosen = {size: count for size, count in counts.items() if first <= size < (following or size + 1)}
        label = (
            f"{first}" if following == first + 1 else f"{first:,} to {following - 1:,}" if following else f"{first:,} +"
        )
        if chosen:
            rows.append((label, sum(chosen.values()), sum(size * count for size, count in chosen.items())))
    return rows
