"""Every line of a page, with why it stays or goes: extraction done again, in the open, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from corpus.document import document_id
from corpus.encoding import UndecodableError, decode
from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.stage import Folder
from corpus.extract.config import ExtractConfig
from corpus.report.lookup import Document, find
from corpus.report.summary import FIRST_STAGE, folders
from corpus.safe import plain_url, snippet
from corpus.sources import BadRecord, Record, SourcesConfig, read
from corpus.sources.packing import key_of

MAX_PAGES = 3
TEXT_CHARS = 100


def explain_lines(out: str, key: str, inputs: Sequence[str]) -> Iterator[str]:
    """The lines of the pages that `key` names (as `explain` takes it, or a file of HTML), one a line of text.

    A build names its inputs without their folders, so `inputs` says where they are: files, folders, globs or URLs.

    Each has the rule that it goes by, or `keep`, how likely it is to be of the article (log-odds), and its text,
    masked.

    Raises:
        WenhaiError: nothing has that name, it is no page, or the inputs do not hold it.
    """
    if Path(key).is_file():
        yield from page_lines(Path(key).read_bytes(), None, ExtractConfig())
        return
    documents = find(out, key)
    for document in documents[:MAX_PAGES]:
        record, extraction = _record(folders(out)[FIRST_STAGE], document, inputs)
        yield f"document {document.id}  {plain_url(document.url) if document.url else ''}"
        yield from page_lines(record.raw, record.charset, extraction)
    if len(documents) > MAX_PAGES:
        yield f"{len(documents) - MAX_PAGES} more documents have this name; give an id to see one of them."


def page_lines(raw: bytes, charset: str | None, extraction: ExtractConfig) -> Iterator[str]:
    """The lines of one page, as our own extraction sees them."""
    if extraction.backend != "wenhai":
        raise WenhaiError(f"extract.backend = {extraction.backend!r} does not say which lines it leaves out, or why.")
    from corpus.extract import article, lines, metadata

    try:
        page = decode(raw, charset).text.encode()
    except UndecodableError as error:
        raise WenhaiError(f"this page cannot be decoded ({error}): it is no HTML, or too damaged to read.") from error
    title = metadata.headline(page, metadata.head_metas(page))[0]
    reading, found, removed, num_read, *_ = article.choose_lines(page, title, extraction.tables)
    if "replaced" in removed:
        yield "  the page shows hardly any text; these are the lines of the article in one of its scripts"
    for row, score, rule in zip(reading.lines.tolist(), found.scores.tolist(), found.rules.tolist(), strict=True):
        text = snippet(str(reading.out.data[row[0] : row[1]], "utf-8"), TEXT_CHARS)
        yield f"  {'keep' if rule == lines.KEPT else lines.RULES[rule]:<12} {score:+6.2f}  {text}"
    parts = "".join(f", {rule} {count:,}" for rule, (_, count) in removed.items())
    yield f"  {num_read:,} characters read: {num_read - article.num_removed(removed):,} kept{parts}"


def _record(extract: Folder, document: Document, inputs: Sequence[str]) -> tuple[Record, ExtractConfig]:
    """The record that a document was made of, found by its id, and how the build extracts."""
    if not inputs:
        raise UsageError("--lines reads the page again: say where it is, --input FILE... (as for `corpus run`).")
    assert document.shard is not None  # it was extracted
    known = storage.read_json(storage.join(extract.url, "stage.json"))
    sources = SourcesConfig.model_validate(known["parameters"]["sources"][key_of(document.shard)])
    for file in list_inputs(inputs):
        for record in read(file.url, sources):
            if isinstance(record, BadRecord):
                continue
            if (
                document_id(record.source or sources.name.of_file(file.label), record.key, record.raw).hex()
                == document.id
            ):
                if record.kind != "html" or record.text is not None:
                    raise WenhaiError(
                        f"document {document.id} was read as {record.kind}, not as a page: it has no lines."
                    )
                return record, ExtractConfig.model_validate(known["config"]["extract"])
    raise WenhaiError(f"document {document.id}: none of these inputs holds it. Name the files that the build read.")
