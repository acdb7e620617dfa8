"""The names in a crawl's folder, and where one lies: the folder that `python -m corpus crawl` was given, or `crawl`
below the output of a run."""

from __future__ import annotations

from corpus.engine import storage

CRAWL = "crawl"  # of a build whose recipe has [crawl]; also the name of its stage and of its one task
IDENTITY_NAME = "crawl.json"  # what makes a folder that of a crawl
FRONTIER_NAME = "frontier.sqlite"
STATUS_NAME = "status.json"
OWN_FILES = frozenset((IDENTITY_NAME, STATUS_NAME, *(FRONTIER_NAME + end for end in ("", "-wal", "-shm", "-journal"))))


def crawl_folders(out: str) -> list[str]:
    """The crawl's folder that `out` is or has: one, or none."""
    if storage.is_remote(out):
        return []
    return [url for url in (out, storage.join(out, CRAWL)) if storage.exists(storage.join(url, IDENTITY_NAME))][:1]
