"""The items of a task as examples: its training split to learn from, its dev split to measure with."""

from __future__ import annotations

import argparse
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from pretrain.__main__ import planner
from pretrain.chat.conversations import Message
from pretrain.data.examples import read_record
from pretrain.finetuning import command
from pretrain.finetuning.sources import TaskItems
from tests.pretrain.finetuning.made import QUICK, base_config, write_base
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split

TASK = """
name = "sky"
description = "is it day"
folder = ["sky"]
id = "id"
label = "label"
prompt = "label"
split = "dev"
splits = [{ name = "train", files = ["train.json"] }, { name = "dev", files = ["dev.json"] }]

[words]
day = ["天", "白天"]
night = ["地", "夜里"]

[prompts.label]
context = "{sentence}，是"
scored = "{word}"
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "data" / "sky").mkdir(parents=True)
    for split, size in (("train", 6), ("dev", 4)):
        items = [{"id": n, "sentence": f"日{n}", "label": ("day", "night")[n % 2]} for n in range(size)]
        (tmp_path / "data" / "sky" / f"{split}.json").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    (tmp_path / "sky.toml").write_text(TASK)
    return tmp_path / "sky.toml"


def test_items_answered_rightly(task: Path) -> None:
    found = list(TaskItems(str(task), "train", task.parent / "data"))
    assert [example.messages for example in found[:2]] == [
        (Message("user", "日0，是"), Message("assistant", "天")),
        (Message("user", "日1，是"), Message("assistant", "地")),
    ]
    assert len(found) == 6
    with pytest.raises(UsageError, match="test"):
        list(TaskItems(str(task), "test", task.parent / "data"))


def test_a_task_is_a_run(task: Path, tmp_path: Path) -> None:
    base = write_base(tmp_path, base_config())
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--checkpoint", str(base), "--task", str(task), "--out", str(tmp_path / "run"), "--prepare", *QUICK]
    with pytest.raises(UsageError, match="--task-data"):
        command.main(parser.parse_args(words), planner())
    words += ["--task-data", str(tmp_path / "data")]
    with pytest.raises(UsageError, match=r"--held-out 0\.1: of a task the dev split"):
        command.main(parser.parse_args([*words, "--held-out", "0.1"]), planner())
    with redirect_stdout(StringIO()):
        command.main(parser.parse_args(words), planner())
    record = read_record(tmp_path / "run" / "examples")
    assert record is not None and {name: split.examples for name, split in record.splits.items()} == {
        "train": 6,
        "validation": 4,
    }
    (shard,) = open_split(tmp_path / "run" / "examples", "train")
    tokenizer = Tokenizer(base / "tokenizer.model")
    assert tokenizer.decode(shard.sequence(1)) == "日1，是地"
