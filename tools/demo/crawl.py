"""The crawler at work, with nothing from outside: serve the fake web, crawl it, make a corpus of it.

    python -m tools.demo.crawl --out build/crawl-demo [--data FOLDER]

The recipe is the demo's with a section [crawl] for the fake web (rules, traps, faults and all), and stands with the
server's log in OUT-site/. FOLDER holds folders of HTML pages, each of which becomes a site; without it the pages are
made up. A second run goes on where the first was stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from corpus.engine.config import find_recipe
from corpus.engine.toml import dump
from tools.fake_site import world
from tools.fake_site.crawling import ROOT

NUM_PAGES = 1500  # plain ones, beside those that try the crawler


def main(arguments: list[str] | None = None) -> int:
    """Serve, crawl, build; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo.crawl", description="Crawl the fake web, make a corpus."
    )
    parser.add_argument("--out", type=Path, required=True, help="the build folder; the crawl is OUT/crawl")
    parser.add_argument("--data", type=Path, help="a folder of folders of HTML pages")
    parser.add_argument("--pages", type=int, default=NUM_PAGES, help="made-up plain pages")
    options = parser.parse_args(arguments)
    out, folder = options.out.resolve(), options.out.resolve().with_name(f"{options.out.resolve().name}-site")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "recipe.toml"
    with world.start(folder / "requests.jsonl", _port(recipe), data=options.data, pages=options.pages) as web:
        crawl = dump({"crawl": world.crawl_config(web)})
        recipe.write_text(f"{find_recipe('demo').read_text('utf-8')}\n{crawl}", "utf-8")
        print(f"crawl demo: {len(web.sites)} hosts on loopback, port {web.port}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "corpus", "run", "--recipe", str(recipe), "--out", str(out)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def _port(recipe: Path) -> int:
    """The port of an earlier run, whose URLs hold it; 0 if there was none."""
    if not recipe.exists():
        return 0
    port: int = tomllib.loads(recipe.read_text("utf-8"))["crawl"]["network"]["ports"][0]
    return port


if __name__ == "__main__":
    sys.exit(main())
