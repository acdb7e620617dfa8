"""How much of the sample each source gives: its bytes to a power, and all it has where that is less.

    text -> sources -> shares -> sample

| stage   | task      | writes                                                                                 |
|---------|-----------|----------------------------------------------------------------------------------------|
| sources | a shard   | totals/S.json: documents and bytes of each group, a source or a source in one script    |
| shares  | one       | shares/shares.json: the same of the whole corpus, and the ratio of each group that is taken |

Groups are sums over documents, so they do not depend on shards or workers, and all sample tasks read the one file of
ratios. Of a document as much counts as the sample would take of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from corpus.engine import durable, storage
from corpus.engine.errors import UsageError
from corpus.engine.overlap import read_files
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File
from tokenizer.config import TokenizerConfig
from tokenizer.documents import Batch, read_documents
from tokenizer.traditional import is_traditional, script_table

MAX_CHARACTERS = 100_000  # of one document: no book may be the sample
MAX_SOURCES = 100_000  # some 100 bytes of JSON and 500 of memory each


class Group(NamedTuple):
    """Documents that are sampled with one ratio."""

    source: str
    traditional: bool  # False for all where scripts are not told apart


Totals = dict[Group, list[int]]  # documents and bytes


@dataclass(frozen=True)
class Share:
    """What a group has in the corpus, and the ratio of it that fills `sample_bytes`."""

    source: str
    traditional: bool
    documents: int
    bytes: int
    ratio: float

    @property
    def group(self) -> Group:
        return Group(self.source, self.traditional)


@dataclass(frozen=True)
class TextInputStage(Stage):
    """Base of the stages that read text: that of the build's stage `text`, or `files` from outside of it."""

    recipe: TokenizerConfig
    files: tuple[File, ...] = ()

    beside: ClassVar[tuple[str, ...]] = ()  # the stages that it reads beside the text

    @property
    def upstream(self) -> tuple[str, ...]:
        """The stage `text` unless there are files, and those beside it."""
        return self.beside if self.files else ("text", *self.beside)

    def inputs(self) -> tuple[File, ...]:
        return self.files

    def for_worker(self) -> Self:
        return replace(self, files=())

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a file."""
        named = shard_names(list(self.files) or upstream["text"].files())
        beside = self.files_beside(upstream, len(named))
        return [Task(name, (file, *more)) for (name, file), more in zip(named, beside, strict=True)]

    def files_beside(self, upstream: Mapping[str, Folder], num_files: int) -> Sequence[tuple[File, ...]]:
        """What each task reads beside its file; nothing."""
        return [()] * num_files


@dataclass(frozen=True)
class SourcesStage(TextInputStage):
    """Documents and bytes of each group of one text shard."""

    name: ClassVar[str] = "sources"
    version: ClassVar[int] = 1

    def config(self) -> dict[str, Any]:
        return {"by_script": self.recipe.by_script, **script_table(self.recipe.by_script)}

    def run(self, task: Task, out: Output) -> Counts:
        counts, totals = Counts(), Totals()
        for batch, texts, groups in read_groups(task.inputs[0], self.recipe.by_script):
            for group, size in zip(groups, pc.binary_length(texts).to_pylist(), strict=True):
                add_total(totals, group, 1, size)
            count_input(counts, batch)
            counts.documents_out += len(groups)
            counts.bytes_out += batch.num_bytes
        with out.create(f"totals/{task.name}.json", rows=len(totals)) as path:
            rows = [[*group, *total] for group, total in sorted(totals.items())]
            path.write_bytes(durable.canonical_json(rows) + b"\n")
        return counts


@dataclass(frozen=True)
class SharesStage(Stage):
    """The totals of all shards -> `shares/shares.json`, the ratio of each group; one task."""

    recipe: TokenizerConfig

    name: ClassVar[str] = "shares"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("sources",)

    def config(self) -> dict[str, Any]:
        return self.recipe.of_stage(self.name)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task("shares", tuple(upstream["sources"].files("totals")))]

    def run(self, task: Task, out: Output) -> Counts:
        totals = Totals()
        for file, data in zip(task.inputs, read_files(task.inputs), strict=True):
            for source, traditional, documents, num_bytes in durable.parse_json(data, file.url):
                add_total(totals, Group(source, traditional), documents, num_bytes)
        found = shares(totals, self.recipe)
        with out.create("shares/shares.json", rows=len(found)) as path:
            path.write_bytes(durable.canonical_json([asdict(share) for share in found]) + b"\n")
        return Counts()


def add_total(totals: Totals, group: Group, documents: int, num_bytes: int) -> None:
    """Add documents to those of their group.

    Raises:
        UsageError: there are more groups than collections can be.
    """
    total = totals.setdefault(group, [0, 0])
    total[0] += documents
    total[1] += num_bytes
    if len(totals) > 2 * MAX_SOURCES:
        raise UsageError(
            f"more than {MAX_SOURCES:,} sources: the column `source` (the name of a file that has none) tells "
            "documents apart, not collections. Give documents of one collection one source."
        )


def shares(totals: Mapping[Group, Sequence[int]], recipe: TokenizerConfig) -> list[Share]:
    """The ratio of each group that is sampled, sorted by group.

    Bytes are first divided between Traditional and other documents where the recipe says how, then between sources
    in proportion to their bytes to the power of `source_exponent`; what a group or a script lacks, the others give.
    """
    groups = sorted(totals)
    sizes = np.array([totals[group][1] for group in groups], np.float64)
    wanted = float(recipe.sample_bytes)
    if recipe.traditional_ratio is None:
        taken = fill(sizes, _weights(sizes, recipe.source_exponent), wanted)
    else:
        taken = np.zeros(len(groups))
        traditional = np.array([group.traditional for group in groups], np.bool_)
        parts = [traditional, ~traditional]
        asked = np.array([recipe.traditional_ratio, 1 - recipe.traditional_ratio])
        of_parts = fill(np.array([sizes[part].sum() for part in parts]), asked, wanted)
        for part, bytes_taken in zip(parts, of_parts.tolist(), strict=True):
            taken[part] = fill(sizes[part], _weights(sizes[part], recipe.source_exponent), bytes_taken)
    ratios = np.divide(taken, sizes, out=np.zeros(len(groups)), where=sizes > 0).tolist()
    return [  # twelve digits: the last ones of a power are not the same on every processor
        Share(group.source, group.traditional, documents, num_bytes, float(f"{ratio:.12g}"))
        for (group, (documents, num_bytes)), ratio in zip(sorted(totals.items()), ratios, strict=True)
    ]


def _weights(sizes: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    return np.array([size**exponent if size else 0.0 for size in sizes.tolist()], np.float64)


def fill(sizes: NDArray[np.float64], weights: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """min(size, level * weight) of each, at the level where they sum to `total`; every size where that is not reached.

    Water-filling: in the order in which groups are used up, each prefix of used up ones gives an upper bound of the sum
    that is linear in the level, and the sum is the least of them. What weighs nothing is taken last, as it comes.

    >>> fill(np.array([1.0, 10.0, 100.0]), np.array([1.0, 1.0, 2.0]), 31.0)
    array([ 1., 10., 20.])
    >>> fill(np.array([5.0, 10.0, 20.0]), np.array([1.0, 0.0, 0.0]), 14.0)
    array([5., 3., 6.])
    """
    if sizes.sum() <= total:
        return sizes.copy()
    taken, weighed = np.zeros(len(sizes)), weights > 0
    some, weight = sizes[weighed], weights[weighed]
    if some.sum() <= total:
        rest = sizes[~weighed]
        taken[weighed], taken[~weighed] = some, rest * ((total - some.sum()) / rest.sum())
        return taken
    order = np.argsort(some / weight, kind="stable")
    left = total - np.concatenate([[0.0], np.cumsum(some[order])[:-1]])
    level = (left / np.cumsum(weight[order][::-1])[::-1]).max()
    taken[weighed] = np.minimum(some, level * weight)
    return taken


def read_shares(file: File) -> dict[Group, Share]:
    """What the stage `shares` wrote.

    Raises:
        WenhaiError: the file is missing or damaged.
    """
    found = [Share(**row) for row in storage.read_json(file.url)]
    return {share.group: share for share in found}


def read_groups(file: File, by_script: bool) -> Iterator[tuple[Batch, pa.LargeStringArray, list[Group]]]:
    """Batches of a file, with the text of each document that may be sampled, and its group."""
    for batch in read_documents(storage.fetch(file.url)):
        texts = batch.texts
        if (pc.max(pc.binary_length(texts)).as_py() or 0) > MAX_CHARACTERS:
            texts = pc.utf8_slice_codeunits(texts, 0, MAX_CHARACTERS)
        scripts = is_traditional(texts).tolist() if by_script else [False] * len(texts)
        yield batch, texts, [Group(*pair) for pair in zip(batch.sources, scripts, strict=True)]


def count_input(counts: Counts, batch: Batch) -> None:
    """Add the documents and bytes of a batch that was read."""
    counts.documents_in += len(batch.ids) + batch.num_invalid
    counts.bytes_in += batch.num_bytes + batch.num_invalid_bytes
    if batch.num_invalid:
        counts.error("invalid_utf8", batch.num_invalid)


def shard_names(files: list[File]) -> list[tuple[str, File]]:
    """Each file with the name of its task: its own where names are unique, else with its number before it."""
    names = [shard_name(file) for file in files]
    if len(set(names)) < len(names):
        names = [f"{number:05d}-{name}" for number, name in enumerate(names)]
    return list(zip(names, files, strict=True))
