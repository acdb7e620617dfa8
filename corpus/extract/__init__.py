"""HTML to the text of its article, with title, date and author.

The default backend is our own: one pass over the bytes without a tree (reader.py), Chinese line rules (lines.py) and
the facts of the head (facts.py). It reads pages of any shape in linear time, faster than a parser builds its tree;
`python -m tools.bench extraction` prints both, and main-text F1 on labelled pages, beside other extractors.
Those two can be chosen instead (`[extract] backend`); they are handed to parsers whose worst cases are quadratic, so
their pages pass corpus.shape first. resiliparse's `main_content` damages Chinese: a text node of one Han character
between two tags disappears ("<b>这里</b>和<b>那里</b>。" becomes "这里那里").

`extract_html` holds no state: a caller can run it in a child process it may kill, as corpus.sandbox does.
"""

from __future__ import annotations

from corpus.encoding import replace_surrogates
from corpus.extract.config import ExtractConfig, Page
from corpus.shape import RefusedPage

__all__ = ["ExtractConfig", "Page", "RefusedPage", "extract_html"]


def extract_html(html: str, config: ExtractConfig) -> Page:
    """The main text, title, date and author of a page.

    >>> html = "<title>论语</title><ul><li><a href=x>首页</a></ul><p>学而时习之，<b>不</b>亦说乎？"
    >>> extract_html(html, ExtractConfig())
    Page(title='论语', date=None, text='学而时习之，不亦说乎？', author=None)

    Raises:
        RefusedPage: the page is over a limit of bytes or, of the other backends, of nesting or attributes.
    """
    page = _encode(html, config.max_page_bytes)
    if config.backend == "wenhai":
        from corpus.extract.article import extract_article

        found = extract_article(page)
    else:
        from corpus.extract.backends import extract_with

        found = extract_with(config.backend, page)
    if len(found.text) < config.min_text_chars:
        return Page(found.title, found.date, "", found.author)
    return found


def _encode(html: str, max_bytes: int) -> bytes:
    """UTF-8, with U+FFFD for surrogates."""
    if len(html) <= max_bytes:
        try:
            page = html.encode()
        except UnicodeEncodeError:
            page = replace_surrogates(html).encode()
        if len(page) <= max_bytes:
            return page
    raise RefusedPage("too_long", f"more than {max_bytes:,} bytes")
