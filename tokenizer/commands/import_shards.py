"""Token files of other programs become a tokens stage of ours: `python -m tokenizer import`.

What `run` makes of text, this makes of tokens that are there already: committed shards with records and checksums,
provenance, a manifest. So all that reads a build reads them. One task a file, streamed: in memory are a million
tokens (or one document) and four bytes a document.

Every document has to end in the end-of-document id and hold it nowhere else, and every id has to lie in the
vocabulary; whether the tokens were made by *this* vocabulary, no check can tell: look at `python -m tokenizer head`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import xxhash
from numpy.typing import NDArray

from corpus.engine import durable, storage
from corpus.engine.cli import add_executor_arguments, cluster_address
from corpus.engine.errors import UsageError
from corpus.engine.input_digests import check_file
from corpus.engine.inputs import list_inputs
from corpus.engine.progress import Progress
from corpus.engine.run import RUN_NAME, read_run, run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from tokenizer.model import Tokenizer
from tokenizer.pretrained import pretrained_tokenizer
from tokenizer.shards import SPLITS
from tokenizer.shards.import_formats import ForeignFile, open_foreign
from tokenizer.shards.provenance import write_docs
from tokenizer.shards.record import ShardError, Tokens
from tokenizer.shards.writer import ShardWriter, narrow

BATCH_TOKENS = 1 << 20
BATCH_DOCUMENTS = 1 << 16
MAX_DOCUMENT_TOKENS = 1 << 27  # held in memory, as `ShardWriter` wants it
IMPORTED_STAGES = {"tokenizer", "tokens"}
UTF8_CONTINUATION = range(0x80, 0xC0)


@dataclass(frozen=True)
class Source:
    """The files of one prefix: tokens, table of documents and, of datatrove, metadata."""

    name: str
    split: str
    files: tuple[File, ...]


@dataclass(frozen=True)
class ImportedTokensStage(Stage):
    """Foreign token files and a vocabulary -> token shards `data/<name>-<split>.*`, documents in the order they have.

    Args:
        sources: what to read.
        eod: the id that ends every document there; it becomes the tokenizer's own. None: the tokenizer's own.
        append_eod: documents there end without one.
    """

    sources: tuple[Source, ...] = ()
    eod: int | None = None
    append_eod: bool = False

    name: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("tokenizer",)

    def config(self) -> dict[str, Any]:
        return {"eod": self.eod, "append_eod": self.append_eod}

    def inputs(self) -> tuple[File, ...]:
        return tuple(file for source in self.sources for file in source.files)

    def for_worker(self) -> ImportedTokensStage:
        return replace(self, sources=())

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        (model,) = upstream["tokenizer"].files("model")
        return [
            Task(source.name, (model, *source.files), {"source": source.name, "split": source.split})
            for source in self.sources
        ]

    def run(self, task: Task, out: Output) -> Counts:
        model, *files = task.inputs
        tokenizer = Tokenizer(storage.fetch(model.url))
        foreign, split, counts = (
            open_foreign([storage.fetch(file.url) for file in files]),
            task.params["split"],
            Counts(),
        )
        counts.extra = {"characters": 0, f"documents_{split}": foreign.num_documents, f"tokens_{split}": 0}
        if not foreign.num_documents:
            return counts
        with ExitStack() as stack:
            docs, meta, idx, tokens = (
                stack.enter_context(out.create(f"data/{task.name}-{split}{suffix}", rows=foreign.num_documents))
                for suffix in (".docs.parquet", ".meta.json", ".idx", ".bin")
            )
            with ShardWriter(
                (tokens, idx, meta),
                split=split,
                vocab_size=tokenizer.vocab_size,
                eod=tokenizer.eod,
                tokenizer_sha256=tokenizer.sha256,
                recipe=durable.digest(self.config()),
            ) as writer:
                write_docs(docs, self._documents(foreign, task.params, tokenizer, writer, counts))
            for file in files:
                check_file(file)
        return counts

    def _documents(
        self,
        foreign: ForeignFile,
        params: Mapping[str, Any],
        tokenizer: Tokenizer,
        writer: ShardWriter,
        counts: Counts,
    ) -> Iterator[dict[str, Any]]:
        """Write the documents; yields the rows of their provenance."""
        spelled = [tokenizer.piece_bytes(id) for id in range(tokenizer.vocab_size)]
        num_bytes = np.array([len(piece) for piece in spelled])
        num_characters = np.array([sum(byte not in UTF8_CONTINUATION for byte in piece) for piece in spelled])
        eod = tokenizer.eod if self.eod is None else self.eod
        for first, tokens, ends in batches(foreign):
            where = f"{foreign.path}: document "
            ids, lengths = [], []
            for number, body in enumerate(without_eod(tokens, ends, eod, self.append_eod, where, first), first):
                values = narrow(body, tokenizer.vocab_size, f"{where}{number}")
                characters = int(num_characters[values].sum())
                writer.add(values, f"{number} of {foreign.path}", characters)
                ids.append(xxhash.xxh3_128_digest(values.tobytes()))
                lengths.append(len(values) + 1)
                counts.bytes_in += int(num_bytes[values].sum())
                counts.extra["characters"] += characters
            counts.documents_in += len(ids)
            counts.extra[f"tokens_{params['split']}"] += sum(lengths)
            yield {
                "sequence": range(first, first + len(ids)),
                "id": ids,
                "url": [None] * len(ids),
                "source": [params["source"]] * len(ids),
                "num_tokens": lengths,
            }
        counts.documents_out, counts.bytes_out = counts.documents_in, counts.bytes_in


def batches(foreign: ForeignFile) -> Iterator[tuple[int, Tokens, NDArray[np.int64]]]:
    """Documents of a file in order, about `BATCH_TOKENS` at a time: (number of the first, tokens, ends among these)."""
    number, start = 0, 0
    for ends in foreign.ends():
        first = 0
        while first < len(ends):
            fitting = int(np.searchsorted(ends, start + BATCH_TOKENS, side="right"))
            last = min(max(fitting, first + 1), first + BATCH_DOCUMENTS)
            count = int(ends[last - 1]) - start
            if count > MAX_DOCUMENT_TOKENS:
                raise ShardError(
                    f"{foreign.path}: document {number} has {count:,} tokens; {MAX_DOCUMENT_TOKENS:,} at most can be "
                    "imported. Split it."
                )
            tokens = np.fromfile(foreign.path, foreign.dtype, count, offset=start * foreign.dtype.itemsize)
            if len(tokens) < count:
                raise ShardError(f"{foreign.path}: has become shorter while it was read. Run the same command again.")
            yield number, tokens, ends[first:last] - start
            number, start, first = number + last - first, start + count, last


def without_eod(
    tokens: Tokens, ends: NDArray[np.int64], eod: int, append: bool, where: str, first: int
) -> list[Tokens]:
    """The documents of a batch without the id that ends them.

    Args:
        tokens: of all of them.
        ends: int64[documents], where each ends among the tokens.
        eod: the id.
        append: none of them has it.
        where: begins the messages.
        first: number of the first document.

    Raises:
        ShardError: one does not end with it, or holds it elsewhere.
    """

    def refuse(document: int, problem: str) -> NoReturn:
        raise ShardError(f"{where}{first + document}: {problem}")

    starts = np.concatenate([[0], ends[:-1]])
    is_eod = np.append(tokens == eod, False)  # the place -1 is none
    if not append:
        is_closed = (ends > starts) & is_eod[ends - 1]
        if not is_closed.all():
            advice = "If another id ends documents here, name it with --eod; if none does, use --append-eod."
            refuse(int(np.argmin(is_closed)), f"does not end with the end-of-document id {eod}. {advice}")
        is_eod[ends - 1] = False
    if is_eod.any():
        bad = int(np.searchsorted(ends, np.argmax(is_eod), side="right"))
        advice = "Leave --append-eod out." if append else "It has to stand at the end alone: split such documents."
        refuse(bad, f"holds the end-of-document id {eod} inside. {advice}")
    return [tokens[start : end - (not append)] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def find_sources(prefixes: Mapping[str, Sequence[str]]) -> tuple[Source, ...]:
    """The files of each split's prefixes; raises `UsageError` where one is missing or cannot be imported."""
    found = [
        (split, prefix.removeprefix("file://").removesuffix(".bin").removesuffix(".idx"))
        for split in SPLITS
        for prefix in prefixes[split]
    ]
    paths = [prefix if prefix.endswith(".ds") else f"{prefix}.bin" for _, prefix in found]
    tokens = Counter(map(os.path.realpath, paths))
    if repeated := [path for path, count in tokens.items() if count > 1]:
        raise UsageError(f"{min(repeated)}: named twice. Name each prefix once, for example by its .idx.")
    names = [prefix.rsplit("/", 1)[-1].removesuffix(".ds") for _, prefix in found]
    if len(set(names)) < len(names):
        names = [f"{number:05d}-{name}" for number, name in enumerate(names)]
    return tuple(Source(name, split, _files(prefix)) for name, (split, prefix) in zip(names, found, strict=True))


def _files(prefix: str) -> tuple[File, ...]:
    if storage.is_remote(prefix):
        raise UsageError(f"{prefix}: token files are imported from a local disk. Copy them here first.")
    suffixes: tuple[str, ...] = (".bin", ".idx")
    if prefix.endswith(".ds"):
        suffixes = ("", ".index", ".metadata") if storage.exists(f"{prefix}.metadata") else ("", ".index")
    for suffix in suffixes:  # one by one: a glob could pair the files of several prefixes
        if not storage.local_path(prefix + suffix).is_file():
            raise UsageError(f"{prefix}{suffix}: is no file. Name prefixes one by one; globs are for the shell.")
    if prefix.endswith(".ds") and storage.exists(f"{prefix}.loss"):
        raise UsageError(
            f"{prefix}.loss: which tokens count in the loss cannot be imported. Put it elsewhere to go without."
        )
    return tuple(file for suffix in suffixes for file in list_inputs([prefix + suffix]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "prefixes", nargs="*", metavar="PREFIX", help="P of Megatron's P.bin and P.idx, or a .ds file of datatrove"
    )
    parser.add_argument("--validation", nargs="+", default=(), metavar="PREFIX", help="the same, of held-out documents")
    parser.add_argument("--tokenizer", required=True, help="model file or output folder: whose ids the tokens are")
    parser.add_argument("--out", required=True, help="output folder or URL")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--eod", type=int, metavar="ID", help="the id that ends documents there, if not the tokenizer's")
    ends.add_argument("--append-eod", action="store_true", help="documents there end without one: add it")
    add_executor_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on standard output")


def main(options: argparse.Namespace) -> None:
    """Import the files of all prefixes; what is done already is skipped."""
    address = cluster_address(options)
    if not (options.prefixes or options.validation):
        raise UsageError("nothing to import: name the prefix of a file, or --validation PREFIX.")
    if storage.exists(storage.join(options.out, RUN_NAME)) and read_run(options.out)["stages"].keys() - IMPORTED_STAGES:
        raise UsageError(f"{options.out}: is a build that made its own tokenizer or text. Import into another folder.")
    given = pretrained_tokenizer(options.tokenizer)
    sources = find_sources({"train": options.prefixes, "validation": options.validation})
    folders = run_stages(
        [given, ImportedTokensStage(sources, options.eod, options.append_eod)],
        options.out,
        workers=options.workers,
        address=address,
        progress=Progress(quiet=options.quiet),
    )
    counts = folders["tokens"].counts
    summary = {
        "documents": counts.documents_out,
        "bytes": counts.bytes_out,
        **dict(sorted(counts.extra.items())),
        "tokens": folders["tokens"].url,
    }
    if options.json:
        print(json.dumps(summary, ensure_ascii=False))
    elif not options.quiet:
        for key, value in summary.items():
            print(f"{key:<22} {value:,}" if isinstance(value, int) else f"{key:<22} {value}", file=sys.stderr)
