"""URLs that have no end: what can be seen of a trap in one URL, and which URLs are alike.

A calendar has a page for every day of every year, a shop one for every set of filters, a broken relative link one for
every depth. Few of them show in a single URL (`static_trap`); the others show because their URLs are alike but for
numbers and values, so the frontier counts URLs by `pattern_of` and sets of parameters by `query_path_of` and stops at a
budget.
"""

from __future__ import annotations

import re

import xxhash

from corpus.crawl.urls.parser import split

MAX_BYTES = 1_024  # a headline of 60 Han characters takes 540, escaped
MAX_SEGMENTS = 20  # sites of government agencies, the deepest that we know, have 12
MAX_REPEATED_SEGMENT = 2  # /a/a/ is a site that files news below news; /a/a/a/ is a relative link gone wrong
MAX_REPEATED_NUMBER = 4  # /2011/11/11/11/ is a date
MAX_CYCLE = 4  # segments in a cycle (/a/b/a/b) that is looked for
MAX_PARAMETERS = 20
MAX_SAME_PARAMETER = 2  # a link that adds `&lang=zh` to its own URL again and again
MAX_VALUE_BYTES = 512
MAX_PAGE_NUMBER = 100_000
YEARS = range(1900, 2101)
MAX_RUNS = 4  # of digits and of letters in a word (`content2024a1` has 4); a hash of 16 hexadecimal digits has 8

_NUMBER = re.compile(r"[0-9]+(?:\.[a-z]{3,5})?")
_PAGE = re.compile(r"(?:page|pageno|page_no|pageindex|paged|curpage)=(-?[0-9]+)", re.IGNORECASE)
_YEAR = re.compile(r"(?:year|yyyy|nian)=(-?[0-9]+)", re.IGNORECASE)
_CODE = re.compile(
    r"\{\{|%7B%7B|\$%7B|%24%7B|%3C%(?:=|25)|\[object|%5Bobject|(?:'|%27)\+[\w.]{1,40}\+(?:'|%27)", re.IGNORECASE
)
_VARIABLE = re.compile(
    r"%[0-9A-Fa-f]{2}"  # an escape, which is no number
    r"|(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"  # UUID
    r"|[0-9A-Za-z]{8,}"  # an id, or a word
    r"|[0-9]+"
)
_DIGITS = re.compile(r"[0-9]+")
_RUN = re.compile(r"[0-9]+|[A-Za-z]+")


def static_trap(url: str) -> str | None:
    """Why a normalised URL looks like a trap, or None.

    >>> static_trap("http://a.cn/2024-01/15/content_123456.htm"), static_trap("http://a.cn/x/y/x/y/")
    (None, 'segments that alternate')
    """
    if len(url) > MAX_BYTES:
        return "too long"
    _, _, path, query = split(url)
    segments = path.split("/")[1:]
    if len(segments) > MAX_SEGMENTS:
        return "too deep a path"
    if reason := _repeats(segments):
        return reason
    if query and (reason := _absurd(query.split("&"))):
        return reason
    if "%2525" in url:
        return "escaped again and again"
    if ("%" in url or "'" in url) and _CODE.search(url):
        return "a script's variable"
    return None


def _repeats(segments: list[str]) -> str | None:
    if len(segments) - len(set(segments)) < 2:  # a cycle of two has two that were there before
        return None
    words = {segment for segment in segments if segment and not _NUMBER.fullmatch(segment)}
    for segment in set(segments) - {""}:
        if segments.count(segment) > (MAX_REPEATED_SEGMENT if segment in words else MAX_REPEATED_NUMBER):
            return "a segment that repeats"
    for size in range(2, MAX_CYCLE + 1):
        for start in range(len(segments) - 2 * size + 1):
            cycle = segments[start : start + size]
            if cycle == segments[start + size : start + 2 * size] and any(part in words for part in cycle):
                return "segments that alternate"
    return None


def _absurd(parameters: list[str]) -> str | None:
    if len(parameters) > MAX_PARAMETERS:
        return "too many parameters"
    if len(parameters) - len(set(parameters)) >= MAX_SAME_PARAMETER:
        if any(parameters.count(parameter) > MAX_SAME_PARAMETER for parameter in parameters):
            return "a parameter that repeats"
    for parameter in parameters:
        if len(parameter) > MAX_VALUE_BYTES:
            return "too long a value"
        if (page := _PAGE.fullmatch(parameter)) and not 0 <= int(page[1]) <= MAX_PAGE_NUMBER:
            return "an absurd page number"
        if (year := _YEAR.fullmatch(parameter)) and int(year[1]) not in YEARS:
            return "an absurd year"
    return None


def pattern_of(url: str) -> bytes:
    """8 bytes that URLs of a host share which are alike but for numbers, dates, ids and values."""
    return xxhash.xxh3_64_digest(pattern_text(url).encode())


def pattern_text(url: str) -> str:
    """What a normalised URL is without its numbers, dates, ids and values.

    >>> pattern_text("http://a.cn/2024-01/15/content_123456.htm?page=2&id=7")
    'a.cn/0-0/0/content_0.htm?id&page'
    """
    _, host, path, query = split(url)
    names = sorted({_general(parameter.partition("=")[0]) for parameter in (query or "").split("&") if parameter})
    return f"{host}{_general(path)}" + (f"?{'&'.join(names)}" if names else "")


def query_path_of(url: str) -> bytes:
    """8 bytes that URLs with a query share whose host and path are alike but for numbers; zeros without a query."""
    _, host, path, query = split(url)
    return xxhash.xxh3_64_digest(f"{host}{_general(path)}".encode()) if query else bytes(8)


def _general(text: str) -> str:
    return _VARIABLE.sub(_class, text)


def _class(found: re.Match[str]) -> str:
    """0 for a number, h for an id (a UUID, or letters and digits mixed up), a word with its numbers out."""
    text = found[0]
    if text[0] == "%" or text.isalpha():
        return text
    if text.isdigit():
        return "0"
    if "-" in text or len(_RUN.findall(text)) > MAX_RUNS:
        return "h"
    return _DIGITS.sub("0", text)
