"""The tasks that come with the package: on made-up items, and on the published ones (WENHAI_TEST_DATA)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.tasks.definition import DEFINITIONS, NINE, Task, load_tasks
from pretrain.tasks.items import Item, draw_shots, read_items
from pretrain.tasks.prompts import Prompter, Wording, examples
from tests.pretrain.tasks.made_up import Characters

# One made-up line of each, and how it reads by the default prompt: (context, the right answer with what belongs to it).
LINES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "eprstmt": (
        {"id": 0, "sentence": "杯子轻，盖得严", "label": "Positive"},
        ("杯子轻，盖得严\n买家对这次购物感到", "很满意"),
    ),
    "csldcp": (
        {"id": 0, "content": "本文研究梯田的灌溉。", "label": "水利工程"},
        ("本文研究梯田的灌溉。\n这篇论文所属的学科是", "水利工程"),
    ),
    "tnews": (
        {"id": 0, "sentence": "主队踢进三球", "label": 103, "label_desc": "news_sports", "keywords": ""},
        ("主队踢进三球\n这条新闻的主题是", "体育"),
    ),
    "iflytek": (
        {"id": 0, "sentence": "查看路线，避开拥堵", "label": 1, "label_des": "地图导航"},
        ("查看路线，避开拥堵\n这款手机应用的类别是", "地图导航"),
    ),
    "ocnli": (
        {"id": 0, "sentence1": "窗外下着雨.", "sentence2": "外面是晴天", "label": "contradiction", "label0": None},
        ("窗外下着雨？", "错，外面是晴天"),
    ),
    "bustm": (
        {"id": 0, "sentence1": "几点开门", "sentence2": "什么时候营业", "label": "1"},
        ("几点开门？", "对，什么时候营业"),
    ),
    "chid": (
        {
            "id": 0,
            "content": "他写信总是#idiom#,不肯多写一字。",
            "candidates": ["花红柳绿", "惜墨如金", "山高水长", "日积月累", "风和日丽", "车水马龙", "一日千里"],
            "answer": 1,
        },
        ("他写信总是", "惜墨如金,不肯多写一字。"),
    ),
    "csl": (
        {"id": 0, "abst": "本文测量湖水的盐度.", "keyword": ["湖水", "盐度"], "label": "0"},
        ("本文测量湖水的盐度.的关键词", "不是，湖水、盐度"),
    ),
    "cluewsc": (
        {
            "idx": 0,
            "text": "小猫看见小鸟，它飞走了。",
            "target": {"span1_text": "小鸟", "span1_index": 4, "span2_text": "它", "span2_index": 7},
            "label": "true",
        },
        ("小猫看见小鸟，它飞走了。其中第7个字的它", "是小鸟"),
    ),
}
NUM_LABELS = dict(zip(NINE, (2, 67, 15, 119, 3, 2, 7, 2, 2), strict=True))
PUBLISHED = {  # train, dev, test_public
    "eprstmt": (32, 32, 610),
    "csldcp": (536, 536, 1784),
    "tnews": (240, 240, 2010),
    "iflytek": (928, 690, 1749),
    "ocnli": (32, 32, 2520),
    "bustm": (32, 32, 1772),
    "chid": (42, 42, 2002),
    "csl": (32, 32, 2838),
    "cluewsc": (32, 32, 976),
}


@pytest.fixture(params=NINE)
def task(request: pytest.FixtureRequest) -> Task:
    return load_tasks([request.param])[0]


def write(folder: Path, task: Task, name: str) -> None:
    path = folder / task.folder[0] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(LINES[task.name][0], ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", sorted(path.stem for path in DEFINITIONS.glob("*.toml")))
def test_a_line_reads_well_in_every_prompt(name: str, tmp_path: Path) -> None:
    """Of every definition that lies in the folder: whoever adds one adds a line here."""
    (task,) = load_tasks([name])
    write(tmp_path, task, task.splits[0].files[0])
    unsized = tuple(split.model_copy(update={"num_items": ()}) for split in task.splits)
    (item,) = read_items(task.model_copy(update={"splits": unsized}), tmp_path, task.splits[0].name).items
    assert Wording(task).answered(item) == LINES[name][1]
    for prompt in task.prompts:
        for expand in (False, True):
            prompted = Prompter(task, Characters(), 1000, prompt, expand).prompted(item)
            assert sorted(set(prompted.choice_of)) == list(range(len(task.labels)))
            assert all(one.first_scored < len(one.tokens) for one in prompted.request.continuations)
            answers = {tuple(one.tokens) for one in prompted.request.continuations}
            assert len(answers) == len(prompted.choice_of)  # no two words are asked alike


def test_examples_are_items_answered_by_their_label(task: Task, tmp_path: Path) -> None:
    write(tmp_path, task, "train_few_all.json")
    (item,) = read_items(task, tmp_path, "train").items
    assert list(examples(task.name, "train", tmp_path)) == [Wording(task, "label").answered(item)]
    assert Wording(task, "label").answered(item)[1] == Wording(task, "label").words(item)[item.choice][0]


def test_another_number_of_items_is_refused(task: Task, tmp_path: Path) -> None:
    for split, file in (("train", "train_3.json"), ("dev", "dev_0.json"), ("test_public", "test_public.json")):
        write(tmp_path, task, file)
        with pytest.raises(UsageError, match=rf"{file}: 1 items, but this split of {task.name} was published with"):
            read_items(task, tmp_path, split)
    sizes = {split.name: split.num_items for split in task.splits if split.num_items}
    assert tuple(sizes[name][0] for name in ("train", "dev", "test_public")) == PUBLISHED[task.name]
    assert [len(one) for one in sizes.values()] == [1, 1, 2 if task.name == "csl" else 1]


def test_answers_and_their_words(task: Task) -> None:
    assert len(task.labels) == NUM_LABELS[task.name]
    assert set(task.prompts) == {"label", "loss"}
    assert task.split == "test_public"
    expected = {"eprstmt": "label", "csldcp": "label", "tnews": "label", "iflytek": "label"}.get(task.name, "loss")
    assert task.prompt == expected
    for words in [task.words, *(prompt.words for prompt in task.prompts.values())]:
        for alike in words.values():
            assert all(word == word.strip() for word in alike)
            if len(task.labels) <= 15:
                assert len(alike) == 5
    if task.name == "tnews":
        assert [words[0] for words in task.words.values()] == (
            "故事 文化 娱乐 体育 财经 房产 汽车 教育 科技 军事 旅游 国际 股票 农业 电竞".split()
        )
    if task.name == "csldcp":
        assert all(words[0] == label for label, words in task.words.items())


# -------------------------------------------------------------------------------------------------- the published items
@pytest.fixture
def fewclue(test_data: Path) -> Path:
    """The folder of the nine tasks; the test is skipped where there is none."""
    folder = test_data / "eval" / "fewclue"
    if not folder.is_dir():
        pytest.skip("no eval/fewclue in WENHAI_TEST_DATA")
    return folder


def test_the_published_items_are_all_there(task: Task, fewclue: Path) -> None:
    splits = [read_items(task, fewclue, split).items for split in ("train", "dev", "test_public")]
    assert tuple(map(len, splits)) == PUBLISHED[task.name]
    assert {item.choice for items in splits for item in items} == set(range(len(task.labels)))  # and no label too many
    for item in (item for items in splits for item in items):
        described = item.fields.get("label_des")  # what IFLYTEK calls its class
        assert described is None or described == task.words[task.labels[item.choice]][0]
    most = Counter(item.choice for item in splits[2]).most_common(1)[0][1] / len(splits[2])
    assert task.chance <= most < task.chance + 0.02  # the public tests are balanced, or nearly


def test_published_items_fit_a_small_window_in_every_prompt(task: Task, fewclue: Path) -> None:
    items = read_items(task, fewclue).items
    shots = draw_shots(read_items(task, fewclue, "train").items, 4, seed=0)
    some: list[Item] = sorted(items, key=lambda item: -len(str(item.fields)))[:3] + items[:: len(items) // 10]
    for prompt in task.prompts:
        prompter = Prompter(task, Characters(), 256, prompt, shots=shots)
        for item in some:
            prompted = prompter.prompted(item)
            longest = max(len(one.tokens) for one in prompted.request.continuations)
            assert len(prompted.request.context) + longest <= 256
            if task.prompts[prompt].content_free_fields:
                free = prompter.prompted(item, "N/A")
                assert free.request.continuations == prompted.request.continuations
                assert free.num_shots == prompted.num_shots
