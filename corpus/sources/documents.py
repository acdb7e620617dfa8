"""Document files (PDF, DOCX, EPUB): a file in, its texts out, in a child process with limits.

Anybody can have made them: a file that crashes its parser, hangs it or fills memory is one bad record, `killed`. XML
that declares entities is refused; nothing is fetched. Of a zip only members that hold text are read, each up to
MAX_RATIO times its compressed bytes, and names never become paths.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from corpus import sandbox
from corpus.encoding import codec_of, decode
from corpus.sources.archives import DAMAGE, ENCRYPTED, MAX_DIRECTORY_BYTES, directory_bytes
from corpus.sources.compression import FREE_BYTES, MAX_RATIO
from corpus.sources.config import SourcesConfig
from corpus.sources.record import BadRecord, Record, RecordError

CHILD = "corpus.sources.documents:answer"
MAX_TEXTS = 16  # a file's texts may have so many times `max_line_bytes` together
MAX_MEMBER_BYTES = 256 << 20
_DECLARED = re.compile(rb"<\?xml[^>]{0,200}?\sencoding\s{0,9}=\s{0,9}[\"']([\w.:-]{1,40})[\"'][^>]{0,200}>")


class Request(msgspec.Struct, array_like=True):
    """A file to read, whether by chapters, and how many characters its texts may have together."""

    kind: str
    path: str
    by_chapter: bool
    max_chars: int


class Answer(msgspec.Struct, array_like=True):
    """The documents of a file, or the kind of error and its detail. A document's text is in `raw`, in UTF-8."""

    records: list[Record] = []
    error: tuple[str, str] | None = None


_pack = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(Request)
_answers = msgspec.msgpack.Decoder(Answer)


def read_document(path: Path, config: SourcesConfig, kind: str) -> Iterator[Record | BadRecord]:
    """The documents of a file, or what is wrong with it."""
    size = path.stat().st_size
    limits = sandbox.Limits(config.max_document_seconds, config.max_document_mb)
    request = Request(kind, str(path), config.chapters, MAX_TEXTS * config.max_line_bytes)
    (payload,) = sandbox.shared_sandbox(CHILD, limits).map([_pack(request)])
    if isinstance(payload, sandbox.Death):
        yield BadRecord(0, size, "killed", payload.reason)
        return
    found = _answers.decode(payload)
    if found.error or not found.records:
        yield BadRecord(0, size, *(found.error or ("empty", "no text")))
    for record in found.records:
        if len(record.raw) > config.max_line_bytes:
            yield BadRecord(record.offset, size, "too_long", f"a document of {len(record.raw):,} bytes")
        else:
            yield msgspec.structs.replace(record, key=record.key or path.name, text=record.raw.decode())


def answer(payload: bytes) -> bytes:
    """What runs in the child: read the file that a request names."""
    request = _requests.decode(payload)
    try:
        records = import_module(f"corpus.sources.formats.{request.kind}").parse(request)
        return _pack(Answer([record for record in records if record.raw]))
    except RecordError as error:
        return _pack(Answer(error=(error.kind, str(error))))
    except (ElementTree.ParseError, LookupError, ValueError, AssertionError) as error:  # of parsers, on what is no text
        return _pack(Answer(error=(request.kind, type(error).__name__)))  # its words may quote the file
    except DAMAGE as error:
        return _pack(Answer(error=("corrupt", f"{request.kind}: {type(error).__name__}")))


def warm_up() -> None:
    """Load code before the memory limit is set."""
    for kind in ("docx", "epub", "pdf"):
        import_module(f"corpus.sources.formats.{kind}")


class Package:
    """The members of a zip that hold text."""

    def __init__(self, request: Request) -> None:
        self._kind = request.kind
        if directory_bytes(Path(request.path)) > MAX_DIRECTORY_BYTES >> 4:
            raise RecordError("too_large", "a zip with a directory of many megabytes")
        self._zip = zipfile.ZipFile(request.path)

    def __contains__(self, name: str) -> bool:
        return name in self._zip.NameToInfo

    def read(self, name: str) -> bytes:
        """A member; raises `RecordError` where it is missing, encrypted or a bomb."""
        if name not in self:
            raise RecordError(self._kind, f"a part is missing: {name[:100]}")
        entry = self._zip.NameToInfo[name]
        if entry.flag_bits & ENCRYPTED:
            raise RecordError("encrypted", "needs a password")
        most = min(MAX_MEMBER_BYTES, FREE_BYTES + MAX_RATIO * entry.compress_size)
        with self._zip.open(entry) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise RecordError("bomb", f"{name[:100]}: more than {most:,} bytes, {MAX_RATIO} times its compressed size")
        if b"<!ENTITY" in data.replace(b"\0", b""):
            raise RecordError(self._kind, f"{name[:100]} declares entities")
        return data

    def _xml(self, name: str) -> bytes:
        """A member as XML in UTF-8 or UTF-16: the parser knows no GBK."""
        data = self.read(name)
        declared = _DECLARED.match(data)
        codec = codec_of(declared[1].decode()) if declared else None
        if declared is None or codec is None or codec.startswith("utf"):
            return data
        return decode(data[declared.end() :], codec).text.encode()

    def events(self, name: str) -> Iterator[tuple[str, str, ElementTree.Element]]:
        """`start` and `end` of the elements of a member, with their names without namespaces; what ended is dropped."""
        for event, element in ElementTree.iterparse(BytesIO(self._xml(name)), ("start", "end")):
            yield event, local(element.tag), element
            if event == "end":
                element.clear()

    def elements(self, name: str) -> list[tuple[str, dict[str, str], str]]:
        """Names, attributes and texts of a small member, without namespaces; none where there is no such member."""
        if name not in self:
            return []
        found = ElementTree.fromstring(self._xml(name)).iter()
        return [
            (local(one.tag), {local(key): value for key, value in one.items()}, " ".join((one.text or "").split()))
            for one in found
        ]


def first(elements: list[tuple[str, dict[str, str], str]], name: str) -> str | None:
    """The text of the first element that is called so and has one."""
    return next((text for tag, _, text in elements if tag == name and text), None)


def local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]
