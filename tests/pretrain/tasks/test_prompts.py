"""What a model is asked, token by token; a token is a character here, unless a test says otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.tasks.definition import Task
from pretrain.tasks.items import Item
from pretrain.tasks.prompts import Prompted, Prompter, Wording, flat
from tests.pretrain.tasks.made_up import Characters

BASE: dict[str, Any] = {
    "name": "mood",
    "description": "made up",
    "folder": ["mood"],
    "id": "id",
    "label": "label",
    "prompt": "label",
    "split": "test",
    "splits": [{"name": "test", "files": ["test.json"]}],
    "words": {"good": ["好", "很棒"], "bad": ["坏"]},
    "prompts": {
        "label": {"context": "{text}，真"},
        "loss": {"context": "{text}？", "given": "{word}，", "scored": "{second}"},
        "noisy": {"given": "真{word}：", "scored": "{text}"},
        "gap": {"context": "{text}", "scored": "{word}{second}", "cut": "start"},
        "own": {"context": "{text}", "words": {"bad": ["差"], "good": ["优"]}},
        "again": {"context": "{text}？", "scored": "{word}，{text}"},
        "part": {"context": "{second}里的{text}", "emptied": ["second"]},
    },
}
TASK = Task.model_validate(BASE)
ITEM = Item(0, "0", 0, {"text": "天晴", "second": "出门"})


class Pairs:
    """Two characters are a token, as far as there are two: nothing is a token's own but where it begins."""

    def encode(self, text: str) -> list[int]:
        return [
            sum(ord(one) << 20 * place for place, one in enumerate(text[at : at + 2])) for at in range(0, len(text), 2)
        ]


def prompter(prompt: str = "label", room: int = 1000, task: Task = TASK, **options: Any) -> Prompter:
    return Prompter(task, Characters(), room, prompt, **options)


def text(tokens: Any) -> str:
    return "".join(map(chr, tokens))


def told(prompted: Prompted) -> tuple[str, list[tuple[str, str]]]:
    """The context, and (given, scored) of each continuation."""
    request = prompted.request
    return text(request.context), [
        (text(one.tokens[: one.first_scored]), text(one.tokens[one.first_scored :])) for one in request.continuations
    ]


@pytest.mark.parametrize(
    ("name", "expand", "context", "continuations", "choice_of"),
    [
        ("label", False, "天晴，真", [("", "好"), ("", "坏")], [0, 1]),
        ("label", True, "天晴，真", [("", "好"), ("", "很棒"), ("", "坏")], [0, 0, 1]),
        ("loss", False, "天晴？", [("好，", "出门"), ("坏，", "出门")], [0, 1]),
        ("noisy", False, "", [("真好：", "天晴"), ("真坏：", "天晴")], [0, 1]),
        ("own", False, "天晴", [("", "优"), ("", "差")], [0, 1]),  # in the order of the labels
    ],
)
def test_a_prompt_is_a_context_and_what_is_given_and_scored_of_each_answer(
    name: str, expand: bool, context: str, continuations: list[tuple[str, str]], choice_of: list[int]
) -> None:
    prompted = prompter(name, expand=expand).prompted(ITEM)
    assert told(prompted) == (context, continuations)
    assert prompted.choice_of == choice_of
    assert prompted.num_characters == [len(scored) for _, scored in continuations]
    assert (prompted.num_shots, prompted.num_cut) == (0, 0)


def test_the_word_and_what_follows_it_are_scored_together() -> None:
    item = Item(0, "0", 1, {"text": "今天", "second": "，出门"}, candidates=("晴", "雨"))
    task = Task.model_validate(
        BASE | {"words": {}, "candidates": "options", "num_candidates": 2, "prompts": {"label": BASE["prompts"]["gap"]}}
    )
    assert told(prompter(task=task).prompted(item)) == ("今天", [("", "晴，出门"), ("", "雨，出门")])
    assert Wording(task).answered(item) == ("今天", "雨，出门")


def test_each_part_is_encoded_for_itself() -> None:
    pairs = Pairs()
    request = (
        Prompter(TASK, pairs, 1000, "loss", shots=(ITEM,))
        .prompted(Item(0, "0", 0, {"text": "阴", "second": "一二三"}))
        .request
    )
    assert list(request.context) == pairs.encode("天晴？好，出门\n") + pairs.encode("阴？")
    assert list(request.continuations[0].tokens) == pairs.encode("好，") + pairs.encode("一二三")
    assert request.continuations[0].first_scored == 1


def test_examples_stand_before_with_their_answers() -> None:
    shots = (Item(1, "1", 1, {"text": "下雨"}), Item(2, "2", 0, {"text": "有风"}))
    prompted = prompter(shots=shots).prompted(ITEM)
    assert told(prompted)[0] == "下雨，真坏\n有风，真好\n天晴，真"
    assert prompted.num_shots == 2


def test_content_free_is_the_context_alone_after_the_same_examples() -> None:
    shots = (Item(1, "1", 1, {"text": "下雨", "second": "回家"}),)
    free = prompter(shots=shots).prompted(ITEM, "N/A")
    assert told(free) == ("下雨，真坏\nN/A，真", [("", "好"), ("", "坏")])
    assert free.num_shots == 1
    assert told(prompter("loss", shots=shots).prompted(ITEM, "")) == (
        "下雨？坏，回家\n？",
        [("好，", "出门"), ("坏，", "出门")],
    )
    assert told(prompter("part").prompted(ITEM, "空"))[0] == "空里的天晴"
    assert told(prompter("again").prompted(ITEM, "空")) == ("空？", [("", "好，天晴"), ("", "坏，天晴")])
    with pytest.raises(UsageError, match=r"task mood, prompt noisy: .* nothing to calibrate"):
        prompter("noisy").prompted(ITEM, "空")


def test_content_free_has_the_examples_of_its_item() -> None:
    shots = (Item(1, "1", 1, {"text": "下雨"}),)
    long = Item(3, "3", 0, {"text": "天" * 8})
    assert told(prompter(room=12, shots=shots).prompted(long, "空"))[0] == "空，真"
    assert told(prompter(room=12, shots=shots).prompted(ITEM, "空"))[0] == "下雨，真坏\n空，真"


def test_the_longest_examples_are_left_out_first() -> None:
    shots = tuple(
        Item(size, str(size), 0, {"text": "雨" * size}) for size in (1, 9, 4, 2)
    )  # and 4 characters more each
    for room, kept in (
        (1000, [1, 9, 4, 2]),
        (5 + 32, [1, 9, 4, 2]),
        (5 + 31, [1, 4, 2]),
        (5 + 18, [1, 2]),
        (5 + 5, [1]),
        (5 + 4, []),
    ):
        prompted = prompter(room=room, shots=shots).prompted(ITEM)
        assert told(prompted)[0] == "".join("雨" * size + "，真好\n" for size in kept) + "天晴，真"
        assert (prompted.num_shots, prompted.num_cut) == (len(kept), 0)


def test_a_long_text_loses_its_end_and_the_question_stays() -> None:
    item = Item(0, "0", 0, {"text": "一二三四五六七八"})
    whole, cut = prompter(room=11).prompted(item), prompter(room=7).prompted(item)
    assert (told(whole)[0], whole.num_cut) == ("一二三四五六七八，真", 0)
    assert (told(cut)[0], cut.num_cut) == ("一二三四，真", 4)
    assert told(prompter(room=7, expand=True).prompted(item))[0] == "一二三，真"  # room for the longest word
    assert told(prompter(room=3).prompted(item))[0] == "，真"
    with pytest.raises(
        UsageError, match="task mood, prompt label: the question without its texts is longer than the 2 tokens"
    ):
        prompter(room=2).prompted(item)


def test_the_text_before_a_gap_loses_its_beginning() -> None:
    item = Item(0, "0", 0, {"text": "一二三四五", "second": "六七八"})
    assert told(prompter("gap", room=7).prompted(item)) == ("三四五", [("", "好六七八"), ("", "坏六七八")])
    other = Item(0, "0", 0, {"text": "一二", "second": "三四五六七"})
    assert told(prompter("gap", room=5).prompted(other)) == ("一二", [("", "好三四"), ("", "坏三四")])


def test_a_scored_text_is_cut_for_all_answers_alike() -> None:
    prompted = prompter("noisy", room=6).prompted(Item(0, "0", 0, {"text": "一二三四五"}))
    assert told(prompted) == ("", [("真好：", "一二三"), ("真坏：", "一二三")])
    assert prompted.num_cut == 2
    with pytest.raises(UsageError, match="item 0: leaves nothing to score"):
        prompter("noisy", room=3).prompted(Item(0, "0", 0, {"text": "一二三四五"}))


@given(
    st.text(min_size=1, max_size=40),
    st.text(min_size=1, max_size=40),
    st.integers(8, 60),
    st.sampled_from(["label", "loss", "gap", "noisy"]),
)
def test_all_that_is_read_fits_and_no_more_is_cut_than_must(first: str, second: str, room: int, name: str) -> None:
    item = Item(0, "0", 0, {"text": first, "second": second})
    asked = Prompter(TASK, Pairs(), room, name, shots=(ITEM,)).prompted(item)
    longest = len(asked.request.context) + max(len(one.tokens) for one in asked.request.continuations)
    assert longest <= room
    if asked.num_cut:
        assert longest == room
        assert asked.num_shots == 0


def test_braces_of_a_text_are_text() -> None:
    item = Item(0, "0", 0, {"text": "{second}{word}{0}{text.__class__}", "second": "{word}"})
    assert told(prompter().prompted(item))[0] == "{second}{word}{0}{text.__class__}，真"
    assert told(prompter("loss").prompted(item))[1][0] == ("好，", "{word}")


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"task mood, prompt loss: an item has no text \{second\}. It has: text"):
        prompter("loss").prompted(Item(0, "0", 0, {"text": "天", "second": None}))


def test_objects_lists_and_numbers() -> None:
    assert flat({"a": {"b": {"c": "深"}, "d": 3}, "e": ["一", 2], "f": [], "g": None, "h": [None]}) == {
        "a.b.c": "深",
        "a.d": "3",
        "e": "一、2",
        "f": "",
    }


def test_a_trimmed_field_leaves_its_closing_punctuation_out() -> None:
    task = Task.model_validate(BASE | {"trimmed": ["text", "none"]})
    assert Wording(task, "loss").answered(Item(0, "0", 1, {"text": "是吗？！", "second": "是。"})) == (
        "是吗？",
        "坏，是。",
    )
    assert Wording(task, "loss").answered(Item(0, "0", 1, {"text": "？！", "second": "是"}))[0] == "？！？"
