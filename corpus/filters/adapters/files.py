"""The filter on files: Parquet and JSONL (plain, .gz, .zst, .bz2) in, files of the same names and formats out.

Each output appears whole under its name or not at all. A hidden record beside it, written last, says that it is
finished: the same command run again goes on after it, and an input that changed is filtered again. A folder that holds
files of another recipe, or somebody else's, is refused rather than mixed.
"""

from __future__ import annotations

import bz2
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from corpus.engine import durable, storage
from corpus.engine.errors import DiskError, UsageError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.storage import File
from corpus.filters import Filter, Verdicts
from corpus.filters.adapters.parquet import RowGroups, filter_parquet
from corpus.filters.adapters.stream import JsonLines, Write, nothing_judged
from corpus.filters.adapters.summary import Summary
from corpus.filters.adapters.tables import statistics_rows
from corpus.filters.stage import FilterStage
from corpus.sources import kind_of
from corpus.sources.compression import compression_of, read_pieces

GZIP_LEVEL, GZIP_WINDOW_BITS = 6, 31
ZSTD_LEVEL = 3
NAMES = re.compile(r"\.(parquet|(jsonl|ndjson|json)(\.(gz|gzip|zst|zstd|bz2))?)$", re.IGNORECASE)
RECORD = ".wenhai-filter.json"  # of the folder: what it was filtered with


@dataclass(frozen=True)
class Options:
    """What to filter with, and where to."""

    judge: Filter
    out: Path
    column: str = "text"
    dropped: Path | None = None
    statistics: Path | None = None
    threads: int = 1

    @property
    def folders(self) -> list[Path]:
        """All that are written to."""
        return [folder for folder in (self.out, self.dropped, self.statistics) if folder]

    @property
    def digest(self) -> str:
        """Of everything that decides the bytes of an output, given its input."""
        meaning = {"filter": self.judge.config.meaning(), "version": FilterStage.version, "column": self.column}
        meaning["masks_only"] = type(self.judge) is not Filter
        folders = {"dropped": str(self.dropped or ""), "statistics": str(self.statistics or "")}
        return durable.digest(meaning | folders)

    def outputs(self, name: str) -> dict[str, Path]:
        """The files that an input becomes, by kind; the kept documents last."""
        found = {}
        if self.statistics:
            found["statistics"] = self.statistics / (name.removesuffix(".parquet") + ".parquet")
        if self.dropped:
            found["dropped"] = self.dropped / name
        return found | {"kept": self.out / name}


def filter_files(patterns: Sequence[str], options: Options) -> Summary:
    """Filter files, folders or globs into `options.out`; what is finished already is not repeated.

    Raises:
        UsageError: nothing to filter, two inputs of one name, or a folder that is not ours to write to.
        WenhaiError: some files cannot be filtered; the others are done.
    """
    inputs = _named(patterns, options)
    failed = []
    total = Summary(_say)
    with ExitStack() as locks:
        for folder in options.folders:
            locks.enter_context(durable.RunLock(folder))
        _claim(options, inputs)
        for folder in options.folders:
            durable.sweep(folder)
        for name, file in inputs.items():
            try:
                finished = _finished(name, file, options)
                total.merge(finished or _filter_one(name, file, options), again=finished is not None)
            except DiskError:
                raise
            except WenhaiError as error:
                failed.append(str(error))
                _say(f"{name}: failed: {error}")
    print(total.render(), file=sys.stderr)
    if failed:
        raise WenhaiError(f"{len(failed)} of {len(inputs)} files cannot be filtered; each is named above. {failed[0]}")
    return total


def _named(patterns: Sequence[str], options: Options) -> dict[str, File]:
    """The inputs by the name that their outputs get: the path below the folder that was named, or the file's name."""
    found: dict[str, File] = {}
    skipped = 0
    for pattern in patterns:
        base = _base(pattern)
        _check_folders(pattern, base, options)
        for file in list_inputs([pattern]):
            name = os.path.relpath(file.url, base) if base else file.url.rsplit("/", 1)[-1]
            if not NAMES.search(name):
                skipped += 1
                continue
            if any(base and Path(file.url).is_relative_to(folder.absolute()) for folder in options.folders):
                raise UsageError(f"{file.url}: an input inside an output folder. Choose folders beside --input.")
            if name in found:
                raise UsageError(f"{file.url}: another input is called {name} too. Filter them into two folders.")
            found[name] = file
    if skipped:
        _say(f"{skipped:,} files that are neither Parquet nor JSONL were left out")
    if not found:
        raise UsageError(f"{' '.join(patterns)}: no Parquet and no JSONL file there.")
    return dict(sorted(found.items()))


def _check_folders(pattern: str, base: Path | None, options: Options) -> None:
    """Refuse an output folder inside an input folder: a second run would take the first one's results for inputs."""
    if base is None:
        return
    deep = storage.local_path(pattern).is_dir() or "**" in pattern
    for folder in options.folders:
        path = folder.absolute()
        if deep and path.is_relative_to(base):
            raise UsageError(f"{folder}: an output folder inside --input {pattern}. Choose a folder beside it.")


def _base(pattern: str) -> Path | None:
    """The folder that names are relative to; None for a URL."""
    if storage.is_remote(pattern):
        return None
    path = storage.local_path(pattern).absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _claim(options: Options, inputs: dict[str, File]) -> None:
    """Refuse a folder that holds other results under the names we would write."""
    path = options.out / RECORD
    if path.exists():
        if durable.read_json(path).get("digest") != options.digest:
            raise UsageError(
                f"{options.out}: was filtered with another recipe, column or other folders. Choose an empty folder."
            )
        return
    for name in inputs:
        for output in options.outputs(name).values():
            if output.exists():
                raise UsageError(f"{output}: exists and is not of this command. Choose an empty folder.")
    durable.write_json(path, {"digest": options.digest, "filter": options.judge.config.meaning()})


def _record(name: str, options: Options) -> Path:
    path = options.out / name
    return path.parent / f".{path.name}.json"


def _finished(name: str, file: File, options: Options) -> dict[str, Any] | None:
    """The counts of an input that is filtered already, if its outputs still stand as they were written."""
    path = _record(name, options)
    if not path.exists():
        return None
    record = durable.read_json(path)
    sizes = {kind: output.stat().st_size for kind, output in options.outputs(name).items() if output.exists()}
    if record["input"] != file.sha256 or record["bytes"] != sizes:
        return None
    _say(f"{name}: is here already")
    counts: dict[str, Any] = record["counts"]
    return counts


def _filter_one(name: str, file: File, options: Options) -> dict[str, Any]:
    summary = Summary(lambda message: _say(f"{name}: {message}"))
    _record(name, options).unlink(missing_ok=True)
    outputs = options.outputs(name)
    try:
        source = storage.fetch(file.url)
        with ExitStack() as stack:
            paths = {kind: stack.enter_context(durable.commit(outputs[kind])) for kind in reversed(outputs)}
            if kind_of(source) == "parquet":
                filter_parquet(
                    source,
                    paths["kept"],
                    options.judge,
                    summary,
                    column=options.column,
                    dropped=paths.get("dropped"),
                    statistics=paths.get("statistics"),
                    threads=options.threads,
                )
            else:
                _filter_lines(source, name, paths, options, summary)
    finally:
        storage.clear_scratch()
    sizes = {kind: output.stat().st_size for kind, output in outputs.items()}
    counts = summary.as_json()
    durable.write_json(_record(name, options), {"input": file.sha256, "bytes": sizes, "counts": counts})
    _say(f"{name}: {summary.kept:,} of {summary.documents:,} documents kept")
    return counts


def _filter_lines(source: Path, name: str, paths: dict[str, Path], options: Options, summary: Summary) -> None:
    with ExitStack() as stack:
        file = stack.enter_context(open(source, "rb"))
        measured = stack.enter_context(RowGroups(paths.get("statistics")))

        def store(numbers: list[int], verdicts: Verdicts) -> None:
            measured.write(statistics_rows(verdicts, numbers))

        lines = JsonLines(options.judge, summary, stack.enter_context(_writer(paths["kept"], name)), options.column)
        lines.threads = options.threads
        if "dropped" in paths:
            lines.write_dropped = stack.enter_context(_writer(paths["dropped"], name))
        if "statistics" in paths:
            store([], options.judge.apply([]))
            lines.measured = store
        lines.run(read_pieces(file, compression_of(source)))
    if summary.bad and not summary.documents:
        raise WenhaiError(f"{source}: {nothing_judged(summary, options.column)}")


@contextmanager
def _writer(path: Path, name: str) -> Iterator[Write]:
    """Write to a file, compressed as its name says; a frame is closed only when all went well."""
    name = name.lower()
    with open(path, "xb") as file:
        if name.endswith((".zst", ".zstd")):
            compressor = zstandard.ZstdCompressor(ZSTD_LEVEL, write_checksum=True)
            with compressor.stream_writer(file, closefd=False) as packed:
                yield packed.write
        elif name.endswith((".gz", ".gzip")):
            # without a time and a name in its header: equal documents give equal bytes
            yield from _packing(zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS), file)
        elif name.endswith(".bz2"):
            yield from _packing(bz2.BZ2Compressor(), file)
        else:
            yield file.write


def _packing(packer: Any, file: BinaryIO) -> Iterator[Write]:
    """Through an object with the methods of `zlib.compressobj`."""
    yield lambda data: file.write(packer.compress(data))
    file.write(packer.flush())


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
