"""The whole text side on one core: files in, text shards and token shards out, and where each millisecond goes.

    python -m tools.bench pipeline --input 'data/*.jsonl' --peers

The documents of `--input` are multiplied to `--megabytes` of text by exchanging sentences (recombine.py), half of it
written as JSONL.zst and half as Parquet, and built by the ordinary stages in one process. Three numbers are kept apart:
the CPU time of the tasks as the run itself notes it, what a process costs once (interpreter, libraries, loading of
kernels that were compiled before), and training the vocabulary. Files lie in the page cache: a disk's speed is not in
it.

The profile is cProfile's of a second, equal build: each function of ours with what it calls in C and in compiled
kernels. It slows what makes many small calls, so it says where to look and not how long. The peer is the chain that one
would write of the usual Python components (peers/python_pipeline.py), document by document on a spread sample of the
same files; what it does costs the same for each document, so rates are compared.
"""

from __future__ import annotations

import cProfile
import shutil
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

from corpus import build
from corpus.engine import run as engine_run
from corpus.engine import storage
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from corpus.engine.inputs import list_inputs
from corpus.engine.stage import Folder, Stage, run_task
from corpus.recipe import load_recipe
from corpus.sources.packing import find_sources
from tokenizer.build import stages as tokenizer_stages
from tokenizer.config import TokenizerConfig
from tools.bench import timing
from tools.bench.corpus import recombine
from tools.bench.inputs import read_documents, read_texts, spread
from tools.bench.peers import environment
from tools.bench.timing import in_child, one_core

KINDS = ("jsonl.zst", "parquet")
WARM_BYTES = 200_000  # of each kind: enough to load every kernel
SAMPLE_BYTES = 10_000_000  # the vocabulary is trained on
PEER_BYTES = 2_000_000
AIM = {"text": 12.0, "tokens": 9.0}  # MB/s a core: 5 TB overnight on 16 of them
TERABYTES, CORES = 5, 16
TRAINING = "tokenizer"  # timed apart: its cost does not grow with the corpus
SHOWN_SHARE, SHOWN_FUNCTIONS = 0.002, 12  # of everything; of a stage


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
    profile: Mapping[tuple[str, str], float]  # (stage, function) -> seconds; empty without one


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
        with one_core():
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
    found = [list(read_texts(file.url, arguments.column)) for file in list_inputs(arguments.input)]
    if not any(found):
        raise UsageError(f"{' '.join(arguments.input)}: no text in the field {arguments.column!r}. Give --column.")
    return [texts for texts in found if texts]


def start_up(folder: str, recipe: str, overrides: Sequence[str]) -> float:
    """Run every stage on next to nothing; the CPU seconds of this process so far."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        for stages in _stages(f"{folder}/warm", recipe, overrides):
            engine_run.run_stages(stages, out, workers=0)
    return time.process_time()


def measure_build(folder: str, recipe: str, overrides: Sequence[str], profile: bool) -> Measured:
    """Build `folder/in`, from nothing, in this process: into `folder/build`, or profiled into a folder that goes."""
    start = start_up(folder, recipe, overrides)
    out, before = f"{folder}/{'profile' if profile else 'build'}", time.process_time()
    profiles = defaultdict[str, cProfile.Profile](cProfile.Profile)

    def run_profiled(stage: Stage, task: Any, url: str) -> Any:
        return profiles[stage.name].runcall(run_task, stage, task, url)

    shutil.rmtree(out, ignore_errors=True)
    with mock.patch.object(engine_run, "run_task", run_profiled if profile else run_task):
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
        peak_bytes=timing.status("VmHWM"),
        profile={(name, where): spent for name, one in profiles.items() for where, spent in own_times(one).items()},
    )


def costs_of(folders: Mapping[str, Folder], out: str) -> dict[str, Cost]:
    """What each stage of a build took, by its own notes."""
    timings = storage.read_json(storage.join(out, engine_run.TIMINGS_NAME))
    return {
        name: Cost(
            timings[folder.url.rsplit("/", 1)[-1]]["cpu_seconds"],
            folder.num_bytes,
        )
        for name, folder in folders.items()
    }


def _stages(inputs: str, recipe: str, overrides: Sequence[str]) -> tuple[list[Stage], list[Stage]]:
    """The text side and the token side of a build."""
    chosen = load_recipe(recipe, overrides)
    section = chosen.tokenizer | {"sample_bytes": SAMPLE_BYTES}
    vocabulary = parse(TokenizerConfig, section, f"{recipe} [tokenizer]")
    return build.stages(chosen, find_sources(chosen.sources, [inputs])), tokenizer_stages(vocabulary)


def own_times(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds of each function of ours, and of each package of others; what one calls in C is its own."""
    found: dict[str, float] = defaultdict(float)
    for entry in profile.getstats():
        if isinstance(entry.code, CodeType):
            in_c = sum(call.inlinetime for call in entry.calls or () if isinstance(call.code, str))
            found[_where(entry.code)] += entry.inlinetime + in_c
    return found


def _where(code: CodeType) -> str:
    """`corpus/filters/edits.py: mask`, or the name of another's package.

    >>> _where(_where.__code__)
    'tools/bench/corpus/pipeline.py: _where'
    """
    path, _, package = code.co_filename.partition("/site-packages/")
    if package:
        return package.partition("/")[0]
    ours = Path(path).is_relative_to(environment.ROOT)
    return f"{Path(path).relative_to(environment.ROOT)}: {code.co_qualname}" if ours else Path(path).stem


def show_stages(found: Measured) -> None:
    """Print what each stage costs and what they make together."""
    size = found.text_bytes / 1e6
    print(
        f"{found.documents:,} documents, {size:,.1f} MB of text, of which {found.kept_bytes / 1e6:,.1f} MB stay; one "
        f"core"
    )
    print(f"\n{'stage':<16}{'CPU-s':>9}{'ms/MB':>9}{'written':>12}")
    for name, cost in found.stages.items():
        if name == TRAINING:
            continue
        print(f"{name:<16}{cost.cpu_seconds:9.2f}{1e3 * cost.cpu_seconds / size:9.2f}{cost.disk_bytes / 1e6:9,.1f} MB")
        if name in AIM:
            total = seconds_to(found, name)
            hours = TERABYTES * 1e6 / size * total / CORES / 3600
            print(
                f"  to {name.removesuffix('s')} shards{total:9.2f}{1e3 * total / size:9.2f}    {size / total:.1f} MB/s "
                f"a "
                f"core (aim {AIM[name]:g}); {TERABYTES} TB on {CORES} cores in {hours:.1f} h"
            )
    print(
        f"not in it: {found.start_seconds:.1f} CPU-s to start a process and load kernels, once a worker; "
        f"{found.hashing_seconds:.2f} to hash the inputs; {found.between_seconds:.2f} between tasks; "
        f"{found.stages[TRAINING].cpu_seconds:.1f} to train the vocabulary on {SAMPLE_BYTES / 1e6:g} MB\n"
        f"peak memory {found.peak_bytes / 1e6:,.0f} MB"
    )


def show_profile(found: Measured) -> None:
    """Print where the time goes inside the stages: the functions of each that take most of it."""
    size = found.text_bytes / 1e6
    whole = sum(spent for (name, _), spent in found.profile.items() if name != TRAINING)
    print(f"\n{'inside the stages':<88}{'ms/MB':>9}{'share':>8}")
    for stage in found.stages:
        here = {where: spent for (name, where), spent in found.profile.items() if name == stage != TRAINING}
        rows = [
            (stage, sum(here.values())),
            *((f"  {where}", here[where]) for where in sorted(here, key=lambda where: -here[where])),
        ]
        for name, spent in rows[: 1 + SHOWN_FUNCTIONS]:
            if spent >= SHOWN_SHARE * whole:
                print(f"{name:<88}{1e3 * spent / size:9.2f}{spent / whole:8.1%}")


def compare(ours: Measured, folder: Path) -> None:
    """Time the peer on a spread sample of the same documents, with the vocabulary of this build."""
    environment.PIPELINE.install()
    texts = [text for file in list_inputs([str(folder / "in")]) for text in read_texts(file.url)]
    sample, model = folder / "sample.jsonl", engine_run.current(str(folder / "build"), TRAINING).files("model")[0].url
    environment.write_documents(sample, spread(texts, PEER_BYTES))
    found = environment.PIPELINE.run("python_pipeline.py", str(sample), model)
    size = found["bytes"] / 1e6
    print(
        f"\nthe usual Python components, {found['documents']:,} of these documents ({size:.2f} MB), {found['kept']:,} "
        f"kept"
    )
    for step, seconds in found["seconds"].items():
        print(f"  {step:<56}{1e3 * seconds / size:9.2f}")
    total = sum(found["seconds"].values())
    for name, theirs in (("text", total - found["seconds"]["sentencepiece"]), ("tokens", total)):
        rate = ours.text_bytes / 1e6 / seconds_to(ours, name)
        print(
            f"to {name.removesuffix('s')} shards: {size / theirs:.3f} MB/s; ours {rate:.1f} MB/s, "
            f"{rate * theirs / size:,.0f} times"
        )


def seconds_to(found: Measured, last: str) -> float:
    """CPU seconds of the stages up to one, without training."""
    names = list(found.stages)[: list(found.stages).index(last) + 1]
    return sum(found.stages[name].cpu_seconds for name in names if name != TRAINING)
