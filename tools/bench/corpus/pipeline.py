"""The whole text side on one core: files in, text shards and token shards out, and where each millisecond goes.

    python -m tools.bench pipeline --input 'data/*.jsonl' --peers

The documents of `--input` are multiplied to `--megabytes` of text by exchanging sentences (recombine.py), half of it
written as JSONL.zst and half as Parquet, and built by the ordinary stages in one process. Three numbers are kept apart:
the CPU time of the tasks as the run itself notes it, what a process costs once (interpreter, libraries, loading of
kernels that were compiled before), and training the vocabulary. Files lie in the page cache: a disk's speed is not in
it.

The profile is of a second, equal build with probes in it (probes.py). The peer is the chain that one would write of the
usual Python components (peers/python_pipeline.py), document by document on a spread sample of the same files; what it
does costs the same for each document, so rates are compared.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from corpus import build
from corpus.engine import run as engine_run
from corpus.engine import storage
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from corpus.engine.stage import Folder, Stage, run_task
from corpus.recipe import load_recipe
from tokenizer.build import stages as tokenizer_stages
from tokenizer.config import TokenizerConfig
from tools.bench.corpus import recombine
from tools.bench.corpus.probes import Clock, probed
from tools.bench.inputs import read_documents, read_texts, spread
from tools.bench.peers import environment

REQUIREMENTS = environment.FOLDER / "pipeline.txt"
ENVIRONMENT = environment.ROOT / "build/peers/pipeline"
KINDS = ("jsonl.zst", "parquet")
WARM_BYTES = 200_000  # of each kind: enough to load every kernel
SAMPLE_BYTES = 10_000_000  # the vocabulary is trained on
PEER_BYTES = 2_000_000
AIM = {"text": 12.0, "tokens": 9.0}  # MB/s a core: 5 TB overnight on 16 of them
TERABYTES, CORES = 5, 16
TRAINING = "tokenizer"  # timed apart: its cost does not grow with the corpus
SHOWN_SHARE = 0.002  # of everything; smaller rows of the profile are told together

PROBES = {
    "corpus.engine.durable:sha256_file": "sha256 of what was written",
    "corpus.engine.durable:_sync_file": "fsync, rename, records",
    "corpus.engine.durable:sync_folder": "fsync, rename, records",
    "corpus.engine.durable:write_json": "fsync, rename, records",
    "pyarrow.parquet:ParquetFile.__init__": "reading Parquet",
    "pyarrow.parquet:ParquetFile.read_row_group": "reading Parquet",
    "pyarrow.parquet:ParquetFile.iter_batches": "reading Parquet",
    "pyarrow.parquet:read_table": "reading Parquet",
    "pyarrow.parquet:ParquetWriter.write_table": "writing Parquet",
    "pyarrow.parquet:ParquetWriter.close": "writing Parquet",
    "corpus.document:TableWriter.write": "regrouping rows",
    "corpus.sources.compression:read_pieces": "decompressing",
    "corpus.sources.jsonl:split_lines": "cutting lines",
    "corpus.sources.jsonl:_read_line": "JSON to records",
    "corpus.sources.parquet:_rows": "Parquet values to Python",
    "corpus.sources.stage:to_document": "encoding check, metadata",
    "corpus.sources.stage:document_id": "document ids",
    "corpus.sources.shards:Shards.add": "documents to Arrow",
    "corpus.filters.filter:text_column": "check UTF-8",
    "corpus.filters.edits:normalize": "normalise",
    "corpus.filters.edits:remove_lines": "boilerplate lines",
    "corpus.filters.edits:mask": "personal data: mask",
    "corpus.filters.statistic:find_personal_data": "personal data: find",
    "corpus.kernels.line_kernel:measure_lines": "statistics: characters, script, lines",
    "corpus.kernels.repetition_kernel:measure_repetition": "statistics: repetition",
    "corpus.filters.blocklist:Blocklist.measure": "statistics: block lists",
    "corpus.filters.quality.bigrams:Bigrams.measure": "quality: bigrams",
    "corpus.filters.filter:measure_all": "statistics: columns",
    "corpus.filters.filter:Filter._decide": "rules",
    "corpus.filters.samples:Sampler.add": "samples for the report",
    "corpus.filters.samples:Sampler.table": "samples for the report",
    "corpus.dedup.near.signatures:sign_texts": "folding, keys, minima, bands",
    "corpus.dedup.records:write_bands": "sorting band records",
    "tokenizer.encode:read_documents": "documents: columns, UTF-8",
    "tokenizer.model:Tokenizer.__init__": "loading the vocabulary",
    "tokenizer.kernels.encoder:BatchEncoder.__init__": "loading the vocabulary",
    "tokenizer.kernels.encoder:BatchEncoder.encode_flat": "text to ids",
    "tokenizer.kernels.encoder:BatchEncoder.differing": "comparing with SentencePiece",
    "tokenizer.encode:document_keys": "split and order",
    "tokenizer.encode:ordered_tokens": "token shard",
    "tokenizer.shards.writer:ShardWriter.add_many": "token shard",
    "tokenizer.shards.writer:ShardWriter.__exit__": "token shard",
}


@dataclass(frozen=True)
class Cost:
    """One stage: CPU seconds of its tasks, and bytes it wrote."""

    cpu_seconds: float
    disk_bytes: int


@dataclass(frozen=True)
class Measured:
    """One build of all stages in one process; `text_bytes` is what the first stage read, in UTF-8."""

    stages: Mapping[str, Cost]
    text_bytes: int
    documents: int
    kept_bytes: int
    start_seconds: float  # once a process, before the build
    hashing_seconds: float  # of the input files, before the first stage
    between_seconds: float  # CPU of the build outside its tasks
    peak_bytes: int
    profile: Mapping[tuple[str, str], float]  # (stage, label) -> CPU seconds


def run(arguments: Namespace) -> None:
    """Print the tables; with `--out` inputs and build stay there, else they are removed."""
    folder = Path(arguments.out or tempfile.mkdtemp(prefix="wenhai-bench-"))
    try:
        sources = read_sources(arguments)
        size = int(arguments.megabytes * 1e6)
        for seed, kind in enumerate(KINDS):
            recombine.write(sources, folder / "in", size // 2, kind, seed)
            recombine.write(sources, folder / "warm", WARM_BYTES, kind, seed + len(KINDS))
        build_of = (str(folder), arguments.recipe, arguments.set)
        in_child(start_up, *build_of)  # compiles what was never compiled here
        plain: Measured = in_child(measure_build, *build_of, False)
        show_stages(plain)
        show_profile(in_child(measure_build, *build_of, True))
        if arguments.peers:
            compare(plain, folder)
        else:
            print("\nthe usual Python components: --peers installs them (1 GB below build/peers) and times them")
    finally:
        if not arguments.out:
            shutil.rmtree(folder)


def read_sources(arguments: Namespace) -> list[list[str]]:
    """The texts of each input file, else of the documents the filter's benchmark finds.

    Raises:
        UsageError: there are none.
    """
    if not arguments.input:
        return [list(read_documents(arguments))]
    found = [list(read_texts(file.url, arguments.column)) for file in storage.list_inputs(arguments.input)]
    if not any(found):
        raise UsageError(f"{' '.join(arguments.input)}: no text in the field {arguments.column!r}. Give --column.")
    return [texts for texts in found if texts]


def in_child(work: Callable[..., Any], *values: Any) -> Any:
    """Call in a process of its own, kept to one core."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_one_core) as pool:
        return pool.submit(work, *values).result()


def _one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def start_up(folder: str, recipe: str, overrides: Sequence[str]) -> float:
    """Run every stage on next to nothing; the CPU seconds of this process so far."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        for stages in _stages(f"{folder}/warm", recipe, overrides):
            engine_run.run_stages(stages, out, workers=0)
    return time.process_time()


def measure_build(folder: str, recipe: str, overrides: Sequence[str], profile: bool) -> Measured:
    """Build `folder/in`, from nothing, in this process: into `folder/build`, or with probes into a folder that goes."""
    start = start_up(folder, recipe, overrides)
    out, clock, before = f"{folder}/{'profile' if profile else 'build'}", Clock(), time.process_time()
    shutil.rmtree(out, ignore_errors=True)
    with _profiled(clock) if profile else nullcontext():
        text_side, token_side = _stages(f"{folder}/in", recipe, overrides)
        hashing = time.process_time() - before
        folders = engine_run.run_stages(text_side, out, workers=0)
        folders |= engine_run.run_stages(token_side, out, workers=0)
    spent = time.process_time() - before
    costs = costs_of(folders, out)
    if profile:
        shutil.rmtree(out)
    return Measured(
        stages=costs,
        text_bytes=folders["extract"].counts.bytes_out,
        documents=folders["extract"].counts.documents_out,
        kept_bytes=folders["text"].counts.bytes_out,
        start_seconds=start,
        hashing_seconds=hashing,
        between_seconds=spent - hashing - sum(cost.cpu_seconds for cost in costs.values()),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        profile={key: nanoseconds / 1e9 for key, nanoseconds in clock.spent.items()},
    )


def costs_of(folders: Mapping[str, Folder], out: str) -> dict[str, Cost]:
    """What each stage of a build took, by its own notes."""
    timings = storage.read_json(storage.join(out, engine_run.TIMINGS_NAME))
    return {
        name: Cost(
            timings[folder.url.rsplit("/", 1)[-1]]["cpu_seconds"],
            sum(entry["bytes"] for entry in folder.manifest["files"].values()),
        )
        for name, folder in folders.items()
    }


def _stages(inputs: str, recipe: str, overrides: Sequence[str]) -> tuple[list[Stage], list[Stage]]:
    """The text side and the token side of a build."""
    chosen = load_recipe(recipe, overrides)
    section = chosen.tokenizer | {"sample_bytes": SAMPLE_BYTES}
    vocabulary = parse(TokenizerConfig, section, f"{recipe} [tokenizer]")
    return build.stages(chosen, storage.list_inputs([inputs])), tokenizer_stages(vocabulary)


@contextmanager
def _profiled(clock: Clock) -> Iterator[None]:
    """Charge every task to its stage, and what is probed in it to its label."""

    def run_in_section(stage: Stage, task: Any, url: str) -> Any:
        with clock.section(stage.name, "the rest"):
            return run_task(stage, task, url)

    with mock.patch.object(engine_run, "run_task", run_in_section), probed(clock, PROBES):
        yield


def show_stages(found: Measured) -> None:
    """Print what each stage costs and what they make together."""
    size = found.text_bytes / 1e6
    print(
        f"{found.documents:,} documents, {size:,.1f} MB of text, of which {found.kept_bytes / 1e6:,.1f} MB stay; one core"
    )
    print(f"\n{'stage':<16}{'CPU-s':>9}{'ms/MB':>9}{'written':>12}")
    total = 0.0
    for name, cost in found.stages.items():
        if name == TRAINING:
            continue
        total += cost.cpu_seconds
        print(f"{name:<16}{cost.cpu_seconds:9.2f}{1e3 * cost.cpu_seconds / size:9.2f}{cost.disk_bytes / 1e6:9,.1f} MB")
        if name in AIM:
            through = {"text": "to text shards", "tokens": "to token shards"}[name]
            rate = size / total
            hours = TERABYTES * 1e6 / rate / CORES / 3600
            print(
                f"  {through:<14}{total:9.2f}{1e3 * total / size:9.2f}    {rate:.1f} MB/s a core (aim {AIM[name]:g}); "
                f"{TERABYTES} TB on {CORES} cores in {hours:.1f} h"
            )
    print(
        f"not in it: {found.start_seconds:.1f} CPU-s to start a process and load kernels, once a worker; "
        f"{found.hashing_seconds:.2f} to hash the inputs; {found.between_seconds:.2f} between tasks; "
        f"{found.stages[TRAINING].cpu_seconds:.1f} to train the vocabulary on {SAMPLE_BYTES / 1e6:g} MB\n"
        f"peak memory {found.peak_bytes / 1e6:,.0f} MB"
    )


def show_profile(found: Measured) -> None:
    """Print where the time goes inside the stages."""
    size = found.text_bytes / 1e6
    rows = {key: spent for key, spent in found.profile.items() if key[0] not in {"", TRAINING}}
    whole = sum(rows.values())
    print(f"\n{'inside the stages':<58}{'ms/MB':>9}{'share':>8}")
    for stage in found.stages:
        here = {label: spent for (name, label), spent in rows.items() if name == stage}
        if not here:
            continue
        print(f"{stage:<58}{1e3 * sum(here.values()) / size:9.2f}{sum(here.values()) / whole:8.1%}")
        small = 0.0
        for label, spent in sorted(here.items(), key=lambda item: -item[1]):
            if spent < SHOWN_SHARE * whole:
                small += spent
            else:
                print(f"  {label:<56}{1e3 * spent / size:9.2f}{spent / whole:8.1%}")
        if small:
            print(f"  {'below one in five hundred each':<56}{1e3 * small / size:9.2f}{small / whole:8.1%}")
    by_label: dict[str, float] = defaultdict(float)
    for (_, label), spent in rows.items():
        by_label[label] += spent
    print("over all stages")
    for label, spent in sorted(by_label.items(), key=lambda item: -item[1])[:10]:
        print(f"  {label:<56}{1e3 * spent / size:9.2f}{spent / whole:8.1%}")


def compare(ours: Measured, folder: Path) -> None:
    """Time the peer on a spread sample of the same documents, with the vocabulary of this build."""
    environment.install(ENVIRONMENT, REQUIREMENTS)
    texts = [text for file in storage.list_inputs([str(folder / "in")]) for text in read_texts(file.url)]
    sample, model = folder / "sample.jsonl", engine_run.current(str(folder / "build"), TRAINING).files("model")[0].url
    environment.write_documents(sample, spread(texts, PEER_BYTES))
    found = environment.call("python_pipeline.py", str(sample), model, folder=ENVIRONMENT)
    size = found["bytes"] / 1e6
    print(
        f"\nthe usual Python components, {found['documents']:,} of these documents ({size:.2f} MB), {found['kept']:,} kept"
    )
    total = 0.0
    for step, seconds in found["seconds"].items():
        total += seconds
        print(f"  {step:<56}{1e3 * seconds / size:9.2f}")
    without = total - found["seconds"]["sentencepiece"]
    for name, theirs in (("text", without), ("tokens", total)):
        rate = ours.text_bytes / 1e6 / _seconds_to(ours, name)
        print(
            f"to {name.removesuffix('s')} shards: {size / theirs:.3f} MB/s; ours {rate:.1f} MB/s, {rate * theirs / size:,.0f} times"
        )


def _seconds_to(found: Measured, last: str) -> float:
    """CPU seconds of the stages up to one, without training."""
    total = 0.0
    for name, cost in found.stages.items():
        total += cost.cpu_seconds if name != TRAINING else 0.0
        if name == last:
            break
    return total
