"""DOCX: the paragraphs of a Word document in order, a table's row as one line with tabs, then its notes.

Deleted and moved-away text is not there, inserted text is; a text box comes once, before the paragraph that holds it.
Comments, headers, footers, macros and what a relationship points to outside of the file are not read. The numbers of
automatic lists are not in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus.sources.config import SourcesConfig
from corpus.sources.documents import Package, Request, first, local, read_document
from corpus.sources.record import BadRecord, Record, RecordError

NOTES = ("word/footnotes.xml", "word/endnotes.xml")
SKIPPED = ("del", "moveFrom", "Fallback", "rt")  # Fallback: the same for older programs; rt: the reading of ruby
SEPARATORS = ("separator", "continuationSeparator")  # notes that are a line
MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def read_docx(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The document, or what is wrong with it."""
    return read_document(path, config, "docx")


def parse(request: Request) -> Iterator[Record]:
    """Runs in the child."""
    package = Package(request)
    links = [attributes for _, attributes, _ in package.elements("_rels/.rels")]
    mains = [link.get("Target", "") for link in links if link.get("Type", "").endswith("/officeDocument")]
    names = [mains[0].lstrip("/") if mains else "word/document.xml", *(name for name in NOTES if name in package)]
    lines: list[str] = []
    num_chars = 0
    for name in names:
        for line in _lines(package, name):
            lines.append(line)
            num_chars += len(line)
            if num_chars > request.max_chars:
                raise RecordError("too_long", "more text than a document may have")
    facts = package.elements("docProps/core.xml")
    author, date = first(facts, "creator"), first(facts, "created")
    fields = {"author": author} if author else {}
    raw = "\n".join(lines).encode("utf-8", "replace")
    yield Record("", 0, raw, "text", title=first(facts, "title"), date=date and date[:10], fields=fields)


def _lines(package: Package, name: str) -> Iterator[str]:
    num_skipped = 0  # elements that are open, from the outermost one that is skipped
    paragraphs: list[list[str]] = []  # that are open: a text box stands in one
    cells: list[list[str]] = []  # a table may stand in a cell
    rows: list[list[str]] = []
    opened = {"p": paragraphs, "tc": cells, "tr": rows}
    for event, tag, element in package.events(name):
        line = ""
        if event == "start":
            kind = next((value for key, value in element.items() if local(key) == "type"), None)
            if num_skipped or tag in SKIPPED or (tag in ("footnote", "endnote") and kind in SEPARATORS):
                num_skipped += 1
            elif tag in opened:
                opened[tag].append([])
        elif num_skipped:
            num_skipped -= 1
        elif (tag == "t" or tag in MARKS) and paragraphs:
            paragraphs[-1].append(MARKS.get(tag, element.text or ""))
        elif tag == "p" and paragraphs:
            line = "".join(paragraphs.pop()).strip()
        elif tag == "tc" and cells and rows:
            rows[-1].append(" ".join(cells.pop()).replace("\n", " "))
        elif tag == "tr" and rows:
            line = "\t".join(rows.pop()).rstrip()
        if line and cells:
            cells[-1].append(line)
        elif line:
            yield line
