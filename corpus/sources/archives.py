"""The files in a zip or tar archive, one at a time, each as a file of its own; damage costs the member that it is in.

A member is written to a scratch file and read like any other, so every kind can stand in an archive and memory stays
that of its reader. Its name is shown and never used as a path. Refused, each as one bad record: members that are
encrypted, that grow to more than MAX_RATIO times their bytes (`bomb`, as of the other compressions), all of an archive
together too, that share bytes with another member (how a zip of 10 MB becomes 281 TB: Fifield, WOOT 2019), and archives
in archives in archives. Links, devices and files with holes of a tar are left out.
"""

from __future__ import annotations

import errno
import lzma
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from corpus.sources.compression import (
    FREE_BYTES,
    MAX_RATIO,
    PIECE_BYTES,
    DamagedStream,
    compression_of,
    read_pieces,
)
from corpus.sources.record import BadRecord

MAX_DEPTH = 2  # an archive in an archive is read
MAX_DIRECTORY_BYTES = 256 << 20  # a million members or two; `zipfile` holds ten times that
MAX_END_BYTES = 66_000  # the end record and the longest comment
EMPTY_BYTES = 22  # of a zip without members
MAX_NAME_CHARS = 1024
ENCRYPTED = 0x1
OFFICE = {"word": "docx", "xl": "left_out.xlsx", "ppt": "left_out.pptx"}  # by the folder of their parts
UTF8_NAME = 0x800
_SUFFIXES = re.compile(r"(?:\.[A-Za-z0-9]{1,10}){1,3}$")
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others `zipfile` unpacks at once, whatever that takes
LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
MAX_TAR_NAME_BYTES = 1 << 20  # which `tarfile` reads at once
DAMAGE: tuple[type[Exception], ...] = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError),
    *(ValueError, LookupError),  # of numbers and names that are none
)


@dataclass(frozen=True)
class Member:
    """A file of an archive: what it is called there, and where it lies until the next one is asked for."""

    name: str
    path: Path


def members(path: Path, kind: str) -> Iterator[Member | BadRecord]:
    """The members of an archive in its order, and what is wrong with the others; offsets are places in the archive."""
    with tempfile.TemporaryDirectory(prefix="wenhai-") as folder:
        yield from (_zip_members if kind == "zip" else _tar_members)(path, Path(folder))


def zip_kind(path: Path) -> str:
    """What a zip is by the names in it: a document (`docx`, `epub`), one that is left out, or an archive."""
    try:
        if directory_bytes(path) > MAX_DIRECTORY_BYTES >> 4:
            return "zip"
        with zipfile.ZipFile(path) as archive:
            names = archive.NameToInfo
    except DAMAGE:
        return "zip"
    if "META-INF/container.xml" in names:
        return "epub"
    if "[Content_Types].xml" in names:
        folders = {name.partition("/")[0] for name in names}
        return next((kind for folder, kind in OFFICE.items() if folder in folders), "zip")
    return "left_out.odt" if "mimetype" in names and "content.xml" in names else "zip"


def _zip_members(path: Path, folder: Path) -> Iterator[Member | BadRecord]:
    try:
        end, size, spare = 0, path.stat().st_size, FREE_BYTES
        if (num_bytes := directory_bytes(path)) > MAX_DIRECTORY_BYTES:
            yield BadRecord(0, size, "too_large", f"zip: a directory of {num_bytes:,} bytes")
            return
        with zipfile.ZipFile(path) as archive:
            if not archive.filelist and size > EMPTY_BYTES + len(archive.comment):
                yield BadRecord(0, size, "corrupt", "zip: an empty directory of a file that is not empty")
            for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
                if entry.is_dir():
                    continue
                start, name = entry.header_offset, _zip_name(entry)
                if entry.flag_bits & ENCRYPTED:
                    yield BadRecord(start, entry.compress_size, "encrypted", f"{name}: needs a password")
                elif start < end:
                    yield BadRecord(start, entry.compress_size, "bomb", f"{name}: overlaps the member before it")
                elif entry.compress_type not in METHODS:
                    yield BadRecord(start, entry.compress_size, "corrupt", f"{name}: not packed with deflate")
                else:
                    spare += MAX_RATIO * max(0, min(entry.compress_size, size - start))
                    for found in _zip_member(archive, entry, name, folder, spare):
                        spare -= found.path.stat().st_size if isinstance(found, Member) else 0
                        yield found
                end = max(end, start + entry.compress_size)
    except DAMAGE as error:
        yield BadRecord(0, path.stat().st_size, "corrupt", f"zip: {_told(error)}")


def directory_bytes(path: Path) -> int:
    """What `zipfile` would read at once: the size that the end of a zip gives for its directory."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_END_BYTES))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    at64 = tail.rfind(b"PK\x06\x06")
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    size64 = int.from_bytes(tail[at64 + 40 : at64 + 48], "little") if at64 >= 0 else 0
    return max(size64, size if size != 0xFFFF_FFFF or at64 < 0 else 0)


def _zip_member(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str, folder: Path, most: int
) -> Iterator[Member | BadRecord]:
    target = _target(folder, name)
    try:
        with archive.open(entry) as source:
            _copy(cast(BinaryIO, source), target, most, entry.header_offset)
    except DamagedStream as damage:
        yield BadRecord(entry.header_offset, entry.compress_size, damage.kind, f"{name}: {damage.detail}")
    except DAMAGE as error:
        yield BadRecord(entry.header_offset, entry.compress_size, "corrupt", f"{name}: {_told(error)}")
    else:
        yield Member(name, target)
    target.unlink(missing_ok=True)


def _tar_members(path: Path, folder: Path) -> Iterator[Member | BadRecord]:
    offset = 0
    try:
        with path.open("rb") as file:
            stream = _Pieces(read_pieces(file, compression_of(path)))
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", errorlevel=2, tarinfo=_Header) as archive:
                for entry in archive:
                    offset, name = entry.offset, _repaired_name(entry.name)
                    if entry.isdir():
                        continue
                    source = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
                    if source is None:
                        yield BadRecord(offset, 0, "left_out.link", f"{name}: a link, a device or a file with holes")
                        continue
                    target = _target(folder, name)
                    with source:
                        _copy(cast(BinaryIO, source), target, entry.size, offset)
                    yield Member(name, target)
                    target.unlink()
                while rest := archive.fileobj.read(PIECE_BYTES):
                    if rest.strip(b"\0"):
                        yield BadRecord(archive.offset, 0, "trailing", "tar: something stands behind its end")
                        break
    except DamagedStream as damage:
        yield BadRecord(offset, 0, damage.kind, f"tar, behind this member: {damage.detail}")
    except DAMAGE as error:
        kind = "truncated" if "end of data" in str(error) else "corrupt"
        yield BadRecord(offset, 0, kind, f"tar, behind this member: {_told(error)}")


class _Header(tarfile.TarInfo):
    """A header that is damaged, or missing before the mark of the end: `tarfile` takes it for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            found = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) < tarfile.BLOCKSIZE:
                raise tarfile.ReadError("unexpected end of data") from error
            if any(buf):
                raise tarfile.ReadError(str(error)) from error
            raise
        if found.type in LONG_NAMES and found.size > MAX_TAR_NAME_BYTES:
            raise tarfile.ReadError("a name of many megabytes")
        return found


class _Pieces:
    """Pieces of bytes as a file that `tarfile` reads forwards."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer at the end."""
        parts, wanted = [], size
        while wanted and (piece := self._held or next(self._pieces, b"")):
            parts.append(piece[:wanted])
            self._held = piece[wanted:]
            wanted -= len(parts[-1])
        return b"".join(parts)


def _copy(source: BinaryIO, target: Path, max_bytes: int, offset: int) -> None:
    num_bytes = 0
    with target.open("wb") as file:
        while piece := source.read(PIECE_BYTES):
            num_bytes += len(piece)
            if num_bytes > max_bytes:
                raise DamagedStream("bomb", offset, f"more than {MAX_RATIO} times its compressed size")
            file.write(piece)


def _target(folder: Path, name: str) -> Path:
    """Where a member is written: of its name only the suffixes stay, which readers go by."""
    suffixes = _SUFFIXES.search(name)
    return folder / f"member{suffixes[0].lower() if suffixes else ''}"


def _zip_name(entry: zipfile.ZipInfo) -> str:
    """A member's name; one that is not said to be UTF-8 is so nevertheless, or GBK, as Windows in China writes it."""
    if entry.flag_bits & UTF8_NAME:
        return _shown(entry.filename)
    try:
        data = entry.orig_filename.encode("cp437")
    except UnicodeEncodeError:
        return _shown(entry.filename)
    return _decoded(data)


def _repaired_name(name: str) -> str:
    """A name of a tar, whose bytes `tarfile` has kept as surrogates where they are not UTF-8."""
    return _decoded(name.encode("utf-8", "surrogateescape"))


def _decoded(data: bytes) -> str:
    for codec in ("utf-8", "gb18030"):
        try:
            return _shown(data.decode(codec))
        except UnicodeDecodeError:
            continue
    return _shown(data.decode("utf-8", "replace"))


def _shown(name: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in name[:MAX_NAME_CHARS])


def _told(error: BaseException) -> str:
    """What kind of damage it is; raises the error where it is the disk's."""
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        raise error
    return type(error).__name__
