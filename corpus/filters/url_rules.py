"""Which web addresses lists of hosts and of words in paths name: those that ship, and a user's own.

A host names itself and all hosts below it, in any spelling: upper case, a trailing dot, a port, Chinese or punycode. A
word is found in what follows the host, percent-decoded, without regard to case; one that begins or ends with a letter
is not found inside a longer word (`bet` is in /bet365, not in /alphabet). No patterns: lists are data.

[filter.url]
lists = ["gambling", "porn", "scam"]  # shipped; NOTICE says where they come from
hosts = ["hosts.txt"]        # one host a line, with all below it
paths = ["words.txt"]        # words in what follows the host
blocked = { max = 0 }

A shipped list is the digests of its hosts (tools/build_host_lists.py), 3 bytes each on disk, 8 in memory; another host
is taken for one of them by chance once in a million.
"""

from __future__ import annotations

import hashlib
import lzma
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters.list_file import read_list
from corpus.filters.statistic import Batch, Floats, statistic
from corpus.kernels.automaton import MAX_WORD_CHARS, Automaton
from corpus.kernels.folding import fold_for_matching, matching_table

FOLDER = Path(__file__).parent / "lists"
SHIPPED = {  # sha256 of the files; the tool prints them
    "gambling": "0e9f6b537498ca9f965ef1810df1cf18b159ff1fef9e7fc63b3b92420885f32f",
    "porn": "af6f95f75444274d6ab9fa30056c88c3f170a27b66316756eaca261d63724784",
    "scam": "12eb1c6d6abcdfb9a0dd45a193f31793c7cfcec1dd9201ec98bf43617197b2d8",
}
DIGEST_BYTES = 5
MAX_HOST_CHARS = 253  # RFC 1035
_HOST = re.compile(r"(?!.*\.\.)[\w\-.。．｡]+|\[[0-9A-Fa-f:.]+\]")
_PARTS = (  # RE2; a browser's reading: a backslash is a slash, the last at sign ends the user
    r"^[\x00-\x20]*(?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?[/\\]{2,}|(?i:https?:)[/\\]?)?(?:[^/\\?#]*@)?"
    r"(?P<host>\[[^\]]*\]|[^/\\?#:]*)(?::[0-9]*)?(?P<path>(?s:.*))"
)


class UrlRules:
    """Hosts and words, ready to be looked up; without any, nothing is blocked."""

    def __init__(self, hosts: tuple[str, ...] = (), words: tuple[str, ...] = (), lists: tuple[str, ...] = ()) -> None:
        self.hosts = frozenset(normal_host(host) for host in hosts)
        folded = self.words = sorted({fold_for_matching(word) for word in words})
        self.lists = lists
        self._listed = load_lists(lists)
        self.digest = durable.digest([sorted(self.hosts), folded, hashlib.sha256(self._listed.tobytes()).hexdigest()])
        self._words = Automaton(folded, matching_table(), whole=True) if folded else None

    def __reduce__(self) -> tuple[type[UrlRules], tuple[Any, ...]]:
        """Sent to other processes as hosts, words and names of lists."""
        return UrlRules, (tuple(self.hosts), tuple(self.words), self.lists)

    def blocked(self, urls: pa.StringArray) -> npt.NDArray[np.bool_]:
        """bool[urls]: named by a list; False for a null."""
        out = np.zeros(len(urls), np.bool_)
        has_hosts = bool(self.hosts or len(self._listed))
        if not has_hosts and self._words is None:
            return out
        whole = pc.replace_substring_regex(urls.fill_null("").cast(pa.large_string()), "[\t\r\n]", "")  # browsers do
        parts = pc.extract_regex(whole, _PARTS)
        if has_hosts:
            hosts = parts.field("host").dictionary_encode()
            named = self._named(hosts.dictionary.to_pylist())
            out |= named[hosts.indices.to_numpy()]
        if self._words is not None:
            paths = [unquote(path) if "%" in path else path for path in parts.field("path").to_pylist()]
            encoded = [path.encode() for path in paths]
            offsets = np.concatenate([[0], np.cumsum([len(path) for path in encoded])]).astype(np.int64)
            out[self._words.find(offsets, np.frombuffer(b"".join(encoded), np.uint8)).rows] = True
        return out

    def is_blocked_host(self, host: str) -> bool:
        """True for a listed host and for every host below one.

        >>> rules = UrlRules(("例子.cn",))
        >>> rules.is_blocked_host("WWW.xn--fsqu00a.CN."), rules.is_blocked_host("文海.cn")
        (True, False)
        """
        return bool(self._named([host])[0])

    def _named(self, hosts: list[str]) -> npt.NDArray[np.bool_]:
        """bool[hosts]: listed, or below a listed one."""
        names = [_names(host) for host in hosts]
        out = np.array([not self.hosts.isdisjoint(found) for found in names], np.bool_)
        if len(self._listed):
            digests = np.array([_digest(name) for found in names for name in found], np.uint64)
            rows = np.repeat(np.arange(len(names)), [len(found) for found in names])
            places = np.minimum(np.searchsorted(self._listed, digests), len(self._listed) - 1)
            out[rows[self._listed[places] == digests]] = True
        return out


def _names(host: str) -> list[str]:
    """A host and all hosts above it."""
    host = unquote(host) if "%" in host else host
    if len(host) > MAX_HOST_CHARS:  # no host; its last labels are looked at, which costs no more than a host does
        host = host[-MAX_HOST_CHARS:].partition(".")[2]
    labels = normal_host(host).split(".")
    return [".".join(labels[first:]) for first in range(len(labels))]


def _digest(host: str) -> int:
    return int.from_bytes(hashlib.blake2b(host.encode(), digest_size=DIGEST_BYTES).digest(), "little")


def pack_hosts(hosts: Iterable[str]) -> bytes:
    """A list to ship: gaps between the sorted digests, byte plane by byte plane, under xz."""
    digests = np.array(sorted({_digest(host) for host in hosts}), np.uint64)
    gaps = np.diff(digests, prepend=np.uint64(0)).astype("<u8").view(np.uint8).reshape(-1, 8)
    return lzma.compress(gaps[:, :DIGEST_BYTES].T.tobytes(), preset=9)


@lru_cache(maxsize=8)
def load_lists(names: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    """The digests of all hosts of some shipped lists, sorted; raises `WenhaiError` where a file is not as shipped."""
    found = [np.zeros(0, np.uint64)]
    for name in names:
        path = FOLDER / f"{name}.hosts"
        data = lzma.decompress(durable.read_shipped(path, SHIPPED[name]))
        planes = np.frombuffer(data, np.uint8).reshape(DIGEST_BYTES, -1)
        gaps = np.zeros((planes.shape[1], 8), np.uint8)
        gaps[:, :DIGEST_BYTES] = planes.T
        found.append(np.cumsum(gaps.view("<u8").ravel(), dtype=np.uint64))
    return np.unique(np.concatenate(found))


def normal_host(host: str) -> str:
    """A host in lower case and punycode, without trailing dots and white space.

    >>> normal_host("Bücher.例子.CN."), normal_host("文海。公司")
    ('xn--bcher-kva.xn--fsqu00a.cn', 'xn--7dvq0p.xn--55qx5d')
    """
    host = host.strip().strip(".").lower()
    if host.isascii():
        return host
    labels = [_punycode(label) for label in host.replace("。", ".").replace("．", ".").replace("｡", ".").split(".")]
    return ".".join(labels).strip(".")


def _punycode(label: str) -> str:
    try:
        return label.encode("idna").decode()
    except UnicodeError:  # too long, or characters that no host has
        return label


NO_URL_RULES = UrlRules()


@lru_cache(maxsize=8)
def load_url_rules(hosts: tuple[str, ...], paths: tuple[str, ...], lists: tuple[str, ...] = ()) -> UrlRules:
    """The rules of these files and shipped lists.

    Raises:
        UsageError: a file cannot be read, is not UTF-8, too large, or has an entry that is too long or no host.
    """
    return UrlRules(
        tuple(host for file in hosts for host in _read_hosts(Path(file))),
        tuple(word for file in paths for word in read_list(Path(file), "filter.url.paths", MAX_WORD_CHARS)),
        lists,
    )


def _read_hosts(file: Path) -> Iterator[str]:
    """The hosts of a file. What would never match (an address, a pattern, a line of /etc/hosts) is refused."""
    for host in read_list(file, "filter.url.hosts", MAX_HOST_CHARS):
        if not _HOST.fullmatch(host):
            raise UsageError(
                f"filter.url.hosts: {file}: {host!r} is no host. One host a line, without scheme, port, path, pattern "
                "or "
                "comment; example.com names all hosts below it too."
            )
        yield host


@statistic(unit="0 or 1")
def blocked(batch: Batch) -> Floats:
    """1 where the address is named by the lists of [filter.url]; 0 without an address or without lists.

    >>> from corpus.filters import measure
    >>> measure("url.blocked", ["学而时习之"])
    array([0.])
    """
    if batch.urls is None:
        return np.zeros(len(batch.offsets) - 1)
    return batch.resources.url.blocked(batch.urls).astype(np.float64)
