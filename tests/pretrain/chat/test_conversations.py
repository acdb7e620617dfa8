"""Examples in the formats that people have: each recognised by its line, and what is wrong said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.errors import WenhaiError
from pretrain.chat.conversations import Message, NotAnExample, conversation_of
from pretrain.finetuning.sources import Files, number_of, survey

ASKED = (Message("user", "你好"), Message("assistant", "你好！"))


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": "你好", "completion": "你好！"},
        {"prompt": "你好", "answer": "你好！", "id": 3},
        {"prompt": "你好", "response": "你好！"},
        {"instruction": "你好", "input": "", "output": "你好！"},
        {"instruction": "你好", "output": "你好！", "system": ""},
        {"messages": [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "你好！"}]},
        {"conversations": [{"from": "human", "value": "你好"}, {"from": "gpt", "value": "你好！"}]},
        {"conversations": [{"from": "user", "value": "你好"}, {"from": "assistant", "value": "你好！"}]},
    ],
)
def test_formats_are_one_conversation(line: dict[str, Any]) -> None:
    assert conversation_of(line) == ASKED


def test_systems_inputs_and_more_turns() -> None:
    turns = [{"role": "system", "content": "简短"}, *({"role": m.role, "content": m.content} for m in ASKED * 2)]
    assert conversation_of({"messages": turns}) == (Message("system", "简短"), *ASKED, *ASKED)
    beside = conversation_of({"prompt": "你好", "completion": "你好！", "system": "简短"})
    assert beside == (Message("system", "简短"), *ASKED)
    alpaca = conversation_of({"instruction": "译", "input": "hello", "output": "你好"})
    assert alpaca == (Message("user", "译", "hello"), Message("assistant", "你好"))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ([], "no JSON object"),
        ({"text": "春"}, "has the keys text, and an example has prompt and completion"),
        ({}, r"\(none\)"),
        ({"prompt": "你好"}, "has the keys prompt"),
        ({"prompt": "你好", "answer": "一", "completion": "二"}, "completion and answer"),
        ({"prompt": "你好", "completion": 3}, "completion is no text"),
        ({"prompt": "你好", "completion": None}, "completion is not there"),
        ({"prompt": "", "completion": "你好"}, "nothing in turn 1, of the user"),
        ({"prompt": "你好", "completion": ""}, "nothing in turn 2, of the assistant"),
        ({"prompt": "\ud800", "completion": "你好"}, "half a character"),
        ({"messages": "你好"}, "no list of objects"),
        ({"messages": []}, "turns of nobody"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "turn 1: role is 'tool'"),
        ({"messages": [{"role": "user", "content": "x"}]}, "the assistant last"),
        (
            {"conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": "x"}]},
            "turns of assistant, user",
        ),
        (
            {"messages": [{"role": role, "content": "x"} for role in ("user", "system", "assistant")]},
            "system text that is not its first",
        ),
    ],
)
def test_what_is_no_example_is_said(line: Any, problem: str) -> None:
    with pytest.raises(NotAnExample, match=problem):
        conversation_of(line)


def test_a_bad_line_is_named_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps({"prompt": "你好", "completion": "你好！"}, ensure_ascii=False).encode()
    path.write_bytes(b"\n".join([good, b"", b"{", b"\xff{}", b"[" * 100_000, b'{"prompt": "x"}', good]))
    with pytest.raises(WenhaiError, match=r"a\.jsonl, line 3: is no JSON .*--skip-bad"):
        list(Files([str(path)]))
    source = Files([str(path)], skip_bad=True)
    assert [(example.messages, example.source, example.line) for example in source] == [
        (ASKED, "a.jsonl", 1),
        (ASKED, "a.jsonl", 7),
    ]
    assert source.num_skipped == 4
    assert survey(source).num_examples == 2 and survey(source).num_skipped == 4
    with pytest.raises(WenhaiError, match=r"b\.jsonl"):
        list(Files([str(tmp_path / "b.jsonl")]))


def test_a_message_shows_little_of_a_line_and_can_be_printed() -> None:
    for line in (
        {"\ud800" * 1000: 1},
        {"messages": [{"role": "\ud800x" * 1000, "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}] * 1000},
    ):
        with pytest.raises(NotAnExample) as caught:
            conversation_of(line)
        assert len(str(caught.value).encode()) < 1000


def test_an_array_is_told_how_to_become_lines(tmp_path: Path) -> None:
    """As Alpaca's data is published."""
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"instruction": "x", "output": "y"}] * 2, indent=1), encoding="utf-8-sig")
    with pytest.raises(WenhaiError, match=r"alpaca\.json, line 1: begins a JSON array.*`jq -c"):
        list(Files([str(path)]))


def test_a_file_may_begin_with_a_mark_and_end_lines_as_windows_does(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps({"prompt": "你好", "completion": "你好！"}, ensure_ascii=False)
    path.write_bytes(f"\ufeff{line}\r\n\r\n{line}".encode())
    assert [(example.messages, example.line) for example in Files([str(path)])] == [(ASKED, 1), (ASKED, 3)]


def test_a_line_beyond_all_bounds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pretrain.inference.lines.MAX_BYTES", 1 << 16)
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n" + json.dumps({"prompt": "x" * 200_000, "completion": "x"}))
    with pytest.raises(WenhaiError, match=r"a\.jsonl, line 2: is longer than 65,536 bytes"):
        list(Files([str(path)], skip_bad=True))


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/train.jsonl", "b/train.jsonl", "c.jsonl")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"prompt": "你好", "completion": "你好！"}))
    found = [example.source for example in Files([str(path) for path in paths])]
    assert found == [str(paths[0]), str(paths[1]), "c.jsonl"]


def test_equal_examples_are_all_held_out_or_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    numbers = [*range(40), *range(40)]
    path.write_text("\n".join(json.dumps({"prompt": f"{number}", "completion": "x"}) for number in numbers))
    source = Files([str(path)])
    last = survey(source, 0.25).last_held_out
    held_out = [example.messages[0].content for example in source if number_of(example.id) <= last]
    assert len(held_out) == 20 and all(held_out.count(each) == 2 for each in held_out)
    fewest = survey(source, 0.001).last_held_out
    assert len([example for example in source if number_of(example.id) <= fewest]) == 2
    assert survey(source).last_held_out == -1
    assert survey(source).digest == survey(source, 0.5).digest
    path.write_text(path.read_text().replace('"39"', '"40"'))
    assert survey(source, 0.25).digest != survey(Files([str(path)] * 2)).digest
