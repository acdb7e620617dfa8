"""DOCX and EPUB: what a reader sees in order, titles, what is locked, damaged or made to do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.sources.document_files import docx, epub, page, paragraph
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_archives import zipped

BOX = "<w:txbxContent>" + paragraph("文本框") + "</w:txbxContent>"
BODY = (
    paragraph("第一章 学而")
    + "<w:p><w:ins><w:r><w:t>学而时习之</w:t></w:r></w:ins><w:del><w:r><w:delText>删</w:delText></w:r></w:del>"
    '<w:moveFrom><w:r><w:t>移</w:t></w:r></w:moveFrom><w:r><w:t xml:space="preserve">，不亦说乎？</w:t><w:br/><w:t>有朋</w:t>'
    "<w:footnoteReference/></w:r></w:p>"
    "<w:p><w:r><w:ruby><w:rt><w:r><w:t>yuè</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>说</w:t></w:r></w:rubyBase></w:ruby>"
    f"</w:r><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback><v:pict>{BOX}</v:pict></mc:Fallback>"
    "</mc:AlternateContent></w:p><w:tbl>"
    + "".join(
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}{paragraph('')}</w:tc>" for cell in row) + "</w:tr>"
        for row in (("篇", "章"), ("学而", "16"))
    )
    + "</w:tbl>"
)
CORE = (
    '<cp xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:t="urn:t"><dc:title>论语</dc:title><dc:creator>孔子</dc:creator>'
    "<t:created>2020-05-06T07:00:00Z</t:created></cp>"
)
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
NOTES = (
    f'<w:footnotes {W}><w:footnote w:type="separator" w:id="0">{paragraph("—")}</w:footnote>'
    f'<w:footnote w:id="1">{paragraph("说，同悦。")}</w:footnote></w:footnotes>'
)
LAUGHS = (
    '<!DOCTYPE a [<!ENTITY a "哈">' + "".join(f'<!ENTITY {n} "{"&" + p + ";" * 9}">' for p, n in ("ab", "bc")) + "]>"
)
OUTSIDE = '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def test_a_word_document(tmp_path: Path) -> None:
    parts = {"docProps/core.xml": CORE, "word/footnotes.xml": NOTES, "word/comments.xml": "<broken"}
    (record,), bad = read_all(tmp_path / "a.docx", docx(BODY, parts))
    assert not bad and record.text is not None
    assert record.text.split("\n") == [
        "第一章 学而",
        "学而时习之，不亦说乎？",
        "有朋",
        "文本框",
        "说",
        "篇\t章",
        "学而\t16",
        "说，同悦。",
    ]
    assert (record.title, record.date, record.fields, record.key) == (
        "论语",
        "2020-05-06",
        {"author": "孔子"},
        "a.docx",
    )


def test_the_main_part_is_where_the_relations_say(tmp_path: Path) -> None:
    relation = '<Relationship Type="http://x/officeDocument" Target="/word/document2.xml"/>'
    main = f"<w:document {W}>{paragraph('别处')}</w:document>"
    parts = {"_rels/.rels": f"<Relationships>{relation}</Relationships>", "word/document2.xml": main}
    (record,), _ = read_all(tmp_path / "a.docx", docx(BODY, parts))
    assert record.text == "别处"


CHAPTERS = {
    "cover.xhtml": page("<img src='a.png'/>"),
    "toc.xhtml": page("<ol><li><a href='c1.xhtml'>学而第一</a></li></ol>"),
    "c1.xhtml": page(
        "<h1>学而<br/>第一</h1><p>子曰：“<ruby>说<rp>(</rp><rt>yuè</rt></ruby>&nbsp;学而\n  时习之，a\nb</p>"
        "<table><tr><td>甲</td><td>乙</td></tr></table><script>x()</script>"
    ),
    "c1b.xhtml": page("<p>不亦说乎？</p><aside>注：同悦。</aside><pre>a\n  b</pre>"),
    "c2.xhtml": "<html><body><h2>为政第二</h2><p>为政以德 & 譬如北辰<br></body>",
}
FIRST = "学而\n第一\n子曰：“说 学而时习之，a b\n甲\t乙\n不亦说乎？\n注：同悦。\na\n  b"


def test_a_book_by_chapters_and_whole(tmp_path: Path) -> None:
    data = epub(CHAPTERS, toc="nav")
    (one, two), bad = read_all(tmp_path / "a.epub", data)
    assert not bad and (one.text, two.text) == (FIRST, "为政第二\n为政以德 & 譬如北辰")
    assert [(r.title, r.offset, r.date) for r in (one, two)] == [
        ("论语 学而 第一", 2, "2020-05-06"),
        ("论语 为政第二", 4, "2020-05-06"),
    ]
    assert one.removed == {"contents": (1, 4)} and two.removed == {} and one.fields == {"author": "孔子弟子"}
    (whole,), _ = read_all(tmp_path / "a.epub", data, chapters=False)
    assert whole.text == f"{one.text}\n{two.text}" and (whole.title, whole.key) == ("论语", "a.epub")
    (first, _), _ = read_all(tmp_path / "a.zip", zipped({"书.epub": data}))
    assert (first.member, first.key, first.text) == ("书.epub", "论语 学而 第一", FIRST)


def test_parts_without_headings_are_documents(tmp_path: Path) -> None:
    good, _ = read_all(tmp_path / "a.epub", epub({"a.xhtml": page("<p>一</p>"), "b.xhtml": page("<p>二</p>")}))
    assert [(record.text, record.title) for record in good] == [("一", "论语"), ("二", "论语")]


@pytest.mark.parametrize(
    ("algorithm", "name", "kind"),
    [
        ("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OEBPS/text/c1.xhtml", "encrypted"),
        ("http://www.idpf.org/2008/embedding", "OEBPS/fonts/a.otf", None),
        ("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OEBPS/fonts/a.otf", None),
    ],
)
def test_drm(tmp_path: Path, algorithm: str, name: str, kind: str | None) -> None:
    lock = f'<EncryptedData><EncryptionMethod Algorithm="{algorithm}"/><CipherReference URI="{name}"/></EncryptedData>'
    parts = {"META-INF/encryption.xml": f"<encryption>{lock}</encryption>"}
    good, bad = read_all(tmp_path / "a.epub", epub(CHAPTERS, parts))
    assert [one.kind for one in bad] == ([kind] if kind else []) and bool(good) != bool(bad)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.8, 0.98])
def test_cut_files_are_one_bad_record(tmp_path: Path, share: float) -> None:
    for name, data in (("a.docx", docx(BODY)), ("a.epub", epub(CHAPTERS))):
        good, (bad,) = read_all(tmp_path / name, data[: int(share * len(data))])
        assert not good and bad.kind == "corrupt", name


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (docx(paragraph("&a;"), head=LAUGHS), "docx"),
        (docx(paragraph("&a;"), head=OUTSIDE), "docx"),
        (docx("<w:p>"), "docx"),
        (docx("", head='<?xml version="1.0" encoding="UZF-8"?>'), "docx"),
        (docx("<a>" * 50_000 + "</a>" * 50_000), "empty"),
        (docx(paragraph("字" * 20_000_000)), "bomb"),
        (docx(""), "empty"),
        (epub({"a.xhtml": LAUGHS + page("&c;")}), "epub"),
        (epub(CHAPTERS, {"OEBPS/book.opf": OUTSIDE + "<package>&a;</package>"}), "epub"),
        (epub(CHAPTERS, {"META-INF/container.xml": "<container/>"}), "epub"),
        (epub({"../../../../etc/passwd": page("x")}, {"OEBPS/text/../../../../etc/passwd": b"x"}), "epub"),
        (epub({"a.xhtml": page("字" * 20_000_000)}), "bomb"),
    ],
    ids=[
        "laughs",
        "outside",
        "open",
        "encoding",
        "deep",
        "bomb",
        "empty",
        "laughs in a book",
        "opf",
        "no book",
        "climbs",
        "book bomb",
    ],
)
def test_what_does_harm_is_one_bad_record(tmp_path: Path, data: bytes, kind: str) -> None:
    good, (bad,) = read_all(tmp_path / "a.bin", data)
    assert not good and bad.kind == kind, bad


def test_more_text_than_a_document_may_have(tmp_path: Path) -> None:
    for data in (docx(paragraph("学而" * 999)), epub({"a.xhtml": page("学而" * 999)})):
        good, (bad,) = read_all(tmp_path / "a.bin", data, max_line_bytes=100)
        assert not good and bad.kind == "too_long"


def test_other_office_files_are_left_out_by_name(tmp_path: Path) -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    for data, kind in (
        (zipped({"[Content_Types].xml": b"", "xl/workbook.xml": b""}), "left_out.xlsx"),
        (zipped({"[Content_Types].xml": b"", "ppt/presentation.xml": b""}), "left_out.pptx"),
        (ole, "left_out.doc"),
        (ole + "EncryptedPackage".encode("utf-16-le"), "left_out.encrypted_office"),
        (b"{\\rtf1", "left_out.rtf"),
    ):
        good, (bad,) = read_all(tmp_path / "a.docx", data)
        assert not good and bad.kind == kind


@pytest.mark.parametrize("encoding", ["gb2312", "big5"])
def test_xml_in_encodings_of_old(tmp_path: Path, encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    opf = (
        head + "<package><metadata><title>論語集注</title></metadata><manifest><item id='i' href='text/1.html'/>"
        "</manifest><spine><itemref idref='i'/></spine></package>"
    )
    codec = "gb18030" if encoding == "gb2312" else encoding
    good, bad = read_all(
        tmp_path / "a.epub", epub({"1.html": page("學而時習之")}, {"OEBPS/book.opf": opf.encode(codec)})
    )
    assert [(record.title, record.text) for record in good] == [("論語集注", "學而時習之")] and not bad
    good, bad = read_all(tmp_path / "a.docx", docx(paragraph("學而時習之"), head=head.replace(encoding, "unheard-of")))
    assert len(good) + len(bad) == 1
