"""Other extractors of main text, chosen by `[extract] backend`: resiliparse's main content, and trafilatura.

Both build a tree, whose worst cases are quadratic: pages pass corpus.shape before. Title, date and author are
trafilatura's own there; with resiliparse they are ours (metadata.py).
"""

from __future__ import annotations

from typing import Any, Literal

from corpus.extract import metadata
from corpus.extract.config import Article
from corpus.shape import check_shape, limit_lists


def extract_with(backend: Literal["resiliparse", "trafilatura"], page: bytes) -> Article:
    """The article of a page in UTF-8, by another library.

    Raises:
        RefusedPage: the page's shape would cost a parser more than linear time or memory.
    """
    html = page.decode()
    check_shape(html)
    return _resiliparse(page, html) if backend == "resiliparse" else _trafilatura(html)


def _resiliparse(page: bytes, html: str) -> Article:
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(limit_lists(html))
    text = extract_plain_text(tree, main_content=True, preserve_formatting=True, alt_texts=False)
    metas = metadata.head_metas(page)
    title, place = metadata.headline(page, metas)
    near = metadata.near_headline(page, place)
    date, author = metadata.publication_day(page, metas, near, ()), metadata.author_of(page, metas, near, ())
    lines = (line.strip() for line in text.split("\n"))
    return Article(title, date, author, "\n".join(line for line in lines if line).encode())


def _trafilatura(html: str) -> Article:
    from trafilatura import bare_extraction

    found: Any = bare_extraction(html, fast=True, include_comments=False, with_metadata=True)
    if found is None:
        return Article(None, None, None, b"")
    title = (found.title or "")[: metadata.MAX_TITLE_CHARS] or None
    return Article(title, found.date or None, found.author or None, (found.text or "").encode())
