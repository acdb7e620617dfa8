"""What a build of any size will take, from measured rates: core-hours, time, disk and shuffle by stage, and what limits
it.

    python -m tools.projection --documents 2e9 --bytes 5e12 --nodes 1 16 128
    python -m tools.projection --rates BENCH/build --show-rates      the rates of a build, as corpus/plan.py has them

Nothing is run. Measured are the CPU seconds and bytes that each stage takes for a byte of text on one core
(corpus/plan.py, or the build that `--rates` names), and the three small costs below; how many tasks a stage has is
asked of the stages themselves, by showing their `plan` the manifests that a build of that size would have. The rest is
arithmetic, and assumes: equal cores that do not slow each other down, documents spread like the measured ones, storage
that all nodes share and that gives each of them `--network-gbit`, and no failures.

A stage takes as long as the slowest of: its tasks in waves over the cores; its bytes through the nodes' network; and
the driver, which starts tasks and commits them one after another.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from corpus.build import stages
from corpus.dedup import DedupConfig, records
from corpus.dedup.near.buckets import SHARED_DTYPE
from corpus.dedup.near.candidates import EDGE_DTYPE
from corpus.dedup.near.clusters import num_groups
from corpus.dedup.near.members import MEMBER_DTYPE
from corpus.dedup.text.keys import KEY_DTYPE
from corpus.engine.cli import add_examples
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.manifest import PIECE_FILES
from corpus.engine.run import current
from corpus.engine.stage import Folder, Stage
from corpus.engine.storage import File
from corpus.plan import DEFAULT_RATES, Rate, default_rate, rates_by
from corpus.recipe import Recipe, load_recipe
from tokenizer.config import TokenizerConfig

EXAMPLES = """
python -m tools.projection --documents 2e9 --bytes 5e12 --nodes 1 16 128
python -m tools.projection --documents 2e8 --bytes 5e11 --nodes 1 4 --recipe my.toml --rates build/pilot
"""
# python -m tools.bench pipeline, as for the rates: documents that web_zh keeps, and CPU to train for a byte of sample.
KEPT = 0.73
A_DOCUMENT = 40  # lines, and windows of passages: assumed, and only the number of key ranges depends on it
SHARED = 0.2  # of the band records, those that share their key: `buckets` says it while it runs
TRAINING_SECONDS = 6.6e-7
# python -m tools.small_costs
READ_SECONDS = 1.5e-5  # CPU of one range read of a small file
ENTRY_SECONDS = 2e-6  # CPU to open a manifest, for each file it lists
DRIVER_SECONDS = 5e-4  # of the driver for a task: to start it, read its record, show it
COMPRESSION = 2.5  # bytes of text in a byte of input file
READS_A_SECTION = 2  # its offsets, the records (records.sections)
SAMPLE_HASH = "0" * 64

FILES = {  # kinds of files that a stage writes, a task or a shard each
    "extract": ("data", "fates"),
    "filter": ("data", "fates", "statistics", "samples"),
    "line_keys": ("lines",),
    "line_counts": ("counts",),
    "repeated_lines": ("data", "fates", "statistics"),
    "contamination": ("data", "fates", "statistics"),
    "signatures": ("keys", "signatures", "bands"),
    "buckets": ("buckets",),
    "members": ("members", "sketches"),
    "candidates": ("edges",),
    "components": ("edges",),
    "survivors": ("survivors",),
    "clusters": ("drops", "clusters"),
    "passage_keys": ("windows", "repeated"),
    "passage_ranks": ("best",),
    "substrings": ("data", "fates", "statistics", "drops", "clusters"),
    "text": ("data", "fates", "index"),
    "mixture_totals": (),
    "mixture": ("copies", "groups"),
}
SECTIONS = {  # of which stage's files each task reads one section a file
    "line_counts": ("line_keys", 1),
    "repeated_lines": ("line_counts", 1),
    "buckets": ("signatures", 1),
    "members": ("buckets", 1),
    "candidates": ("members", 2),
    "clusters": ("survivors", 1),
    "passage_ranks": ("passage_keys", 1),
    "substrings": ("passage_ranks", 1),
}
BY_SHARD = {"extract", "clusters"}  # a task writes files of several shards, or of all
COMMAND = "python -m tools.projection --documents 2e9 --bytes 5e12 --nodes 1 16 128"
BLOCK = re.compile(rf"({re.escape(COMMAND)}\n```\n\n```\n).*?^(?=```$)", re.DOTALL | re.MULTILINE)  # in docs/scale.md
COLUMNS = 118
HOT_SHARE = 1e-3  # of all documents, copies of one page: what the largest partition is told for


@dataclass(frozen=True)
class Corpus:
    """What is to be built, and how it is cut up."""

    documents: int
    text_bytes: int
    shards: int
    kept: float  # share of documents that the filter keeps
    dedup: DedupConfig = field(default_factory=DedupConfig)

    @property
    def kept_documents(self) -> int:
        """Documents that deduplication sees."""
        return round(self.documents * self.kept)


@dataclass(frozen=True)
class Machines:
    """`nodes` equal machines on one storage; `network_bytes` a second each."""

    nodes: int
    cores: int
    network_bytes: float


@dataclass(frozen=True)
class Work:
    """One stage, whatever it runs on; `reads` are requests for parts of files, beyond one for each file of its own."""

    stage: str
    tasks: int
    core_seconds: float
    disk_bytes: float
    read_bytes: float
    reads: int
    files: int

    def seconds(self, machines: Machines) -> tuple[float, str]:
        """Time on these machines, and what decides it."""
        cores = machines.nodes * machines.cores
        bounds = {
            "one task" if self.tasks == 1 else "cores": math.ceil(self.tasks / cores) * self.core_seconds / self.tasks,
            "network": (self.read_bytes + self.disk_bytes) / (min(machines.nodes, self.tasks) * machines.network_bytes),
            "driver": self.tasks * DRIVER_SECONDS,
        }
        limit = max(bounds, key=lambda name: bounds[name])
        return bounds[limit], limit


def project(corpus: Corpus, recipe: Recipe, rates: Mapping[str, Rate]) -> list[Work]:
    """Every stage of a build and of the tokenizer, in order."""
    upstream: dict[str, Folder] = {"extract": manifest_of("extract", corpus, corpus.shards)}
    stored = corpus.text_bytes / COMPRESSION  # input files, of `task_bytes` each
    found = [_work("extract", max(1, round(stored / recipe.input.task_bytes)), corpus, rates, stored, {})]
    disk = {"extract": found[0].disk_bytes}
    for stage in stages(recipe, ())[1:]:
        tasks = _num_tasks(stage, upstream, corpus)
        count = corpus.shards if stage.name in BY_SHARD else tasks
        if stage.name == "components":  # one task, which writes a file a group
            count = num_groups(int(disk["candidates"]) // EDGE_DTYPE.itemsize)
        upstream[stage.name] = manifest_of(stage.name, corpus, count)
        read = sum(_read_share(stage.name, name, corpus) * disk[name] for name in stage.upstream)
        found.append(_work(stage.name, tasks, corpus, rates, read, upstream))
        disk[stage.name] = found[-1].disk_bytes
    section = TokenizerConfig.model_validate(recipe.tokenizer)
    sample = min(section.sample_bytes, corpus.text_bytes)
    training = Work("tokenizer", 1, sample * TRAINING_SECONDS, 1e6, sample, 0, 2)
    names = ("sources", "sample", "tokens")
    weighing, sampling, encoding = (_work(name, corpus.shards, corpus, rates, disk["text"], {}) for name in names)
    sharing = _work("shares", 1, corpus, rates, weighing.disk_bytes, {})
    return [*found, weighing, sharing, replace(sampling, disk_bytes=float(sample)), training, encoding]


def _num_tasks(stage: Stage, upstream: Mapping[str, Folder], corpus: Corpus) -> int:
    """What the stage itself plans; one task a shard for those that ask for more than a manifest."""
    try:
        return len(stage.plan(upstream)) or corpus.shards
    except (LookupError, ValueError, OSError):
        return corpus.shards


def _work(
    name: str,
    tasks: int,
    corpus: Corpus,
    rates: Mapping[str, Rate],
    read_bytes: float,
    upstream: Mapping[str, Folder],
) -> Work:
    rate = rates.get(name) or default_rate(name)
    opened, kinds = SECTIONS.get(name, ("", 0))
    entries = upstream[opened].num_files if opened in upstream else 0
    per_kind = entries // len(FILES[opened]) if entries else 0
    reads = tasks * per_kind * kinds * READS_A_SECTION
    seconds = rate.cpu_seconds * corpus.text_bytes + reads * READ_SECONDS + tasks * entries * ENTRY_SECONDS
    files = len(FILES.get(name, ("data", "fates"))) * (corpus.shards if name in BY_SHARD else tasks)
    return Work(name, tasks, seconds, rate.disk_bytes * corpus.text_bytes, read_bytes, reads, files + tasks)


def _read_share(stage: str, upstream: str, corpus: Corpus) -> float:
    """The share of a stage's bytes that another one reads; all of them where nothing is said."""
    signed = _signed_bytes(corpus.dedup)
    shares = {
        ("buckets", "signatures"): signed["bands"] / sum(signed.values()),
        ("members", "signatures"): 1 - signed["bands"] / sum(signed.values()),
        ("candidates", "signatures"): 0.0,
        ("candidates", "buckets"): 0.0,
        ("survivors", "signatures"): 0.0,
        ("clusters", "signatures"): 0.1 * signed["keys"] / sum(signed.values()),  # of documents that have a twin
    }
    return shares.get((stage, upstream), 1.0)


def _signed_bytes(dedup: DedupConfig) -> dict[str, int]:
    """Bytes a document in the three files of `signatures`."""
    bands = (dedup.bands + 1) * records.RECORD_DTYPE.itemsize
    return {"keys": KEY_DTYPE.itemsize, "signatures": 4 * dedup.num_permutations, "bands": bands}


def manifest_of(name: str, corpus: Corpus, count: int) -> Folder:
    """A stage of a corpus of that size as its manifest would list it: `count` files of each kind."""
    bands = corpus.dedup.bands + 1
    rows = dict.fromkeys(("lines", "windows"), A_DOCUMENT * corpus.kept_documents // count)
    rows["bands"] = corpus.kept_documents * bands // count
    rows["buckets"] = int(SHARED * corpus.kept_documents) * bands // count
    documents = corpus.kept_documents // count
    kinds = FILES.get(name, ("data", "fates"))
    sums = {kind: {"files": count, "bytes": count, "rows": rows.get(kind, documents)} for kind in sorted(kinds)}
    return Projected(name, name, {"kinds": sums, "pieces": [], "counts": {"extra": {}}, "stage": name})


class Projected(Folder):
    """A stage that is nowhere; all files of a kind are alike."""

    def listed(self, kind: str | None = None) -> Iterator[File]:
        """As a manifest would list them."""
        for name, sums in self.manifest["kinds"].items():
            for number in range(sums["files"]) if kind in (None, name) else ():
                yield File(f"{name}/{number:05d}-00000.x", 1, SAMPLE_HASH, sums["rows"])


def rates_of(out: str) -> tuple[dict[str, Rate], float]:
    """The rates of a finished build and its token shards, for a byte of text, and the share of documents it kept."""
    extract = current(out, "extract").counts
    rates = rates_by(out, extract.bytes_out)
    rates.pop("tokenizer", None)  # does not grow with the corpus
    return rates, current(out, "filter").counts.documents_out / extract.documents_out


def render(corpus: Corpus, found: Sequence[Work], machines: Sequence[Machines], requests: float) -> str:
    """The table and what follows from it, in at most 120 columns."""
    columns = "".join(f"{f'{one.nodes} x {one.cores}':>11}{'':10}" for one in machines)
    lines = [
        "reckoned from rates of one core, not measured at this size; times are on so many nodes x cores",
        f"{corpus.documents:,} documents, {corpus.text_bytes / 1e12:g} TB of text, {corpus.shards:,} shards",
        f"{'stage':<14}{'tasks':>8}{'core-hours':>12}{'written':>11} {columns}".rstrip(),
    ]
    for work in found:
        times = "".join(f"{_time(seconds):>11} {limit:<9}" for seconds, limit in map(work.seconds, machines))
        written = f"{work.disk_bytes / 1e9:,.0f} GB"
        lines.append(
            f"{work.stage:<14}{work.tasks:>8,}{work.core_seconds / 3600:>12,.1f}{written:>11} {times}".rstrip()
        )
    core_seconds, disk = sum(work.core_seconds for work in found), sum(work.disk_bytes for work in found)
    wall = [sum(work.seconds(one)[0] for work in found) for one in machines]
    totals = "".join(f"{_time(seconds):>11}{'':10}" for seconds in wall)
    tasks, written = sum(work.tasks for work in found), f"{disk / 1e9:,.0f} GB"
    lines.append(f"{'in all':<14}{tasks:>8,}{core_seconds / 3600:>12,.1f}{written:>11} {totals}".rstrip())
    notes = _notes(corpus, found, machines, wall, requests)
    return "\n".join([*lines, "", *(textwrap.fill(note, COLUMNS, subsequent_indent="  ") for note in notes)])


def _notes(
    corpus: Corpus, found: Sequence[Work], machines: Sequence[Machines], wall: Sequence[float], requests: float
) -> list[str]:
    core_seconds = sum(work.core_seconds for work in found)
    notes = []
    for one, seconds in zip(machines, wall, strict=True):
        serial = sum(work.seconds(one)[0] for work in found if work.tasks == 1)
        busy = core_seconds / (seconds * one.nodes * one.cores)
        notes.append(
            f"{one.nodes} nodes: {_time(seconds)}; stages of one task {_time(serial)} of it ({serial / seconds:.0%}); "
            f"cores busy {busy:.0%}"
        )
    by_name = {work.stage: work for work in found}
    signed = _signed_bytes(corpus.dedup)
    shuffled: float = corpus.kept_documents * signed["bands"]
    shuffled += sum(by_name[name].disk_bytes for name in ("buckets", "members", "candidates") if name in by_name)
    notes.append(f"shuffled by deduplication: {shuffled / 1e9:,.0f} GB, {shuffled / corpus.text_bytes:.2f} of the text")
    num_records = corpus.kept_documents * signed["bands"] // records.RECORD_DTYPE.itemsize
    partitions = by_name["buckets"].tasks
    mean, hot = num_records / partitions, HOT_SHARE * corpus.documents
    in_bytes = partial(lambda itemsize, count: f"{itemsize * count / 1e6:,.0f} MB")
    notes.append(
        f"key ranges: {partitions:,} of {mean / 1e6:.2f} M records, {in_bytes(records.RECORD_DTYPE.itemsize, mean)}; "
        f"one with the copies of a page that are {HOT_SHARE:.1%} of all documents holds "
        f"{in_bytes(SHARED_DTYPE.itemsize, hot)} of buckets and {in_bytes(MEMBER_DTYPE.itemsize, hot)} of members more"
    )
    per_terabyte = by_name["extract"].core_seconds / corpus.text_bytes * 1e12
    notes.append(
        f"a compressed input file is one task: {_time(per_terabyte)} in extract for a terabyte of text in one file"
    )
    reads, files = sum(work.reads for work in found), sum(work.files for work in found)
    widest = max(found, key=lambda work: work.files - work.tasks)
    pieces = math.ceil((widest.files - widest.tasks) / PIECE_FILES)
    notes.append(f"files: {files:,}; the longest list of them ({widest.stage}) in {pieces:,} pieces")
    notes.append(
        f"reads of sections: at most {reads / 1e6:,.0f} M; in an object store that answers {requests:,.0f} a second "
        f"that is {_time(reads / requests)} beside the above, whatever the nodes; "
        "shards of twice the size need half of them"
    )
    return notes


def _time(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:.1f} d"
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def show_rates(rates: Mapping[str, Rate], kept: float) -> str:
    """Rates as corpus/plan.py writes them."""
    lines = [
        f'    "{name}": Rate({rate.cpu_seconds:.1e}, {rate.disk_bytes:.2g}, {round(rate.peak_bytes, -7):_}),'
        for name, rate in rates.items()
    ]
    return "\n".join([*lines, f"kept {kept:.3f}"])


def rewrite(path: Path, told: str) -> None:
    """Put a projection into a page, in place of the block behind the command that made it."""
    text, found = BLOCK.subn(lambda block: f"{block[1]}{told}\n", path.read_text(encoding="utf-8"))
    if not found:
        raise UsageError(f"{path}: holds no block after `{COMMAND}`. Write the command and a block first.")
    path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the projection."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.projection", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_examples(parser, EXAMPLES)
    parser.add_argument("--documents", type=float, default=2e9)
    parser.add_argument("--bytes", type=float, default=5e12, help="of text in UTF-8")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--cores", type=int, default=16, help="of a node")
    parser.add_argument("--recipe", default="web_zh", help="whose stages (default: web_zh)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="over the recipe")
    parser.add_argument("--rates", metavar="OUT", help="of this finished build instead of those in corpus/plan.py")
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of a node, to and from the storage")
    parser.add_argument("--requests", type=float, default=5_500, help="a second, that an object store answers")
    parser.add_argument("--show-rates", action="store_true", help="print the rates of --rates and stop")
    parser.add_argument("--into", type=Path, nargs="+", default=[], metavar="PAGE", help="put the table there as well")
    options = parser.parse_args(arguments)
    for name in ("documents", "bytes", "nodes", "cores", "network_gbit", "requests"):
        if not np.all(np.array(getattr(options, name)) > 0):
            raise UsageError(f"--{name.replace('_', '-')}: give a number above 0.")
    rates, kept = rates_of(options.rates) if options.rates else (DEFAULT_RATES, KEPT)
    if options.show_rates:
        print(show_rates(rates, kept))
        return
    recipe = load_recipe(options.recipe, options.set)
    shards = max(1, math.ceil(options.bytes / recipe.input.shard_bytes))
    corpus = Corpus(int(options.documents), int(options.bytes), shards, kept, recipe.dedup)
    machines = [Machines(nodes, options.cores, options.network_gbit * 1e9 / 8) for nodes in options.nodes]
    told = render(corpus, project(corpus, recipe, rates), machines, options.requests)
    print(told)
    for page in options.into:
        rewrite(page, told)


if __name__ == "__main__":
    try:
        main()
    except WenhaiError as error:
        sys.exit(f"projection: {error}")
