"""Templates: the text of a conversation, and where what a model says begins and ends in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from pretrain.chat.conversations import Message
from pretrain.chat.templates import Part, load_template, named_templates, parts, render, template_of

TURNS = (
    Message("system", "简短"),
    Message("user", "你好"),
    Message("assistant", "你好！"),
    Message("user", "译", "hello"),
    Message("assistant", "你好"),
)


def test_the_named_templates() -> None:
    assert named_templates() == ["dialogue", "instruction", "plain"]
    assert all(load_template(name).description for name in named_templates())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dialogue", "简短\n问：你好\n答：|你好！|\n问：译\nhello\n答：|你好"),
        ("instruction", "简短\n指令：你好\n回答：|你好！|\n指令：译\n输入：hello\n回答：|你好"),
        ("plain", "简短你好|你好！|译\nhello|你好"),
    ],
)
def test_parts_of_a_conversation(name: str, expected: str) -> None:
    texts = expected.split("|")
    template = load_template(name)
    assert parts(template, TURNS) == [Part(text, place % 2 == 1) for place, text in enumerate(texts)]
    assert render(template, TURNS[:4]) == "".join(texts[:3])
    assert parts(template, TURNS[:4]) == parts(template, TURNS)[:3]
    assert render(template, TURNS[:2]) == texts[0]


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[user]\nprefix = "Q: "\n[assistant]\nprefix = " A: "\n')
    assert render(load_template(path), [Message("user", "2+2")]) == "Q: 2+2 A: "
    path.write_text("[users]\n")
    with pytest.raises(UsageError, match="users"):
        load_template(path)
    with pytest.raises(UsageError, match=r"template\.toml two folders above"):
        template_of(tmp_path / "run" / "checkpoints" / "step-00000001")
    with pytest.raises(UsageError, match="none of dialogue, instruction, plain"):
        load_template(tmp_path / "other.toml")
