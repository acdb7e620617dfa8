"""Files of prompts: what is read, and what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from pretrain.generation import command
from pretrain.generation.command import read_prompts


def read(path: Path, raw: bytes) -> list[str]:
    path.write_bytes(raw)
    return list(read_prompts(path))


def test_each_line_is_a_prompt(tmp_path: Path) -> None:
    assert read(tmp_path / "a.txt", "\ufeff春天\r\n\n 夏 \n{}".encode()) == ["春天", " 夏 ", "{}"]
    lines = '\ufeff{"prompt": "春\\n天", "id": 1}\n\r\n{"prompt": ""}\n{"prompt": "\ufeff"}'
    assert read(tmp_path / "a.jsonl", lines.encode()) == ["春\n天", "", "\ufeff"]
    assert read(tmp_path / "empty.txt", b"") == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.jsonl", b"{"),
        ("a.jsonl", b'"a text"'),
        ("a.jsonl", b'{"text": "a"}'),
        ("a.jsonl", b'{"prompt": 3}'),
        ("a.jsonl", b'{"prompt": "\\ud800"}'),
        ("a.jsonl", b"[" * 100_000),
        ("a.jsonl", b'{"prompt": "\xff"}'),
        ("a.txt", b"\xe6\xb5"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, name: str, line: bytes) -> None:
    good = b'{"prompt": "a"}\n\n'
    with pytest.raises(UsageError, match=rf"{name}, line 3: .*(Mend the line|Convert the file)") as caught:
        read(tmp_path / name, good + line + b"\n" + good)
    str(caught.value).encode()


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"none\.txt: cannot be read"):
        list(read_prompts(tmp_path / "none.txt"))
    with pytest.raises(UsageError, match=r"a\.csv: name it"):
        read(tmp_path / "a.csv", b"")
    monkeypatch.setattr(command, "MAX_LINE_BYTES", 5)
    with pytest.raises(UsageError, match=r"a\.txt, line 2: is longer"):
        read(tmp_path / "a.txt", b"12345\n123456\n")
