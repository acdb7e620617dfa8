"""The funnel of a build: how many documents and bytes came in, where they went, and how fast.

All numbers are the counts in the manifests of the current stages; nothing is counted again, so the summary costs
milliseconds for any size. Every stage keeps the conservation law for itself; here it is checked *between* stages: what
a stage let through is what the next one received. A breach is part of the result and is shown before anything else.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from corpus.engine import storage
from corpus.engine.disk_budget import size as size
from corpus.engine.run import TIMINGS_NAME, read_run
from corpus.engine.stage import Counts, Folder

SUMMARY_COLUMNS = 80
DUPLICATE_RULES = {"dedup.exact": "exact duplicates", "dedup.near": "near duplicates"}
BREACHES = (
    "{stage}: {documents} documents in, but {out} out and {gone} dropped or in error",
    "{sender} let {sent} documents through, but {stage} received {received}",
    "{sender} let {sent} bytes through, but {stage} received {received}",
)
CHOOSING_STAGES = {
    "mixture_totals",
    "mixture",
    "sources",
    "shares",
    "sample",
    "tokenizer",
}  # choose among documents, and drop none
FIRST_STAGE, LAST_STAGE, MIXTURE_STAGE, TOKEN_STAGE = "extract", "text", "mixture", "tokens"
DEDUP_ORDER = ("signatures", "buckets", "members", "candidates", "components", "survivors", "clusters")
TOKENIZER_ORDER = ("sources", "shares", "sample", "tokenizer", "tokens")
USUAL_ORDER = ("extract", "filter", *DEDUP_ORDER, "text", "mixture_totals", "mixture", *TOKENIZER_ORDER)


@dataclass(frozen=True)
class Step:
    """One stage of a build: its folder, its counts and the time spent on it (0 where nothing was recorded)."""

    stage: str
    folder: str
    upstream: tuple[str, ...]
    tasks: int
    files: int
    file_bytes: int
    has_texts: bool
    counts: Counts
    cpu_seconds: float
    wall_seconds: float

    @property
    def moves_documents(self) -> bool:
        """Whether documents travel through this stage (and not only numbers about them)."""
        return self.counts.documents_in > 0 and self.stage not in CHOOSING_STAGES


@dataclass(frozen=True)
class Funnel:
    """Documents and bytes from what was read to what is kept; `dropped` and `errors` are sums over the stages between.

    `tokens` counts the tokens of each split, where the tokens stage is complete, and `token_bytes` the bytes of text
    that they are, with every copy that a mixture made.
    """

    out: str
    documents_in: int
    bytes_in: int
    documents_kept: int
    bytes_kept: int
    errors: dict[str, int]
    dropped: dict[str, int]
    tokens: dict[str, int]
    token_bytes: int
    cpu_seconds: float
    wall_seconds: float
    breaches: tuple[str, ...]
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def filtered(self) -> dict[str, int]:
        """Documents dropped by each rule other than duplication, most first."""
        return {rule: count for rule, count in self.dropped.items() if rule not in DUPLICATE_RULES}

    @property
    def duplicates(self) -> dict[str, int]:
        """Documents dropped as duplicates, by kind."""
        return {rule: self.dropped[rule] for rule in DUPLICATE_RULES if rule in self.dropped}

    @property
    def megabytes_per_second(self) -> float | None:
        """Text that came in, in MB, for each second of wall time that all stages took together."""
        return self.bytes_in / 1e6 / self.wall_seconds if self.wall_seconds else None

    def as_json(self) -> dict[str, Any]:
        """A JSON value with every number above."""
        return asdict(self) | {"megabytes_per_second": self.megabytes_per_second}


def folders(out: str) -> dict[str, Folder]:
    """The current complete stages below `out`, in the order documents travel in."""
    entries: dict[str, Any] = read_run(out)["stages"]
    return {name: Folder.open(storage.join(out, entries[name]["folder"])) for name in stage_order(entries)}


def funnel(out: str) -> Funnel:
    """Add up the manifests below `out`.

    Raises:
        WenhaiError: `out` holds no run, or a manifest is missing or broken.
    """
    steps = tuple(_steps(out))
    moving = [step for step in steps if step.moves_documents and step.stage != TOKEN_STAGE]
    errors: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for step in moving:
        errors.update(step.counts.errors)
        dropped.update(step.counts.dropped)
    extra = next((step.counts.extra for step in steps if step.stage == TOKEN_STAGE), {})
    tokens = {key.removeprefix("tokens_"): count for key, count in sorted(extra.items()) if key.startswith("tokens_")}
    return Funnel(
        out=out,
        documents_in=moving[0].counts.documents_in if moving else 0,
        bytes_in=moving[0].counts.bytes_in if moving else 0,
        documents_kept=moving[-1].counts.documents_out if moving else 0,
        bytes_kept=moving[-1].counts.bytes_out if moving else 0,
        errors=most_first(errors),
        dropped=most_first(dropped),
        tokens=tokens,
        token_bytes=extra.get("sequence_bytes", moving[-1].counts.bytes_out if moving else 0),
        cpu_seconds=round(sum(step.cpu_seconds for step in steps), 3),
        wall_seconds=round(sum(step.wall_seconds for step in steps), 3),
        breaches=tuple(_breaches(steps)),
        steps=steps,
    )


def render(summary: Funnel, *, terminal: bool = False) -> str:
    """The funnel as text of at most 80 columns; with `terminal` as a table with colours (honours NO_COLOR)."""
    rows = list(_rows(summary))
    breaches = [f"CONSERVATION BROKEN: {breach}" for breach in summary.breaches]
    table = _rich_table(rows) if terminal else _plain_table(rows)
    return "\n".join([*breaches, table, *_closing(summary)])


def share(part: int, whole: int) -> str:
    """`part` of `whole` in per cent; a share that is neither 0 nor 100 never reads as either.

    >>> share(1, 1_000_000), share(0, 5), share(5, 5), share(1, 3), share(999_999, 1_000_000), share(0, 0)
    ('<0.01 %', '0.00 %', '100.00 %', '33.33 %', '>99.99 %', '')
    """
    if whole == 0:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "<0.01 %"
    if 99.99 < percent < 100:
        return ">99.99 %"
    return f"{percent:.2f} %"


def _steps(out: str) -> Iterator[Step]:
    entries = read_run(out)["stages"]
    timings_url = storage.join(out, TIMINGS_NAME)
    timings = storage.read_json(timings_url) if storage.exists(timings_url) else {}
    for name, folder in folders(out).items():
        timing = timings.get(folder.base_name, {})
        yield Step(
            stage=name,
            folder=folder.base_name,
            upstream=tuple(sorted(entries[name]["upstream"])),
            tasks=folder.manifest["tasks"],
            files=folder.num_files,
            file_bytes=folder.num_bytes,
            has_texts=folder.number_of("data") > 0,
            counts=folder.counts,
            cpu_seconds=float(timing.get("cpu_seconds", 0.0)),
            wall_seconds=float(timing.get("wall_seconds", 0.0)),
        )


def stage_order(entries: Mapping[str, Any]) -> list[str]:
    """Upstream before downstream; among equals the pipeline's usual order, then the alphabet."""
    ranks = {name: index for index, name in enumerate(USUAL_ORDER)}
    rest = sorted(entries, key=lambda name: (ranks.get(name, len(ranks)), name))
    ordered: list[str] = []
    while rest:
        ready = next((name for name in rest if not set(entries[name]["upstream"]) & set(rest)), rest[0])
        rest.remove(ready)
        ordered.append(ready)
    return ordered


def _breaches(steps: tuple[Step, ...]) -> Iterator[str]:
    by_name = {step.stage: step for step in steps}
    for step in steps:
        counts = step.counts
        gone = sum(counts.dropped.values()) + sum(counts.errors.values())
        if counts.documents_in != counts.documents_out + gone:
            sums = {"documents": f"{counts.documents_in:,}", "out": f"{counts.documents_out:,}", "gone": f"{gone:,}"}
            yield BREACHES[0].format(stage=step.stage, **sums)
        provider = _provider(step, by_name) if step.moves_documents else None
        if provider is None:
            continue
        for what, breach in (("documents", BREACHES[1]), ("bytes", BREACHES[2])):
            sent, received = getattr(provider.counts, f"{what}_out"), getattr(counts, f"{what}_in")
            if sent != received:
                yield breach.format(sender=provider.stage, sent=f"{sent:,}", stage=step.stage, received=f"{received:,}")


def _provider(step: Step, by_name: Mapping[str, Step]) -> Step | None:
    """The stage whose documents this one received: its nearest ancestor that moves documents.

    Among several direct ones it is the last that has texts: `text` reads documents from `filter` and numbers from
    `clusters`, `signatures` documents from `contamination` and statistics from `filter`.
    """
    level: tuple[str, ...] = step.upstream
    while level:
        moving = [name for name in by_name if name in level and by_name[name].moves_documents]
        if moving:
            return by_name[([name for name in moving if by_name[name].has_texts] or moving[:1])[-1]]
        level = tuple(parent for name in level if name in by_name for parent in by_name[name].upstream)
    return None


Row = tuple[str, str, str, str, str]  # style, label, documents, share of what came in, bytes


def _rows(summary: Funnel) -> Iterator[Row]:
    total = summary.documents_in
    yield ("bold", "read", f"{total:,}", share(total, total), size(summary.bytes_in))
    for title, counts in (
        ("errors", {f"error:{kind}": count for kind, count in summary.errors.items()}),
        ("dropped by rule", summary.filtered),
        ("duplicates", summary.duplicates),
    ):
        if counts:
            number = sum(counts.values())
            yield ("", title, f"{-number:,}", share(number, total), "")
            for rule, count in counts.items():
                yield ("dim", f"  {DUPLICATE_RULES.get(rule, rule)}", f"{-count:,}", share(count, total), "")
    kept = summary.documents_kept
    yield ("bold green", "kept", f"{kept:,}", share(kept, total), size(summary.bytes_kept))


def _plain_table(rows: list[Row]) -> str:
    label_width = SUMMARY_COLUMNS - 16 - 11 - 11
    lines = [f"{'':<{label_width}}{'documents':>16}{'share':>11}{'size':>11}"]
    for _, label, documents, part, bytes_text in rows:
        label = label if len(label) < label_width else label[: label_width - 2] + "…"
        lines.append(f"{label:<{label_width}}{documents:>16}{part:>11}{bytes_text:>11}".rstrip())
    return "\n".join(lines)


def _rich_table(rows: list[Row]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", min_width=30, overflow="fold")
    for name in ("documents", "share", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for style, *cells in rows:
        table.add_row(*(Text(cell, style=style) for cell in cells))
    console = Console(file=io.StringIO(), force_terminal=True, width=SUMMARY_COLUMNS, legacy_windows=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def _closing(summary: Funnel) -> Iterator[str]:
    if summary.tokens:
        total = sum(summary.tokens.values())
        splits = ", ".join(f"{count:,} {split}" for split, count in summary.tokens.items())
        ratio = f"; {summary.token_bytes / total:.2f} bytes of text a token" if total and summary.token_bytes else ""
        yield f"tokens: {total:,} ({splits}){ratio}"
    if summary.megabytes_per_second is not None:
        yield (
            f"time: {summary.wall_seconds:,.1f} s, {summary.cpu_seconds:,.1f} CPU-s; "
            f"{summary.megabytes_per_second:,.1f} MB/s of text read"
        )


def most_first(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts that are not 0, the largest first, equal ones by name."""
    return dict(
        sorted(((rule, count) for rule, count in counts.items() if count), key=lambda item: (-item[1], item[0]))
    )
