"""Document files for tests, made from literals: PDF pages of placed lines, Word documents, books."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tests.corpus.sources.test_archives import zipped

Placed = tuple[float, float, str]  # left, bottom, text in 10 point
EM = 10
PAD = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")

FONT = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /UniGB-UTF16-H /DescendantFonts [<< /Type /Font"
    " /Subtype /CIDFontType0 /BaseFont /STSong-Light /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 5"
    " >> /DW 1000 /W [1 95 500 814 939 500] /FontDescriptor << /Type /FontDescriptor /FontName /STSong-Light /Flags 6"
    " /FontBBox [-25 -254 1000 880] /ItalicAngle 0 /Ascent 880 /Descent -120 /CapHeight 880 /StemV 93 >> >>] >>"
)


def rc4(key: bytes, data: bytes) -> bytes:
    """The cipher of old PDF files."""
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def pdf(
    pages: Sequence[Sequence[Placed]],
    *,
    password: bytes | None = None,
    info: str = "",
    font: str = FONT,
    large: str = "",
) -> bytes:
    """A PDF whose font needs no file: the codes are UTF-16, a Han character is one em wide, ASCII half of one.

    With `password` it is encrypted (40 bits); the empty one opens for everybody. A line that is `large` has 20 points.
    """
    owner, file_id = bytes(range(32)), b"0123456789abcdef"
    key = hashlib.md5(((password or b"") + PAD)[:32] + owner + (2**32 - 4).to_bytes(4, "little") + file_id).digest()[:5]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        font.encode(),
    ]
    for number, lines in enumerate(pages):
        shown = [
            f"/F1 {20 if text == large else 10} Tf 1 0 0 1 {x} {y} Tm <{text.encode('utf-16-be').hex()}> Tj"
            for x, y, text in lines
        ]
        stream = ("BT " + "\n".join(shown) + " ET").encode()
        if password is not None:
            own = hashlib.md5(key + (5 + 2 * number).to_bytes(3, "little") + b"\0\0").digest()[:10]
            stream = rc4(own, stream)
        resources = "<< /Font << /F1 3 0 R >> >>"
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources {resources} "
            f"/Contents {5 + 2 * number} 0 R >>".encode()
        )
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    bodies.append(f"<< {info} >>".encode())
    trailer = f"/Size {len(bodies) + 1} /Root 1 0 R /Info {len(bodies)} 0 R /ID [<{file_id.hex()}> <{file_id.hex()}>]"
    if password is not None:
        user = rc4(key, PAD).hex()
        trailer += f" /Encrypt << /Filter /Standard /V 1 /R 2 /O <{owner.hex()}> /U <{user}> /P -4 >>"
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(data))
        data += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< {trailer} >>\nstartxref\n{len(data)}\n%%EOF"
    return data + end.encode()


def wrapped(text: str, width: int, *, indent: str = "\u3000\u3000") -> list[str]:
    """Lines of `width` characters of paragraphs, each indented."""
    lines = []
    for paragraph in text.split("\n"):
        rest = indent + paragraph
        lines += [rest[at : at + width] for at in range(0, len(rest), width)]
    return lines


def placed(lines: Sequence[str], left: float = 80, top: float = 740, pitch: float = 16) -> list[Placed]:
    """Lines below each other; an indent is a place, not characters."""
    return [
        (left + EM * (len(line) - len(line.lstrip("\u3000"))), top - pitch * number, line.strip("\u3000"))
        for number, line in enumerate(lines)
    ]


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:v"'


def paragraph(text: str) -> str:
    return f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, parts: Mapping[str, str | bytes] | None = None, *, head: str = "") -> bytes:
    """A Word document of the XML of its body."""
    files: dict[str, bytes] = {
        "[Content_Types].xml": b"<Types/>",
        "word/document.xml": f"{head}<w:document {W} {MC}><w:body>{body}</w:body></w:document>".encode(),
        "word/media/image1.png": b"\x89PNG",
        "word/vbaProject.bin": b"macro",
    }
    files |= {name: data.encode() if isinstance(data, str) else data for name, data in (parts or {}).items()}
    return zipped(files)


def epub(pages: Mapping[str, str], parts: Mapping[str, str | bytes] | None = None, **names: str) -> bytes:
    """A book whose parts stand in the zip in the wrong order; `properties` of a part by its file's first word."""
    items = "".join(
        f'<item id="i{number}" href="text/{name}" media-type="application/xhtml+xml" '
        f'properties="{names.get(name.partition(".")[0], "")}"/>'
        for number, name in enumerate(pages)
    )
    spine = "".join(f'<itemref idref="i{number}"/>' for number in range(len(pages)))
    files: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        **{f"OEBPS/text/{name}": text for name, text in reversed(pages.items())},
        "OEBPS/fonts/a.otf": b"OTTO\0",
        "META-INF/container.xml": '<container><rootfile full-path="OEBPS/book.opf"/></container>',
        "OEBPS/book.opf": (
            '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
            "<dc:title>论语</dc:title><dc:creator>孔子弟子</dc:creator><dc:date>2020-05-06T07:00:00Z</dc:date></metadata>"
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
        ),
        **(parts or {}),
    }
    return zipped({name: data.encode() if isinstance(data, str) else data for name, data in files.items()})


def page(body: str, head: str = "") -> str:
    """A part of a book."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><head><title/>'
        f"<style>p {{}}</style>{head}</head><body>{body}</body></html>"
    )
