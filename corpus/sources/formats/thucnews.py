"""THUCNews: a news item a file in folders of categories, its title the first line; and its excerpt `cnews.*.txt`.

In the excerpt a line is an item, `category<TAB>text`. The category is a field: `meta = ["category"]` keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from corpus.sources.compression import first_piece
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.text import read_blocks, read_text
from corpus.sources.record import BadRecord, Record

_LABELLED = re.compile(rb"(?:\xef\xbb\xbf)?[^\s\x00-\x7f]{3,60}\t")


def read_thucnews(path: Path, config: SourcesConfig, name: str) -> Iterator[Record | BadRecord]:
    """The item of a file that is called `name`, with its folder; or those of its lines."""
    if _LABELLED.match(first_piece(path)):
        for found in read_blocks(path, config.model_copy(update={"document": "line"})):
            if isinstance(found, Record):
                label, tab, text = (found.text or "").partition("\t")
                if tab:
                    yield msgspec.structs.replace(found, text=text, fields={"category": label})
                else:
                    yield BadRecord(found.offset, len(found.raw), "field", "a line without a category and a tab")
            else:
                yield found
        return
    folder = name.rpartition("/")[0].rpartition("/")[2]
    fields = {"category": folder} if folder else {}
    for found in read_text(path, config):
        if isinstance(found, Record):
            title, _, text = (found.text or "").partition("\n")
            found = msgspec.structs.replace(found, text=text, title=title.strip(), fields=fields)
        yield found
