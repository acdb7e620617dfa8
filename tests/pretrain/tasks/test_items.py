"""Items come as they were published or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.tasks import items as items_module
from pretrain.tasks.definition import Task
from pretrain.tasks.items import read_items

BASE: dict[str, Any] = {
    "name": "mood",
    "description": "made up",
    "folder": ["mood", "old_mood"],
    "id": "id",
    "label": "label",
    "prompt": "ask",
    "split": "test",
    "splits": [
        {"name": "train", "files": ["train_0.json", "train_1.json"], "num_items": [1]},
        {"name": "train", "files": ["train_all.json"]},
        {"name": "test", "files": ["test.json"], "num_items": [2, 3]},
    ],
    "words": {"1": ["好"], "0": ["坏"]},
    "unlabelled": ["-"],
    "prompts": {"ask": {"context": "{text}"}},
}
GOOD = {"id": 7, "text": "天晴", "label": 1}
BAD = {"id": 8, "text": "天阴", "label": "0"}


def task(**changes: Any) -> Task:
    return Task.model_validate(BASE | changes)


def write(folder: Path, lines: list[Any], name: str = "mood/test.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_lines_become_items(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD, "", {**BAD, "label": "-"}, BAD])
    found = read_items(task(), tmp_path)
    assert found.path == path
    assert found.num_unlabelled == 1
    assert [(item.index, item.id, item.choice, item.fields["text"]) for item in found.items] == [
        (0, "7", 0, "天晴"),
        (3, "8", 1, "天阴"),
    ]


@pytest.mark.parametrize("size", [1, 4])
def test_a_number_of_items_that_was_not_published_is_an_error(tmp_path: Path, size: int) -> None:
    write(tmp_path, [GOOD] * size)
    with pytest.raises(
        UsageError, match=rf"test\.json: {size} items, but this split of mood was published with 2 or 3\."
    ):
        read_items(task(), tmp_path)


def test_lines_without_an_agreed_label_count_as_published(tmp_path: Path) -> None:
    write(tmp_path, [GOOD, {**GOOD, "label": "-"}])
    assert len(read_items(task(), tmp_path).items) == 1


def test_the_first_file_that_is_there_is_read(tmp_path: Path) -> None:
    everything = write(tmp_path, [GOOD, BAD, BAD], "old_mood/train_all.json")
    assert read_items(task(), tmp_path, "train").path == everything
    assert len(read_items(task(), tmp_path, "train").items) == 3  # no size was published
    second = write(tmp_path, [GOOD], "old_mood/train_1.json")
    assert read_items(task(), tmp_path, "train").path == second
    first = write(tmp_path, [GOOD], "old_mood/train_0.json")
    assert read_items(task(), tmp_path, "train").path == first
    assert read_items(task(), tmp_path, "train_1").path == second
    assert read_items(task(), tmp_path, "train_all").path == everything


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mood: none of train_0\.json, train_1\.json, train_all\.json is there"):
        read_items(task(), tmp_path, "train")
    with pytest.raises(UsageError, match="no split 'dev'; it has train, test"):
        read_items(task(), tmp_path, "dev")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "not a JSON object"),
        ('{"id": 1', "not JSON"),
        ('{"id": NaN}', "NaN is no JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"id": 1, "text": "\\ud800", "label": 1}', "not UTF-8"),
        ({"id": 1, "text": "天"}, "Accuracy needs labels"),
        ({"id": 1, "text": "天", "label": 2}, "label '2' is none of 1, 0"),
        ({"id": 1, "text": "天", "label": True}, "label 'True' is none of"),
        ({"text": "天", "label": 1}, "has no 'id'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    write(tmp_path, [GOOD, line])
    with pytest.raises(UsageError) as refused:
        read_items(task(), tmp_path)
    assert "test.json, line 2: " in str(refused.value)
    assert message in str(refused.value)


def test_a_line_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [GOOD, {**GOOD, "text": "天" * 100}])
    monkeypatch.setattr(items_module, "MAX_LINE_BYTES", 200)
    with pytest.raises(UsageError, match=r"line 2: is longer than 200 bytes"):
        read_items(task(), tmp_path)
    write(tmp_path, [GOOD, GOOD])
    monkeypatch.setattr(items_module, "MAX_ITEMS", 1)
    with pytest.raises(UsageError, match="more than 1 lines"):
        read_items(task(), tmp_path)


def test_items_with_answers_of_their_own(tmp_path: Path) -> None:
    gap = task(
        words={},
        unlabelled=[],
        label="answer",
        candidates="options",
        num_candidates=2,
        blank={"field": "text", "mark": "#"},
    )
    line = {"id": 1, "text": "今天#，出门", "options": ["晴", "雨"], "answer": 1}
    write(tmp_path, [line, line])
    item = read_items(gap, tmp_path).items[0]
    assert (item.choice, item.candidates) == (1, ("晴", "雨"))
    assert item.fields["text"] == {"before": "今天", "after": "，出门"}
    for changes, message in (
        ({"options": ["晴"]}, "1 different options; mood has 2"),
        ({"options": ["晴", "晴"]}, "1 different options"),
        ({"options": "晴雨"}, "no list of texts"),
        ({"answer": 2}, "answer '2' is none of 0, 1"),
        ({"text": "今天##"}, "no text with one #"),
        ({"text": None}, "no text with one #"),
    ):
        write(tmp_path, [line, {**line, **changes}])
        with pytest.raises(UsageError, match=rf"line 2: .*{message}"):
            read_items(gap, tmp_path)


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    write(tmp_path, [{**GOOD, "label": "-"}], "mood/train_all.json")
    with pytest.raises(UsageError, match="holds no items of mood"):
        read_items(task(), tmp_path, "train")
