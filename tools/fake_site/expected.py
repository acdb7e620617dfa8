"""What a well-behaved crawler makes of each URL of the fake web, and the table of where one differs.

Three sources are held against it: the server's log (what was asked for, how often), the crawl's ledger (which fate each
URL has), and the archive (which payload was kept under which URL).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tokenizer.report.shown import table

ALLOWED, FORBIDDEN, TRAPPED, FAULTY, REDIRECTED, SSRF = GROUPS = (
    *("allowed", "forbidden", "trapped", "faulty", "redirected", "SSRF"),
)
KEPT = frozenset(("fetched", "revisit", "not_modified"))
UNKNOWN = "unknown"  # the fate of a URL that the ledger does not name
ANY = frozenset(("*",))


@dataclass(frozen=True)
class Expected:
    """One URL: its fate is one of `fates`, and it was asked for `least` to `most` times."""

    url: str
    group: str
    case: str
    fates: frozenset[str]
    least: int = 1
    most: int = 1
    digest: str | None = None  # of the payload, where one is kept

    def faults(self, seen: Seen) -> list[str]:
        """What is wrong about this URL, in words."""
        found = []
        times, fate = seen.asked[self.url], seen.fates.get(self.url, UNKNOWN)
        if not self.least <= times <= self.most:
            found.append(f"asked for {times} times, not {self.least} to {self.most}")
        if fate not in self.fates and self.fates != ANY:
            found.append(f"its fate is {fate}, not {' or '.join(sorted(self.fates))}")
        if (fate in KEPT) != (self.url in seen.payloads):
            found.append("in the archive, though its fate says no" if fate not in KEPT else "not in the archive")
        if self.digest and seen.payloads.get(self.url, self.digest) != self.digest:
            found.append("the archive holds another payload")
        return found


@dataclass(frozen=True)
class Family:
    """URLs without end, or too many to name: those that `pattern` matches in full and no `Expected` names."""

    pattern: re.Pattern[str]
    group: str
    case: str
    fates: frozenset[str]
    least: int = 0
    most: int | None = None

    def faults(self, asked: int, fates: Iterable[str]) -> list[str]:
        """What is wrong about these URLs, in words."""
        found = []
        if asked < self.least or (self.most is not None and asked > self.most):
            found.append(f"{asked} requests, not {self.least} to {self.most}")
        odd = Counter(fate for fate in fates if fate not in self.fates)
        if odd and self.fates != ANY:
            found.append(f"fates {dict(odd)} are not among {', '.join(sorted(self.fates))}")
        return found


@dataclass
class Seen:
    """What a crawl did: requests by URL (robots.txt left out), the ledger, and payload digests of the archive."""

    asked: Counter[str] = field(default_factory=Counter)
    fates: Mapping[str, str] = field(default_factory=dict)
    payloads: Mapping[str, str] = field(default_factory=dict)
    canaries: int = 0  # connections to addresses at which nobody may knock


@dataclass(frozen=True)
class Row:
    """A line of the table: URLs of a case, those of them that were asked for, and what is wrong."""

    group: str
    case: str
    expected: int
    fetched: int
    wrong: tuple[str, ...]


@dataclass
class Truth:
    """All there is to expect."""

    pages: dict[str, Expected] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)

    def add(self, expected: Expected) -> None:
        """Expect something of a URL; of each URL once."""
        if expected.url in self.pages:
            raise ValueError(f"{expected.url}: stands in the truth already")
        self.pages[expected.url] = expected

    def compare(self, seen: Seen) -> list[Row]:
        """The coverage table, in the order of `GROUPS` and then of the cases as they were added."""
        counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        wrong: dict[tuple[str, str], list[str]] = defaultdict(list)
        for page in self.pages.values():
            counts[page.group, page.case][0] += 1
            counts[page.group, page.case][1] += seen.asked[page.url] > 0
            wrong[page.group, page.case] += [f"{page.url}: {fault}" for fault in page.faults(seen)]
        others = sorted((seen.asked.keys() | seen.fates.keys()) - self.pages.keys())
        for family in self.families:
            matched = {url for url in others if family.pattern.fullmatch(url)}
            others = [url for url in others if url not in matched]
            asked = sum(seen.asked[url] for url in matched)
            counts[family.group, family.case][0] += len(matched)
            counts[family.group, family.case][1] += sum(seen.asked[url] > 0 for url in matched)
            faults = family.faults(asked, [seen.fates.get(url, UNKNOWN) for url in matched])
            wrong[family.group, family.case] += [f"{family.pattern.pattern}: {fault}" for fault in faults]
        strays = [f"{url}: asked for, and no page of the site" for url in others if seen.asked[url]]
        rows = [Row(*key, num, fetched, tuple(wrong[key])) for key, (num, fetched) in counts.items()]
        rows.append(Row(ALLOWED, "nothing else is asked for", 0, len(strays), tuple(strays)))
        knocks = (f"{seen.canaries} connections",) if seen.canaries else ()
        rows.append(Row(SSRF, "connections to private addresses", 0, seen.canaries, knocks))
        return sorted(rows, key=lambda row: GROUPS.index(row.group))


def digest_of(payload: bytes) -> str:
    """WARC-Payload-Digest of a body as it is archived: decoded of its transfer coding and content coding.

    >>> digest_of(b"")
    'sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ'
    """
    return "sha1:" + base64.b32encode(hashlib.sha1(payload, usedforsecurity=False).digest()).decode()


def format_table(rows: Sequence[Row]) -> str:
    """The rows and what is wrong below them, as lines."""
    cells = [["group", "case", "expected", "fetched", "wrong"]]
    cells += [[row.group, row.case, str(row.expected), str(row.fetched), str(len(row.wrong))] for row in rows]
    cells.append(["", "all", *(str(sum(int(line[column]) for line in cells[1:])) for column in (2, 3, 4))])
    return "\n".join([table(cells, (0, 1)), *(f"WRONG {row.case}: {fault}" for row in rows for fault in row.wrong)])
