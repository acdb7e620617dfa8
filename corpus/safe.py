"""What may be shown: text, titles and URLs of strangers made harmless before they reach a terminal, HTML or Markdown.

A crawled page chooses its own title, URL and text, and every report prints some of them. Three things are done, always
in this order: terminal escapes and invisible characters are removed (one of them inside a telephone number would hide
it), personal data are masked (by the filters' own editor, so that there is one definition of it), and what is left is
cut. HTML and Markdown then escape their own marks.
All patterns are linear in the length of the text, and the text is cut to `MAX_SCAN_CHARS` before any of them runs.
"""

from __future__ import annotations

import html
import re
import unicodedata

from rich.cells import cell_len

SNIPPET_CHARS = 160
URL_CHARS = 120
MAX_SCAN_CHARS = 8192

TERMINAL_ESCAPE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c]{0,512}(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS and kin: titles, clipboard, links
    r"|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]{0,8}[0-~]"  # the rest
)
URL = re.compile(r"https?://[!-~]+")
MARKDOWN_MARKS = re.compile(r"([\\`*_\[\]|~$]|:(?=//))")
PLAIN_NAME = re.compile(r"[0-9A-Za-z_.:-]+")
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def snippet(text: str, limit: int = SNIPPET_CHARS) -> str:
    """One masked line of at most `limit` characters, safe to print.

    >>> snippet("学而时习之\\x1b]0;title\\x07，\\n\\x1b[31m不亦说乎\\u202e")
    '学而时习之， 不亦说乎'
    """
    shown = URL.sub(lambda url: plain_url(url[0], MAX_SCAN_CHARS), plain(text, MAX_SCAN_CHARS))
    return cut(mask(shown), limit)


def mask(text: str) -> str:
    """`text` with personal data as typed placeholders, by the filters' editor; imported when first used (numba)."""
    from corpus.personal_data import mask as mask_personal

    return mask_personal(text)


def plain(text: str, limit: int = SNIPPET_CHARS) -> str:
    """`text` on one line without terminal escapes, control, bidirectional, private or unassigned characters."""
    text = TERMINAL_ESCAPE.sub("", text[:MAX_SCAN_CHARS])
    spaced = (" " if char in "\t\n\r\x0b\x0c\x85\u2028\u2029" else char for char in text)
    text = " ".join("".join(char for char in spaced if unicodedata.category(char) not in INVISIBLE).split())
    return cut(text, limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters; where some are missing the last one says so."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` terminal columns, the beginning and the end: names of one folder differ there.

    >>> cut_middle("github:古文原文/南史/卷六.txt", 18)
    'github:…/卷六.txt'
    """
    if cell_len(text) <= limit:
        return text
    head, tail = 2 * limit // 5, limit - 2 * limit // 5 - 1
    first = next(end for end in range(len(text), -1, -1) if cell_len(text[:end]) <= head)
    last = next(start for start in range(len(text) + 1) if cell_len(text[start:]) <= tail)
    return f"{text[:first]}…{text[last:]}"


def plain_url(url: str, limit: int = URL_CHARS) -> str:
    """A URL without what may be personal: user names, query and fragment are cut, the path is masked.

    Part by part: in a whole URL the filter takes a number for the number of a page, and leaves it.

    >>> plain_url("https://user:pw@example.org/论语?mobile=1#a")
    'https://example.org/论语?…'
    """
    base, mark, _ = re.sub(r"[#?]", "?", url[:MAX_SCAN_CHARS], count=1).partition("?")
    scheme, slashes, rest = base.partition("://")
    if slashes:
        host, slash, path = rest.partition("/")
        base = scheme + slashes + host.rpartition("@")[2] + slash + path
    parts = plain(base, MAX_SCAN_CHARS).split("/")
    return cut("/".join(map(mask, parts)), limit) + ("?…" if mark else "")


def domain(url: str) -> str:
    """The host of a URL, lower case, without port and user; the empty string where there is none.

    >>> domain("https://user@WWW.Example.org:8080/a?b")
    'www.example.org'
    """
    _, slashes, rest = url[:MAX_SCAN_CHARS].partition("://")
    if not slashes:
        return ""
    host = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2]
    return (host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


def escape_markdown(text: str) -> str:
    """Text for a cell of a Markdown table: no mark of Markdown or HTML keeps its meaning, no URL becomes a link.

    >>> print(escape_markdown("a|b <script> [x](javascript:y) https://z"))
    a\\|b &lt;script&gt; \\[x\\](javascript:y) https\\://z
    """
    return MARKDOWN_MARKS.sub(r"\\\1", html.escape(text, quote=False))


def code_markdown(name: str) -> str:
    """A name of ours (a rule, a folder) as code; anything else escaped."""
    return f"`{name}`" if PLAIN_NAME.fullmatch(name) else escape_markdown(name)
