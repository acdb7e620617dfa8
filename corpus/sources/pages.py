"""HTML records through the child process that extracts them, in batches and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corpus import sandbox
from corpus.extract.child import Extracted, pack, unpack
from corpus.extract.config import ExtractConfig
from corpus.sources.record import BadRecord, Record

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 512
CHILD = "corpus.extract.child:extract_payload"

Item = tuple[Record | BadRecord, Extracted | None]


def with_pages(records: Iterable[Record | BadRecord], config: ExtractConfig) -> Iterator[Item]:
    """Every record in order, HTML records with what extraction made of them.

    A page that crashed its process or was over its limits of time or memory has the error `killed`; its `detail` says
    which. Records wait for at most BATCH_BYTES of pages.
    """
    held: list[Record | BadRecord] = []
    num_bytes = 0
    for record in records:
        is_page = isinstance(record, Record) and record.kind == "html" and record.text is None
        if not (held or is_page):
            yield record, None
            continue
        held.append(record)
        num_bytes += len(record.raw) if isinstance(record, Record) else 0
        if num_bytes >= BATCH_BYTES or len(held) >= BATCH_RECORDS:
            yield from _extracted(held, config)
            held, num_bytes = [], 0
    yield from _extracted(held, config)


def _extracted(held: list[Record | BadRecord], config: ExtractConfig) -> Iterator[Item]:
    pages = {
        index: record
        for index, record in enumerate(held)
        if isinstance(record, Record) and record.kind == "html" and record.text is None
    }
    limits = sandbox.Limits(config.max_page_seconds, config.max_page_mb)
    requests = [pack(config, record.charset, record.raw) for record in pages.values()]
    answers = sandbox.shared(CHILD, limits).map(requests) if requests else []
    found = dict(zip(pages, answers, strict=True))
    for index, record in enumerate(held):
        answer = found.get(index)
        if isinstance(answer, sandbox.Death):
            yield record, Extracted(error="killed", detail=answer.reason)
        else:
            yield record, unpack(answer) if answer is not None else None
