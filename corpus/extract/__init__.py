"""HTML to the text of its article, with title, date and author.

The default backend is our own: one pass over the bytes without a tree (reader.py), a small model and Chinese rules that
choose the article's lines (lines.py), and what the page says of itself (metadata.py). It reads pages of any shape in
linear time, faster than a parser builds its tree; `python -m tools.bench extraction` scores it on real pages beside its
peers. resiliparse and trafilatura can be chosen instead (`[extract] backend`); they are handed to parsers whose worst
cases are quadratic, so their pages pass corpus.shape first. resiliparse's `main_content` damages Chinese: a text node
of one Han character between two tags disappears ("<b>这里</b>和<b>那里</b>。" becomes "这里那里").

Neither function holds state: a caller can run it in a child process it may kill, as corpus.sandbox does.
"""

from __future__ import annotations

from corpus.encoding import utf8
from corpus.extract.config import Article, ExtractConfig, Page
from corpus.shape import RefusedPage

__all__ = ["Article", "ExtractConfig", "Page", "RefusedPage", "extract_html", "extract_utf8"]


def extract_html(html: str, config: ExtractConfig) -> Page:
    """The main text, title, date and author of a page.

    >>> html = "<title>论语</title><ul><li><a href=x>首页</a></ul><p>学而时习之，<b>不</b>亦说乎？有朋自远方来，不亦乐乎？"
    >>> extract_html(html, ExtractConfig()).text
    '学而时习之，不亦说乎？有朋自远方来，不亦乐乎？'

    Raises:
        RefusedPage: the page is over a limit of bytes or, of the other backends, of nesting or attributes.
    """
    found = extract_utf8(utf8(html), config)
    return Page(found.title, found.date, found.text.decode(), found.author)


def extract_utf8(page: bytes, config: ExtractConfig) -> Article:
    """The article of a page in UTF-8, with what was removed by which rule; raises as `extract_html`."""
    if len(page) > config.max_page_bytes:
        raise RefusedPage(
            "too_long", f"{len(page):,} bytes, more than {config.max_page_bytes:,} (extract.max_page_bytes)"
        )
    if config.backend == "wenhai":
        from corpus.extract.article import extract_article

        found = extract_article(page, config.tables)
    else:
        from corpus.extract.backends import extract_with

        found = extract_with(config.backend, page)
    return found._replace(text=b"") if len(found.text.decode()) < config.min_text_chars else found
