"""What a task file may say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from pretrain.tasks.definition import NINE, load_tasks

OWN = """
name = "mood"
description = "made up"
folder = ["mood"]
id = "id"
label = "label"
prompt = "ask"
split = "test"
splits = [{ name = "test", files = ["test.json"], num_items = [3, 4] }]

[words]
good = ["好", "棒"]
bad = ["坏"]

[prompts.ask]
context = "{text}，真"

[prompts.noisy]
given = "真{word}："
scored = "{text}"
"""


def load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    load_tasks([str(path)])


def test_a_file_of_ones_own_stands_beside_the_nine(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    mood, tnews = load_tasks([str(tmp_path / "own.toml"), "tnews"])
    assert mood.labels == ("good", "bad")
    assert mood.chance == 0.5
    assert mood.words["good"] == ("好", "棒")
    assert mood.prompt_named().scored == "{word}"
    assert mood.prompt_named("noisy").content_free_fields == ()
    assert mood.prompt_named("ask").content_free_fields == ("text",)
    assert mood.content_free == ("", "N/A", "空", "，")
    assert tnews.name == "tnews"


def test_the_nine_are_loaded_by_default() -> None:
    assert tuple(task.name for task in load_tasks()) == NINE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('context = "{text}，真"', 'context = "{word}{text}"', "the same for all answers"),
        ('context = "{text}，真"', 'context = "{text} {真的 好}"', "a brace without a field"),
        ('context = "{text}，真"', 'context = "{text}{"', "a brace without a field"),
        ('context = "{text}，真"', 'context = "{text}"\nscored = "好"', "all answers would cost the same"),
        ('context = "{text}，真"', 'context = "{text}"\ngiven = "{word}"\nscored = ""', "would cost nothing"),
        ('context = "{text}，真"', 'context = "真"\nemptied = ["text"]', "the context has no field {text}"),
        ('context = "{text}，真"', 'context = "真"\nwords.good = ["对"]', "prompts.ask.words: not the labels"),
        ('context = "{text}，真"', 'context = "真"\nwords = { good = ["对"], bad = ["对"] }', "对 stands there twice"),
        ('context = "{text}，真"', 'contxt = "{text}"', "unknown key"),
        ('bad = ["坏"]', 'bad = ["棒"]', "棒 stands there twice"),
        ('bad = ["坏"]', 'bad = ["坏", "坏"]', "坏 stands there twice"),
        ('bad = ["坏"]', "bad = []", "at least 1"),
        ('bad = ["坏"]', "", "fewer than two answers"),
        ('prompt = "ask"', 'prompt = "asks"', "there is no [prompts.asks]"),
        ('split = "test"', 'split = "dev"', "no split is named dev"),
        ('label = "label"', 'label = "label"\ncandidates = "options"', "belong together"),
        ('label = "label"', 'label = "label"\ncandidates = "options"\nnum_candidates = 3', "either `words` or"),
    ],
)
def test_what_could_not_be_asked_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in OWN
    with pytest.raises(UsageError) as refused:
        load(tmp_path, OWN.replace(old, new, 1))
    assert message in str(refused.value)
    assert "own.toml" in str(refused.value)


def test_names_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace('"mood"', '"tnews"', 1))
    with pytest.raises(UsageError, match=r"task sst2: there is none; bustm, .*eprstmt, .*\.toml"):
        load_tasks(["sst2"])
    with pytest.raises(UsageError, match="tnews is named twice"):
        load_tasks(["tnews", str(tmp_path / "own.toml")])
    with pytest.raises(UsageError, match="cannot be read"):
        load_tasks([str(tmp_path / "missing.toml")])
    task, wsc = load_tasks(["chid", "cluewsc"])
    assert wsc.prompt_named("loss").content_free_fields == ("text",)  # the pronoun stays
    with pytest.raises(UsageError, match="task chid: no prompt 'pmi'; it has loss, label"):
        task.prompt_named("pmi")
