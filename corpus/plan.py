"""What a build will cost before it runs: tasks, time, memory and disk of every stage, from measured rates.

Rates are those of the last build in OUT, else `DEFAULT_RATES`, and for a stage of which neither knows `OTHER_RATE`.
They are per byte of input, so they hold for a corpus of the same kind and a recipe that keeps about as much: an
estimate to choose a disk and a machine by. Finished tasks cost nothing again; the tasks of a stage are known once the
stages before it are complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from corpus.engine import storage
from corpus.engine.disk_budget import free_space, size
from corpus.engine.run import TIMINGS_NAME, plan_stages, read_run
from corpus.engine.running import duration
from corpus.engine.stage import Folder, Stage
from corpus.engine.storage import File

MIN_MEASURED_BYTES = 1_000_000  # the times of a smaller build are those of starting processes
COMPRESSED = {
    ".bz2": 3.5,
    ".gz": 2.5,
    ".zst": 2.5,
    ".parquet": 2.0,
}  # bytes of records in a byte of file, for default rates
DUMP = re.compile(r"\.xml(\.\w+)?$", re.IGNORECASE)
# python -m timeit -s "from tests.corpus.wikitext.test_wikitext import PAGE; from corpus.wikitext import to_text"
# "to_text(PAGE)" (a page of 1,255 bytes, dense with markup, of which 379 stay; while the machine had other work)
WIKITEXT_CPU_SECONDS = 2.1e-06  # of a byte of a dump, beside the rate of its text
WIKITEXT_TEXT_RATIO = 0.3  # bytes of text in a byte of a dump


@dataclass(frozen=True)
class Rate:
    """A stage's CPU seconds and bytes written per byte of input, and a worker's peak memory in bytes.

    A byte of input is one of an input file where a build was measured, and one of text in `DEFAULT_RATES`.
    """

    cpu_seconds: float
    disk_bytes: float
    peak_bytes: int


# python -m tools.bench pipeline --input TEXT --out BENCH --set dedup.repeated_lines.min_documents=10 \
# --set dedup.substrings.min_chars=100 --set 'dedup.contamination.files=["EVALUATION"]' --set
# 'mixture.sources={local=1}' python -m tools.projection --rates BENCH/build --show-rates (the stages that a recipe must
# ask for: while the machine had other work; the others without those settings, on one that copied memory at 6 GB/s;
# memory is that of `corpus run --workers 1`, a worker grows as its shards do)
DEFAULT_RATES: dict[str, Rate] = {
    "extract": Rate(2.3e-08, 0.60, 250_000_000),
    "filter": Rate(6.7e-08, 0.51, 600_000_000),
    "line_keys": Rate(1.4e-08, 0.066, 600_000_000),
    "line_counts": Rate(1.4e-09, 1e-4, 600_000_000),
    "repeated_lines": Rate(1.5e-08, 0.46, 600_000_000),
    "contamination": Rate(2.5e-08, 0.46, 600_000_000),
    "signatures": Rate(9.4e-09, 0.18, 600_000_000),
    "buckets": Rate(1.1e-10, 0.011, 600_000_000),
    "members": Rate(1.1e-10, 0.015, 600_000_000),
    "candidates": Rate(3.1e-11, 9.8e-4, 600_000_000),
    "components": Rate(2.3e-11, 9.8e-4, 600_000_000),  # three stages that were one: its rate, by their CPU seconds
    "survivors": Rate(3.2e-11, 1.2e-3, 600_000_000),  # for 4 M edges among 10 M documents (28, 40 and 32 of 100)
    "clusters": Rate(2.6e-11, 2.6e-3, 600_000_000),
    "passage_keys": Rate(1.1e-08, 0.14, 600_000_000),
    "passage_ranks": Rate(4.0e-10, 1e-4, 600_000_000),
    "substrings": Rate(1.7e-08, 0.44, 600_000_000),
    "text": Rate(9.8e-09, 0.37, 600_000_000),
    "mixture_totals": Rate(5.0e-11, 1e-4, 600_000_000),
    "mixture": Rate(2.3e-10, 4e-3, 600_000_000),
    "sources": Rate(6.9e-09, 1e-5, 600_000_000),  # these of the tokenizer package, for tools/projection.py
    "shares": Rate(1e-12, 1e-9, 200_000_000),
    "sample": Rate(4.4e-09, 0.0, 600_000_000),
    "tokens": Rate(2.3e-08, 0.36, 1_000_000_000),
}
OTHER_RATE = Rate(1.5e-08, 0.5, 600_000_000)  # of a stage that reads and writes the text once, as most do
DEFAULT_SOURCE = "defaults: 160 MB of text through web_zh on one 2.25 GHz core (corpus/plan.py)"


def default_rate(stage: str) -> Rate:
    """The rate of a stage, per byte of text, that no build has told."""
    return DEFAULT_RATES.get(stage, OTHER_RATE)


@dataclass(frozen=True)
class StagePlan:
    """One stage: `tasks` and `to_run` are None until the stages before it are complete; costs are of what is to run."""

    stage: str
    folder: str | None
    tasks: int | None
    to_run: int | None
    cpu_seconds: float
    disk_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Plan:
    """All stages of a build, and where the rates come from."""

    stages: tuple[StagePlan, ...]
    input_files: int
    input_bytes: int
    free_bytes: int | None
    rates: str


def plan(stages: Sequence[Stage], inputs: Sequence[File], out: str) -> Plan:
    """What `run` would do with these stages and inputs."""
    measured, source = measured_rates(out)
    num_bytes = sum(file.bytes for file in inputs)
    text_bytes = sum(file.bytes * _text_ratio(file.url) for file in inputs)
    dump_bytes = sum(file.bytes * _unpacked_ratio(file.url) for file in inputs if DUMP.search(file.url))
    known = {stage.name: (folder, tasks, tasks - done) for stage, folder, tasks, done in plan_stages(stages, out)}
    planned = tuple(
        _stage_plan(stage, known.get(stage.name), measured[stage.name], num_bytes)
        if stage.name in measured
        else _stage_plan(stage, known.get(stage.name), _default_rate(stage.name, text_bytes, dump_bytes), text_bytes)
        for stage in stages
    )
    free = None if storage.is_remote(out) else free_space(storage.local_path(out)).free_bytes
    return Plan(planned, len(inputs), num_bytes, free, _source(source, [stage.name for stage in stages], measured))


def measured_rates(out: str) -> tuple[dict[str, Rate], str]:
    """The rates of the build that `run.json` names, and their source in words; empty where it is none or too small."""
    if not storage.exists(storage.join(out, "run.json")) or not storage.exists(storage.join(out, TIMINGS_NAME)):
        return {}, ""
    folders = read_run(out)["stages"]
    if "extract" not in folders:
        return {}, ""
    inputs = storage.read_json(storage.join(out, folders["extract"]["folder"], "stage.json"))["inputs"]
    total = sum(int(num_bytes) for _, num_bytes, _ in inputs)
    if total < MIN_MEASURED_BYTES:
        return {}, ""
    return rates_by(out, total), f"measured on the {total / 1e6:,.1f} MB of the last build in {out}"


def rates_by(out: str, num_bytes: int) -> dict[str, Rate]:
    """The rates of the stages that `run.json` names and that were run in `out`, for each of `num_bytes`."""
    timings = storage.read_json(storage.join(out, TIMINGS_NAME))
    rates = {}
    for name, entry in read_run(out)["stages"].items():
        timing, folder = timings.get(entry["folder"], {}), Folder.find(storage.join(out, entry["folder"]))
        if not timing.get("cpu_seconds") or folder is None:
            continue  # linked from another folder, not run
        written = folder.num_bytes
        rates[name] = Rate(timing["cpu_seconds"] / num_bytes, written / num_bytes, int(timing.get("peak_bytes", 0)))
    return rates


def render(plan: Plan, workers: int) -> str:
    """The plan as a table of at most 90 columns, and whether the disk will do."""
    lines = [
        f"{plan.input_files:,} input files, {size(plan.input_bytes)}",
        f"{'stage':<14}{'tasks':>8}{'to run':>8}{'disk':>11}{'memory':>11}{'CPU':>12}{'time':>12}  folder",
    ]
    seconds, disk, memory = 0.0, 0, 0
    for one in plan.stages:
        tasks, to_run = ("?" if value is None else f"{value:,}" for value in (one.tasks, one.to_run))
        folder = one.folder or "(after those above)"
        busy = max(1, min(workers, one.to_run if one.to_run is not None else workers))
        wall, peak = one.cpu_seconds / busy, one.peak_bytes * (busy if one.to_run != 0 else 0)
        seconds, disk, memory = seconds + wall, disk + one.disk_bytes, max(memory, peak)
        costs = f"{size(one.disk_bytes):>11}{size(peak):>11}{duration(one.cpu_seconds):>12}{duration(wall):>12}"
        lines.append(f"{one.stage:<14}{tasks:>8}{to_run:>8}{costs}  {folder}")
    lines.append(f"{'in all':<30}{size(disk):>11}{size(memory):>11}{'':>12}{duration(seconds):>12}  {workers} workers")
    lines.append(f"rates: {plan.rates}")
    if plan.free_bytes is not None:
        verdict = "enough" if plan.free_bytes > disk else "NOT ENOUGH: give --out a larger disk"
        lines.append(f"free: {size(plan.free_bytes)}, {verdict}")
    return "\n".join(lines)


def _source(measured_on: str, names: Sequence[str], measured: Mapping[str, Rate]) -> str:
    """Where the rates come from, in words."""
    others = [name for name in names if name not in measured]
    source = DEFAULT_SOURCE
    if measured_on:
        source = measured_on + (f"; {', '.join(others)} by {DEFAULT_SOURCE}" if others else "")
    unknown = [name for name in others if name not in DEFAULT_RATES]
    return source + (f"; {', '.join(unknown)} as one pass over the text" if unknown else "")


def _stage_plan(stage: Stage, known: tuple[str, int, int] | None, rate: Rate, weight: float) -> StagePlan:
    folder, tasks, to_run = known if known is not None else (None, None, None)
    share = to_run / tasks if tasks and to_run is not None else 1.0
    cpu_seconds, disk_bytes = rate.cpu_seconds * weight * share, int(rate.disk_bytes * weight * share)
    return StagePlan(stage.name, folder, tasks, to_run, round(cpu_seconds, 1), disk_bytes, rate.peak_bytes)


def _default_rate(stage: str, text_bytes: float, dump_bytes: float) -> Rate:
    """`default_rate`; with what parsing wikitext takes more."""
    rate = default_rate(stage)
    if stage != "extract" or not dump_bytes:
        return rate
    return replace(rate, cpu_seconds=rate.cpu_seconds + WIKITEXT_CPU_SECONDS * dump_bytes / text_bytes)


def _text_ratio(url: str) -> float:
    return _unpacked_ratio(url) * (WIKITEXT_TEXT_RATIO if DUMP.search(url) else 1.0)


def _unpacked_ratio(url: str) -> float:
    return next((ratio for suffix, ratio in COMPRESSED.items() if url.lower().endswith(suffix)), 1.0)
