"""How a crawl stands, for a person: what became of its URLs, how Chinese it is, how fast it went, what to do next.

`status.json` in the crawl's folder is written with every checkpoint, so that another shell can read it while the crawl
runs; nothing but this page depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.crawl.fates import FETCHED, KEPT, MOVED, NOT_MODIFIED, REVISIT, SITE_RULES
from corpus.crawl.folders import STATUS_NAME
from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from corpus.engine.running import duration

STATUS_FORMAT = 1
PENDING = "pending"
TOP_HOSTS = 10
SHOWN = 12  # fates of a group
WIDTH = 30
WORDS = {
    FETCHED: "pages",
    REVISIT: "same bytes as another page",
    NOT_MODIFIED: "not modified since",
}
GROUPS = ("kept", "moved", "dropped by the site's rules", "dropped by ours", "errors")

Status = dict[str, Any]


def status_of(
    fates: Mapping[str, int], tally: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]] = (), stopped_by: str = ""
) -> Status:
    """What `status.json` holds: URLs by fate, what was done, and at the end the largest hosts and why it ended."""
    return {
        "format": STATUS_FORMAT,
        "fates": dict(fates),
        "tally": dict(tally),
        "hosts": [dict(host) for host in hosts],
        "stopped_by": stopped_by,
    }


def read_status(folder: Path) -> Status:
    """The status that the last checkpoint wrote; raises `WenhaiError` when there is none."""
    status = durable.read_json(folder / STATUS_NAME)
    if not isinstance(status, dict) or status.get("format") != STATUS_FORMAT:
        raise WenhaiError(f"{folder / STATUS_NAME}: not of format {STATUS_FORMAT}. Is this the folder of a crawl?")
    return status


def status_lines(folder: Path) -> str:
    """The books of a crawl's folder as its last checkpoint left them, and who is at work there."""
    if not (folder / STATUS_NAME).exists():
        return "the crawl has not asked for anything yet"
    holder = durable.lock_holder(folder)
    at_work = f"running: {holder}" if holder else ""
    return "\n" + "\n".join(filter(None, (render(read_status(folder)), at_work)))


def group_fates(fates: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The fates by whose doing they are; a fate of no group's list is an error of a status or a rule of ours."""
    groups: dict[str, dict[str, int]] = {name: {} for name in GROUPS}
    for fate, urls in fates.items():
        if fate == PENDING:
            continue
        kind, _, name = fate.partition(":")
        if fate in KEPT:
            groups["kept"][WORDS[fate]] = urls
        elif fate == MOVED:
            groups["moved"]["to another URL"] = urls
        elif kind == "drop":
            groups[GROUPS[2] if name in SITE_RULES else GROUPS[3]][name] = urls
        else:
            groups["errors"][name] = urls
    return groups


def render(status: Status, next_step: str = "") -> str:
    """The status as text of at most 80 columns."""
    return "\n".join(_lines(status, next_step))


def _lines(status: Status, next_step: str) -> Iterator[str]:
    fates: Mapping[str, int] = status["fates"]
    total, pending = sum(fates.values()), fates.get(PENDING, 0)
    yield f"{'URLs':<{WIDTH + 2}}{total:>12,}"
    for group, members in group_fates(fates).items():
        urls = sum(members.values())
        if not urls:
            continue
        yield f"  {group:<{WIDTH}}{urls:>12,}{_share(urls, total):>9}"
        if group != "moved":
            ranked = sorted(members.items(), key=lambda item: (-item[1], item[0]))
            for name, count in ranked[:SHOWN]:
                yield f"    {name:<{WIDTH - 2}}{count:>12,}"
            if len(ranked) > SHOWN:
                others = sum(count for _, count in ranked[SHOWN:])
                yield f"    {f'{len(ranked) - SHOWN} others':<{WIDTH - 2}}{others:>12,}"
    if pending:
        yield f"  {'not asked for yet':<{WIDTH}}{pending:>12,}{_share(pending, total):>9}"
    if status["hosts"]:
        yield ""
        yield f"{'most pages':<{WIDTH + 2}}{'pages':>12}{'MB':>9}{'Chinese':>9}"
        for host in status["hosts"]:
            name = host["name"] if len(host["name"]) <= WIDTH else "…" + host["name"][1 - WIDTH :]
            chinese = _share(host["chinese_bytes"], host["text_bytes"])
            yield f"  {name:<{WIDTH}}{host['pages']:>12,}{host['bytes'] / 1e6:>9.2f}{chinese:>9}"
    yield ""
    yield from _work(status["tally"])
    if status["stopped_by"]:
        yield f"stopped: {status['stopped_by']}"
    if next_step:
        yield f"next: {next_step}"


def _work(tally: Mapping[str, Any]) -> Iterator[str]:
    """Bytes and speed."""
    fetched, text, chinese = tally["fetched_bytes"], tally["text_bytes"], tally["chinese_bytes"]
    seconds, answers = tally["seconds"], tally["pages"] + tally["robots"]
    yield f"fetched: {fetched / 1e6:,.2f} MB over the wire, {_share(chinese, fetched)} of it Chinese text"
    yield f"kept: {text / 1e6:,.2f} MB of text, {_share(chinese, text)} of it Chinese"
    if seconds > 0:
        yield (
            f"{answers:,} answers ({tally['robots']:,} of robots.txt) in {duration(seconds)}: "
            f"{answers / seconds:,.1f} a second, {fetched / 1e6 / seconds:,.2f} MB/s"
        )
    if tally["failures"]:
        named = ", ".join(f"{name} {count:,}" for name, count in sorted(tally["failures"].items()))
        yield f"mistakes of this program, one URL each: {named}. Please report them."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"
