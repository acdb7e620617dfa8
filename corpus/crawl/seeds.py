"""Seeds: URLs of the command line or a recipe, and files that hold one a line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import Link
from corpus.crawl.urls.url import BadUrl, Scope, normalize, to_link
from corpus.engine.errors import UsageError

MAX_FILE_BYTES = 256 << 20
BAD_SHOWN = 10
_LINE_END = re.compile(r"\r\n?|\n")


def read_seeds(seeds: Sequence[str]) -> list[str]:
    """The normalized URLs of all seeds, each once, in order.

    Raises:
        UsageError: a file cannot be read, or lines are no URLs to fetch; it lists the first of them.
    """
    found: dict[str, None] = {}
    bad: list[str] = []
    for place, text in _entries(seeds):
        try:
            found[normalize(text)] = None
        except BadUrl as error:
            bad.append(f"  {place}: {error.kind}: {error.detail}")
    if bad:
        more = f"\n  and {len(bad) - BAD_SHOWN} more" if len(bad) > BAD_SHOWN else ""
        listing = "\n".join(bad[:BAD_SHOWN])
        raise UsageError(
            f"seeds that are no URLs to fetch:\n{listing}{more}\nA URL is whole, for example https://example.org/"
        )
    if not found:
        raise UsageError(f"{', '.join(seeds)}: no URL. Give one a line; # begins a comment.")
    return list(found)


def seed_links(urls: Iterable[str], config: CrawlConfig, scope: Scope) -> Iterator[Link]:
    """The seeds as the frontier takes them."""
    for url in urls:
        yield to_link(url, None, "utf-8", depth=0, config=config, scope=scope, seed=True)


def _entries(seeds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every seed with where it stands."""
    for seed in seeds:
        if "://" in seed:
            yield f"seed {seed[:80]}", seed
            continue
        path = Path(seed)
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            text = _decoded(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "neither UTF-8 nor GB18030"
            raise UsageError(
                f"{seed}: neither a URL (https://...) nor a file of URLs that can be read ({reason})."
            ) from error
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{seed}: larger than {MAX_FILE_BYTES:,} bytes. Split it, or crawl in parts.")
        for number, line in enumerate(_LINE_END.split(text), 1):
            entry = line.strip()
            if entry and not entry.startswith("#"):
                yield f"{seed}:{number}", entry.split()[0]


def _decoded(data: bytes) -> str:
    """The text of a file: of an editor on Windows it may be UTF-16 or, in its comments, GBK."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except ValueError:
        return data.decode("gb18030")
