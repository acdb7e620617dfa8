"""`python -m corpus commoncrawl`: options, the run, what came of it, and the command that goes on from there."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corpus.commoncrawl.client import Client, is_http, is_path
from corpus.commoncrawl.config import CRAWL_NAME, CommonCrawlConfig, HttpConfig
from corpus.commoncrawl.http import Bad
from corpus.commoncrawl.select import CcSelectStage, CcSortStage
from corpus.commoncrawl.stages import CcFetchStage, CcFilesStage
from corpus.engine.cli import add_executor_arguments, cluster_address
from corpus.engine.config import apply_overrides, parse, set_options
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.executor import available_cpus
from corpus.engine.inputs import list_inputs
from corpus.engine.progress import Progress
from corpus.engine.run import run_stages
from corpus.engine.running import duration
from corpus.engine.stage import Folder, Stage
from corpus.engine.storage import File, join
from corpus.report.summary import size

BASE = "https://data.commoncrawl.org/"
DEFAULT_WORKERS = 4  # a server's patience is no better where the cores are many
DEFAULT_RATE = 10.0  # MB/s
REQUEST_SECONDS = 0.1  # a round trip to another continent
SIZED_FILES = 8  # of a list of whole files, for an estimate
MAX_LIST_TEXT_BYTES = 512 << 20
SLICE = re.compile(r"(\d*):(\d*)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("--crawl", required=True, metavar="NAME", help="for example CC-MAIN-2026-43")
    parser.add_argument("--out", required=True, metavar="OUT", help="the output folder: a path or an fsspec URL")
    parser.add_argument(
        "--base", default=BASE, metavar="URL", help=f"where the archive lies ({BASE}, s3://commoncrawl/, a folder)"
    )
    parser.add_argument(
        "--index", nargs="+", default=[], metavar="GLOB", help="columnar index files (default: all of the crawl)"
    )
    parser.add_argument(
        "--files", default=":", metavar="A:B", help="which index files, or with --whole which files, of the list"
    )
    parser.add_argument(
        "--whole", choices=("wet", "warc"), help="whole files of the crawl instead of captures by the index"
    )
    chosen = parser.add_argument_group("captures")
    chosen.add_argument("--language", nargs="+", metavar="CODE", help="ISO 639-3 (default: zho)")
    chosen.add_argument("--primary", action="store_true", default=None, help="only where it is the first language")
    chosen.add_argument("--host-suffix", nargs="+", metavar="HOST", help="hosts that end so, for example cn or com.tw")
    chosen.add_argument("--sample", type=float, metavar="SHARE", help="of the captures, by a hash of their URLs")
    chosen.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="at most so many captures; each index file is read until it gave as many (see --files)",
    )
    parser.add_argument("--contact", metavar="TEXT", help="an address or page for the server's owner (needed for http)")
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help="requests at a time of each worker (default: 4)",
    )
    add_executor_arguments(parser, f"at most {DEFAULT_WORKERS}")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="select.*, fetch.* or http.*")
    parser.add_argument("--dry-run", action="store_true", help="select, and tell what fetching would take")
    parser.add_argument("--rate", type=float, default=DEFAULT_RATE, metavar="MB/S", help="to reckon with (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def main(arguments: argparse.Namespace) -> None:
    """Run `python -m corpus commoncrawl`.

    Raises:
        UsageError: the options do not fit together.
        WenhaiError: the server is gone, tasks failed, ...
    """
    config, base = _config(arguments), arguments.base.rstrip("/") + "/"
    address = cluster_address(arguments)
    if CRAWL_NAME.fullmatch(arguments.crawl) is None:
        raise UsageError(f"--crawl {arguments.crawl}: give a crawl's name, for example CC-MAIN-2026-43.")
    if arguments.rate <= 0:
        raise UsageError(f"--rate {arguments.rate}: give MB a second, more than 0.")
    if not config.http.contact and any(map(is_http, [base, *arguments.index])):
        raise UsageError("--contact: say whom the server's owner can turn to, for example --contact you@example.org")
    workers = min(DEFAULT_WORKERS, available_cpus()) if arguments.workers is None and not address else arguments.workers
    stages = (_whole_stages if arguments.whole else _capture_stages)(arguments, config, base)
    if arguments.whole and arguments.dry_run:
        told: dict[str, Any] = _estimate_files(stages[0], config, arguments.rate)
    else:
        planned = stages[:-1] if arguments.dry_run else stages
        progress = Progress(quiet=arguments.quiet)
        folders = run_stages(planned, arguments.out, workers=workers, address=address, progress=progress)
        parallel = config.http.concurrency * max(1, workers or 1)
        told = _estimate(folders, arguments.rate, parallel) if arguments.dry_run else _result(folders[stages[-1].name])
    if arguments.json:
        print(json.dumps(told, ensure_ascii=False, indent=1))
    elif not arguments.quiet:
        print(_render(told), file=sys.stderr)


def _config(arguments: argparse.Namespace) -> CommonCrawlConfig:
    """The configuration of the options, and of `--set` below them."""
    options = {
        "select.languages": arguments.language,
        "select.primary": arguments.primary,
        "select.host_suffixes": arguments.host_suffix,
        "select.sample": arguments.sample,
        "select.limit": arguments.limit,
        "http.contact": arguments.contact,
        "http.concurrency": arguments.concurrency,
    }
    values = apply_overrides({}, arguments.set)
    set_options(values, options)
    return parse(CommonCrawlConfig, values, "commoncrawl", arguments.set)


def _capture_stages(arguments: argparse.Namespace, config: CommonCrawlConfig, base: str) -> list[Stage]:
    files = index_files(arguments.crawl, base, arguments.index, parse_slice(arguments.files), config.http)
    return [
        CcSelectStage(
            tuple(files), config.select, config.fetch, config.http
        ),  # index rows -> captures, by range of files
        CcSortStage(config.select, config.fetch),  # -> captures in the archive's order, tasks of equal size
        CcFetchStage(arguments.crawl, base, config.fetch, config.http),  # -> WARC files
    ]


def _whole_stages(arguments: argparse.Namespace, config: CommonCrawlConfig, base: str) -> list[Stage]:
    for name in ("index", "language", "primary", "host_suffix", "sample", "limit"):
        if getattr(arguments, name):
            option = name.replace("_", "-")
            raise UsageError(f"--{option}: chooses captures, and --whole takes whole files. Leave one of them out.")
    paths = whole_files(arguments.crawl, base, arguments.whole, parse_slice(arguments.files), config.http)
    return [CcFilesStage(arguments.crawl, base, paths, config.http)]


def _estimate(folders: Mapping[str, Folder], rate: float, parallel: int) -> dict[str, Any]:
    """What fetching would take: the line's time for the bytes, or the round trips', whichever is longer."""
    counts = folders["cc_sort"].counts
    num_bytes = counts.extra.get("record_bytes", 0)
    requests, gap_bytes = counts.extra.get("requests", 0), counts.extra.get("gap_bytes", 0)
    seconds = max((num_bytes + gap_bytes) / (rate * 1e6), requests * REQUEST_SECONDS / parallel)
    return {
        "captures": counts.documents_out,
        "record_bytes": num_bytes,
        "requests": requests,
        "saved_requests": counts.documents_out - requests,
        "gap_bytes": gap_bytes,
        "tasks": len(folders["cc_sort"].files("captures")),
        "megabytes_per_second": rate,
        "seconds": round(seconds, 1),
    }


def _estimate_files(stage: Stage, config: CommonCrawlConfig, rate: float) -> dict[str, Any]:
    """The sizes of a few files of the list, for all of them."""
    assert isinstance(stage, CcFilesStage)
    step = -(-len(stage.paths) // SIZED_FILES)
    try:
        with Client(stage.base, config.http) as client:
            sizes = [client.size(path) for _, path in stage.paths[::step]]
    except Bad as error:
        raise WenhaiError(f"{stage.base}: a file of the list cannot be had ({error}). Is --base right?") from error
    num_bytes = sum(sizes) * len(stage.paths) // len(sizes)
    return {
        "files": len(stage.paths),
        "file_bytes": num_bytes,
        "megabytes_per_second": rate,
        "seconds": round(num_bytes / (rate * 1e6), 1),
    }


def _result(folder: Folder) -> dict[str, Any]:
    """What came, what did not, and what to type next."""
    counts = folder.counts
    return {
        "wanted": counts.documents_in,
        "fetched": counts.documents_out,
        "fetched_bytes": counts.bytes_out,
        "errors": dict(sorted(counts.errors.items())),
        "files": len(folder.files()),
        "data": join(folder.url, "data"),
        "next": f"python -m corpus run --recipe web_zh --input {shlex.quote(join(folder.url, 'data'))} --out build/my",
    }


def _render(told: Mapping[str, Any]) -> str:
    if "data" in told:
        lines = [
            f"{told['fetched']:,} of {told['wanted']:,} fetched, "
            f"{size(told['fetched_bytes'])} in {told['files']:,} files"
        ]
        lines += [f"  {count:,} {kind}" for kind, count in told["errors"].items()]
        if told["errors"]:
            lines.append(f"  each with its URL and place in {told['data'].removesuffix('data')}fates")
        return "\n".join([*lines, "next:", f"  {told['next']}"])
    speed = f"about {duration(told['seconds'])} at {told['megabytes_per_second']:g} MB/s"
    if "files" in told:
        return f"{told['files']:,} files, about {size(told['file_bytes'])}: {speed}. Nothing was fetched."
    return (
        f"{told['captures']:,} captures, {size(told['record_bytes'])}, in {told['tasks']:,} tasks\n"
        f"{told['requests']:,} requests ({told['saved_requests']:,} saved by joining neighbours, for "
        f"{size(told['gap_bytes'])} more)\n{speed}. Nothing was fetched; the same command "
        "without --dry-run goes on from here."
    )


# -------------------------------------------------------------------------------------------------- what is to be read


def index_files(crawl: str, base: str, given: Sequence[str], files: slice, http: HttpConfig) -> list[File]:
    """The index files with their identities: those that were given, else those of the crawl's own list.

    Raises:
        UsageError: nothing matches, or a URL of a web server is a glob.
        WenhaiError: the crawl has no list.
    """
    if not given:
        paths = [path for path in read_list(crawl, base, "cc-index-table", http) if "/subset=warc/" in f"/{path}"]
        urls = [join(base, path) for path in paths]
    elif any(map(is_http, given)):
        urls = list(given)
        for url in urls:
            if not is_http(url) or any(character in url for character in "*?[]"):
                raise UsageError(f"--index {url}: web servers list no files: give each as a URL of its own, or --base.")
    else:
        return list_inputs(given)[files]
    urls = urls[files]
    if not urls:
        raise UsageError("no index file is left: --files begins behind their end.")
    if not is_http(urls[0]):
        return list_inputs(urls)
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
    url = join(base, path)
    try:
        with Client(base, http) as client:
            data = client.read_whole(path)
    except Bad as bad:
        raise WenhaiError(f"{url}: cannot be had ({bad}). Is there a crawl {crawl}, and is --base right?") from bad
    try:
        with gzip.open(io.BytesIO(data)) as file:
            text = file.read(MAX_LIST_TEXT_BYTES + 1)
    except gzip.BadGzipFile as error:
        raise WenhaiError(f"{url}: is no gzip file, or damaged ({error}). Is --base right?") from error
    except (EOFError, zlib.error) as error:
        raise WenhaiError(f"{url}: ends too early, or is damaged ({error}). Run the same command again.") from error
    if len(text) > MAX_LIST_TEXT_BYTES:
        raise WenhaiError(f"{url}: unpacks to more than {MAX_LIST_TEXT_BYTES:,} bytes, which no list does.")
    paths = text.decode("utf-8", "replace").split()
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
