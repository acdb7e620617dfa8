"""robots.txt by RFC 9309: what a host lets this crawler ask for, how often, and what for.

Ours and not Protego's, which is the tests' oracle where the two agree. Where it departs from the RFC (tests show each):
it takes `User-agent: wenhai` for `wenhaibot` and misses `wenhaibot/1.0`; lets an unknown line or a Crawl-delay part the
agents of one group; ends lines at U+0085 and U+2028; folds every escape that is no UTF-8 to U+FFFD, so that all paths
in GBK are one; unescapes reserved characters (`%3F` is then `?`); and gives every agent of a group its own copy of the
rules, which 250 KB of agents over 250 KB of rules make 10^8 of.

Four choices. A 429 counts as unreachable, not as the other 4xx do: a host that asks for fewer requests has not said
that all of them are welcome. Groups for the well-known crawlers of model makers bind those alone: by the RFC a group
speaks to the product token that it names. What speaks to everyone who trains is honoured: `Content-Usage: train-ai=n`
(IETF AIPREF drafts) and `Content-Signal: ai-train=no`, in our group or outside any. A URL that so many wildcards speak
of that the answer would take long (`MAX_STEPS`) is not asked for: 500 KB of them over a URL of 2 KB take a quarter of a
second, and a host may do that for each of its URLs.
"""

from __future__ import annotations

import codecs
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_BYTES = 500 << 10  # RFC 9309, 2.5: at least so much is read; the rest is ignored
MAX_REDIRECTS = 5  # RFC 9309, 2.3.1.2; the caller follows them
LIFETIME_SECONDS = 86_400.0  # RFC 9309, 2.4
MAX_STEPS = 30_000_000  # bytes compared for one URL, at worst: 1,000 rules of 25 bytes may speak of 1,000 of it
PART_STEPS = 3_000  # what a piece between wildcards costs besides, in the time of such steps

# Names as they are misspelt; those of `disallow` are the ones that Google's parser takes, too.
_NAMES = {
    **dict.fromkeys((b"user-agent", b"useragent", b"user agent"), "agent"),
    **dict.fromkeys((b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"), "disallow"),
    **dict.fromkeys((b"crawl-delay", b"crawl delay", b"crawldelay"), "delay"),
    b"allow": "allow",
    b"content-usage": "usage",
    b"content-signal": "usage",
}
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_PRODUCT_TOKEN = re.compile(rb"[A-Za-z_-]*")
_SECONDS = re.compile(rb"\d{1,300}(?:\.\d{0,300})?|\.\d{1,300}")
# What stands for itself in a compared path: unreserved and reserved characters (RFC 3986) but `*` and `$`, which mean
# something in rules, and `'`, which URLs have escaped in the query and plain in the path.
_NOT_PLAIN = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~:/?#\[\]@!&()+,;=%-]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Preferences on training by how closely they speak of a language model: the first that is stated holds.
_TRAINING = (b"train-genai", b"train-ai", b"ai-train", b"ai", b"bots")
_STATED = {b"n": True, b"no": True, b"y": False, b"yes": False}


@dataclass(slots=True)
class PathRules:
    """Patterns over paths with a yes or no each: the longest that matches decides, `True` of two as long."""

    _plain: dict[bytes, bool] = field(default_factory=dict)
    _wild: list[tuple[int, bool, list[bytes], bool]] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _wild_parts: int = 0
    _wild_bytes: int = 0
    size: int = 0  # bytes of memory, about

    def add(self, pattern: bytes, value: bool) -> None:
        """A pattern as it stands in the file: `*` is any bytes, `$` at its end the path's end."""
        anchored = pattern.endswith(b"$")
        parts = [comparable(part) for part in pattern.removesuffix(b"$").split(b"*")]
        self.size += 150 + 60 * len(parts) + len(pattern)
        if anchored or len(parts) > 1:
            length = sum(map(len, parts)) + len(parts) - 1 + anchored
            self._wild.append((length, value, parts, anchored))
            self._wild_parts += len(parts)
            self._wild_bytes += length
        elif parts[0]:
            self._plain[parts[0]] = value or self._plain.get(parts[0], False)

    def seal(self) -> None:
        """Put the rules into the order in which `find` asks them; called once, after the last `add`."""
        self._wild.sort(key=lambda rule: rule[:2], reverse=True)
        self._lengths = sorted({len(pattern) for pattern in self._plain}, reverse=True)

    def is_costly(self, path: bytes) -> bool:
        """Whether `find` might take too long."""
        return PART_STEPS * self._wild_parts + self._wild_bytes * len(path) > MAX_STEPS

    def find(self, path: bytes) -> bool | None:
        """What the rules say of a `comparable` path; None where none matches."""
        length, value = 0, None
        for length in self._lengths:
            if length <= len(path) and (value := self._plain.get(path[:length])) is not None:
                break
        else:
            length = 0
        for wild_length, wild_value, parts, anchored in self._wild:
            if wild_length < length or (wild_length == length and value):
                break
            if _matches(path, parts, anchored):
                return wild_value
        return value


@dataclass(slots=True)
class Robots:
    """What one host's robots.txt says to this crawler."""

    reachable: bool = True
    """False: nothing may be fetched until it has been asked for again."""
    crawl_delay: float | None = None
    """Seconds, as the file says; `PolitenessConfig` caps it."""
    _rules: PathRules = field(default_factory=PathRules)
    _usage: PathRules = field(default_factory=PathRules)
    _usage_of_all: PathRules = field(default_factory=PathRules)  # stated outside any group

    @classmethod
    def parse(cls, status: int | None, body: bytes, agent: str) -> Robots:
        """What an answer to /robots.txt means. `status` is that of the last hop, None for no answer at all.

        2xx is read; 4xx but 429, and a redirect that was not followed to its end, mean that there is no such file and
        everything is allowed; 429, 5xx, no answer and what is no status of HTTP mean that nothing is.
        """
        if status is None or status == 429 or not 200 <= status < 500:
            return cls(reachable=False)
        return _read(body, agent) if status < 300 else cls()

    def allowed(self, url: str) -> bool:
        """Whether `url`, of this host, may be asked for. /robots.txt always may."""
        path = path_of(url)
        if path.partition(b"?")[0] == b"/robots.txt":
            return True
        return self.reachable and not self._rules.is_costly(path) and self._rules.find(path) is not False

    def opted_out(self, url: str) -> bool:
        """Whether the file asks that `url` not be used to train models."""
        path = path_of(url)
        return any(rules.is_costly(path) or rules.find(path) is True for rules in (self._usage, self._usage_of_all))

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return 500 + self._rules.size + self._usage.size + self._usage_of_all.size


class RobotsCache:
    """The robots.txt of the hosts met last, each for its lifetime, within a bound of memory.

    `now` is any clock in seconds that never goes back.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, tuple[float, Robots]] = OrderedDict()
        self.size = 0

    def get(self, host: str, now: float) -> Robots | None:
        """What the host said, or None when it must be asked (again)."""
        entry = self._entries.get(host)
        if entry is None:
            return None
        expires, robots = entry
        if now >= expires:
            self._drop(host)
            return None
        self._entries.move_to_end(host)
        return robots

    def put(self, host: str, robots: Robots, now: float) -> None:
        """Remember an answer; those used longest ago make room. The newest stays, however large."""
        self._drop(host)
        self._entries[host] = (now + LIFETIME_SECONDS, robots)
        self.size += robots.size
        while self.size > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, host: str) -> None:
        entry = self._entries.pop(host, None)
        if entry is not None:
            self.size -= entry[1].size


def comparable(path: bytes) -> bytes:
    """A path in the one spelling that rules are compared in (RFC 9309, 2.2.2): bytes beyond ASCII escaped, escapes of
    unreserved characters undone, all others in capitals."""
    return _NOT_PLAIN.sub(_escaped, path)


def path_of(url: str) -> bytes:
    """The path and query of an absolute URL, `comparable`."""
    rest = url.partition("#")[0].partition("://")[2]
    start = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[start:]
    return comparable((path if path.startswith("/") else "/" + path).encode("utf-8", "surrogatepass"))


def training_refused(preferences: bytes) -> bool | None:
    """What `train-ai=n, search=y` (AIPREF's dictionary; also `ai-train=no`) says of training; None: nothing."""
    stated: dict[bytes, bool] = {}
    for item in preferences.lower().split(b","):
        name, _, value = item.partition(b";")[0].partition(b"=")
        refused = _STATED.get(value.strip())
        if refused is not None:
            stated[name.strip()] = stated.get(name.strip(), False) or refused
    return next((stated[name] for name in _TRAINING if name in stated), None)


def _read(body: bytes, agent: str) -> Robots:
    """The rules of the groups that name `agent`, or else of those that name `*`; all groups of a name count as one."""
    ours, everyone, ungrouped = _Group(), _Group(), PathRules()
    wanted = agent.lower().encode()
    speaks_to: list[_Group] = []  # of the two, those that the group being read speaks to
    in_group = has_rules = False
    for name, value in _records(body):
        if name == "agent":
            speaks_to = [] if has_rules else speaks_to
            in_group, has_rules = True, False
            group = {b"*": everyone, wanted: ours}.get(_product_token(value))
            if group is not None and group not in speaks_to:
                group.named = True
                speaks_to.append(group)
        elif name == "usage" and not in_group:
            _add_usage(ungrouped, value)
        else:
            has_rules = has_rules or name in ("allow", "disallow")
            for group in speaks_to:
                group.add(name, value)
    group = ours if ours.named else everyone
    for rules in (group.rules, group.usage, ungrouped):
        rules.seal()
    return Robots(True, group.delay, group.rules, group.usage, ungrouped)


@dataclass(slots=True, eq=False)
class _Group:
    """All groups of one product token."""

    named: bool = False
    delay: float | None = None
    rules: PathRules = field(default_factory=PathRules)
    usage: PathRules = field(default_factory=PathRules)

    def add(self, name: str, value: bytes) -> None:
        if name == "usage":
            _add_usage(self.usage, value)
        elif name == "delay":
            if _SECONDS.fullmatch(value):  # so many digits are finite
                self.delay = max(float(value), self.delay or 0.0)
        elif value:
            for pattern in _spellings(value):
                self.rules.add(pattern, name == "allow")


def _records(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The lines that say something, as (what, value). A line that the limit cuts is not read: `/` of `/private` would
    be another rule. NULs go, which makes the ASCII of UTF-16 readable."""
    if len(body) > MAX_BYTES:
        body = body[:MAX_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    for mark in _BYTE_ORDER_MARKS:
        body = body.removeprefix(mark)
    for line in _LINE_END.split(body.replace(b"\0", b"")):
        line = line.partition(b"#")[0]
        name, _, value = line.partition(b":")
        kind = _NAMES.get(name.strip().lower())
        if kind is None and len(words := line.split(None, 2)) == 2:  # `Disallow /path`, as Google's parser reads it
            kind, value = _NAMES.get(words[0].lower()), words[1]
        if kind is not None:
            yield kind, value.strip()


def _product_token(value: bytes) -> bytes:
    """`*`, or the letters before a version (`wenhaibot/1.0`), in small letters."""
    return b"*" if value.split(None, 1)[:1] == [b"*"] else _PRODUCT_TOKEN.match(value)[0].lower()  # type: ignore[index]


def _spellings(pattern: bytes) -> tuple[bytes, ...]:
    """A rule's bytes, and where they are GBK the same in UTF-8, which paths are in."""
    try:
        pattern.decode()
    except UnicodeDecodeError:
        try:
            return pattern, pattern.decode("gb18030").encode()
        except UnicodeDecodeError:
            pass
    return (pattern,)


def _add_usage(usage: PathRules, value: bytes) -> None:
    """`[path] preferences`."""
    pattern, *rest = value.split(None, 1) if value.startswith((b"/", b"*")) else (b"/", value)
    refused = training_refused(b"".join(rest))
    if refused is not None:
        usage.add(pattern, refused)


def _matches(path: bytes, parts: list[bytes], anchored: bool) -> bool:
    """Whether a path begins with the first part and has the others after it, in order; `anchored`: up to its end."""
    if not path.startswith(parts[0]):
        return False
    at, last = len(parts[0]), len(parts) - 1
    for part in parts[1:last]:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if not last:
        return at == len(path)
    return path.endswith(parts[last], at) if anchored else path.find(parts[last], at) >= 0


def _escaped(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if len(found) == 1:
        return b"%%%02X" % found[0]
    value = int(found[1:], 16)
    return bytes([value]) if value in _UNRESERVED else found.upper()
