"""Main text, title, date and author of pages by other extractors; runs in the peers' environment `extraction`.

    python extract_pages.py PAGES.jsonl RESULTS.json [NAME...]

PAGES holds `file` and `html` (text) a line; RESULTS becomes name -> file -> text, title, date, author, ms, error. Each
library is called as its own documentation does; what gives HTML (readability, magic-html) goes through one converter.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Found = dict[str, Any]
BLOCKS = frozenset("p div li tr h1 h2 h3 h4 h5 h6 br pre table ul ol section article blockquote dt dd".split())


def text_of(html: str) -> str:
    """The text of a piece of HTML, one block a line and cells behind tabs."""
    from lxml import etree
    from lxml.html import fromstring

    parts = []
    for event, element in etree.iterwalk(fromstring(html or "<p>"), events=("start", "end")):
        breaks = "\t" if element.tag in ("td", "th") else "\n" if element.tag in BLOCKS else ""
        parts += [breaks, (element.text if event == "start" else element.tail) or ""]
    return "".join(parts)


def readability(html: str) -> Found:
    from readability import Document

    document = Document(html)
    return {"text": text_of(document.summary()), "title": document.short_title()}


def trafilatura(html: str) -> Found:
    from trafilatura import bare_extraction

    found = bare_extraction(html, include_comments=False, with_metadata=True)
    return {key: getattr(found, key) for key in ("text", "title", "date", "author")} if found else {}


def resiliparse(html: str) -> Found:
    from resiliparse.extract.html2text import extract_plain_text

    return {"text": extract_plain_text(html, main_content=True, alt_texts=False)}


def justext(html: str) -> Found:
    from justext import justext as paragraphs

    # Chinese has no list of stop words there, and no spaces: the language-independent setting of its documentation
    found = paragraphs(html, frozenset(), stopwords_low=0, stopwords_high=0, length_low=20, length_high=60)
    return {"text": "\n".join(one.text for one in found if not one.is_boilerplate)}


def newspaper4k(html: str) -> Found:
    from newspaper import Article

    article = Article("http://www.example.org/", language="zh", fetch_images=False)  # else it asks the page's hosts
    article.download(input_html=html)
    article.parse()
    day = article.publish_date.date().isoformat() if article.publish_date else None
    return {"text": article.text, "title": article.title, "date": day, "author": "、".join(article.authors) or None}


def gne(html: str) -> Found:
    from gne import GeneralNewsExtractor

    found = GeneralNewsExtractor().extract(html)
    return {"text": found["content"], "title": found["title"], "date": found["publish_time"], "author": found["author"]}


def magic_html(html: str) -> Found:
    from magic_html import GeneralExtractor

    found = GeneralExtractor().extract(html=html, base_url="http://www.example.org/")
    return {"text": text_of(found["html"]), "title": found["title"]}


EXTRACTORS = (readability, trafilatura, resiliparse, justext, newspaper4k, gne, magic_html)


def one(extract: Callable[[str], Found], html: str) -> Found:
    """What an extractor finds, or its error."""
    start = time.process_time()
    try:
        found, error = extract(html), None
    except Exception as failure:  # a page that it cannot read counts as empty
        found, error = {}, f"{type(failure).__name__}: {failure}"[:200]
    filled = {key: found.get(key) or None for key in ("title", "date", "author")}
    return {"text": found.get("text") or "", **filled, "ms": 1e3 * (time.process_time() - start), "error": error}


def main(pages: str, out: str, *names: str) -> None:
    """Run the extractors of these names, or all."""
    with open(pages, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    results = {}
    for extract in EXTRACTORS:
        if not names or extract.__name__ in names:
            one(extract, rows[0]["html"])  # what it loads is not timed
            results[extract.__name__] = {row["file"]: one(extract, row["html"]) for row in rows}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(results, file, default=str)
    print(json.dumps(list(results)))


if __name__ == "__main__":
    main(*sys.argv[1:])
