"""What a build will cost before it runs: tasks, time, memory and disk of every stage, from measured rates.

Rates are those of the last build in OUT where there is one, else `DEFAULT_RATES`. All are per byte of input files, so
they hold for a corpus of the same kind and a recipe that keeps about as much: an estimate to choose a disk and a
machine by. Finished tasks cost nothing again; the tasks of a stage are known once the stages before it are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corpus.engine import storage
from corpus.engine.run import TIMINGS_NAME, plan_stages, read_run
from corpus.engine.running import duration
from corpus.engine.space import free_space
from corpus.engine.stage import MANIFEST_NAME, Folder, Stage
from corpus.engine.storage import File

MIN_MEASURED_BYTES = 1_000_000  # the times of a smaller build are those of starting processes
COMPRESSED = {".gz": 2.5, ".zst": 2.5, ".parquet": 2.0}  # bytes of text records in a byte of file, for default rates


@dataclass(frozen=True)
class Rate:
    """A stage's CPU seconds and bytes written per byte of input files, and a worker's peak memory in bytes."""

    cpu_seconds: float
    disk_bytes: float
    peak_bytes: int


# `corpus run --recipe web_zh --workers 1 --set sources.task_bytes=3000000` over 15 MB of JSONL (novels, encyclopedia,
# poetry, articles) on a 2.25 GHz Zen 3 core; the seconds in which each worker loads compiled kernels are in them.
DEFAULT_RATES: dict[str, Rate] = {
    "extract": Rate(1.2e-08, 0.53, 140_000_000),
    "filter": Rate(8.9e-08, 0.61, 340_000_000),
    "signatures": Rate(2.3e-08, 0.26, 350_000_000),
    "candidates": Rate(1.6e-09, 1.3e-05, 350_000_000),
    "clusters": Rate(1.4e-09, 8.9e-05, 350_000_000),
    "text": Rate(8.2e-09, 0.42, 350_000_000),
}
DEFAULT_SOURCE = "defaults: 15 MB of JSONL through web_zh on one 2.25 GHz core (corpus/plan.py)"


@dataclass(frozen=True)
class StagePlan:
    """One stage: `tasks` and `to_run` are None until the stages before it are complete; costs are of what is to run."""

    stage: str
    folder: str | None
    tasks: int | None
    to_run: int | None
    cpu_seconds: float | None
    disk_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Plan:
    """All stages of a build, and where the rates come from."""

    stages: tuple[StagePlan, ...]
    input_files: int
    input_bytes: int
    free_bytes: int | None
    rates: str

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)


def plan(stages: Sequence[Stage], inputs: Sequence[File], out: str) -> Plan:
    """What `run` would do with these stages and inputs."""
    rates, source = measured_rates(out)
    weight: float = sum(file.bytes for file in inputs)
    if not rates:
        rates, source = DEFAULT_RATES, DEFAULT_SOURCE
        weight = sum(file.bytes * _text_ratio(file.url) for file in inputs)
    known = {stage.name: (folder, tasks, tasks - done) for stage, folder, tasks, done in plan_stages(stages, out)}
    planned = tuple(_stage_plan(stage, known.get(stage.name), rates.get(stage.name), weight) for stage in stages)
    free = None if storage.is_remote(out) else free_space(storage.local_path(out)).free_bytes
    return Plan(planned, len(inputs), sum(file.bytes for file in inputs), free, source)


def measured_rates(out: str) -> tuple[dict[str, Rate], str]:
    """The rates of the build that `run.json` names, and their source in words; empty where it is none or too small."""
    if not storage.exists(storage.join(out, "run.json")) or not storage.exists(storage.join(out, TIMINGS_NAME)):
        return {}, ""
    folders = {name: entry["folder"] for name, entry in read_run(out)["stages"].items()}
    timings = storage.read_json(storage.join(out, TIMINGS_NAME))
    if "extract" not in folders:
        return {}, ""
    inputs = storage.read_json(storage.join(out, folders["extract"], "stage.json"))["inputs"]
    total = sum(int(num_bytes) for _, num_bytes, _ in inputs)
    if total < MIN_MEASURED_BYTES:
        return {}, ""
    rates = {}
    for name, folder in folders.items():
        timing = timings.get(folder, {})
        url = storage.join(out, folder)
        if not timing.get("cpu_seconds") or not storage.exists(storage.join(url, MANIFEST_NAME)):
            continue  # linked from another folder, not run
        written = sum(int(entry["bytes"]) for entry in Folder.open(url).manifest["files"].values())
        rates[name] = Rate(timing["cpu_seconds"] / total, written / total, int(timing.get("peak_bytes", 0)))
    return rates, f"measured on the {total / 1e6:,.1f} MB of the last build in {out}"


def render(plan: Plan, workers: int) -> str:
    """The plan as a table of at most 88 columns, and whether the disk will do."""
    lines = [
        f"{plan.input_files:,} input files, {_size(plan.input_bytes)}",
        f"{'stage':<12}{'tasks':>8}{'to run':>8}{'disk':>11}{'memory':>11}{'CPU':>12}{'time':>12}  folder",
    ]
    seconds, disk, memory = 0.0, 0, 0
    for one in plan.stages:
        tasks, to_run = ("?" if value is None else f"{value:,}" for value in (one.tasks, one.to_run))
        folder = one.folder or "(after those above)"
        if one.cpu_seconds is None or one.disk_bytes is None or one.peak_bytes is None:
            lines.append(f"{one.stage:<12}{tasks:>8}{to_run:>8}{'?':>11}{'?':>11}{'?':>12}{'?':>12}  {folder}")
            continue
        busy = max(1, min(workers, one.to_run if one.to_run is not None else workers))
        wall, peak = one.cpu_seconds / busy, one.peak_bytes * (busy if one.to_run != 0 else 0)
        seconds, disk, memory = seconds + wall, disk + one.disk_bytes, max(memory, peak)
        costs = f"{_size(one.disk_bytes):>11}{_size(peak):>11}{duration(one.cpu_seconds):>12}{duration(wall):>12}"
        lines.append(f"{one.stage:<12}{tasks:>8}{to_run:>8}{costs}  {folder}")
    lines.append(
        f"{'in all':<28}{_size(disk):>11}{_size(memory):>11}{'':>12}{duration(seconds):>12}  {workers} workers"
    )
    unknown = [one.stage for one in plan.stages if one.cpu_seconds is None]
    if unknown:
        lines.append(f"not in this: {', '.join(unknown)}, of which no rate is known")
    lines.append(f"rates: {plan.rates}")
    if plan.free_bytes is not None:
        verdict = "enough" if plan.free_bytes > disk else "NOT ENOUGH: give --out a larger disk"
        lines.append(f"free: {_size(plan.free_bytes)}, {verdict}")
    return "\n".join(lines)


def _stage_plan(stage: Stage, known: tuple[str, int, int] | None, rate: Rate | None, weight: float) -> StagePlan:
    folder, tasks, to_run = known if known is not None else (None, None, None)
    if rate is None:
        return StagePlan(stage.name, folder, tasks, to_run, None, None, None)
    share = to_run / tasks if tasks and to_run is not None else 1.0
    cpu_seconds, disk_bytes = rate.cpu_seconds * weight * share, int(rate.disk_bytes * weight * share)
    return StagePlan(stage.name, folder, tasks, to_run, round(cpu_seconds, 1), disk_bytes, rate.peak_bytes)


def _text_ratio(url: str) -> float:
    return next((ratio for suffix, ratio in COMPRESSED.items() if url.lower().endswith(suffix)), 1.0)


def _size(count: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
