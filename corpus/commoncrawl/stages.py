"""Stages `cc_fetch` and `cc_files`: captures, or whole files, of an archive as they lie there.

    cc_fetch  captures of one file of cc_sort   data/T.warc.gz: a warcinfo, then the captures' own gzip members, byte
                                                for byte; fates/T.parquet: captures that could not be had, and why
    cc_files  a WET or WARC file                data/T-NAME: the file; fates/T.parquet: a row if it could not be had

In = out + errors. What is wrong with a capture (missing, truncated, not_gzip, wrong_record, digest, too_long,
unreachable, place) is an error row; what is wrong with the server ends the stage: the task leaves nothing, and is done
again by the same command. A task most of whose captures are in error fails, too: then the base, the index or something
on the way is wrong.
"""

from __future__ import annotations

import gzip
import hashlib
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from corpus.commoncrawl.check import check_member
from corpus.commoncrawl.client import Client
from corpus.commoncrawl.config import FetchConfig, HttpConfig
from corpus.commoncrawl.http import Bad
from corpus.commoncrawl.ranges import Range, join
from corpus.document import document_id, read_table
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File, fetch
from corpus.sources.compression import DamagedStream, GzipMembers
from corpus.sources.shards import Fates

FEW_ATTEMPTS = 2  # of a single capture, after the request that joined it with others was hopeless
MIN_JUDGED = 20  # captures in error before a task as a whole is doubted
RECORD_START = b"WARC/1."

Row = dict[str, Any]
Answer = bytes | Bad


@dataclass(frozen=True)
class CcFetchStage(Stage):
    """Captures to WARC files."""

    name: ClassVar[str] = "cc_fetch"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("cc_sort",)

    crawl: str
    base: str
    fetch: FetchConfig
    http: HttpConfig

    def config(self) -> dict[str, Any]:
        """What is checked; where the bytes come from, and with what politeness, changes none of them."""
        keys = {"check_digest", "max_payload_bytes", "max_error_ratio"}
        return {"crawl": self.crawl, **self.fetch.model_dump(mode="json", include=keys)}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a file of captures."""
        return [Task(shard_name(file), (file,)) for file in upstream["cc_sort"].files("captures")]

    def run(self, task: Task, out: Output) -> Counts:
        """Ask, check, write in order."""
        captures = read_table(fetch(task.inputs[0].url))
        counts = Counts(documents_in=captures.num_rows, bytes_in=pc.sum(captures["length"]).as_py() or 0)
        with (
            Client(self.base, self.http) as client,
            Fates(task.name, out) as fates,
            out.create(f"data/{task.name}.warc.gz") as path,
            open(path, "wb") as file,
        ):
            file.write(warcinfo(self.crawl, task, captures))
            for row, answer in self._answers(client, captures):
                if isinstance(answer, bytes):
                    counts.documents_out += 1
                    counts.bytes_out += len(answer)
                    file.write(answer)
                    continue
                counts.error(answer.kind)
                place = f"{row['filename']}:offset {row['offset']}"
                identity = document_id(self.crawl, place, b"")
                fates.add(identity, self.crawl, row["url"], place, answer.kind, str(answer))
            self._doubt(counts)
        out.set_rows(f"data/{task.name}.warc.gz", counts.documents_out)
        return counts

    def _answers(self, client: Client, captures: pa.Table) -> Iterator[tuple[Row, Answer]]:
        """Each capture with its bytes or what is wrong with it, in order; a few requests are under way ahead."""
        missing: set[str] = set()  # files of which nothing more need be asked

        def ask(one: Range) -> list[tuple[Row, Answer]]:
            rows = captures.slice(one.first_row, one.end_row - one.first_row).to_pylist()
            return list(zip(rows, self._read(client, one, rows, missing), strict=True))

        todo = join(captures, self.fetch)
        under_way: deque[Future[list[tuple[Row, Answer]]]] = deque()
        with ThreadPoolExecutor(self.http.concurrency) as threads:
            try:
                for one in todo:
                    under_way.append(threads.submit(ask, one))
                    if len(under_way) > self.http.concurrency:
                        yield from under_way.popleft().result()
                while under_way:
                    yield from under_way.popleft().result()
            except BaseException:
                client.leave()  # nobody waits for the pauses of the others
                threads.shutdown(cancel_futures=True)
                raise

    def _read(self, client: Client, one: Range, rows: Sequence[Row], missing: set[str]) -> list[Answer]:
        """The bytes of a request's captures, or what is wrong with each."""
        if one.filename in missing:
            return [Bad("missing", "as the file's other captures")] * len(rows)
        try:
            data = client.read(one.filename, one.start, one.end)
        except Bad as bad:
            if bad.kind == "missing":
                missing.add(one.filename)
            if bad.kind == "missing" or len(rows) == 1:
                return [bad] * len(rows)
            return [self._read_single(client, row) for row in rows]
        places = [(row["offset"] - one.start, row["offset"] - one.start + row["length"]) for row in rows]
        answers = [self._checked(row, data[start:end]) for row, (start, end) in zip(rows, places, strict=True)]
        return [  # a bad one is asked for once more: it may have been damaged on its way
            self._read_single(client, row) if isinstance(answer, Bad) else answer
            for row, answer in zip(rows, answers, strict=True)
        ]

    def _read_single(self, client: Client, row: Row) -> Answer:
        end = row["offset"] + row["length"]
        try:
            return self._checked(row, client.read(row["filename"], row["offset"], end, FEW_ATTEMPTS))
        except Bad as bad:
            return bad

    def _checked(self, row: Row, member: bytes) -> Answer:
        digest = row["digest"] if self.fetch.check_digest else None
        try:
            check_member(member, row["url"], digest, self.fetch.max_payload_bytes)
        except Bad as bad:
            return bad
        return member

    def _doubt(self, counts: Counts) -> None:
        failed = sum(counts.errors.values())
        if failed < MIN_JUDGED or failed <= self.fetch.max_error_ratio * counts.documents_in:
            return
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.errors.items()))
        raise WenhaiError(
            f"{failed:,} of {counts.documents_in:,} captures cannot be had from {self.base} ({kinds}). Is it the "
            f"archive of this index? If it is, keep the rest with --set fetch.max_error_ratio=1."
        )


@dataclass(frozen=True)
class CcFilesStage(Stage):
    """Files of a list, byte for byte."""

    name: ClassVar[str] = "cc_files"
    version: ClassVar[int] = 1

    crawl: str
    base: str
    paths: tuple[tuple[int, str], ...]  # place in the crawl's list, path below the base
    http: HttpConfig

    def config(self) -> dict[str, Any]:
        """Of which crawl."""
        return {"crawl": self.crawl}

    def inputs(self) -> tuple[File, ...]:
        """The list of paths, as one file."""
        data = "\n".join(f"{index} {path}" for index, path in self.paths).encode()
        return (File("paths", len(data), hashlib.sha256(data).hexdigest()),)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a file; its size is known once it came."""
        return [Task(f"{index:05d}", (), {"path": path}) for index, path in self.paths]

    def for_worker(self) -> CcFilesStage:
        """Without the list."""
        return replace(self, paths=())

    def run(self, task: Task, out: Output) -> Counts:
        """Copy, and look at every gzip member."""
        path = str(task.params["path"])
        counts = Counts(documents_in=1)
        with Client(self.base, self.http) as client, Fates(task.name, out) as fates:
            try:
                with out.create(f"data/{task.name}-{path.rsplit('/', 1)[-1]}") as target:
                    counts.bytes_out = _download(client, path, target)
                counts.documents_out = 1
            except Bad as bad:
                counts.error(bad.kind)
                identity = document_id(self.crawl, path, b"")
                fates.add(identity, self.crawl, None, path, bad.kind, str(bad))
        counts.bytes_in = counts.bytes_out
        return counts


def _download(client: Client, path: str, target: Path) -> int:
    """Copy a file whose gzip members must all be sound; a damaged one is copied once more.

    Raises:
        Bad: it cannot be had, or is damaged where it lies.
    """
    size = client.download(path, target)
    if damage_of(target) is not None:
        size = client.download(path, target)
        if (damage := damage_of(target)) is not None:
            raise damage
    return size


def damage_of(path: Path) -> Bad | None:
    """What is wrong with a WARC file in gzip: every member is decompressed to its checksum."""
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return Bad("not_gzip", "does not begin as a gzip file")
        file.seek(0)
        members = GzipMembers(file, RECORD_START)
        try:
            while members.advance():
                while members.read():
                    pass
        except DamagedStream as damage:
            kind = "truncated" if damage.kind == "truncated" else "not_gzip"
            return Bad(kind, f"{damage.detail}, in the member at byte {damage.start:,}")
    return None


def warcinfo(crawl: str, task: Task, captures: pa.Table) -> bytes:
    """The record that opens a file, as a gzip member: equal captures give equal bytes, so its date is the latest of
    theirs and its id is made of the task's.
    """
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(0, pc.max(captures["fetched"]).as_py() or 0)))
    lines = [
        "software: wenhai (python -m corpus commoncrawl)",
        "format: WARC File Format 1.0",
        f"isPartOf: {crawl}",
        "description: captures of this crawl by its columnar index, each record as it lies there",
    ]
    block = "".join(f"{line}\r\n" for line in lines).encode()
    head = [
        "WARC/1.0",
        "WARC-Type: warcinfo",
        f"WARC-Date: {date}",
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{crawl}/{task.digest}')}>",
        f"WARC-Filename: {task.name}.warc.gz",
        "Content-Type: application/warc-fields",
        f"Content-Length: {len(block)}",
    ]
    record = "\r\n".join(head).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"
    return gzip.compress(record, mtime=0)
