"""PDF with a text layer, by pdfium: characters and their places to lines, columns and paragraphs (page_layout.py).

A file without a text layer, or with one whose characters mean nothing (fonts without ToUnicode), is `no_text_layer`;
pages without text beside others are counted. Running heads and page numbers are left out and counted (wrapped.py). The
empty password is tried; a file that needs another is `encrypted`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from corpus.sources.config import SourcesConfig
from corpus.sources.documents import Request, read_document
from corpus.sources.formats.page_layout import Segment, lines_of, paragraphs_of
from corpus.sources.formats.wrapped import HYPHEN, count_removed, num_chars, running_lines
from corpus.sources.kinds import has_library
from corpus.sources.record import BadRecord, Record, RecordError

if has_library("pdf"):
    import pypdfium2 as pdfium
    from pypdfium2 import raw as api

TAIL_BYTES = 64 << 10  # in which %%EOF stands
MAX_MEANINGLESS_RATIO = 0.3  # of characters: private use, U+FFFD, controls, none
MAX_HEAD_SIZE = 1.25  # of the usual running head: a chapter's title says the same
MAX_PIECES_RATIO = 0.5  # of pieces to characters: where characters stand below each other, each is one
LINE_ENDS, HYPHENS = (0x0A, 0x0D), (0x02, 0xFFFE)  # pdfium's for a hyphen that ends a line
_NO_TITLE = re.compile(
    r"(?:Microsoft |untitled|无标题|\W*$|.*\.(?:docx?|pptx?|wps|indd|tex|dvi|e?ps|qxd|pdf)$)", re.IGNORECASE
)
_DAY = re.compile(r"D:(\d{4})(\d\d)(\d\d)")


def read_pdf(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The document, or what is wrong with it."""
    return read_document(path, config, "pdf")


def parse(request: Request) -> Iterator[Record]:
    """Runs in the child."""
    path = Path(request.path)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        if b"%%EOF" not in file.read():
            raise RecordError("truncated", "pdf: the file ends before its end mark")
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        is_locked = error.err_code in (api.FPDF_ERR_PASSWORD, api.FPDF_ERR_SECURITY)
        raise RecordError(*("encrypted", "needs a password") if is_locked else ("pdf", str(error))) from error
    tally: Counter[str] = Counter()
    pages = [lines_of(_segments(document, page, tally, request.max_chars)) for page in range(len(document))]
    if tally["meaningless"] > MAX_MEANINGLESS_RATIO * tally["characters"]:
        detail = (
            f"{tally['meaningless']:,} of {tally['characters']:,} characters mean nothing (fonts without ToUnicode)"
        )
        raise RecordError("no_text_layer", detail)
    if tally["missing"] > MAX_MEANINGLESS_RATIO * (tally["characters"] + tally["missing"]):
        detail = f"{tally['missing']:,} characters in fonts that are neither in the file nor on this machine"
        raise RecordError("no_text_layer", f"{detail}; install fonts with Chinese characters (fonts-noto-cjk)")
    texts = [[line.text for line in page] for page in pages]
    found = running_lines(texts)
    size = median(pages[page][line].height for page, line in found) if found else 0.0
    found = {at: rule for at, rule in found.items() if pages[at[0]][at[1]].height < MAX_HEAD_SIZE * size}
    rest = [[line for at, line in enumerate(page) if (number, at) not in found] for number, page in enumerate(pages)]
    text = "\n".join(paragraphs_of([[part for line in page for part in line.segments] for page in rest]))
    if not text:
        raise RecordError("no_text_layer", f"{len(pages):,} pages without text, {tally['damaged']:,} of them damaged")
    facts: dict[str, str] = {}
    with suppress(UnicodeDecodeError):
        facts = document.get_metadata_dict()
    title, author, made = facts.get("Title", "").strip(), facts.get("Author"), _DAY.match(facts.get("CreationDate", ""))
    fields = {"pages": len(pages), "pages_without_text": sum(not page for page in pages)}
    yield Record(
        "",
        0,
        text.encode("utf-8", "replace"),
        "text",
        title=None if _NO_TITLE.match(title) else title,
        date="-".join(made.groups()) if made else None,
        fields=fields | ({"author": author} if author else {}),
        num_read=sum(num_chars(line) for page in texts for line in page),
        removed=count_removed((rule, texts[page][line]) for (page, line), rule in found.items()),
    )


def _segments(document: Any, index: int, tally: Counter[str], max_chars: int) -> list[Segment]:
    """The pieces of a page's lines, in the order that the file has them."""
    try:
        page = document[index]
        text = page.get_textpage()
    except pdfium.PdfiumError:
        tally["damaged"] += 1
        return []
    if api.FPDFPage_CountObjects(page.raw) > api.FPDFText_CountChars(text.raw):  # pdfium drops what has no extent
        boxes = (one.get_bounds() for one in page.get_objects(filter=(api.FPDF_PAGEOBJ_TEXT,)))
        tally["missing"] += sum(right <= left for left, _, right, _ in boxes)
    found = _read(text.raw, page.get_rotation(), tally)
    if len(found) > MAX_PIECES_RATIO * sum(len(one.text) for one in found):  # written downwards, lines leftwards
        found = min(found, _read(text.raw, (page.get_rotation() + 270) % 360, tally), key=len)
    if tally["characters"] > max_chars:
        raise RecordError("too_long", "more text than a document may have")
    text.close()
    page.close()
    return found


def _read(text: Any, rotation: int, tally: Counter[str]) -> list[Segment]:
    found: list[Segment] = []
    box = api.FS_RECTF()
    segment: Segment | None = None
    spaces = high = 0
    count = api.FPDFText_CountChars(text)
    tally["characters"] += count
    for index in range(count):
        code = api.FPDFText_GetUnicode(text, index)
        if 0xD800 <= code < 0xDC00:  # half of a character beyond U+FFFF
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code, high = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD, 0
        char = chr(code)
        if code in LINE_ENDS or code in HYPHENS:
            if segment is not None and code in HYPHENS:
                segment.text += HYPHEN
            segment, spaces = None, 0
        elif char.isspace():
            spaces = max(spaces, 1 if api.FPDFText_IsGenerated(text, index) else 2)
        elif code < 0x20 or 0x7F <= code < 0xA0 or 0xE000 <= code <= 0xF8FF or code in (0xFFFD, 0xFFFF):
            tally["meaningless"] += 1
        elif api.FPDFText_GetLooseCharBox(text, index, box):
            left, bottom, right, top = _upright(box, rotation)
            if segment is not None and segment.goes_on(left, bottom, top):
                segment.add(char, left, right, spaces)
            else:
                segment = Segment(char, left, right, bottom, top)
                found.append(segment)
            spaces = 0
    return found


def _upright(box: Any, rotation: int) -> tuple[float, float, float, float]:
    """Left, bottom, right, top as the page is shown."""
    if rotation == 90:
        return box.bottom, -box.right, box.top, -box.left
    if rotation == 180:
        return -box.right, -box.top, -box.left, -box.bottom
    if rotation == 270:
        return -box.top, box.left, -box.bottom, box.right
    return box.left, box.bottom, box.right, box.top
