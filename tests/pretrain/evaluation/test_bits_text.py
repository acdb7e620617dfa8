"""Evaluation with a real tokenizer, real shards and a checkpoint: held-out text, texts of files, the command, end to
end."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from corpus.engine.errors import UsageError
from pretrain.__main__ import main
from pretrain.checkpoint import load_model
from pretrain.evaluation import command
from pretrain.evaluation import held_out as held_out_module
from pretrain.evaluation.bits import Evaluation, encode_batches, evaluate, evaluate_documents
from pretrain.evaluation.command import table
from pretrain.evaluation.held_out import UNKNOWN, leading_documents, read_held_out
from pretrain.evaluation.kneser_ney import character_baselines
from pretrain.evaluation.texts import Text
from pretrain.inference.batcher import EvaluationBatcher
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
    shards = sorted(open_split(small.data, "train"), key=lambda shard: shard.num_tokens)
    sizes = [len(small.tokenizer.encode(poem)) + 1 for poem in POEMS]
    share = max(sizes[0], sizes[3]) + 1
    held_out = read_held_out(small.data, "train", small.tokenizer, max_tokens=2 * share)
    assert Counter(held_out.texts) == Counter([POEMS[0], POEMS[3]])
    assert sum(map(len, leading_documents(shards, 2 * share))) == sizes[0] + sizes[3]
    assert Counter(read_held_out(small.data, "train", small.tokenizer).texts) == Counter(POEMS)


@pytest.mark.parametrize("max_tokens", [10_000, 120])
def test_each_document_has_the_source_that_its_shard_lists(small: Small, max_tokens: int) -> None:
    held_out = read_held_out(small.data, "train", small.tokenizer, max_tokens)
    assert 2 <= len(held_out.texts) <= 6
    for document in held_out.documents():
        assert document.source == ("00000" if document.text in POEMS[:3] else "00001")
        assert document.tokens.tolist() == small.tokenizer.encode(document.text)


def test_without_tables_of_documents_or_without_pyarrow_sources_are_unknown(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(small.data, tmp_path / "copy")
    (copy / "data" / "00001-00-train.docs.parquet").unlink()
    held_out = read_held_out(copy, "train", small.tokenizer)
    assert held_out.sources is None and {document.source for document in held_out.documents()} == {UNKNOWN}
    monkeypatch.setattr(held_out_module, "find_spec", lambda name: None)
    assert read_held_out(small.data, "train", small.tokenizer).sources is None


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
    batcher = EvaluationBatcher.of(config, small.tokenizer.eod)
    result = evaluate(model, held_out, batcher, 3, torch.device("cpu"))
    assert values["bits_per_character"] == pytest.approx(result.bits_per_character, rel=1e-6)
    assert values["loss"] == pytest.approx(math.log(small.tokenizer.vocab_size), abs=0.3), "it learned nothing yet"
    assert values["num_tokens"] == len(held_out.tokens)
    assert values["num_characters"] == held_out.num_characters
    for name, bits in character_baselines(POEMS, HELD_OUT).items():
        assert values[f"{name}_bits_per_character"] == pytest.approx(bits)

    assert list(values["sources"]) == ["00000"] and values["sources"]["00000"]["loss"] == values["loss"]
    assert values["perplexity"] == pytest.approx(math.exp(values["loss"]))
    assert values["num_bytes"] == len("".join(HELD_OUT).encode())

    assert main(arguments) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(lines["bits_per_character"]) == pytest.approx(result.bits_per_character, abs=1e-4)


def test_texts_of_ones_own(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"text": POEMS[0], "by": "李白"}, {"text": ""}, {"text": POEMS[1]}, {"text": POEMS[5], "by": "王维"}]
    (tmp_path / "poems.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "one.txt").write_text(POEMS[2])
    files = [str(tmp_path / "poems.jsonl"), str(tmp_path / "one.txt")]
    arguments = ["evaluate", "--checkpoint", str(small.checkpoint), "--device", "cpu", "--text", *files, "--by", "by"]
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    model, config = load_model(small.checkpoint)
    batcher = EvaluationBatcher.of(config, small.tokenizer.eod)
    sources = {"李白": POEMS[0], "poems.jsonl": POEMS[1], "王维": POEMS[5], "one.txt": POEMS[2]}
    texts = [Text(text, source) for source, text in sources.items()]

    def by_hand(stride: int, with_ends: bool = True) -> Evaluation:
        documents = encode_batches(texts, small.tokenizer)
        return evaluate_documents(model, documents, batcher, 2, torch.device("cpu"), None, stride, with_ends)

    whole = by_hand(batcher.sequence_length)
    assert values["bits_per_byte"] == pytest.approx(whole.bits_per_byte) and values["num_empty"] == 1
    assert set(values["sources"]) == set(sources) and "unigram_bits_per_character" not in values
    for name, part in values["sources"].items():
        assert part["bits_per_character"] == pytest.approx(whole.by_source[name].bits_per_character)
        assert part["num_characters"] == len(sources[name])

    assert main([*arguments, "--json", "--stride", "2", "--without-ends", "--data", str(small.data)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["bits_per_byte"] == pytest.approx(by_hand(2, with_ends=False).bits_per_byte)
    assert values["num_tokens"] == sum(len(small.tokenizer.encode(text)) for text in sources.values())
    train = read_held_out(small.data, "train", small.tokenizer).texts
    for name, bits in character_baselines(train, list(sources.values()), with_ends=False).items():
        assert values[f"{name}_bits_per_character"] == pytest.approx(bits)

    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "tokens/s), windows of 6 tokens, 6 of them new" in printed.err
    rows = printed.out.partition("\n\n")[2].splitlines()
    assert [row.split()[0] for row in rows] == ["source", "one.txt", "poems.jsonl", "李白", "王维", "all"]


def test_documents_of_the_split_may_be_read_alone(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--checkpoint", str(small.checkpoint), "--data", str(small.data), "--device", "cpu"]
    assert main([*arguments, "--per-document", "--split", "train", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    model, config = load_model(small.checkpoint)
    held_out = read_held_out(small.data, "train", small.tokenizer)
    batcher = EvaluationBatcher.of(config, small.tokenizer.eod)
    alone = evaluate_documents(model, held_out.documents(), batcher, 2, torch.device("cpu"))
    assert values["bits_per_character"] == pytest.approx(alone.bits_per_character)
    assert list(alone.by_source) == list(values["sources"]) and len(alone.by_source) == 2
    assert main([*arguments, "--stride", "2", "--json"]) == 0
    stream = evaluate(model, read_held_out(small.data, "validation", small.tokenizer), batcher, 2,
                      torch.device("cpu"), stride=2)  # fmt: skip
    assert json.loads(capsys.readouterr().out)["bits_per_character"] == pytest.approx(stream.bits_per_character)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "name what is scored"),
        ("--data D --stride 0", "--stride 0: it must be 1 or more"),
        ("--data D --stride 7", "--stride 7: the model's windows have 6 tokens"),
        ("--data D --by author", "--by FIELD"),
        ("--data D --without-ends", "Add --per-document"),
        ("--text none.txt", "none.txt: there is no such file"),
        ("--data D --micro-batch-size 0", "--micro-batch-size 0: it must be"),
        ("--data D --max-tokens -5", "--max-tokens -5: it must be"),
        ("--data D --nproc 0", "--nproc 0"),
    ],
)
def test_a_mistake_in_usage_is_told(small: Small, capsys: pytest.CaptureFixture[str], words: str, says: str) -> None:
    options = [str(small.data) if word == "D" else word for word in words.split()]
    assert main(["evaluate", "--checkpoint", str(small.checkpoint), "--device", "cpu", *options]) == 2
    assert says in capsys.readouterr().err


def test_without_text_to_learn_from_no_character_model_is_asked(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = small.tokenizer.encode("春眠不觉晓")
    identity = (small.tokenizer.vocab_size, small.tokenizer.eod, small.tokenizer.sha256)
    data = write_folder(tmp_path / "data", {"00000-00-validation": [("0" * 32, None, ids)]}, *identity)
    options = ["--checkpoint", str(small.checkpoint), "--device", "cpu", "--data", str(data), "--json"]
    assert main(["evaluate", *options]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["num_characters"] == 5 and not any("gram" in name for name in values)


def test_training_text_that_is_damaged_is_told_before_anything_is_scored(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(small.data, tmp_path / "data")
    (data / "data/00000-00-train.bin").write_bytes(b"")
    options = ["--checkpoint", str(small.checkpoint), "--device", "cpu", "--data", str(data)]
    assert main(["evaluate", *options]) == 1
    told = capsys.readouterr().err
    assert "00000-00-train" in told and "tokens/s" not in told


def test_a_perplexity_beyond_all_numbers_is_infinite() -> None:
    values = command._values(Evaluation(1100.0 * 4 / math.log(2), 4, 4, 4))
    assert values["loss"] == pytest.approx(1100) and values["perplexity"] == math.inf


def test_files_without_text_are_told(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": ""}\n')
    options = ["--checkpoint", str(small.checkpoint), "--device", "cpu", "--text", str(tmp_path / "x.jsonl")]
    assert main(["evaluate", *options]) == 1
    assert "x.jsonl: hold no text; 1 of their texts are empty" in capsys.readouterr().err


def test_the_table_fits_a_terminal_and_does_not_steer_it() -> None:
    part = Evaluation(1.0e9, 300_000_000, 600_000_000, 1_700_000_000)
    names = {"百科" * 20: part, "\x1b[2J": part, **{f"source {number}": part for number in range(30)}}
    lines = list(table(Evaluation(9.0e9, 2_000_000_000, 4_000_000_000, 9_000_000_000, names)))
    assert len(lines) == 22 and lines[-2].startswith("other ") and lines[-1].startswith("all ")
    assert all(len(line) + sum(character in "百科" for character in line) <= 80 for line in lines)
    assert sum(line.startswith("?[2J" + " " * 17) for line in lines) == 1 and "\x1b" not in "".join(lines)


@pytest.mark.long
def test_two_processes_find_what_one_does(small: Small, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"text": poem}) for poem in POEMS))
    options = ["--checkpoint", str(small.checkpoint), "--device", "cpu", "--text", str(tmp_path / "x.jsonl"), "--json"]
    found = []
    for nproc in ("1", "2"):
        words = [sys.executable, "-m", "pretrain", "evaluate", *options, "--nproc", nproc]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
        found.append(json.loads(done.stdout))
    assert found[1]["sources"]["x.jsonl"] == pytest.approx(found[0]["sources"]["x.jsonl"], rel=1e-5)
