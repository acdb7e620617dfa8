"""`python -m corpus crawl`: the options, and the configuration they make on top of a file's [crawl]."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from corpus.crawl.config import CrawlConfig, NetworkConfig
from corpus.engine.config import Strict, apply_overrides, load_toml, parse, set_options
from corpus.engine.errors import UsageError

SECTION = "crawl"
FLAGS = {  # option of argparse: where it goes below [crawl]
    "seeds": "seeds",
    "contact": "contact",
    "agent": "agent",
    "follow": "follow",
    "concurrency": "concurrency",
    "max_pages": "budget.max_pages",
    "max_pages_per_host": "budget.max_pages_per_host",
    "delay": "politeness.min_delay_seconds",
    "allow_address": "network.allow_addresses",
}
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class _Recipe(Strict):
    """So that errors carry the path as it stands in the file."""

    crawl: CrawlConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m corpus crawl`."""
    add = parser.add_argument
    add("--out", required=True, metavar="OUT", help="the crawl's folder; an unfinished crawl there goes on")
    add("--seeds", nargs="+", metavar="SEED", help="URLs to begin with, and files that hold one a line")
    add("--contact", metavar="WHO", help="an e-mail address or web page for the owners of sites; required")
    add("--config", metavar="FILE.toml", help="a TOML file (a recipe, for example) whose [crawl] is read first")
    add("--agent", metavar="NAME", help="the name robots.txt knows the crawler by (default: wenhaibot)")
    add("--follow", choices=("hosts", "domains", "anywhere"), help="links to follow: within the seeds' hosts, their "
        "domains (default), or anywhere")  # fmt: skip
    add("--max-pages", type=int, metavar="N", help="stop after so many pages (default: when nothing is left)")
    add("--max-pages-per-host", type=int, metavar="N", help="pages of one host (default: 10,000)")
    add("--concurrency", type=int, metavar="N", help="requests under way, each to another host (default: 64)")
    add("--delay", type=float, metavar="SECONDS", help="between two requests to a host, at least (default: 1)")
    add("--since", metavar="AGE", help="visit again what was fetched before: 12h, 7d, 2w, or a date (2026-11-01)")
    add("--allow-address", action="append", metavar="CIDR", help="a network that may be reached though it is private")
    add("--resolve", action="append", default=[], metavar="HOST=ADDRESS", help="the address of a host, as in curl")
    add("--port", action="append", type=int, default=[], metavar="N", help="a port to allow besides 80 and 443")
    add("--set", action="append", default=[], metavar="A.B=VALUE", help="override a value: crawl.budget.max_depth=5")
    add("--quiet", action="store_true", help="no progress, no summary")


def main(arguments: argparse.Namespace) -> None:
    """Run `python -m corpus crawl`."""
    config = config_of(arguments)
    since = None if arguments.since is None else parse_since(arguments.since)
    from corpus.crawl.run import crawl

    crawl(config, arguments.out, since=since, quiet=arguments.quiet)


def config_of(arguments: argparse.Namespace) -> CrawlConfig:
    """The configuration: [crawl] of a file, then the options, then `--set`.

    Raises:
        UsageError: a value is wrong or missing, with its option or dotted path.
    """
    values = load_toml(Path(arguments.config), model=_Recipe).get(SECTION, {}) if arguments.config else {}
    if not isinstance(values, dict):
        raise UsageError(f"{arguments.config}: {SECTION} is a section of keys, not a value.")
    set_options(values, {path: getattr(arguments, option) for option, path in FLAGS.items()})
    network = values.setdefault("network", {})
    if isinstance(network, dict):  # else the model says what is wrong
        _add_network(network, arguments)
    for override in arguments.set:
        if not override.startswith(f"{SECTION}."):
            raise UsageError(f"--set {override}: a key of a crawl begins with {SECTION}., as in a recipe.")
    values = apply_overrides({SECTION: values}, arguments.set)[SECTION]
    for key, advice in (
        ("contact", "--contact: give an e-mail address or web page where the owners of sites can reach you."),
        ("seeds", "--seeds: give URLs to begin with, or files that hold one a line."),
    ):
        if key not in values:
            raise UsageError(advice)
    return parse(_Recipe, {SECTION: values}, arguments.config or "crawl", arguments.set).crawl


def _add_network(network: dict[str, Any], arguments: argparse.Namespace) -> None:
    """`--port` and `--resolve` come on top of what [crawl.network] has."""
    ports = network.get("ports", [*NetworkConfig().ports])
    if arguments.port and isinstance(ports, list):
        network["ports"] = list(dict.fromkeys((*ports, *arguments.port)))
    for pair in arguments.resolve:
        host, equals, address = pair.partition("=")
        if not (equals and host and address):
            raise UsageError(f"--resolve {pair}: expected HOST=ADDRESS, for example --resolve example.org=192.0.2.1")
        resolve = network.setdefault("resolve", {})
        if isinstance(resolve, dict):
            resolve[host.lower()] = address


def parse_since(text: str) -> datetime | timedelta:
    """What `--since` names: an age, or a moment (UTC unless it says otherwise).

    >>> parse_since("7d"), parse_since("2026-11-01")
    (datetime.timedelta(days=7), datetime.datetime(2026, 11, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """
    age = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    if age:
        return int(age[1]) * UNITS[age[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since {text}: give an age (12h, 7d, 2w) or a date (2026-11-01).") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
