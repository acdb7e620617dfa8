"""The command with a real tokenizer and a checkpoint: what it prints and writes, and what it says of bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.__main__ import main
from pretrain.generation import command
from tests.pretrain.texts import save_checkpoint, small_tokenizer, smallest_config, text_folder
from tests.tokenizer.texts import documents


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    tokenizer = small_tokenizer(folder / "tokenizer.model")
    texts = documents(4)
    data = text_folder(folder / "tokens", tokenizer, {"00000-00-train": texts, "00000-00-validation": texts[:1]})
    return save_checkpoint(folder / "run", smallest_config(tokenizer.vocab_size), data, tokenizer)


@pytest.fixture
def output(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command and gives what is printed."""

    def run(*options: str, code: int = 0) -> str:
        arguments = ["generate", "--checkpoint", str(checkpoint), "--max-tokens", "20", "--device", "cpu", *options]
        assert main(arguments) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def test_one_prompt_is_continued(output: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = output("--prompt", "明月", "--seed", "1")
    assert text.startswith("明月")
    assert text.endswith("\n")
    assert text == output("--prompt", "明月", "--seed", "1")
    assert text != output("--prompt", "明月", "--seed", "2")
    assert output("--prompt", "明月", "--max-tokens", "0") == "明月\n"
    assert output("--temperature", "0") == output("--top-k", "1", "--seed", "9")
    assert output("--temperature", "0") != output("--temperature", "0", "--repetition-penalty", "9")
    assert output("--top-p", "0.0001", "--seed", "3") == output("--temperature", "0")


def test_a_text_is_printed_as_it_comes(
    output: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pretrain.generation import generate

    seen: list[str] = []
    take = generate.Text.take

    def noting(text: generate.Text, token: int) -> str:
        seen.append(capsys.readouterr().out)
        return take(text, token)

    monkeypatch.setattr(generate.Text, "take", noting)
    rest = output("--prompt", "明月", "--max-tokens", "9")
    assert seen[0] == "明月"
    assert sum(map(bool, seen)) > 3, "not all at once"
    monkeypatch.undo()
    assert "".join(seen) + rest == output("--prompt", "明月", "--max-tokens", "9")


def test_many_prompts_are_answered_in_their_order(output: Any, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out" / "t.jsonl"
    lines = ["春", "", "明月" * 9, "夏"]
    prompts.write_text("".join(json.dumps({"prompt": line}) + "\n" for line in lines))
    options = ["--prompts", str(prompts), "--num-samples", "2", "--batch-size", "3", "--stop", "的", "--stop", "一"]
    assert output(*options, "--out", str(out)) == ""
    written = out.read_text()
    records = [json.loads(line) for line in written.splitlines()]
    assert [(record["prompt"], record["sample"]) for record in records] == [(line, i) for line in lines for i in (0, 1)]
    assert {record["end"] for record in records} <= {"eod", "stop", "length"}
    assert not any("的" in record["text"] or "一" in record["text"] for record in records)
    assert output(*options, "--json") == written
    shown = output(*options)
    assert shown.startswith(f"--- 1.1\n春{records[0]['text']}\n\n--- 1.2\n春{records[1]['text']}\n")
    assert [path.name for path in out.parent.iterdir()] == ["t.jsonl"]


def test_a_prompt_beyond_the_window_is_said(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--checkpoint", str(checkpoint), "--prompt", "一" * 8, "--max-tokens", "2"]) == 0
    assert (
        "prompt 1: has 8 tokens, and the model reads 6 at a time; it begins with the last 3" in capsys.readouterr().err
    )


def test_no_file_is_left_where_it_fails(output: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise UsageError("the second is one too many")

    out = tmp_path / "t.jsonl"
    out.write_text("the old one")
    monkeypatch.setattr(command, "json", SimpleNamespace(dumps=fail))
    assert "one too many" in output("--out", str(out), code=UsageError.exit_code)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the old one"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-tokens", "-1"], "max_tokens -1: it must be"),
        (["--seed", str(2**64)], f"seed {2**64}: it must be"),
        (["--num-samples", "0"], "num_samples 0: it must be"),
        (["--batch-size", "0"], "batch_size 0: it must be"),
        (["--stop", ""], "a stop string is empty"),
        (["--prompt", "\ud800"], "--prompt: "),
        (["--prompts", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--out", "texts.txt"], "name it .jsonl"),
        (["--out", "."], "name it .jsonl"),
    ],
)
def test_what_is_wrong_is_named(output: Any, options: list[str], message: str) -> None:
    assert message in output(*options, code=UsageError.exit_code)


def test_the_prompts_are_not_written_over(output: Any, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "春"}\n')
    assert "the file with the prompts" in output(
        "--prompts", str(prompts), "--out", str(tmp_path / "." / "p.jsonl"), code=UsageError.exit_code
    )


def test_a_prompt_of_any_text_is_taken(output: Any) -> None:
    for prompt in ("", "龘😀", "<|endoftext|>", "\ufeff"):
        assert output("--prompt", prompt, "--max-tokens", "2").startswith(prompt)
    assert output("--prompt", os.fsdecode(b"a\xff"), "--max-tokens", "0") == "a\ufffd\n"


def test_weights_may_be_narrower(output: Any) -> None:
    assert output("--prompt", "春", "--dtype", "bfloat16").startswith("春")


def test_the_locale_changes_nothing(checkpoint: Path, output: Any) -> None:
    """FAULTS row 43."""
    arguments = ["--prompt", "明月", "--max-tokens", "9"]
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "pretrain", "generate", "--checkpoint", str(checkpoint), *arguments]
    done = subprocess.run(words, env=environment, capture_output=True, timeout=250, check=True)
    assert done.stdout.decode() == output(*arguments)


def test_a_checkpoint_brings_its_tokenizer(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = shutil.copytree(checkpoint, tmp_path / "elsewhere" / checkpoint.name)
    arguments = ["generate", "--checkpoint", str(alone), "--prompt", "春", "--max-tokens", "2"]
    assert main(arguments) == 0
    (alone / "tokenizer.model").write_bytes(b"another")
    assert main(arguments) == 1
    assert "tokenizer.model" in capsys.readouterr().err
