"""Everything a report says, gathered once: `report.html` and `report.md` are two drawings of the same facts.

All of it but the times is a function of the build, to the byte. What would grow with the corpus is bounded: lists are
cut to their first lines, columns are read from evenly spread shards beyond some millions of documents (and the report
says so), samples are a handful a rule and masked before they get here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import read_batches
from corpus.engine import storage
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.report import ledger
from corpus.report.explain import number
from corpus.report.histograms import Histogram, histograms, spread
from corpus.report.safe import plain_url, snippet
from corpus.report.summary import DUPLICATE_RULES, Funnel, folders, funnel, share

TOP_ROWS = 15
MAX_COUNTED_NAMES = 1 << 20  # distinct sources or domains held while counting
SAMPLED_RULES = 8
FAILURES_A_KIND = 3
SAMPLES_A_SIDE = 5
CANDIDATES_A_SIDE = 20  # near a limit one page often stands many times
MAX_CLUSTERED = 8_000_000  # duplicates whose survivors are held to count cluster sizes: 16 bytes each
CLUSTER_SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1000)  # first size of each line
SAMPLE_CHARS = 90
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
class Origin:
    """How many documents came from a source, a domain or an encoding, and how many were kept."""

    name: str
    documents: int
    kept: int


@dataclass(frozen=True)
class Sample:
    """A document near a rule's limit, on one side of it; the text is masked and short."""

    rule: str
    limit: str
    dropped: bool
    value: str
    name: str  # id, abbreviated: what `explain` takes
    url: str
    text: str


@dataclass(frozen=True)
class Failure:
    """A record that never became a document: where it stands and what is wrong with it."""

    rule: str
    place: str
    detail: str


@dataclass(frozen=True)
class Facts:
    """A report's contents."""

    funnel: Funnel
    reasons: list[Reason]
    failures: list[Failure]  # the first few of each kind
    histograms: list[Histogram]
    origins: dict[str, list[Origin]]  # "source", "domain", "encoding"
    clusters: list[tuple[str, int, int]]  # size of cluster, clusters, documents in them
    samples: list[Sample]
    documents_read: int  # of how many documents the origins tell


def gather(out: str) -> Facts:
    """Read manifests and the narrow columns of sidecars below `out`.

    Raises:
        WenhaiError: `out` holds no run, or a file is damaged.
    """
    stages = folders(out)
    summary = funnel(out)
    limits: dict[str, dict[str, float]] = {}
    for folder in stages.values():
        limits |= ledger.rules(folder)
    statistics = spread([file for folder in stages.values() for file in folder.files("statistics")])
    read = spread(stages["extract"].files()) if "extract" in stages else []
    return Facts(
        funnel=summary,
        reasons=list(_reasons(summary, limits)),
        failures=_failures(spread(stages["extract"].files("fates")) if "extract" in stages else []),
        histograms=histograms(statistics, limits),
        origins=_origins(read, stages),
        clusters=_clusters(stages, sum(summary.duplicates.values())),
        samples=list(_samples(out, summary, stages, limits)),
        documents_read=sum(file.rows for file in read),
    )


def limit_text(bounds: Mapping[str, float]) -> str:
    """`min 80, max 200,000`."""
    return ", ".join(f"{bound} {number(bounds[bound])}" for bound in ("min", "max") if bound in bounds)


def _reasons(summary: Funnel, limits: Mapping[str, Mapping[str, float]]) -> Iterator[Reason]:
    for step in summary.steps:
        gone = {f"error:{kind.removeprefix('error:')}": count for kind, count in step.counts.errors.items()}
        gone |= step.counts.dropped
        for rule, count in sorted(gone.items(), key=lambda item: (-item[1], item[0])):
            if count:
                limit = limit_text(limits.get(rule, {}))
                yield Reason(step.stage, rule, limit, count, share(count, summary.documents_in))


def _failures(files: Sequence[File]) -> list[Failure]:
    found: dict[str, list[Failure]] = {}
    for table in (
        table for file in files for table in read_batches(storage.fetch(file.url), ["rule", "place", "detail"])
    ):
        for rule in pc.unique(table["rule"]).to_pylist():
            shown = found.setdefault(rule, [])
            rows = table.filter(pc.equal(table["rule"], rule)).slice(0, FAILURES_A_KIND - len(shown))
            shown += [
                Failure(rule, snippet(row["place"] or ""), snippet(row["detail"] or "")) for row in rows.to_pylist()
            ]
    return [failure for rule in sorted(found) for failure in found[rule]]


def _origins(read: Sequence[File], stages: Mapping[str, Folder]) -> dict[str, list[Origin]]:
    names = {shard_name(file) for file in read}
    kept = [file for file in stages["text"].files() if shard_name(file) in names] if "text" in stages else []
    before, after = _count_origins(read), _count_origins(kept)
    return {
        what: [
            Origin(snippet(name, NAME_CHARS) or "(none)", count, after[what][name])
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


def _clusters(stages: Mapping[str, Folder], num_duplicates: int) -> list[tuple[str, int, int]]:
    """How many clusters there are of each size; of a huge corpus those whose survivor's id falls in a fixed share."""
    if not num_duplicates:
        return []
    part = min(256, max(1, 256 * MAX_CLUSTERED // num_duplicates))
    survivors = [np.empty(0, "S32")]
    files = stages[ledger.LAST_STAGE].files("fates") if ledger.LAST_STAGE in stages else []
    for table in (table for file in files for table in read_batches(storage.fetch(file.url), ["rule", "detail"])):
        details = table.filter(pc.is_in(table["rule"], pa.array(list(DUPLICATE_RULES))))["detail"].drop_null()
        ids = np.array(details.to_pylist(), "S32")
        survivors.append(ids[[int(name[:2], 16) < part for name in ids.tolist()]] if part < 256 else ids)
    _, duplicates = np.unique(np.concatenate(survivors), return_counts=True)
    sizes = duplicates + 1
    rows = []
    for first, following in zip(CLUSTER_SIZES, [*CLUSTER_SIZES[1:], None], strict=True):
        chosen = sizes[(sizes >= first) & (sizes < (following or sizes.max(initial=0) + 1))]
        label = (
            f"{first}" if following == first + 1 else f"{first:,} to {following - 1:,}" if following else f"{first:,} +"
        )
        if len(chosen):
            rows.append((label, len(chosen) * 256 // part, int(chosen.sum()) * 256 // part))
    return rows


@dataclass(frozen=True, order=True)
class _Candidate:
    distance: float
    shard: str
    row: int
    value: float
    id: str
    url: str


def _samples(
    out: str, summary: Funnel, stages: Mapping[str, Folder], limits: Mapping[str, Mapping[str, float]]
) -> Iterator[Sample]:
    """For the rules that drop most: the documents nearest to the limit on both sides of it."""
    statistics, fates = (
        spread([file for folder in stages.values() for file in folder.files(kind)]) for kind in ("statistics", "fates")
    )
    chosen = [rule for rule in summary.filtered if rule in limits][:SAMPLED_RULES]
    if not chosen:
        return
    dropped = _nearest_dropped(fates, chosen)
    inside = _nearest_inside(statistics, {rule: limits[rule] for rule in chosen})
    candidates = [
        (rule, side, one)
        for rule in chosen
        for side, found in ((True, dropped), (False, inside))
        for one in found[rule]
    ]
    texts = {
        (shard, row): snippet(text, SAMPLE_CHARS)
        for shard, row, text in ledger.read_texts(out, [(one.shard, one.row) for _, _, one in candidates])
    }
    shown: Counter[tuple[str, bool]] = Counter()
    seen: set[tuple[str, bool, str]] = set()
    for rule, is_dropped, one in candidates:
        text = texts.get((one.shard, one.row), "")
        if (rule, is_dropped, text) in seen or shown[rule, is_dropped] == SAMPLES_A_SIDE:
            continue
        seen.add((rule, is_dropped, text))
        shown[rule, is_dropped] += 1
        yield Sample(
            rule=rule,
            limit=limit_text(limits[rule]),
            dropped=is_dropped,
            value=number(one.value),
            name=f"{one.shard}:{one.row}",
            url=plain_url(one.url, 60) if one.url else "",
            text=text,
        )


def _nearest_dropped(fates: Sequence[File], chosen: Sequence[str]) -> dict[str, list[_Candidate]]:
    found: dict[str, list[_Candidate]] = {rule: [] for rule in chosen}
    columns = ["id", "shard", "row", "url", "rule", "value", "threshold"]
    for table in (table for file in fates for table in read_batches(storage.fetch(file.url), columns)):
        for rule in chosen:
            rows = table.filter(pc.equal(table["rule"], rule))
            if not rows.num_rows:
                continue
            distance = pc.abs(pc.subtract(rows["value"], rows["threshold"]))
            rows = rows.append_column("distance", distance).filter(pc.is_valid(distance))
            rows = rows.take(pc.select_k_unstable(rows, k=CANDIDATES_A_SIDE, sort_keys=_NEAREST))
            found[rule] = _merge(found[rule], rows)
    return found


_NEAREST = [("distance", "ascending"), ("shard", "ascending"), ("row", "ascending")]


def _nearest_inside(
    statistics: Sequence[File], limits: Mapping[str, Mapping[str, float]]
) -> dict[str, list[_Candidate]]:
    found: dict[str, list[_Candidate]] = {rule: [] for rule in limits}
    for file in statistics:
        names = ledger.column_names(file)
        start = 0
        for table in read_batches(
            storage.fetch(file.url), [name for name in names if name in ("row", "kept", *limits)]
        ):
            ordinal = table["row"].to_numpy() if "row" in names else np.arange(start, start + table.num_rows)
            kept = np.asarray(table["kept"].to_numpy(), bool) if "kept" in names else np.True_
            start += table.num_rows
            for rule, bounds in limits.items():
                if rule not in names:
                    continue
                values = np.asarray(table[rule].to_numpy(), np.float64)
                low, high = bounds.get("min", -np.inf), bounds.get("max", np.inf)
                distance = np.minimum(values - low, high - values)
                inside = np.flatnonzero((distance >= 0) & kept)
                nearest = inside[np.lexsort((ordinal[inside], distance[inside]))[:CANDIDATES_A_SIDE]]
                shard = shard_name(file)
                new = [
                    _Candidate(float(distance[i]), shard, int(ordinal[i]), float(values[i]), "", "") for i in nearest
                ]
                found[rule] = sorted([*found[rule], *new])[:CANDIDATES_A_SIDE]
    return found


def _merge(before: Sequence[_Candidate], rows: pa.Table) -> list[_Candidate]:
    new = [
        _Candidate(
            row["distance"], row["shard"] or "", row["row"] or 0, row["value"], row["id"].hex(), row["url"] or ""
        )
        for row in rows.to_pylist()
    ]
    return sorted([*before, *new])[:CANDIDATES_A_SIDE]
