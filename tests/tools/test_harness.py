"""lm-evaluation-harness beside our evaluation: the files it is given, and the comparison; the harness itself where it
is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.__main__ import main as pretrain
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.inference.scoring import Continuation, Request
from pretrain.tasks.items import Item
from pretrain.tasks.prompts import Prompted
from tests.pretrain.hf.runs import write_checkpoint
from tests.pretrain.texts import small_tokenizer, text_folder
from tests.tokenizer.texts import document
from tokenizer.model import Tokenizer
from tools.bench.peers.environment import HARNESS
from tools.harness import __main__ as command
from tools.harness import agreement, environment, pairs
from tools.harness.pairs import Cut

TASK = """
name = "{name}"
description = "测试"
folder = ["{name}"]
id = "id"
label = "label"
prompt = "label"
split = "test"
splits = [{{ name = "test", files = ["test.json"] }}]
[words]
0 = ["不满意"]
1 = ["很满意"]
[prompts.label]
context = "{{sentence}}\\n这句话的情感是"
scored = "{{word}}"
[prompts.loss]
given = "{{word}}，"
scored = "{{sentence}}"
[prompts.both]
given = "{{word}}，"
scored = "{{word}}：{{sentence}}"
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small.model")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """`checkpoint` and `hf` of one model, `masked` of another and `masked-hf`; `good.toml`, its items and
    `texts.jsonl`."""
    folder = tmp_path_factory.mktemp("harness")
    shards = text_folder(folder / "shards", tokenizer, {"00000-00-train": [document(seed) for seed in range(40)]})
    for name, out, model in (("checkpoint", "hf", {}), ("masked", "masked-hf", {"document_mask": True})):
        saved = write_checkpoint(folder / f"{name}-run", shards, tokenizer, {"sequence_length": 48, **model})
        (folder / name).symlink_to(saved)
        assert pretrain(["export", "--checkpoint", str(saved), "--out", str(folder / out)]) == 0
    (folder / "good.toml").write_text(TASK.format(name="good"))
    (folder / "data" / "good").mkdir(parents=True)
    items = [{"id": seed, "label": seed % 2, "sentence": document(seed)[:8]} for seed in range(5)]
    (folder / "data" / "good" / "test.json").write_text("".join(json.dumps(item) + "\n" for item in items))
    texts = [document(seed) for seed in range(60, 63)] + ["春"]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def arguments(run: Path, out: Path, *options: str, model: str = "hf", checkpoint: str = "checkpoint") -> list[str]:
    return ["--model", str(run / model), "--checkpoint", str(run / checkpoint), "--out", str(out), *options]


def everything(run: Path) -> list[str]:
    return ["--tasks", str(run / "data"), "--task", str(run / "good.toml"), "--text", str(run / "texts.jsonl")]


def as_the_harness(python: Path, model: Path, tasks: Path, out: Path, batch_size: int) -> Any:
    """What lm_eval 0.4.13 does with the files, spelled out: its own tokens from transformers, one forward for each
    pair."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    theirs = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    length = theirs.config.max_position_embeddings

    @torch.no_grad()
    def log_likelihood(before: list[int], after: list[int]) -> float:
        ids = torch.tensor([(before + after)[-(length + 1) :]])
        logits = theirs(ids[:, :-1]).logits[0, -len(after) :].log_softmax(-1)
        return float(logits.gather(1, torch.tensor(after)[:, None]).sum())

    def pair(context: str, continuation: str) -> float:
        eod = tokenizer.bos_token_id
        if not context:
            return log_likelihood([eod], tokenizer.encode(continuation, add_special_tokens=False))
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        before = [eod, *tokenizer.encode(context, add_special_tokens=False)]
        whole = [eod, *tokenizer.encode(context + continuation, add_special_tokens=False)]
        return log_likelihood(before, whole[len(before) :])

    def rolling(text: str) -> float:
        ids = tokenizer.encode(text, add_special_tokens=False)
        return sum(
            log_likelihood([tokenizer.bos_token_id, *ids[:first]][-(length + 1) :], ids[first : first + length])
            for first in range(0, len(ids), length)
        )

    found: dict[str, Any] = {}
    for path in tasks.glob("*.yaml"):
        task = {
            key: json.loads(value) for key, _, value in (line.partition(": ") for line in path.read_text().splitlines())
        }
        lines = [
            json.loads(line) for line in Path(task["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines()
        ]
        if task["output_type"] == "loglikelihood_rolling":
            samples = [[rolling(line["text"])] for line in lines]
            num_bytes = sum(len(line["text"].encode()) for line in lines)
            metrics = {"bits_per_byte,none": -sum(value for (value,) in samples) / num_bytes / 0.6931471805599453}
        else:
            assert task["target_delimiter"] == ""
            is_several = task["doc_to_text"] == "gold"
            samples = [
                [
                    pair(choice, line["continuation"]) if is_several else pair(line["context"], choice)
                    for choice in line["choices"]
                ]
                for line in lines
            ]
            right = [values.index(max(values)) == line["gold"] for values, line in zip(samples, lines, strict=True)]
            metrics = {"acc,none": sum(right) / len(right)}
        found[path.stem] = {"metrics": metrics, "samples": samples}
    return {"versions": dict.fromkeys(("lm_eval", "transformers", "torch"), "0"), "max_length": length, "tasks": found}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "interpreter", lambda: Path("python"))
    monkeypatch.setattr(environment, "run_script", as_the_harness)


def test_pairs_are_cut_as_the_harness_cuts_them(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.piece(id) for id in range(tokenizer.vocab_size) if not tokenizer.is_control(id)]
    merged = next(
        piece for piece in pieces if len(piece) == 2 and len(tokenizer.encode(piece)) == 1 and "\u2581" not in piece
    )
    assert pairs.cut_together(tokenizer, merged[0], merged[1]) == Cut(tuple(tokenizer.encode(merged[0])), ())
    text = pairs.cut_together(tokenizer, "春天\n ", "来")  # white space moves over
    assert text == Cut(
        tuple(tokenizer.encode("春天")), tuple(tokenizer.encode("春天\n 来")[len(tokenizer.encode("春天")) :])
    )
    assert pairs.cut_together(tokenizer, "", "来") == Cut((), tuple(tokenizer.encode("来")))
    assert pairs.cut_together(tokenizer, " ", "来") == Cut((), tuple(tokenizer.encode(" 来")))


def prompted(tokenizer: Tokenizer, context: str, *continuations: str) -> Prompted:
    answers = [Continuation(tokenizer.encode(text)) for text in continuations]
    return Prompted(Request(tokenizer.encode(context), answers), list(range(len(answers))), [1] * len(answers), 0, 0)


def test_what_the_harness_cannot_ask_is_left_out(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.piece(id) for id in range(tokenizer.vocab_size) if not tokenizer.is_control(id)]
    merged = next(
        piece for piece in pieces if len(piece) == 2 and len(tokenizer.encode(piece)) == 1 and "\u2581" not in piece
    )

    class Prompter:
        def prompted(self, item: Item) -> Prompted:
            return prompted(tokenizer, str(item.fields["text"]), merged[1], "春")

    items = [
        Item(0, "a", 0, {"text": merged[0]}),
        Item(1, "b", 0, {"text": "<|endoftext|>"}),
        Item(2, "c", 1, {"text": "，"}),
    ]
    found = pairs.questions("task", Prompter(), items, tokenizer)  # type: ignore[arg-type]
    assert [question.item.id for question in found.asked] == ["c"] and found.num_left_out == 2


def test_both_agree_on_everything(run: Path, tmp_path: Path, fake: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments(run, tmp_path, *everything(run))) == 0
    told = capsys.readouterr().out
    assert "good" in told and "bits per byte" in told and "Own:" not in told
    choices, texts = json.loads((tmp_path / "agreement.json").read_text())["agreements"]
    assert choices["num_items"] == 5 and choices["num_pairs"] == 10
    assert max(choices["difference"], choices["own_difference"], texts["difference"]) < 1e-5
    assert choices["accuracy"] == choices["harness_accuracy"]
    assert texts["num_tokens"] > 3 * 48 and texts["own_bits_per_byte"] == texts["bits_per_byte"]
    assert texts["harness_bits_per_byte"] == pytest.approx(texts["bits_per_byte"], rel=1e-5)


def test_a_conditional_loss_has_several_contexts(run: Path, tmp_path: Path, fake: None) -> None:
    options = ["--tasks", str(run / "data"), "--task", str(run / "good.toml"), "--method", "loss", "--limit", "3"]
    assert command.main(arguments(run, tmp_path, *options)) == 0
    (line, *others) = map(json.loads, (tmp_path / "tasks" / "wenhai_good.jsonl").read_text().splitlines())
    assert (
        len(others) == 2
        and line["choices"] == ["不满意，", "很满意，"]
        and line["continuation"] == document(int(line["id"]))[:8]
    )
    assert 'doc_to_text: "gold"' in (tmp_path / "tasks" / "wenhai_good.yaml").read_text()


def test_a_prompt_that_changes_both_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tasks", str(run / "data"), "--task", str(run / "good.toml"), "--method", "both"]
    assert command.main(arguments(run, tmp_path, *options)) == 2
    assert "changes the context and the continuation" in capsys.readouterr().err


def test_a_model_with_masks_is_compared_without_and_shown_with_them(
    run: Path, tmp_path: Path, fake: None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = arguments(run, tmp_path, *everything(run), model="masked-hf", checkpoint="masked")
    assert command.main(found) == 0
    assert "Own: with document masks" in capsys.readouterr().out
    choices, texts = json.loads((tmp_path / "agreement.json").read_text())["agreements"]
    assert max(choices["difference"], texts["difference"]) < 1e-5 < choices["own_difference"]
    assert abs(texts["own_bits_per_byte"] - texts["bits_per_byte"]) > 1e-5


def test_another_answer_of_the_harness_is_an_error(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(*args: Any) -> Any:
        found = as_the_harness(*args)
        found["tasks"]["wenhai_good"]["samples"][2][1] *= 1.001
        found["tasks"]["wenhai_good"]["metrics"]["acc,none"] += 0.2
        found["tasks"]["wenhai_texts"]["metrics"]["bits_per_byte,none"] *= 1.001
        return found

    monkeypatch.setattr(environment, "interpreter", lambda: Path("python"))
    monkeypatch.setattr(environment, "run_script", other)
    assert command.main(arguments(run, tmp_path, *everything(run))) == 1
    told = capsys.readouterr().err
    assert (
        "good: log-likelihoods differ by 1.0e-03" in told and "good: accuracy" in told and "bits per byte, and" in told
    )
    assert "our own evaluation differs" in told and (tmp_path / "agreement.json").exists()


def test_a_folder_of_another_checkpoint_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value, words in (
        ("config.json", '{"dtype": "bfloat16"}', "rounded to bfloat16"),
        ("tokenizer.model", None, "another one"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for path in (run / "hf").iterdir():
            if path.name != name:
                (folder / path.name).symlink_to(path)
            elif value is not None:
                (folder / name).write_text(value)
        found = arguments(run, tmp_path / "out", "--text", str(run / "texts.jsonl"))
        assert command.main([*found, "--model", str(folder)]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"), [([], "name what is asked"), (["--text", "a.jsonl", "--limit", "0"], "--limit 0")]
)
def test_a_mistaken_command_line_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert command.main(arguments(run, tmp_path, *options)) == 2
    assert words in capsys.readouterr().err


def test_files_hold_names_of_fields_and_no_templates(tmp_path: Path) -> None:
    name = pairs.write_texts(tmp_path, ["{{ text }}", "春\n天"])
    assert (tmp_path / f"{name}.jsonl").read_text() == '{"text": "{{ text }}"}\n{"text": "春\\n天"}\n'
    lines = (tmp_path / f"{name}.yaml").read_text().splitlines()
    assert 'doc_to_target: "text"' in lines and 'output_type: "loglikelihood_rolling"' in lines
    assert "word_perplexity" not in "".join(lines)  # overflows, and ends the run


def test_plain_reading_has_no_masks() -> None:
    assert agreement.plain(EvaluationBatcher(8, 0, True, True, True)) == EvaluationBatcher(8, 0)


@pytest.mark.slow
def test_the_harness_itself_agrees(run: Path, tmp_path: Path) -> None:
    if not HARNESS.is_installed():
        pytest.skip(
            "lm-evaluation-harness is not installed: python -m tools.harness installs it into build/peers/harness"
        )
    assert command.main(arguments(run, tmp_path / "label", *everything(run))) == 0
    options = ["--tasks", str(run / "data"), "--task", str(run / "good.toml"), "--method", "loss"]
    assert command.main(arguments(run, tmp_path / "loss", *options)) == 0
