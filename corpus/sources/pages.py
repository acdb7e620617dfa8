"""HTML and wikitext records through the child process that extracts them, in batches and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corpus import sandbox
from corpus.extract.child import Extracted, Markup, pack, unpack
from corpus.extract.config import ExtractConfig
from corpus.sources.record import BadRecord, Record

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 512
CHILD = "corpus.extract.child:extract_payload"

Item = tuple[Record | BadRecord, Extracted | None]


def with_pages(records: Iterable[Record | BadRecord], config: ExtractConfig) -> Iterator[Item]:
    """Every record in order, HTML and wikitext records with what extraction made of them.

    A page that crashed its process or was over its limits of time or memory has the error `killed`; its `detail` says
    which. Records wait for at most BATCH_BYTES of pages.
    """
    held: list[Record | BadRecord] = []
    num_bytes = 0
    for record in records:
        if not (held or _markup(record)):
            yield record, None
            continue
        held.append(record)
        num_bytes += len(record.raw) if isinstance(record, Record) else 0
        if num_bytes >= BATCH_BYTES or len(held) >= BATCH_RECORDS:
            yield from _extracted(held, config)
            held, num_bytes = [], 0
    yield from _extracted(held, config)


def _extracted(held: list[Record | BadRecord], config: ExtractConfig) -> Iterator[Item]:
    requests = {
        index: pack(config, record.charset, record.raw, markup)
        for index, record in enumerate(held)
        if isinstance(record, Record) and (markup := _markup(record))
    }
    limits = sandbox.Limits(config.max_page_seconds, config.max_page_mb)
    answers = sandbox.shared_sandbox(CHILD, limits).map(list(requests.values())) if requests else []
    found = dict(zip(requests, answers, strict=True))
    for index, record in enumerate(held):
        answer = found.get(index)
        if isinstance(answer, sandbox.Death):
            yield record, Extracted(error="killed", detail=answer.reason)
        else:
            yield record, unpack(answer) if answer is not None else None


def _markup(record: Record | BadRecord) -> Markup | None:
    """What the child has to read, or None for a record that needs no extraction."""
    if isinstance(record, BadRecord) or record.text is not None or record.kind == "text":
        return None
    return record.kind
