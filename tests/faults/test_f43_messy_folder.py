"""A folder of files that are broken, locked or made to do harm: each is a counted record, or costs its own records."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from corpus.engine.run import run_stages
from tests.corpus.sources.document_files import docx, epub, page, paragraph, pdf, placed
from tests.corpus.sources.files import extract_stage
from tests.corpus.sources.test_archives import zipped
from tests.corpus.sources.test_stage import rows
from tests.corpus.texts import document

TEXTS = [document(seed) for seed in range(40)]
LINES = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in TEXTS[:3]).encode()
ENTITIES = '<!DOCTYPE a [<!ENTITY a "哈"><!ENTITY b "' + "&a;" * 99 + '">]>'
BOOK = epub({"a.xhtml": page("<p>学而时习之。</p>" * 50)})
LETTER = docx(paragraph("学而时习之。") * 50)
PAPER = pdf([placed(["学而时习之，不亦说乎？有朋自远方来"] * 20)])
LOCKS = (
    '<encryption><EncryptedData><EncryptionMethod Algorithm="urn:x"/><CipherData><CipherReference '
    'URI="OEBPS/text/a.xhtml"/></CipherData></EncryptedData></encryption>'
)


def gbk_zip() -> bytes:
    """Names as Windows wrote them."""
    data = zipped({"AAAA/BB.txt": TEXTS[5].encode()})
    return data.replace(b"AAAA/BB.txt", "论语/学.txt".encode("gbk")[:11].ljust(11, b"t"))


def arrow() -> bytes:
    pyarrow.feather.write_feather(pa.table({"body": TEXTS[:2], "n": [1, 2]}), sink := io.BytesIO())
    return sink.getvalue()


def climbing() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for number, name in enumerate(("../../up.txt", "/abs.txt", "a/../../b.txt", "C:\\c.txt")):
            archive.writestr(name, TEXTS[10 + number])
    return sink.getvalue()


# name: (bytes, rules of the fates, documents)
FILES: dict[str, tuple[bytes, dict[str, int], int]] = {
    "bomb.zip": (zipped({"a.txt": bytes(300 << 20)}), {"error:bomb": 1}, 0),
    "bomb.docx": (docx(paragraph("a" * (300 << 20))), {"error:bomb": 1}, 0),
    "entities.docx": (docx("", head=ENTITIES), {"error:docx": 1}, 0),
    "entities.epub": (epub({"a.xhtml": ENTITIES + "<p>&b;</p>"}), {"error:epub": 1}, 0),
    "locked.pdf": (pdf([placed(["学而时习之"] * 9)], password=b"x"), {"error:encrypted": 1}, 0),
    "locked.epub": (
        epub({"a.xhtml": page("<p>学</p>")}, {"META-INF/encryption.xml": LOCKS}),
        {"error:encrypted": 1},
        0,
    ),
    "cut.pdf": (PAPER[: len(PAPER) // 3], {"error:truncated": 1}, 0),
    "cut.docx": (LETTER[: len(LETTER) // 2], {"error:corrupt": 1}, 0),
    "cut.epub": (BOOK[: len(BOOK) // 2], {"error:corrupt": 1}, 0),
    "scan.pdf": (pdf([[]]), {"error:no_text_layer": 1}, 0),
    "cut.json": (b"[" + LINES.replace(b"\n", b",")[:-9], {"error:truncated": 1}, 2),
    "quotes.csv": (f'id,text\n1,{"学" * 60}\n2,"{"而" * 60}\n3,{"时" * 60}\n'.encode(), {"error:csv": 1}, 2),
    "other.arrow": (arrow(), {"error:field": 2}, 0),
    "gbk.zip": (gbk_zip(), {}, 1),
    "climb.zip": (climbing(), {}, 4),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messy")
    (folder / "deep" / "in").mkdir(parents=True)
    for name, (data, _, _) in FILES.items():
        (folder / "deep/in" / name).write_bytes(data)
    (folder / "deep/in/loop").symlink_to(folder / "deep/in")
    (folder / "deep/in/gone").symlink_to(folder / "nowhere")
    return folder


def test_each_file_is_counted_once_and_none_leaves_its_place(folder: Path) -> None:
    before = {path for path in folder.rglob("*") if not path.is_symlink()}
    stage = extract_stage(str(folder / "deep/in"), max_error_ratio=1.0)
    build = run_stages([stage], str(folder / "out"), workers=0)["extract"]
    assert {path for path in folder.rglob("*") if not path.is_symlink() and "out" not in path.parts} == before
    fates = Counter((row["place"].partition(":")[0].partition("!")[0], row["rule"]) for row in rows(build, "fates"))
    expected = {(name, rule): count for name, (_, rules, _) in FILES.items() for rule, count in rules.items()}
    assert fates == expected
    places = [place for file in build.files("places") for place in pq.read_table(file.url)["place"].to_pylist()]
    kept = Counter(place.partition(":")[0].partition("!")[0] for place in places)
    assert kept == {name: documents for name, (_, _, documents) in FILES.items() if documents}
    assert any(place.startswith("gbk.zip!论语/") for place in places)
