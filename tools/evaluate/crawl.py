"""Whether the crawler does right, case by case, on a web that knows the answers; how it survives kills; how fast it is.

    python -m tools.evaluate.crawl [--data FOLDER] [--out FOLDER]     the coverage table
    python -m tools.evaluate.crawl kills --times 20 --seed 1          kill -9 at random moments, and go on
    python -m tools.evaluate.crawl ssrf                               addresses that must not be reached
    python -m tools.evaluate.crawl speed --pages 4000                 beside plain Scrapy

The web is tools/fake_site, served on loopback by a process of its own. FOLDER of --data holds `html/` with folders of
real pages. The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from tools.fake_site import world
from tools.fake_site.crawling import count_records, crawl, look, manners, write_config
from tools.fake_site.expected import Row, format_table

LATER = "2999-01-01"  # whatever was fetched before is to be visited again


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one evaluation, print its table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("coverage", "kills", "ssrf", "speed"), default="coverage")
    parser.add_argument("--data", type=Path, help="see above (default: made-up pages only)")
    parser.add_argument("--out", type=Path, help="keep the crawl here (default: nowhere)")
    parser.add_argument("--times", type=int, default=20, help="kills (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--pages", type=int, default=4000, help="of the web that speed is measured on")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() if options.out is None else nullcontext(str(options.out)) as folder:
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        if options.what == "coverage":
            return _print([*coverage(out, options.data), *second_visit(out)])
        if options.what == "kills":
            from tools.evaluate.crawl_kills import kills

            return kills(out, options.data, options.times, options.seed)
        if options.what == "speed":
            from tools.evaluate.crawl_speed import compare

            return compare(out, options.pages)
        return ssrf()


def coverage(out: Path, data: Path | None = None) -> list[Row]:
    """Crawl the whole fake web into OUT/crawl; the table."""
    log, config, html = out / "requests.jsonl", out / "crawl.toml", data / "html" if data else None
    log.unlink(missing_ok=True)
    shutil.rmtree(out / "crawl", ignore_errors=True)
    with world.start(log, data=html, tls_folder=out / "tls") as web:
        write_config(config, web)
        crawl(config, out / "crawl")
        return [*web.truth.compare(look(web, log, out / "crawl")), *manners(log)]


def second_visit(out: Path) -> list[Row]:
    """Crawl the honest sites into OUT/again, and once more after some of their pages have changed; the table of
    that."""
    log, config, folder = out / "again.jsonl", out / "again.toml", out / "again"
    log.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    with world.start(log, kinds=["chinese"]) as web:
        write_config(config, web)
        crawl(config, folder)
        skip = count_records(folder)
    with world.start(log, web.port, kinds=["chinese"], round_number=2) as web:
        crawl(config, folder, "--since", LATER)
        rows = web.truth.compare(look(web, log, folder, skip))
    return [replace(row, case=f"second visit: {row.case}") for row in (*rows, *manners(log))]


def ssrf() -> int:
    """Print what the guard says to each spelling of an address, and return the exit code."""
    from tools.evaluate.ssrf_cases import rows

    wrong = 0
    for name, url, expected, got in rows():
        print(f"{name:44}{url:72}{expected:12}{got:12}{'' if got == expected else 'WRONG'}")
        wrong += got != expected
    print(f"{wrong} wrong")
    return int(wrong > 0)


def _print(rows: Sequence[Row]) -> int:
    print(format_table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
