"""The evaluation of decoding: right means the very text, and the tables have a row for every kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpus.texts import document
from tools.evaluate.encoding import CODECS, LENGTHS, decodes_to, expected, main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("legacy", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "legacy" / "a.html").write_bytes(b'<meta charset="gbk">\n' + document(1, 60).encode("gbk"))
    (tmp_path / "legacy" / "manifest.jsonl").write_text(json.dumps({"file": "a.html", "encoding": "gb18030"}))
    lines = [json.dumps({"text": document(index, 40)}) for index in range(3)]
    (tmp_path / "text" / "a.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_both_tables(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(data), "--passages", "2"])
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[1].split()[:4] == ["gb18030", "1", "1.00", "1.00"]
    assert len(second.splitlines()) == 1 + 3 * len(CODECS) * len(LENGTHS)
    assert second.splitlines()[1].split()[:5] == ["utf-8", "bare", "40", "2", "1.00"]


def test_right_is_the_very_text() -> None:
    data = document(1).encode("gbk")
    assert expected(data[:-1], "gb18030") == document(1)[:-1]
    assert decodes_to(data, None, document(1)) and not decodes_to(data, None, document(1)[:-1])
