"""A crawl as a folder: begun, resumed after any end, finished once.

    OUT/
      crawl.json            what must stay the same for the whole crawl; written first
      frontier.sqlite       every known URL and its fate
      data/00000.warc.gz    pages; the file being written is data/.00000.warc.gz.open
      robots/               answers to robots.txt, in the same way
      status.json           how far it is
      urls.parquet          when finished: what became of each URL
      MANIFEST.json         when finished, last

A crawl is one task of a stage `crawl` whose documents are URLs: in = kept + moved + dropped + errors. What a budget of
pages kept from being asked for is dropped by `max_pages`.

The crawler's libraries are an extra, so this module imports them only when a crawl runs.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import KEPT, MOVED, Tally
from corpus.crawl.folders import CRAWL, IDENTITY_NAME, STATUS_NAME
from corpus.crawl.summary import PENDING, TOP_HOSTS, Status, read_status, render, status_of
from corpus.engine import durable, records, storage
from corpus.engine.errors import Stopped, UsageError, WenhaiError
from corpus.engine.manifest import MANIFEST_NAME, Listing
from corpus.engine.stage import Counts, Folder

if TYPE_CHECKING:
    from corpus.crawl.archive.archive import ArchiveFile
    from corpus.crawl.session import Session

FORMAT = 1
LIBRARIES = ("aiohttp", "idna", "scrapy", "tldextract")
SAME_BUDGETS = (
    *("max_depth", "max_hosts_per_domain", "max_urls_per_pattern", "max_query_patterns", "max_repeats"),
    "max_page_bytes",
)
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
CONTACT = re.compile(r"[^\s@<>()/]+@[^\s@<>()/]+\.[^\s@<>()/.]+|https?://[^\s<>()]+\.[^\s<>()]+")


def crawl(
    config: CrawlConfig,
    out: str,
    *,
    since: datetime | timedelta | None = None,
    quiet: bool = False,
    advise: bool = True,
) -> Status:
    """Bring the crawl in the folder `out` to its end: begin it, go on with it, or find that nothing is left.

    Args:
        config: seeds may be added to an earlier crawl, and budgets of pages and bytes raised; `identity` must be equal.
        out: a local folder.
        since: visit again what was fetched before that moment, or is as old. A round that an age began goes on with any
            other age until it is finished.
        quiet: no progress and no summary on stderr.
        advise: the summary says what to type next.

    Raises:
        UsageError: no contact, seeds that are none, a configuration that contradicts the folder's, no libraries.
        LockHeld: another crawl works on the folder.
        Stopped: Ctrl-C or SIGTERM; the same command resumes.
        DiskError: the disk refused; the same command resumes.
    """
    check_libraries()
    check_contact(config.contact)
    if storage.is_remote(out):
        raise UsageError(f"{out}: a crawl writes to a disk. Give a local folder.")
    from corpus.crawl.seeds import read_seeds

    seeds = read_seeds(config.seeds)
    folder = storage.local_path(storage.spellable(out))
    with durable.RunLock(folder):
        durable.sweep(folder)
        identify(folder, config)
        from corpus.crawl.session import Session

        goes_on = isinstance(since, timedelta) and not (folder / MANIFEST_NAME).exists()
        if isinstance(since, timedelta):
            since = datetime.now(UTC) - since
        session = Session(config, folder, seeds, since, goes_on=goes_on)
        try:
            return _bring_to_end(session, folder, config, quiet, advise)
        finally:
            session.close()


def _bring_to_end(session: Session, folder: Path, config: CrawlConfig, quiet: bool, advise: bool) -> Status:
    manifest = folder / MANIFEST_NAME
    if session.frontier.done and Folder.find(str(folder)) is not None:
        status = _finished_status(session, config)
        if not quiet:
            kept = sum(session.frontier.counts().get(fate, 0) for fate in KEPT)
            print(f"{'crawl':<12} up to date: {kept:,} pages kept", file=sys.stderr)
        return status
    manifest.unlink(missing_ok=True)
    if not session.frontier.done:
        session.run(quiet=quiet)
    if session.stopped and not session.frontier.done:
        if not quiet:
            print(render(read_status(folder)), file=sys.stderr)
        raise Stopped(f"{folder}: stopped; what was fetched is kept. Run the same command again to resume.")
    session.close_files()
    frontier = session.frontier
    frontier.check_books()
    counts = counts_of(frontier.counts(), session.visits.tally)
    write_books(folder, durable.digest(identity(config)), counts, session.files.values(), frontier.iter_urls())
    status = _finished_status(session, config)
    if not quiet:
        print(render(status, next_step(folder, session) if advise else ""), file=sys.stderr)
    return status


def _finished_status(session: Session, config: CrawlConfig) -> Status:
    """The last status, with the largest hosts and why the crawl ended."""
    frontier = session.frontier
    fates = frontier.counts()
    reason = (
        f"the budget of {config.budget.max_pages:,} pages is spent" if fates[PENDING] else "nothing is left to ask for"
    )
    hosts = [host for host in frontier.top_hosts(TOP_HOSTS) if host["pages"]]
    status = status_of(fates, session.tally(), hosts, reason)
    durable.write_json(session.folder / STATUS_NAME, status)
    return status


def next_step(folder: Path, session: Session) -> str:
    """What to type next."""
    if not any(name.startswith("data/") for name in session.files):
        return "nothing was kept; see above what became of the seeds, and read robots.txt of their hosts"
    files = shlex.quote(str(folder / "data")) + "/*.warc.gz"
    return f"python -m corpus run --recipe web_zh --input '{files}' --out ..."


# --------------------------------------------------------------------------------------------------------------- books


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
    folder: Path, fingerprint: str, counts: Counts, files: Iterable[ArchiveFile], urls: Iterable[dict[str, Any]]
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
    records.write_record(str(folder), record)
    listing = Listing()
    listing.add(listed)
    listing.commit(str(folder), records.manifest_head(STAGE, VERSION, fingerprint, 1, counts))


def write_ledger(path: Path, urls: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """One row a URL, in order of discovery; returns how many, and of how many hosts (50 bytes of memory each)."""
    rows, hosts = 0, set[int]()
    with pq.ParquetWriter(path, LEDGER, compression="zstd", write_page_checksum=True) as writer:
        rest = iter(urls)
        while batch := list(islice(rest, ROWS_AT_A_TIME)):
            for row in batch:
                row["fate"] = f"drop:{NOT_REACHED}" if row["fate"] == PENDING else row["fate"]
            table = pa.Table.from_pylist(batch, schema=LEDGER)
            writer.write_table(table)
            rows += len(table)
            hosts.update(hash(name) for name in table["host"].unique().to_pylist() if name)
    return rows, len(hosts)


# ---------------------------------------------------------------------------------------------------------- conditions


def check_libraries() -> None:
    """Refuse to crawl without the extra; raises `UsageError`."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(f"crawling needs {', '.join(missing)}. Run: pip install 'wenhai[crawl]'")


def check_contact(contact: str) -> None:
    """A crawler that nobody can write to is refused; raises `UsageError`."""
    if not CONTACT.fullmatch(contact):
        raise UsageError(
            f"contact {contact!r}: give an e-mail address or an http(s) URL. It stands in the user agent, so that the "
            "owner of a site can reach you."
        )


def identity(config: CrawlConfig) -> dict[str, Any]:
    """What must not change between the runs of one crawl: with it, the fates it has given would mean something else."""
    budgets = {name: getattr(config.budget, name) for name in SAME_BUDGETS}
    return {"format": FORMAT, "agent": config.agent, "follow": config.follow, "budget": budgets}


def identify(folder: Path, config: CrawlConfig) -> None:
    """Write `crawl.json`, or compare with what the crawl in this folder was begun with; raises `UsageError`."""
    path, ours = folder / IDENTITY_NAME, identity(config)
    if not path.exists():
        if (folder / "run.json").exists():
            raise UsageError(
                f"{folder}: a dataset lies here. Give the crawl a folder of its own: --out {folder / CRAWL}"
            )
        durable.write_json(path, ours)
        return
    theirs = durable.read_json(path)
    if theirs == ours:
        return
    if not isinstance(theirs, dict) or theirs.get("format") != FORMAT:
        raise WenhaiError(f"{path}: not of format {FORMAT}. Is this the folder of a crawl?")
    was, now = _flat(theirs), _flat(ours)
    changed = ", ".join(
        f"{key} was {was.get(key)} and is now {now.get(key)}"
        for key in sorted(was | now)
        if was.get(key) != now.get(key)
    )
    raise UsageError(f"{folder}: this crawl was begun otherwise: {changed}. Take that back, or choose another folder.")


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`a.b` keys."""
    flat: dict[str, Any] = {}
    for key, one in value.items():
        flat |= _flat(one, f"{prefix}{key}.") if isinstance(one, dict) else {prefix + key: one}
    return flat
