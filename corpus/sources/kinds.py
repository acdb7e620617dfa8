"""What a file is: by its first bytes where they say so, else by its name, else plain text.

A kind is a line of KINDS and a module `corpus/sources/formats/KIND.py` with `read_KIND(path, config)`. What no kind
reads is left out and counted by what it is (`left_out.png`).
"""

from __future__ import annotations

import codecs
import importlib.util
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corpus.engine.errors import UsageError
from corpus.sources.compression import SUFFIXES as COMPRESSIONS


@dataclass(frozen=True)
class Kind:
    """How files of a kind are recognised.

    `magic` matches the first bytes of any such file, whatever its name; `mark` the first bytes of text, behind white
    space, of files whose name says nothing. A kind with neither is never guessed. `library` is what reads it beyond the
    extra `corpus`.
    """

    suffixes: tuple[str, ...] = ()
    magic: str = ""
    mark: str = ""
    library: str = ""


_XML = r"(?:<\?xml[^>]{0,200}\?>\s{0,8})?"
KINDS: dict[str, Kind] = {
    "warc": Kind((".warc", ".wet"), r"WARC/"),
    "parquet": Kind((".parquet",), r"PAR1"),
    "arrow": Kind((".arrow", ".feather"), r"ARROW1\0\0|\xff\xff\xff\xff..\0\0"),
    "pdf": Kind((".pdf",), r"%PDF-", library="pypdfium2"),
    "docx": Kind((".docx", ".docm")),  # a zip by its first bytes, as EPUB is: archives.zip_kind
    "epub": Kind((".epub",), r"PK\x03\x04.{26}mimetypeapplication/epub\+zip"),
    "zip": Kind((".zip",), r"PK\x03\x04|PK\x05\x06"),
    "tar": Kind((".tar", ".tgz", ".tbz2", ".txz"), r".{257}ustar"),
    "jsonl": Kind((".jsonl", ".ndjson", ".json"), mark=r"\{"),
    "json": Kind(mark=r"\[\s*[\[{\"\]]"),
    "csv": Kind((".csv", ".tsv")),
    "mediawiki": Kind((".xml.bz2",), mark=_XML + r"<mediawiki[\s>]"),
    "sogou": Kind(mark=_XML + r"<doc>\s{0,8}<(?:docno|url)>"),
    "html": Kind((".html", ".htm", ".xhtml"), mark=r"(?i:<!doctype html|<html)"),
    "book": Kind(),
    "thucnews": Kind(),
    "markdown": Kind((".md", ".markdown", ".mdx")),
    "text": Kind((".txt", ".text")),
}
ARCHIVES = ("zip", "tar")
DOCUMENTS = ("pdf", "docx", "epub")  # read as what they are, or left out
NAMED = ("book", "thucnews")  # their readers ask for the file's name: a title, a category

# What a reader of text must leave alone, by the bytes at its start: (name, pattern). Names are those that people use.
LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("png", r"\x89PNG\r\n"),
    ("jpeg", r"\xff\xd8\xff"),
    ("gif", r"GIF8[79]a"),
    ("webp", r"RIFF.{4}WEBP"),
    ("tiff", r"II\*\0|MM\0\*"),
    ("bmp", r"BM.{8}\0\0"),
    ("ico", r"\0\0\x01\0"),
    ("rar", r"Rar!\x1a\x07"),
    ("7z", r"7z\xbc\xaf\x27\x1c"),
    ("encrypted_office", r"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1.*E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e"),
    ("doc", r"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),  # and .xls, .ppt: OLE compound files
    ("rtf", r"\{\\rtf"),
    ("mobi", r".{60}BOOKMOBI"),
    ("mp3", r"ID3[\x02-\x04]\0|\xff[\xfb\xf3\xf2]"),
    ("mp4", r".{4}ftyp"),
    ("ogg", r"OggS\0"),
    ("wav", r"RIFF.{4}WAVE"),
    ("avi", r"RIFF.{4}AVI "),
    ("flac", r"fLaC[\0\x80]"),
    ("matroska", r"\x1a\x45\xdf\xa3"),
    ("sqlite", r"SQLite format 3\0"),
    ("font", r"wOF[F2]|\0\x01\0\0\0|OTTO\0|true\0"),
    ("elf", r"\x7fELF"),
    ("exe", r"MZ.{26}\0{8}"),
    ("class", r"\xca\xfe\xba\xbe"),
    ("numpy", r"\x93NUMPY"),
    ("hdf5", r"\x89HDF\r\n"),
    ("pickle", r"\x80[\x02-\x05][\x95c}\]]"),
)


def _compiled(patterns: Iterable[tuple[str, str]]) -> list[tuple[str, re.Pattern[bytes]]]:
    return [(name, re.compile(one.encode("latin-1"), re.DOTALL)) for name, one in patterns if one]


_MAGICS = _compiled((name, kind.magic) for name, kind in KINDS.items())
_MARKS = _compiled((name, kind.mark) for name, kind in KINDS.items())
_LEFT_OUT = _compiled(LEFT_OUT)
DATASETS_METADATA = ("dataset_info.json", "state.json", "dataset_dict.json")  # beside the Arrow files of `datasets`


def name_kind(name: str) -> str | None:
    """By the end of a name, without that of its compression."""
    name = name.lower()
    for kind, one in KINDS.items():
        if name.endswith(one.suffixes):
            return kind
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((kind for kind, one in KINDS.items() if name.endswith(one.suffixes)), None)


def has_library(kind: str) -> bool:
    """Whether what reads a kind is installed."""
    library = KINDS[kind].library if kind in KINDS else ""
    return not library or importlib.util.find_spec(library) is not None


def require_library(kind: str, name: str) -> None:
    """Raise `UsageError` where a file's kind needs a library that is not installed."""
    if not has_library(kind):
        raise UsageError(
            f"{name}: {kind} files need {KINDS[kind].library}. Install it: pip install 'wenhai[documents]'"
        )


def kind_by(name: str, head: bytes) -> str:
    """The kind of a file by its first decompressed bytes and its name; `left_out.WHAT` of what none reads.

    >>> kind_by("a.txt", b"RIFF0123WEBP"), kind_by("a.json", b"[{"), kind_by("a", b"{}")
    ('left_out.webp', 'json', 'jsonl')
    """
    if name.rsplit("/", 1)[-1] in DATASETS_METADATA:
        return "left_out.datasets_metadata"
    found = _first(_MAGICS, head) or _first(_LEFT_OUT, head)
    if found is not None:
        return found if found in KINDS else f"left_out.{found}"
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = head.decode("utf-16", "replace").encode() if is_utf16 else head
    text = text.removeprefix(codecs.BOM_UTF8).lstrip()
    named = name_kind(name)
    if named == "jsonl":
        return "json" if _is_json(text) else "jsonl"
    if named is not None and named not in DOCUMENTS:  # those are told by their first bytes
        return named
    return _first(_MARKS, text) or ("left_out.binary" if b"\0" in text else "text")


def _first(patterns: Sequence[tuple[str, re.Pattern[bytes]]], head: bytes) -> str | None:
    return next((name for name, pattern in patterns if pattern.match(head)), None)


def _is_json(text: bytes) -> bool:
    """Whether JSON is an array, or objects over several lines, and not an object a line (whose first may be broken)."""
    if not text.startswith(b"{"):
        return text.startswith(b"[")
    first, _, rest = text.partition(b"\n")
    rest = rest.lstrip()
    return bool(rest) and not first.rstrip(b" \t\r,").endswith(b"}") and not rest.startswith(b"{")
