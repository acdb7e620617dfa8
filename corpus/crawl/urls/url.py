"""URLs of the crawl: which of them name one page, whose they are, and whether links to them are followed.

`normalize` (parser.py) makes of a link the URL that is fetched, as the page wrote it; `canonical` is for keys only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import tldextract
import xxhash

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import Link
from corpus.crawl.urls.host import BadUrl, is_address, name_of
from corpus.crawl.urls.parser import normalize, split
from corpus.crawl.urls.traps import MAX_BYTES, pattern_of, query_path_of, static_trap

__all__ = ["BadUrl", "Scope", "canonical", "domain_of", "host_of", "key_of", "name_of", "normalize", "to_link"]

_SERVLET_SESSION = re.compile(r";(?:jsessionid|phpsessid|sessionid|sid)=[^/;]*", re.IGNORECASE)
_ASP_SESSION = re.compile(r"(?<=/)\((?:[A-Za-z]\([^()/]*\)){1,4}\)/")  # ASP.NET without cookies: /(S(...))/
_ALWAYS_OUT = re.compile(
    r"utm_\w+|(?:hm(?:sr|pl|cu|kw|ci))|(?:pk|piwik|mtm|matomo)_\w+|aspsessionid\w*|"
    r"jsessionid|phpsessid|sessionid|session_id|sessid|cfid|cftoken|"
    r"spm|scm|bd_vid|qhclickid|sudaref|vd_source|share_token|share_source|share_medium|share_from|nsukey|"
    r"isappinstalled|"
    r"gclid|dclid|gbraid|wbraid|gad_source|srsltid|fbclid|msclkid|yclid|ttclid|twclid|igshid|_openstat|mc_cid|mc_eid|"
    r"mkt_tok|_ga|_gl|_hsenc|_hsmi",
    re.IGNORECASE,
)
# Names that may mean anything, with a value that means one thing.
_SESSION_NAME = re.compile(r"sid|s|session|sess|token|ssid", re.IGNORECASE)
_SESSION_VALUE = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[0-9A-Za-z]{16,128}")
_CLOCK_NAME = re.compile(r"_|_t|rnd|rand|random|timestamp", re.IGNORECASE)
_CLOCK_VALUE = re.compile(r"[0-9]{10,16}|0?\.[0-9]{6,20}")
_SHARED_FROM = frozenset(("timeline", "singlemessage", "groupmessage"))  # WeChat says where a link was shared
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def canonical(url: str) -> str:
    """The one spelling of a normalised URL: no session or tracking parameters, sorted parameters, escapes alike. One
    that is too long stays as it is.

    >>> canonical("http://a.cn/b;jsessionid=1F?b=%b2&utm_source=x&a=%41")
    'http://a.cn/b?a=A&b=%B2'
    """
    if len(url) > MAX_BYTES:  # nobody follows it (`static_trap`)
        return url
    scheme, host, path, query = split(url)
    path = _same_escapes(path)
    if ";" in path:
        path = _SERVLET_SESSION.sub("", path)
    if "(" in path:
        path = _ASP_SESSION.sub("", path)
    if query:
        parameters = _same_escapes(query).split("&")
        query = "&".join(sorted(part for part in parameters if part and not _says_nothing(part)))
    return f"{scheme}://{host}{path}" + (f"?{query}" if query else "")


def _same_escapes(text: str) -> str:
    if "%" not in text:
        return text
    return _ESCAPED.sub(_same_escape, _BARE_PERCENT.sub("%25", text))


def _same_escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


def _says_nothing(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return bool(
        _ALWAYS_OUT.fullmatch(name)
        or (_SESSION_NAME.fullmatch(name) and _SESSION_VALUE.fullmatch(value))
        or (_CLOCK_NAME.fullmatch(name) and _CLOCK_VALUE.fullmatch(value))
        or (name == "from" and value in _SHARED_FROM)
    )


def key_of(url: str) -> bytes:
    """The 16 bytes that identify what a normalised URL names."""
    return xxhash.xxh3_128_digest(canonical(url).encode())


def host_of(url: str) -> str:
    """The host of a normalised URL, with a port that is not the scheme's."""
    return split(url).host


@lru_cache(maxsize=1)
def _suffixes() -> tldextract.TLDExtract:
    """The public suffix list that comes with the package, private part included; never the network, nothing cached."""
    return tldextract.TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str:
    """The registered domain of a host: one label below a public suffix. Addresses and suffixes are their own.

    >>> domain_of("news.sina.com.cn:8080"), domain_of("a.github.io"), domain_of("10.0.0.1:80"), domain_of("b.a.test")
    ('sina.com.cn', 'a.github.io', '10.0.0.1', 'a.test')
    """
    name = name_of(host)
    if is_address(name):
        return name
    found = _suffixes().extract_str(name)
    if not found.suffix:  # a suffix that the list does not have: its last label, as the list says
        return ".".join(name.split(".")[-2:])
    return f"{found.domain}.{found.suffix}" if found.domain else name


class Scope:
    """Where links are followed to: the seeds' hosts, their registered domains, or anywhere.

    A redirect of a seed widens it: http://a.cn/ is at home at https://www.a.cn/. Only within the seed's registered
    domain: names that have lapsed lead to whoever pays for them. `found` are the hosts that earlier runs let in.
    """

    def __init__(
        self, follow: Literal["hosts", "domains", "anywhere"], seeds: Iterable[str], found: Iterable[str] = ()
    ) -> None:
        self.follow = follow
        self.hosts = {*map(host_of, seeds)}
        self.domains = frozenset(map(domain_of, self.hosts))
        self.hosts.update(found)

    def allows(self, host: str, domain: str) -> bool:
        """Whether links to a host of that registered domain are followed."""
        if self.follow == "anywhere":
            return True
        return host in self.hosts or (self.follow == "domains" and domain in self.domains)

    def admit(self, host: str, domain: str, seed_domain: str) -> bool:
        """Take in the host that a seed of `seed_domain` has moved to; False when it is another's."""
        if domain == seed_domain:
            self.hosts.add(host)
        return domain == seed_domain


def to_link(
    url: str,
    base: str | None,
    encoding: str,
    *,
    depth: int,
    config: CrawlConfig,
    scope: Scope,
    seed: bool = False,
    redirects: int = 0,
) -> Link:
    """A URL as a page wrote it, for the frontier: a seed is of priority 1, another's is still to be judged; `refused`
    where a rule of ours already says no.

    Raises:
        BadUrl: nothing to fetch.
    """
    target = normalize(url, base, encoding)
    host, domain, key, pattern, query_path, trap = _facts(target)
    refused = None
    if not seed:
        if not scope.allows(host, domain):
            refused = "scope"
        elif depth > config.budget.max_depth:
            refused = "max_depth"
        elif trap:
            refused = "trap_url"
    return Link(target, key, host, domain, pattern, query_path, depth, float(seed), seed, redirects, refused)


@lru_cache(maxsize=16_384)
def _facts(url: str) -> tuple[str, str, bytes, bytes, bytes, str | None]:
    """What `to_link` works out of a normalised URL. Remembered: the navigation of a site stands on each of its
    pages."""
    host = host_of(url)
    return host, domain_of(host), key_of(url), pattern_of(url), query_path_of(url), static_trap(url)
