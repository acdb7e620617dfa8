"""What is to be read: the index files of a crawl, or its list of whole files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from corpus.commoncrawl.check import inflate
from corpus.commoncrawl.client import Client, is_http, is_path
from corpus.commoncrawl.config import HttpConfig
from corpus.commoncrawl.http import Bad
from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.storage import File

MAX_LIST_TEXT_BYTES = 512 << 20
SLICE = re.compile(r"(\d*):(\d*)")


def index_files(crawl: str, base: str, given: Sequence[str], files: slice, http: HttpConfig) -> list[File]:
    """The index files with their identities: those that were given, else those of the crawl's own list.

    Raises:
        UsageError: nothing matches, or a URL of a web server is a glob.
        WenhaiError: the crawl has no list.
    """
    if not given:
        paths = [path for path in read_list(crawl, base, "cc-index-table", http) if "/subset=warc/" in f"/{path}"]
        urls = [storage.join(base, path) for path in paths]
    elif any(map(is_http, given)):
        urls = list(given)
        for url in urls:
            if not is_http(url) or any(character in url for character in "*?[]"):
                raise UsageError(f"--index {url}: web servers list no files: give each as a URL of its own, or --base.")
    else:
        return storage.list_inputs(given)[files]
    urls = urls[files]
    if not urls:
        raise UsageError("no index file is left: --files begins behind their end.")
    if not is_http(urls[0]):
        return storage.list_inputs(urls)
    with Client(urls[0].rsplit("/", 1)[0], http) as client, ThreadPoolExecutor(http.concurrency) as threads:
        try:
            return list(threads.map(client.identify, urls))
        except Bad as bad:
            raise WenhaiError(
                f"{urls[0]} and others: an index file cannot be had ({bad}). Are --crawl, --base, --index right?"
            ) from bad
        finally:
            client.leave()


def whole_files(crawl: str, base: str, kind: str, files: slice, http: HttpConfig) -> tuple[tuple[int, str], ...]:
    """Places in the crawl's list of WET or WARC files, and the paths that stand there."""
    chosen = tuple(list(enumerate(read_list(crawl, base, kind, http)))[files])
    if not chosen:
        raise UsageError("no file is left: --files begins behind the end of the list.")
    return chosen


def read_list(crawl: str, base: str, kind: str, http: HttpConfig) -> list[str]:
    """The paths of `crawl-data/CRAWL/KIND.paths.gz`, each checked to stay below the base.

    Raises:
        WenhaiError: there is no such list, or it is damaged, or holds something else.
    """
    path = f"crawl-data/{crawl}/{kind}.paths.gz"
    url = storage.join(base, path)
    try:
        with Client(base, http) as client:
            data = client.read_whole(path)
    except Bad as bad:
        raise WenhaiError(f"{url}: cannot be had ({bad}). Is there a crawl {crawl}, and is --base right?") from bad
    try:
        paths = inflate(data, MAX_LIST_TEXT_BYTES).decode("utf-8", "replace").split()
    except Bad as bad:
        if bad.kind == "not_gzip":
            raise WenhaiError(f"{url}: is no gzip file ({bad}). Is --base right?") from bad
        raise WenhaiError(f"{url}: ends too early, or is larger than a list. Run the same command again.") from bad
    strange = next((found for found in paths if not is_path(found)), None)
    if strange is not None:
        raise WenhaiError(f"{url}: {strange[:200]!a} is no path below the base; the list is not used.")
    return paths


def parse_slice(text: str) -> slice:
    """`0:100` of a list, as Python has it; raises `UsageError`."""
    found = SLICE.fullmatch(text)
    if found is None:
        raise UsageError(f"--files {text}: give FIRST:END, for example 0:100; either may be left out.")
    first, end = (int(part) if part else None for part in found.groups())
    return slice(first, end)
