"""The end of a crawl: the ledger of all URLs, and a record and a manifest as every stage has them.

A crawl is one task of a stage `crawl` whose documents are URLs: in = kept + moved + dropped + errors. What a budget of
pages kept from being asked for is dropped by `max_pages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.crawl.archive.archive import ArchiveFile
from corpus.crawl.fates import KEPT, MOVED
from corpus.crawl.frontier.books import PENDING, Known
from corpus.crawl.visits import Tally
from corpus.engine import durable
from corpus.engine.stage import MANIFEST_NAME, Counts, manifest_of

STAGE, VERSION, TASK = "crawl", 1, "crawl"
LEDGER_NAME = "urls.parquet"
NOT_REACHED = "max_pages"
ROWS_AT_A_TIME = 50_000
LEDGER = pa.schema(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("host", pa.string()),
        pa.field("fate", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("depth", pa.int32(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("round", pa.int32()),  # of the last visit
        pa.field("status", pa.int32()),
        pa.field("bytes", pa.int64()),  # of the body, over the wire
        pa.field("digest", pa.string()),  # of the payload, as in the archive
        pa.field("file", pa.string()),  # where the record stands
        pa.field("offset", pa.int64()),
        pa.field("fetched", pa.timestamp("s", tz="UTC")),
        pa.field("detail", pa.string()),
    ]
)


def counts_of(fates: dict[str, int], tally: Tally) -> Counts:
    """The crawl's counts: documents are URLs."""
    counts = Counts(bytes_in=tally.text_bytes, bytes_out=tally.text_bytes)
    for fate, urls in fates.items():
        counts.documents_in += urls
        kind, _, name = fate.partition(":")
        if fate in KEPT:
            counts.documents_out += urls
        elif kind == "error":
            counts.error(name, urls)
        elif urls:
            counts.drop({MOVED: MOVED, PENDING: NOT_REACHED}.get(fate, name), urls)
    counts.extra = {
        "answers": tally.pages,
        "robots": tally.robots,
        "fetched_bytes": tally.fetched_bytes,
        "text_bytes": tally.text_bytes,
        "chinese_bytes": tally.chinese_bytes,
    }
    return counts


def write_books(
    folder: Path, fingerprint: str, counts: Counts, files: Iterable[ArchiveFile], urls: Iterable[Known]
) -> None:
    """Write `urls.parquet`, the task's record and the manifest, in this order: the manifest says the crawl is finished.

    Raises:
        ConservationError: the counts do not balance; nothing says then that the crawl is finished.
    """
    counts.check(str(folder))
    listed: dict[str, Any] = {
        file.name: {"bytes": file.bytes, "sha256": file.sha256, "rows": file.records} for file in files
    }
    with durable.commit(folder / LEDGER_NAME) as path:
        rows, counts.extra["hosts"] = write_ledger(path, urls)
        listed[LEDGER_NAME] = {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path), "rows": rows}
    record = {"task": TASK, "digest": fingerprint, "counts": asdict(counts), "files": listed}
    durable.write_json(folder / "done" / f"{TASK}.json", record)
    durable.write_json(folder / MANIFEST_NAME, manifest_of(STAGE, VERSION, fingerprint, [record]))


def write_ledger(path: Path, urls: Iterable[Known]) -> tuple[int, int]:
    """One row a URL, in order of discovery; returns how many, and of how many hosts (50 bytes of memory each)."""
    rows, hosts = 0, set[int]()
    with pq.ParquetWriter(path, LEDGER, compression="zstd", write_page_checksum=True) as writer:
        for table in _tables(iter(urls)):
            writer.write_table(table)
            rows += len(table)
            hosts.update(hash(name) for name in table["host"].unique().to_pylist() if name)
    return rows, len(hosts)


def _tables(urls: Iterator[Known]) -> Iterator[pa.Table]:
    while batch := list(islice(urls, ROWS_AT_A_TIME)):
        yield pa.Table.from_pylist([_row(known) for known in batch], schema=LEDGER)


def _row(known: Known) -> dict[str, Any]:
    row = asdict(known)
    if known.fate == PENDING:
        row["fate"] = f"drop:{NOT_REACHED}"
    return row
