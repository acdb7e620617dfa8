"""Evaluation and generation with a real tokenizer, real shards and a checkpoint: the commands, end to end."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from corpus.engine.errors import UsageError
from pretrain.__main__ import main
from pretrain.checkpoint import load_model
from pretrain.evaluation.bits import evaluate, leading_documents, read_held_out
from pretrain.evaluation.kneser_ney import character_baselines
from pretrain.generation import generate
from pretrain.reading import Reading
from tests.pretrain.data.test_reader import Document, write_folder
from tests.pretrain.texts import save_checkpoint, smallest_config
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split
from tokenizer.train import train

POEMS = [
    "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。",
    "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。",
    "春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。",
    "千山鸟飞绝，万径人踪灭。\n孤舟蓑笠翁，独钓寒江雪。",
    "红豆生南国，春来发几枝。\n愿君多采撷，此物最相思。",
    "空山不见人，但闻人语响。\n返景入深林，复照青苔上。",
]
HELD_OUT = ["", "白日依山尽，花落知多少。", "龘😀 abc", "月"]


@dataclass(frozen=True)
class Small:
    """A folder of token shards, its tokenizer, and a checkpoint trained (not at all) on it."""

    data: Path
    tokenizer: Tokenizer
    checkpoint: Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp("small")
    model = folder / "tokenizer.model"
    config = TokenizerConfig.model_validate({"vocab_size": 380, "character_coverage": 1.0, "num_threads": 1})
    model.write_bytes(train(POEMS * 20, config))
    tokenizer = Tokenizer(model)
    texts = {"00000-00-train": POEMS[:3], "00001-00-train": POEMS[3:], "00000-00-validation": HELD_OUT}
    shards: dict[str, list[Document]] = {
        name: [(f"{number:032x}", None, tokenizer.encode(text)) for number, text in enumerate(group)]
        for name, group in texts.items()
    }
    data = write_folder(folder / "tokens", shards, tokenizer.vocab_size, tokenizer.eod, tokenizer.sha256)
    saved = save_checkpoint(folder / "run", smallest_config(tokenizer.vocab_size), data, tokenizer)
    return Small(data, tokenizer, saved)


def test_held_out_text_comes_back_with_its_tokens(small: Small) -> None:
    held_out = read_held_out(small.data, "validation", small.tokenizer)
    assert held_out.texts == HELD_OUT
    assert held_out.num_characters == sum(map(len, HELD_OUT))
    expected = [token for text in HELD_OUT for token in [*small.tokenizer.encode(text), small.tokenizer.eod]]
    assert held_out.tokens.tolist() == expected


def test_fewer_tokens_are_whole_documents_of_every_shard(small: Small) -> None:
    shards = open_split(small.data, "train")
    sizes = [len(small.tokenizer.encode(poem)) + 1 for poem in POEMS]
    share = max(sizes[0], sizes[3]) + 1
    held_out = read_held_out(small.data, "train", small.tokenizer, max_tokens=2 * share)
    assert Counter(held_out.texts) == Counter([POEMS[0], POEMS[3]])
    assert len(leading_documents(shards, 2 * share)) == sizes[0] + sizes[3]
    assert Counter(read_held_out(small.data, "train", small.tokenizer).texts) == Counter(POEMS)


def test_text_that_is_not_there_or_not_ours_is_refused(small: Small, tmp_path: Path) -> None:
    eod = small.tokenizer.eod
    empty = write_folder(
        tmp_path / "empty",
        {"00000-00-train": [("0" * 32, None, [])]},
        small.tokenizer.vocab_size,
        eod,
        small.tokenizer.sha256,
    )
    for split in ("train", "validation"):
        with pytest.raises(UsageError, match=f"the {split} split has no text"):
            read_held_out(empty, split, small.tokenizer)
    foreign = write_folder(tmp_path / "foreign", {"00000-00-train": [("0" * 32, None, [5])]})
    with pytest.raises(UsageError, match="was not encoded with"):
        read_held_out(foreign, "train", small.tokenizer)


def test_the_evaluate_command(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--checkpoint", str(small.checkpoint), "--data", str(small.data), "--device", "cpu"]
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)

    model, config = load_model(small.checkpoint)
    held_out = read_held_out(small.data, "validation", small.tokenizer)
    reading = Reading.of(config, small.tokenizer.eod)
    result = evaluate(model, held_out, reading, 3, torch.device("cpu"))
    assert values["bits_per_character"] == pytest.approx(result.bits_per_character, rel=1e-6)
    assert values["loss"] == pytest.approx(math.log(small.tokenizer.vocab_size), abs=0.3), "it learned nothing yet"
    assert values["num_tokens"] == len(held_out.tokens)
    assert values["num_characters"] == held_out.num_characters
    for name, bits in character_baselines(POEMS, HELD_OUT).items():
        assert values[f"{name}_bits_per_character"] == pytest.approx(bits)

    assert main(arguments) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(lines["bits_per_character"]) == pytest.approx(result.bits_per_character, abs=1e-4)


def test_the_generate_command(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    def output(*options: str) -> str:
        arguments = ["generate", "--checkpoint", str(small.checkpoint), "--prompt", "明月", "--max-tokens", "30"]
        assert main([*arguments, "--device", "cpu", *options]) == 0
        return capsys.readouterr().out

    text = output("--seed", "1")
    assert text.startswith("明月")
    assert text.endswith("\n")
    assert text == output("--seed", "1")
    assert text != output("--seed", "2")
    assert output("--max-tokens", "0") == "明月\n"
    assert output("--temperature", "0") == output("--top-k", "1", "--seed", "9")


def test_a_text_is_printed_as_it_comes(
    small: Small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def texts(*_: object) -> Iterator[str]:
        for text in "春眠":
            seen.append(capsys.readouterr().out)
            yield text

    monkeypatch.setattr(generate, "stream_text", texts)
    assert main(["generate", "--checkpoint", str(small.checkpoint), "--prompt", "明月"]) == 0
    assert [*seen, capsys.readouterr().out] == ["明月", "春", "眠\n"]


def test_the_locale_changes_nothing(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    """FAULTS row 43."""
    arguments = ["generate", "--checkpoint", str(small.checkpoint), "--prompt", "明月", "--max-tokens", "9"]
    assert main(arguments) == 0
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "pretrain", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=250, check=True)
    assert done.stdout.decode() == capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("generate", "--max-tokens", "-1"),
        ("generate", "--seed", str(2**64)),
        ("evaluate", "--max-tokens", "-5"),
        ("evaluate", "--micro-batch-size", "0"),
    ],
)
def test_numbers_out_of_range_are_named(
    small: Small, command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(small.data)] if command == "evaluate" else []
    assert main([command, "--checkpoint", str(small.checkpoint), *data, option, value]) == UsageError.exit_code
    assert f"{option.lstrip('-')} {value}: it must be" in capsys.readouterr().err


def test_a_checkpoint_brings_its_tokenizer(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = shutil.copytree(small.checkpoint, tmp_path / "elsewhere" / small.checkpoint.name)
    assert (alone / "tokenizer.model").read_bytes() == small.tokenizer.path.read_bytes()
    arguments = ["generate", "--checkpoint", str(alone), "--prompt", "春", "--max-tokens", "2"]
    assert main(arguments) == 0
    (alone / "tokenizer.model").write_bytes(b"another")
    assert main(arguments) == 1
    assert "tokenizer.model" in capsys.readouterr().err


def test_a_prompt_of_any_text_is_taken(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    for prompt in ("", "龘😀", "<|endoftext|>"):
        assert main(["generate", "--checkpoint", str(small.checkpoint), "--prompt", prompt, "--max-tokens", "2"]) == 0
        assert capsys.readouterr().out.startswith(prompt)
